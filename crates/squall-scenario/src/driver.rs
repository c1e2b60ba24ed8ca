//! Runs the tasks of a scenario over HTTP and records what became of every request. Decides neither when nor which: that is the
//! engine's.

mod aloft;
mod exchange;
mod flow;
mod render;
mod user;

use squall_engine::{Driver, DriverError, DriverThread, ResourceLease, ThreadRecorder, SharedCounter, RequestsPerIteration, UserIdentity};
use squall_http::PreparedRequest;
use squall_metrics::{MetricId, MetricKey};
use squall_model::Segment;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use crate::{
    data::Dealer,
    program::{Flow, Program, Step},
};
pub use aloft::Aloft;
use render::Scratch;
pub use user::ScenarioUser;

/// A scenario, ready to make load.
#[derive(Debug)]
pub struct ScenarioDriver {
    program: Arc<Program>,
    /// One for each data source; all threads deal from the same.
    dealers: Arc<[Dealer]>,
}

impl ScenarioDriver {
    pub(crate) fn new(program: Arc<Program>, segment: Segment) -> ScenarioDriver {
        let dealers = program.data.iter().map(|table| Dealer::new(table, segment)).collect();
        ScenarioDriver { program, dealers }
    }

    /// One of several that make the same run.
    pub(crate) fn rationed(program: Arc<Program>) -> (ScenarioDriver, Vec<SharedCounter>) {
        let (dealers, rations): (Vec<_>, Vec<_>) = program.data.iter().map(Dealer::rationed).unzip();
        (ScenarioDriver { program, dealers: dealers.into() }, rations.into_iter().flatten().collect())
    }
}

impl Driver for ScenarioDriver {
    type Thread = ScenarioThread;

    fn requests_per_iteration(&self) -> Option<RequestsPerIteration> {
        let own = self.program.tasks.iter().map(|flow| flow.steps.len() as u64).max()?;
        let hops = u64::from(self.program.connector.config().max_redirects);
        self.program.on_start.steps.is_empty().then_some(RequestsPerIteration { direct: own, redirects: hops })
    }

    fn thread(&self, probe: ThreadRecorder) -> Result<ScenarioThread, DriverError> {
        let lane = |flow: &Flow| Lane::new(flow, &self.program, &probe);
        let tasks = self.program.tasks.iter().map(lane).collect::<Result<_, _>>()?;
        let on_start = lane(&self.program.on_start)?;
        let (program, dealers) = (self.program.clone(), self.dealers.clone());
        let scratch = RefCell::new(Scratch::default());
        let unusable = RefCell::default();
        Ok(ScenarioThread { shared: Rc::new(Shared { program, dealers, probe, tasks, on_start, scratch, unusable }) })
    }
}

/// One engine thread's share: metrics, prepared requests and buffers.
pub struct ScenarioThread {
    shared: Rc<Shared>,
}

impl DriverThread for ScenarioThread {
    type User = ScenarioUser;

    fn user(&self, seat: UserIdentity) -> ScenarioUser {
        ScenarioUser::new(self.shared.clone(), seat)
    }
}

/// What the users of one thread have in common.
struct Shared {
    program: Arc<Program>,
    dealers: Arc<[Dealer]>,
    probe: ThreadRecorder,
    tasks: Vec<Lane>,
    on_start: Lane,
    scratch: RefCell<Scratch>,
    /// What was lent and cannot be used: held until the run is over, so that nobody is handed it again.
    unusable: RefCell<Vec<ResourceLease>>,
}

/// A flow on this thread.
struct Lane {
    /// One constant request of which only the status matters: the common case, and the one that must cost nothing.
    plain: bool,
    spans: Vec<MetricId>,
    steps: Vec<LaneStep>,
}

/// A step on this thread.
struct LaneStep {
    metric: MetricId,
    /// Known once a redirect was seen.
    redirect: Cell<Option<MetricId>>,
    group: Option<MetricId>,
    /// The request as it is sent if it is constant, else what others are copied from.
    prepared: PreparedRequest,
    /// Rendered requests that are not in flight.
    idle: RefCell<Vec<PreparedRequest>>,
}

impl Lane {
    fn new(flow: &Flow, program: &Program, probe: &ThreadRecorder) -> Result<Lane, DriverError> {
        let plain = match flow.steps.as_slice() {
            [step] => flow.spans.is_empty() && flow.timeout.is_none() && is_plain(step),
            _ => false,
        };
        let span = |name: &String| probe.metric(MetricKey::group(name));
        let spans = flow.spans.iter().map(span).collect();
        let steps = flow.steps.iter().map(|step| LaneStep::new(step, program, probe)).collect::<Result<_, _>>()?;
        Ok(Lane { plain, spans, steps })
    }
}

fn is_plain(step: &Step) -> bool {
    step.request.dynamic.is_none()
        && step.checks.only_status()
        && step.extracts.is_empty()
        && step.think.is_none()
        && step.group.is_none()
}

impl LaneStep {
    fn new(step: &Step, program: &Program, probe: &ThreadRecorder) -> Result<LaneStep, DriverError> {
        let prepared = PreparedRequest::new(&step.request.constant, &program.connector);
        Ok(LaneStep {
            metric: probe.metric(step.metric.clone()),
            redirect: Cell::new(None),
            group: step.group.as_ref().map(|group| probe.metric(MetricKey::group(group))),
            prepared: prepared.map_err(|error| DriverError(format!("{}: {error}", step.metric.name)))?,
            idle: RefCell::new(Vec::new()),
        })
    }

    /// Where the hops after a redirect are recorded.
    fn redirect_metric(&self, step: &Step, probe: &ThreadRecorder) -> MetricId {
        self.redirect.get().unwrap_or_else(|| {
            let name = format!("{} (redirect)", step.metric.name);
            let id = probe.metric(MetricKey { name, ..step.metric.clone() });
            self.redirect.set(Some(id));
            id
        })
    }
}
