//! The engine's driver for Python scenarios. It sets up each engine thread and holds the state that
//! the users of a thread share: routes, metrics, clients and the asyncio loop. It does not decide
//! when a user runs or which task it runs. The engine calls it.

mod asyncio_call;
mod function_call;
mod python_request;
mod thread_call;
mod user;

use pyo3::prelude::*;
use squall_engine::{Driver, DriverError, DriverThread, ThreadDeadline, ThreadRecorder, UserIdentity, UserStart};
use squall_metrics::{MetricId, MetricKey, MetricKind, Outcome, OutcomeCategory};
use squall_model::protocol::GroupName;
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Builder;

#[cfg(feature = "cql")]
use crate::cql::ThreadDatabase;
use crate::{
    asyncio_loop::AsyncioLoop,
    attach,
    blocking_threads::{BlockingThreads, ThreadPermit},
    client::Client,
    custom_metrics,
    function_stepper::IdleFibers,
    python_scenario::{
        ConstantRequest, FunctionKind, PythonScenario, ScenarioFunction, ScenarioTask, ThreadsForBlocking,
    },
    routes::{RoutedRequest, Routes},
    watchdog::{self, BlockingStep, PlainSwitch},
};
pub(crate) use python_request::{OpenedResponse, OpeningCall, RedirectMode, open_response};
pub(crate) use squall_scenario::http_error_outcome;
pub(crate) use user::PythonUser;

/// Runs the users of a Python scenario.
pub(crate) struct PythonDriver {
    scenario: Arc<PythonScenario>,
}

impl PythonDriver {
    pub(crate) fn new(scenario: Arc<PythonScenario>) -> PythonDriver {
        PythonDriver { scenario }
    }
}

/// A constant request cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {method} {url} cannot be sent: {reason}")]
pub(crate) struct ConstantRequestError {
    /// File and line of the request.
    place: String,
    method: String,
    url: String,
    /// The exception of the client.
    reason: String,
}

/// Rejects a scenario if one of its constant requests cannot be sent: every iteration of that task
/// would fail.
pub(crate) fn check_constant_requests(py: Python<'_>, scenario: &PythonScenario) -> Result<(), ConstantRequestError> {
    let routes = Routes::new(scenario.connector.clone(), scenario.base.clone(), scenario.headers.clone());
    constant_requests(py, scenario, &routes).map(drop)
}

impl Driver for PythonDriver {
    type Thread = PythonThread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<PythonThread, DriverError> {
        custom_metrics::set_thread_recorder(&recorder, &self.scenario.prefix);
        let scenario = self.scenario.clone();
        let routes = Routes::new(scenario.connector.clone(), scenario.base.clone(), scenario.headers.clone());
        let clients = Python::attach(|py| ThreadClients::new(py, &scenario, &routes))
            .map_err(|error| DriverError::Client { reason: error.to_string() })?;
        let task_metrics = scenario
            .tasks
            .iter()
            .map(|task| recorder.metric(MetricKey::group(scenario.full_metric_name(&task.name))))
            .collect();
        let constant_requests = Python::attach(|py| constant_requests(py, &scenario, &routes))
            .map_err(|error| DriverError::PythonRequest { reason: error.to_string() })?;
        let asyncio_loop = match scenario.on_asyncio {
            true => Some(
                Python::attach(|py| {
                    let (recorder, scenario) = (recorder.clone(), scenario.clone());
                    AsyncioLoop::start(py, longest_task_timeout(&scenario), move |step| {
                        record_blocking_step(&recorder, &scenario, step, "code on asyncio")
                    })
                })
                .map_err(|error| DriverError::EventLoop { reason: error.to_string() })?,
            ),
            false => None,
        };
        #[cfg(feature = "browser")]
        if scenario.on_asyncio {
            let names = (scenario.prefix.as_str(), scenario.base.as_str());
            crate::browser_users::ThreadBrowsers::set_up(&scenario.browser, &recorder, names);
        }
        let settings = scenario.threads_for_blocking;
        let blocking_threads = BlockingThreads::new(settings.limit());
        let plain_on_threads = Arc::new(AtomicBool::new(matches!(settings, ThreadsForBlocking::Always(_))));
        if let ThreadsForBlocking::WhenBlocked(limit) = settings {
            watchdog::switch_when_plain_code_blocks(PlainSwitch { on: plain_on_threads.clone(), limit });
        }
        Ok(PythonThread {
            context: Rc::new(PythonThreadContext {
                scenario,
                routes,
                recorder,
                task_metrics,
                lifecycle_metrics: RefCell::default(),
                route_metrics: RefCell::default(),
                clients,
                #[cfg(feature = "cql")]
                database: std::cell::OnceCell::new(),
                idle_fibers: IdleFibers::default(),
                constant_requests,
                last_blocking_code: RefCell::new("asyncio".to_owned()),
                asyncio_loop,
                blocking_threads,
                plain_on_threads,
            }),
        })
    }

    fn user_start(&self) -> UserStart {
        match (self.scenario.on_start.is_empty(), self.scenario.begins_like_loadpilot) {
            (true, _) => UserStart::Free,
            (false, false) => UserStart::OnStart,
            (false, true) => UserStart::OnStartAtOnce,
        }
    }

    fn run_thread<R>(
        &self,
        deadline: &ThreadDeadline,
        runtime: &mut Builder,
        thread_main: impl FnOnce(&mut Builder) -> R,
    ) -> R {
        match self.scenario.needs_python {
            true => attach::run_attached(deadline, runtime, thread_main),
            false => thread_main(runtime),
        }
    }
}

/// The driver on one engine thread.
pub(crate) struct PythonThread {
    context: Rc<PythonThreadContext>,
}

impl DriverThread for PythonThread {
    type User = PythonUser;

    /// Connects this thread to the database, starts its browser and connects Playwright to it, as far as
    /// the scenario needs them.
    #[cfg(any(feature = "browser", feature = "cql"))]
    async fn connect(&mut self) -> Result<(), DriverError> {
        #[cfg(feature = "cql")]
        if let Some(connection) = &self.context.scenario.cql {
            let connected = self.context.database.set(ThreadDatabase::connect(connection).await?);
            connected.map_err(|_| DriverError::Connect { reason: "connected twice".to_owned() })?;
        }
        #[cfg(feature = "browser")]
        if let Some(asyncio_loop) = &self.context.asyncio_loop
            && self.context.scenario.uses_browser
        {
            asyncio_loop.connect_browser().await.map_err(|reason| DriverError::Connect { reason })?;
        }
        Ok(())
    }

    fn user(&self, identity: UserIdentity) -> PythonUser {
        PythonUser::new(self.context.clone(), identity)
    }
}

#[cfg(feature = "browser")]
impl Drop for PythonThreadContext {
    fn drop(&mut self) {
        // The loop ends Playwright's driver, which counts as the generator's until then.
        drop(self.asyncio_loop.take());
        crate::browser_users::ThreadBrowsers::tear_down();
    }
}

/// The state that the users of one thread share.
pub(crate) struct PythonThreadContext {
    scenario: Arc<PythonScenario>,
    routes: Routes,
    recorder: ThreadRecorder,
    /// The span metric of each task, by task index.
    task_metrics: Vec<MetricId>,
    /// The span metrics of `on_start` and `on_stop`. Each is registered when a hook first fails or
    /// is aborted.
    lifecycle_metrics: RefCell<HashMap<&'static str, MetricId>>,
    /// The request metric of each route, by route number. Registered with the first request.
    route_metrics: RefCell<Vec<Option<MetricId>>>,
    clients: ThreadClients,
    /// Set by `connect`, if the scenario declares a database.
    #[cfg(feature = "cql")]
    database: std::cell::OnceCell<ThreadDatabase>,
    idle_fibers: IdleFibers,
    /// The prepared requests of each task, by task index; `None` if the task is not constant.
    constant_requests: Vec<Option<Vec<RoutedRequest>>>,
    /// The name of the function that last blocked the thread for long enough to delay responses.
    last_blocking_code: RefCell<String>,
    /// `None` if the scenario does not run on asyncio.
    asyncio_loop: Option<AsyncioLoop>,
    /// The threads of plain functions, once those run on threads.
    blocking_threads: BlockingThreads,
    /// Whether plain functions run on threads. The watchdog sets it when one has blocked.
    plain_on_threads: Arc<AtomicBool>,
}

/// The clients for coroutines and for plain functions. A client holds no state of a user, so all
/// users of a thread share these two.
struct ThreadClients {
    awaited: Py<Client>,
    blocking: Py<PyAny>,
}

impl ThreadClients {
    fn new(py: Python<'_>, scenario: &PythonScenario, routes: &Routes) -> PyResult<ThreadClients> {
        let awaited = Bound::new(py, Client::new(routes.clone(), None))?;
        let blocking = scenario.blocking_client.bind(py).call1((&awaited,))?;
        Ok(ThreadClients { awaited: awaited.unbind(), blocking: blocking.unbind() })
    }

    fn for_kind(&self, kind: FunctionKind) -> &Py<PyAny> {
        match kind {
            FunctionKind::Coroutine => self.awaited.as_any(),
            FunctionKind::Plain => &self.blocking,
        }
    }
}

impl PythonThreadContext {
    fn metric(&self, call: &RoutedRequest) -> MetricId {
        let Some(route) = call.route else {
            return self.request_metric(&call.name);
        };
        let mut metrics = self.route_metrics.borrow_mut();
        if metrics.len() <= route {
            metrics.resize(route + 1, None);
        }
        *metrics[route].get_or_insert_with(|| self.request_metric(&call.name))
    }

    /// Waits for the thread that `function` needs; `None` if it needs none.
    async fn acquire_thread(&self, function: &ScenarioFunction) -> Option<ThreadPermit> {
        match function.kind == FunctionKind::Plain && self.plain_on_threads.load(Relaxed) {
            true => Some(self.blocking_threads.acquire().await),
            false => None,
        }
    }

    #[cfg(feature = "cql")]
    pub(crate) fn database(&self) -> Option<&ThreadDatabase> {
        self.database.get()
    }

    pub(crate) fn recorder(&self) -> &ThreadRecorder {
        &self.recorder
    }

    /// The metric of the requests named `name`.
    pub(crate) fn request_metric(&self, name: &str) -> MetricId {
        self.recorder.metric(MetricKey::request(self.scenario.full_metric_name(name)))
    }

    /// The metric of the spans named `name`, which are not requests.
    pub(crate) fn custom_metric(&self, name: &str) -> MetricId {
        let key = MetricKey::request(self.scenario.full_metric_name(name));
        self.recorder.metric(MetricKey { kind: MetricKind::Custom, ..key })
    }

    fn record_blocking_step(&self, step: &BlockingStep, name: &str) {
        record_blocking_step(&self.recorder, &self.scenario, step, name);
    }

    #[cold]
    fn note_blocking_code(&self, name: &str) {
        name.clone_into(&mut self.last_blocking_code.borrow_mut());
    }

    /// Records that other code blocked the thread for `blocked` while a request was in flight. The
    /// response may have arrived long before `ended`, when the thread could read it.
    #[cold]
    fn record_delayed_response(&self, blocked: Duration, ended: Instant) {
        let name = GroupName::HeldBy(&self.last_blocking_code.borrow()).to_string();
        let metric = self.recorder.metric(MetricKey::group(self.scenario.full_metric_name(&name)));
        self.recorder.record_span(metric, ended - blocked, ended, Outcome::new(OutcomeCategory::Ok, "OK"));
    }

    fn lifecycle_metric(&self, name: &'static str) -> MetricId {
        *self
            .lifecycle_metrics
            .borrow_mut()
            .entry(name)
            .or_insert_with(|| self.recorder.metric(MetricKey::group(self.scenario.full_metric_name(name))))
    }
}

/// Records that code of `name` blocked its thread, so that no other user of the thread could run.
#[cold]
fn record_blocking_step(recorder: &ThreadRecorder, scenario: &PythonScenario, step: &BlockingStep, name: &str) {
    let metric = recorder.metric(MetricKey::group(scenario.full_metric_name(&GroupName::HeldThread.to_string())));
    let outcome = Outcome::new(OutcomeCategory::Exception, "HELD_THREAD");
    let message = format!(
        "{name} held the generator's thread at {}, so no other user of that thread could run: use squall.sleep, the \
         client, or an executor",
        step.location
    );
    recorder.note_error(metric, step.since, outcome, &message);
    recorder.record_span(metric, step.since, Instant::now(), outcome);
}

/// The longest timeout of all tasks; `None` if a task has no timeout. The asyncio loop uses it for
/// every step, because it does not know which task's code a step runs.
fn longest_task_timeout(scenario: &PythonScenario) -> Option<Duration> {
    scenario
        .tasks
        .iter()
        .map(|task| task.timeout)
        .max()
        .flatten()
        .filter(|_| scenario.tasks.iter().all(|task| task.timeout.is_some()))
}

/// Renders the requests of constant tasks for this thread, by task index.
fn constant_requests(
    py: Python<'_>,
    scenario: &PythonScenario,
    routes: &Routes,
) -> Result<Vec<Option<Vec<RoutedRequest>>>, ConstantRequestError> {
    let client = Client::new(routes.clone(), None);
    let render = |(method, url, options, place): &ConstantRequest| {
        client.render(method, url, options.bind(py)).map_err(|error: PyErr| ConstantRequestError {
            place: place.clone(),
            method: method.clone(),
            url: url.clone(),
            reason: error.value(py).to_string(),
        })
    };
    let render_task =
        |task: &ScenarioTask| task.requests.as_ref().map(|requests| requests.iter().map(render).collect()).transpose();
    scenario.tasks.iter().map(render_task).collect()
}

/// The name of an exception class as the code of an outcome. Codes are static, so the names are
/// leaked. To bound that memory, further classes share the code `EXCEPTION` once the table is full.
pub(crate) fn exception_code(name: &str) -> &'static str {
    const MAX_NAMES: usize = 256;
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    if names.len() >= MAX_NAMES {
        return "EXCEPTION";
    }
    let leaked: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.push(leaked);
    leaked
}
