//! Runs the tasks of a scenario over HTTP and records what became of every request. Decides neither when nor which: that is the
//! engine's.

mod exchange;
mod flow_run;
mod render;
mod request_guard;
mod user;

use squall_engine::{
    Driver, DriverError, DriverThread, RequestsPerIteration, ResourceLease, SharedCounter, ThreadRecorder, UserIdentity,
};
use squall_http::PreparedRequest;
use squall_metrics::{MetricId, MetricKey};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use crate::{
    compiled_scenario::{CompiledFlow, CompiledScenario, CompiledStep},
    data::DataFeeder,
};
use render::RenderBuffers;
pub use request_guard::RequestGuard;
pub use user::ScenarioUser;

/// A scenario, ready to make load.
#[derive(Debug)]
pub struct ScenarioDriver {
    compiled: Arc<CompiledScenario>,
    /// One for each data source; all threads deal from the same.
    feeders: Arc<[DataFeeder]>,
}

impl ScenarioDriver {
    pub(crate) fn new(program: Arc<CompiledScenario>) -> ScenarioDriver {
        let dealers = program.data.iter().map(DataFeeder::new).collect();
        ScenarioDriver { compiled: program, feeders: dealers }
    }

    /// One of several that make the same run.
    pub(crate) fn with_shared_counters(program: Arc<CompiledScenario>) -> (ScenarioDriver, Vec<SharedCounter>) {
        let (dealers, rations): (Vec<_>, Vec<_>) = program.data.iter().map(DataFeeder::with_shared_counter).unzip();
        (ScenarioDriver { compiled: program, feeders: dealers.into() }, rations.into_iter().flatten().collect())
    }
}

impl Driver for ScenarioDriver {
    type Thread = ScenarioThread;

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        let own = self.compiled.tasks.iter().map(|flow| flow.steps.len() as u64).max()?;
        let hops = u64::from(self.compiled.connector.config().max_redirects);
        self.compiled.on_start.steps.is_empty().then_some(RequestsPerIteration { direct: own, redirects: hops })
    }

    fn thread(&self, probe: ThreadRecorder) -> Result<ScenarioThread, DriverError> {
        let lane = |flow: &CompiledFlow| PreparedFlow::new(flow, &self.compiled, &probe);
        let tasks = self.compiled.tasks.iter().map(lane).collect::<Result<_, _>>()?;
        let on_start = lane(&self.compiled.on_start)?;
        let (program, dealers) = (self.compiled.clone(), self.feeders.clone());
        let scratch = RefCell::new(RenderBuffers::default());
        let unusable = RefCell::default();
        Ok(ScenarioThread {
            shared: Rc::new(ScenarioThreadState {
                compiled: program,
                feeders: dealers,
                recorder: probe,
                tasks,
                on_start,
                render_buffers: scratch,
                unusable_leases: unusable,
            }),
        })
    }
}

/// One engine thread's share: metrics, prepared requests and buffers.
pub struct ScenarioThread {
    shared: Rc<ScenarioThreadState>,
}

impl DriverThread for ScenarioThread {
    type User = ScenarioUser;

    fn user(&self, seat: UserIdentity) -> ScenarioUser {
        ScenarioUser::new(self.shared.clone(), seat)
    }
}

/// What the users of one thread have in common.
struct ScenarioThreadState {
    compiled: Arc<CompiledScenario>,
    feeders: Arc<[DataFeeder]>,
    recorder: ThreadRecorder,
    tasks: Vec<PreparedFlow>,
    on_start: PreparedFlow,
    render_buffers: RefCell<RenderBuffers>,
    /// What was lent and cannot be used: held until the run is over, so that nobody is handed it again.
    unusable_leases: RefCell<Vec<ResourceLease>>,
}

/// A flow on this thread.
struct PreparedFlow {
    /// One constant request of which only the status matters: the common case, and the one that must cost nothing.
    fast_path: bool,
    spans: Vec<MetricId>,
    steps: Vec<PreparedStep>,
}

/// A step on this thread.
struct PreparedStep {
    metric: MetricId,
    /// Known once a redirect was seen.
    redirect_metric_id: Cell<Option<MetricId>>,
    group: Option<MetricId>,
    /// The request as it is sent if it is constant, else what others are copied from.
    prepared: PreparedRequest,
    /// Rendered requests that are not in flight.
    idle_requests: RefCell<Vec<PreparedRequest>>,
}

impl PreparedFlow {
    fn new(
        flow: &CompiledFlow,
        program: &CompiledScenario,
        probe: &ThreadRecorder,
    ) -> Result<PreparedFlow, DriverError> {
        let plain = match flow.steps.as_slice() {
            [step] => flow.spans.is_empty() && flow.timeout.is_none() && allows_fast_path(step),
            _ => false,
        };
        let span = |name: &String| probe.metric(MetricKey::group(name));
        let spans = flow.spans.iter().map(span).collect();
        let steps = flow.steps.iter().map(|step| PreparedStep::new(step, program, probe)).collect::<Result<_, _>>()?;
        Ok(PreparedFlow { fast_path: plain, spans, steps })
    }
}

fn allows_fast_path(step: &CompiledStep) -> bool {
    step.request.template.is_none()
        && step.checks.checks_only_status()
        && step.extracts.is_empty()
        && step.think.is_none()
        && step.group.is_none()
}

impl PreparedStep {
    fn new(
        step: &CompiledStep,
        program: &CompiledScenario,
        probe: &ThreadRecorder,
    ) -> Result<PreparedStep, DriverError> {
        let prepared = PreparedRequest::new(&step.request.constant, &program.connector);
        Ok(PreparedStep {
            metric: probe.metric(step.metric.clone()),
            redirect_metric_id: Cell::new(None),
            group: step.group.as_ref().map(|group| probe.metric(MetricKey::group(group))),
            prepared: prepared.map_err(|error| DriverError::Request {
                request: step.metric.name.clone(),
                reason: error.to_string(),
            })?,
            idle_requests: RefCell::new(Vec::new()),
        })
    }

    /// Where the hops after a redirect are recorded.
    fn redirect_metric(&self, step: &CompiledStep, probe: &ThreadRecorder) -> MetricId {
        self.redirect_metric_id.get().unwrap_or_else(|| {
            let name = format!("{} (redirect)", step.metric.name);
            let id = probe.metric(MetricKey { name, ..step.metric.clone() });
            self.redirect_metric_id.set(Some(id));
            id
        })
    }
}
