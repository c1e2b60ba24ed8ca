//! The engine driver of TOML scenarios: its users run tasks over HTTP and record every request.
//! The engine decides when a user runs which task.

#[cfg(feature = "browser")]
mod browser_metrics;
#[cfg(feature = "browser")]
mod browser_run;
mod ended_request;
mod flow_run;
mod render;
mod request_runner;
#[cfg(feature = "cql")]
mod statement_run;
#[cfg(feature = "cql")]
mod statement_runner;
mod step_request;
#[cfg(feature = "browser")]
mod thread_browser;
#[cfg(feature = "cql")]
mod thread_database;
mod user;

use squall_engine::{
    Driver, DriverError, DriverThread, RequestsPerIteration, ResourceLease, SharedCounter, ThreadRecorder,
    UserIdentity, UserStart,
};
use squall_http::PreparedRequest;
use squall_metrics::{MetricId, MetricKey};
#[cfg(feature = "browser")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use crate::{
    compiled_scenario::{CompiledFlow, CompiledScenario, CompiledStep, FlowStep},
    data::DataFeeder,
};
#[cfg(feature = "browser")]
pub use browser_metrics::StepFigures;
pub use ended_request::EndedRequest;
use render::{IdleRequests, RenderBuffers};
pub use request_runner::{
    RequestFailure, RequestHandler, RequestRunner, RequestSender, RequestStart, http_error_outcome,
};
#[cfg(feature = "cql")]
pub use statement_runner::{StatementEnd, StatementRunner, record_row_count};
#[cfg(feature = "browser")]
pub use thread_browser::ThreadBrowser;
pub use user::ScenarioUser;

/// A scenario, ready to make load.
#[derive(Debug)]
pub struct ScenarioDriver {
    compiled: Arc<CompiledScenario>,
    /// One for each data source, shared by all threads.
    feeders: Arc<[DataFeeder]>,
    /// Whether a thread checks that the grid of `[browser]` gives sessions.
    #[cfg(feature = "browser")]
    grid_checked: Arc<AtomicBool>,
}

impl ScenarioDriver {
    pub(crate) fn new(compiled: Arc<CompiledScenario>) -> ScenarioDriver {
        let feeders = compiled.data.iter().map(DataFeeder::new).collect();
        ScenarioDriver::with_feeders(compiled, feeders)
    }

    /// The driver of one of several processes of the same run. Unique rows are drawn from the
    /// counters, which the processes share.
    pub(crate) fn with_shared_counters(compiled: Arc<CompiledScenario>) -> (ScenarioDriver, Vec<SharedCounter>) {
        let (feeders, counters): (Vec<_>, Vec<_>) = compiled.data.iter().map(DataFeeder::with_shared_counter).unzip();
        (ScenarioDriver::with_feeders(compiled, feeders.into()), counters.into_iter().flatten().collect())
    }

    fn with_feeders(compiled: Arc<CompiledScenario>, feeders: Arc<[DataFeeder]>) -> ScenarioDriver {
        ScenarioDriver {
            compiled,
            feeders,
            #[cfg(feature = "browser")]
            grid_checked: Arc::default(),
        }
    }
}

impl Driver for ScenarioDriver {
    type Thread = ScenarioThread;

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        let direct = self.compiled.tasks.iter().map(|flow| flow.request_count() as u64).max()?;
        let redirects = u64::from(self.compiled.connector.config().max_redirects);
        self.compiled.on_start.order.is_empty().then_some(RequestsPerIteration { direct, redirects })
    }

    fn user_start(&self) -> UserStart {
        if self.compiled.on_start.order.is_empty() { UserStart::Free } else { UserStart::OnStart }
    }

    fn thread(&self, recorder: ThreadRecorder) -> Result<ScenarioThread, DriverError> {
        let prepare = |flow: &CompiledFlow| PreparedFlow::new(flow, &self.compiled, &recorder);
        let tasks = self.compiled.tasks.iter().map(prepare).collect::<Result<_, _>>()?;
        let on_start = prepare(&self.compiled.on_start)?;
        Ok(ScenarioThread {
            shared: Rc::new(ScenarioThreadState {
                compiled: self.compiled.clone(),
                feeders: self.feeders.clone(),
                recorder,
                #[cfg(feature = "browser")]
                browser: thread_browser::ThreadBrowser::new(&self.compiled.browser),
                #[cfg(feature = "browser")]
                grid_checked: self.grid_checked.clone(),
                #[cfg(feature = "cql")]
                database: thread_database::ThreadDatabase::default(),
                tasks,
                on_start,
                render_buffers: RefCell::default(),
                unusable_leases: RefCell::default(),
            }),
        })
    }
}

/// The driver's part on one engine thread: metrics, prepared requests and buffers.
pub struct ScenarioThread {
    shared: Rc<ScenarioThreadState>,
}

impl DriverThread for ScenarioThread {
    type User = ScenarioUser;

    /// Starts the browser of this thread, or checks the grid, and connects to the database, if a task needs them.
    #[cfg(any(feature = "browser", feature = "cql"))]
    async fn connect(&mut self) -> Result<(), DriverError> {
        let shared = &self.shared;
        #[cfg(feature = "browser")]
        if shared.compiled.tasks.iter().any(|task| !task.browser_steps.is_empty()) {
            let started = shared.browser.start(!shared.grid_checked.swap(true, Relaxed)).await;
            started.map_err(|reason| DriverError::Connect { reason })?;
        }
        #[cfg(feature = "cql")]
        shared.connect_database().await?;
        Ok(())
    }

    fn user(&self, identity: UserIdentity) -> ScenarioUser {
        ScenarioUser::new(self.shared.clone(), identity)
    }
}

/// What the users of one thread have in common.
struct ScenarioThreadState {
    compiled: Arc<CompiledScenario>,
    feeders: Arc<[DataFeeder]>,
    recorder: ThreadRecorder,
    #[cfg(feature = "browser")]
    browser: thread_browser::ThreadBrowser,
    #[cfg(feature = "browser")]
    grid_checked: Arc<AtomicBool>,
    #[cfg(feature = "cql")]
    database: thread_database::ThreadDatabase,
    tasks: Vec<PreparedFlow>,
    on_start: PreparedFlow,
    render_buffers: RefCell<RenderBuffers>,
    /// Leases of resources that cannot be used, kept to the end of the run so that the pool does not
    /// hand them out again.
    unusable_leases: RefCell<Vec<ResourceLease>>,
}

/// A flow, prepared for one thread.
struct PreparedFlow {
    /// The flow is one constant request of which only the status is checked. This is the common case,
    /// and it must not allocate.
    constant: bool,
    spans: Vec<MetricId>,
    steps: Vec<PreparedStep>,
    #[cfg(feature = "cql")]
    statements: Vec<thread_database::PreparedStatement>,
    #[cfg(feature = "browser")]
    browser_steps: Vec<browser_metrics::PreparedBrowserStep>,
}

/// A step, prepared for one thread.
struct PreparedStep {
    metric: MetricId,
    /// Set at the first redirect.
    redirect_metric_id: Cell<Option<MetricId>>,
    group: Option<MetricId>,
    /// The request itself if it is constant, else the original that rendered requests are copied from.
    base_request: PreparedRequest,
    /// Rendered requests that are not in flight, to be reused.
    idle_requests: IdleRequests,
}

impl PreparedFlow {
    fn new(
        flow: &CompiledFlow,
        compiled: &CompiledScenario,
        recorder: &ThreadRecorder,
    ) -> Result<PreparedFlow, DriverError> {
        let constant = match flow.steps.as_slice() {
            [step] => {
                flow.statements.is_empty() && flow.spans.is_empty() && flow.timeout.is_none() && is_constant(step)
            }
            _ => false,
        };
        // Registered in the order of the steps, which reports keep.
        for step in &flow.order {
            recorder.metric(flow.metric(*step).clone());
        }
        let spans = flow.spans.iter().map(|name| recorder.metric(MetricKey::group(name))).collect();
        let steps = flow.steps.iter().map(|step| PreparedStep::new(step, compiled, recorder));
        Ok(PreparedFlow {
            constant,
            spans,
            steps: steps.collect::<Result<_, _>>()?,
            #[cfg(feature = "cql")]
            statements: {
                let prepare = |statement| thread_database::PreparedStatement::new(statement, recorder);
                flow.statements.iter().map(prepare).collect()
            },
            #[cfg(feature = "browser")]
            browser_steps: {
                let prepare = |step| browser_metrics::PreparedBrowserStep::new(step, recorder);
                flow.browser_steps.iter().map(prepare).collect()
            },
        })
    }

    /// The metric and the group of a step.
    fn metric_and_group(&self, step: FlowStep) -> (MetricId, Option<MetricId>) {
        match step {
            FlowStep::Request(at) => (self.steps[at].metric, self.steps[at].group),
            #[cfg(feature = "cql")]
            FlowStep::Statement(at) => (self.statements[at].metric, self.statements[at].group),
            #[cfg(not(feature = "cql"))]
            FlowStep::Statement(_) => unreachable!("no statement is built without the feature"),
        }
    }

    /// The metric of the first step of `flow`.
    fn first_metric(&self, flow: &CompiledFlow) -> Option<MetricId> {
        let first = flow.order.first().map(|step| self.metric_and_group(*step).0);
        #[cfg(feature = "browser")]
        let first = first.or_else(|| self.browser_steps.first().map(|step| step.metric));
        first
    }
}

fn is_constant(step: &CompiledStep) -> bool {
    step.request.template.is_none()
        && step.checks.checks_only_status()
        && step.extracts.is_empty()
        && step.think.is_none()
        && step.group.is_none()
}

impl PreparedStep {
    fn new(
        step: &CompiledStep,
        compiled: &CompiledScenario,
        recorder: &ThreadRecorder,
    ) -> Result<PreparedStep, DriverError> {
        let prepared = PreparedRequest::new(&step.request.constant, &compiled.connector);
        Ok(PreparedStep {
            metric: recorder.metric(step.metric.clone()),
            redirect_metric_id: Cell::new(None),
            group: step.group.as_ref().map(|group| recorder.metric(MetricKey::group(group))),
            base_request: prepared.map_err(|error| DriverError::Request {
                request: step.metric.name.clone(),
                reason: error.to_string(),
            })?,
            idle_requests: IdleRequests::default(),
        })
    }

    /// The metric of requests after a redirect. Made at the first redirect, because most steps see none.
    fn redirect_metric(&self, step: &CompiledStep, recorder: &ThreadRecorder) -> MetricId {
        self.redirect_metric_id.get().unwrap_or_else(|| {
            let name = format!("{} (redirect)", step.metric.name);
            let id = recorder.metric(MetricKey { name, ..step.metric.clone() });
            self.redirect_metric_id.set(Some(id));
            id
        })
    }
}
