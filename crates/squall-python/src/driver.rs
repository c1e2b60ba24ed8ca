//! The Python driver of the engine: one thread's users share routes, metrics and the interpreter's attachment. Decides neither when
//! nor which task runs.

mod asyncio_call;
mod function_call;
mod unjudged_response;
mod user;

use pyo3::prelude::*;
use squall_engine::{Driver, DriverError, DriverThread, ThreadDeadline, ThreadRecorder, UserIdentity};
use squall_http::Cookies;
use squall_metrics::{MetricId, MetricKey, Outcome, OutcomeCategory};
use squall_model::protocol::GroupName;
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::runtime::Builder;

use crate::{
    asyncio_loop::AsyncioLoop,
    attach,
    client::Client,
    custom_metrics,
    function_stepper::IdleFibers,
    long_operation::OperationContext,
    python_scenario::{ConstantRequest, FunctionKind, PythonScenario, ScenarioTask},
    routes::{PreparedCall, Routes},
    watchdog::BlockingStep,
};
pub(crate) use function_call::http_error_outcome;
pub(crate) use user::PythonUser;

/// A Python scenario, ready to make load.
pub(crate) struct PythonDriver {
    script: Arc<PythonScenario>,
}

impl PythonDriver {
    pub(crate) fn new(script: Arc<PythonScenario>) -> PythonDriver {
        PythonDriver { script }
    }
}

/// Refuses a scenario with a constant request that cannot be sent: it would fail whenever it is made.
pub(crate) fn check_constant_requests(py: Python<'_>, script: &PythonScenario) -> Result<(), String> {
    let routes = Routes::new(script.connector.clone(), script.base.clone(), script.headers.clone());
    constant_calls(py, script, &routes).map(drop)
}

impl Driver for PythonDriver {
    type Thread = PythonThread;

    fn thread(&self, probe: ThreadRecorder) -> Result<PythonThread, DriverError> {
        custom_metrics::set_thread_recorder(&probe, &self.script.prefix);
        let script = self.script.clone();
        let routes = Routes::new(script.connector.clone(), script.base.clone(), script.headers.clone());
        let clients = Python::attach(|py| ThreadClients::new(py, &script, &routes))
            .map_err(|error| DriverError::Client { reason: error.to_string() })?;
        let tasks = script
            .tasks
            .iter()
            .map(|task| probe.metric(MetricKey::group(script.full_metric_name(&task.name))))
            .collect();
        let lifecycle = RefCell::default();
        let metrics = RefCell::default();
        let constant = Python::attach(|py| constant_calls(py, &script, &routes))
            .map_err(|reason| DriverError::ScriptRequest { reason })?;
        let guest = match script.on_asyncio {
            true => Some(
                Python::attach(|py| {
                    let (probe, script) = (probe.clone(), script.clone());
                    AsyncioLoop::start(py, longest_task_timeout(&script), move |held| {
                        record_blocking_step(&probe, &script, held, "code on asyncio")
                    })
                })
                .map_err(|error| DriverError::EventLoop { reason: error.to_string() })?,
            ),
            false => None,
        };
        Ok(PythonThread {
            context: Rc::new(PythonThreadContext {
                script,
                routes,
                recorder: probe,
                task_metrics: tasks,
                lifecycle_metrics: lifecycle,
                route_metrics: metrics,
                clients,
                idle_fibers: IdleFibers::default(),
                constant_calls: constant,
                last_blocking_code: RefCell::new("asyncio".to_owned()),
                asyncio_loop: guest,
            }),
        })
    }

    fn run_thread<R>(&self, curfew: &ThreadDeadline, runtime: &mut Builder, life: impl FnOnce(&mut Builder) -> R) -> R {
        match self.script.needs_python {
            true => attach::run_attached(curfew, runtime, life),
            false => life(runtime),
        }
    }
}

/// One engine thread's share.
pub(crate) struct PythonThread {
    context: Rc<PythonThreadContext>,
}

impl DriverThread for PythonThread {
    type User = PythonUser;

    fn user(&self, seat: UserIdentity) -> PythonUser {
        PythonUser::new(self.context.clone(), seat)
    }
}

/// What the users of one thread have in common.
struct PythonThreadContext {
    script: Arc<PythonScenario>,
    routes: Routes,
    recorder: ThreadRecorder,
    /// The span of each task.
    task_metrics: Vec<MetricId>,
    /// The spans of on_start and on_stop, once something is to be said of them.
    lifecycle_metrics: RefCell<HashMap<&'static str, MetricId>>,
    /// Of each route.
    route_metrics: RefCell<Vec<Option<MetricId>>>,
    clients: ThreadClients,
    idle_fibers: IdleFibers,
    /// The requests of each task that is constant.
    constant_calls: Vec<Option<Vec<PreparedCall>>>,
    /// Whose code kept the thread last, for long enough to matter.
    last_blocking_code: RefCell<String>,
    /// The asyncio loop, where the scenario needs one.
    asyncio_loop: Option<AsyncioLoop>,
}

/// Clients keep nothing of a user, so all users of a thread have the same two.
struct ThreadClients {
    awaited: Py<Client>,
    blocking: Py<PyAny>,
}

impl ThreadClients {
    fn new(py: Python<'_>, script: &PythonScenario, routes: &Routes) -> PyResult<ThreadClients> {
        let awaited = Bound::new(py, Client::new(routes.clone(), None))?;
        let blocking = script.blocking_client.bind(py).call1((&awaited,))?;
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
    fn metric(&self, call: &PreparedCall) -> MetricId {
        let Some(route) = call.route else {
            return self.request_metric(&call.name);
        };
        let mut metrics = self.route_metrics.borrow_mut();
        if metrics.len() <= route {
            metrics.resize(route + 1, None);
        }
        *metrics[route].get_or_insert_with(|| self.request_metric(&call.name))
    }

    fn operation_context(&self, cookies: &Cookies) -> OperationContext<'_> {
        OperationContext { recorder: &self.recorder, cookies: cookies.clone(), prefix: &self.script.prefix }
    }

    /// The series of requests of this name.
    fn request_metric(&self, name: &str) -> MetricId {
        self.recorder.metric(MetricKey::request(self.script.full_metric_name(name)))
    }

    fn record_blocking_step(&self, held: &BlockingStep, name: &str) {
        record_blocking_step(&self.recorder, &self.script, held, name);
    }

    #[cold]
    fn note_blocking_code(&self, name: &str) {
        name.clone_into(&mut self.last_blocking_code.borrow_mut());
    }

    /// Takes note that an answer may have been there before anybody could look: code of others kept the thread for `held`.
    #[cold]
    fn record_delayed_response(&self, held: Duration, ended: Instant) {
        let name = GroupName::HeldBy(&self.last_blocking_code.borrow()).to_string();
        let metric = self.recorder.metric(MetricKey::group(self.script.full_metric_name(&name)));
        self.recorder.record_span(metric, ended - held, ended, Outcome::new(OutcomeCategory::Ok, "OK"));
    }

    fn lifecycle_metric(&self, name: &'static str) -> MetricId {
        *self
            .lifecycle_metrics
            .borrow_mut()
            .entry(name)
            .or_insert_with(|| self.recorder.metric(MetricKey::group(self.script.full_metric_name(name))))
    }
}

/// Tells that code of `name` kept its thread, and everybody on it, from going on.
#[cold]
fn record_blocking_step(probe: &ThreadRecorder, script: &PythonScenario, held: &BlockingStep, name: &str) {
    let metric = probe.metric(MetricKey::group(script.full_metric_name("(held thread)")));
    let outcome = Outcome::new(OutcomeCategory::Exception, "HELD_THREAD");
    let words = format!(
        "{name} held the generator's thread at {}: no other user could run meanwhile (use squall.sleep, the client, or an \
         executor)",
        held.location
    );
    probe.note_error(metric, outcome, &words);
    probe.record_span(metric, held.since, Instant::now(), outcome);
}

/// The timeout of the most patient task; on the loop nobody knows whose code runs.
fn longest_task_timeout(script: &PythonScenario) -> Option<Duration> {
    script
        .tasks
        .iter()
        .map(|task| task.timeout)
        .max()
        .flatten()
        .filter(|_| script.tasks.iter().all(|task| task.timeout.is_some()))
}

/// What constant tasks send, rendered for this thread.
fn constant_calls(
    py: Python<'_>,
    script: &PythonScenario,
    routes: &Routes,
) -> Result<Vec<Option<Vec<PreparedCall>>>, String> {
    let client = Client::new(routes.clone(), None);
    let call = |(method, url, options, place): &ConstantRequest| {
        let unsendable = |error: PyErr| format!("{place}: {method} {url} cannot be sent: {}", error.value(py));
        client.render(method, url, options.bind(py)).map_err(unsendable)
    };
    let calls =
        |task: &ScenarioTask| task.requests.as_ref().map(|requests| requests.iter().map(call).collect()).transpose();
    script.tasks.iter().map(calls).collect()
}

/// The name of an exception class as an outcome's code. Codes are static, so names are kept for ever; there are only so many
/// classes, and past a limit they share one word.
pub(crate) fn exception_code(name: &str) -> &'static str {
    const MOST: usize = 256;
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    if names.len() >= MOST {
        return "EXCEPTION";
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.push(kept);
    kept
}
