//! The waits of the request runner: for the send budget of a fleet's worker, and how the task's time
//! limit cuts them. Also how it opens streams, which differ from requests only in their sender.

use squall_engine::{
    Driver, DriverError, DriverThread, Engine, EngineConfig, Iteration, SendPermit, ThreadRecorder, UserIdentity,
    VirtualUser,
};
use squall_http::{
    BodyMode, Connector, Cookies, Exchange, HttpConfig, HttpRequest, HttpResponse, PreparedRequest, StreamOpener,
};
use squall_metrics::{Collector, MetricId, MetricKey, MetricKind, RecorderConfig, RunView};
use squall_scenario::{EndedRequest, RequestFailure, RequestHandler, RequestRunner, RequestStart, Scenario};
use squall_target::TargetServer;
use std::time::{Duration, Instant};

use crate::harness::{RecordedRun, block_on, scenario, target};

/// Runs one iteration of `scenario` on one thread under `budget`, beside `meanwhile`.
async fn run_with_budget(scenario: &Scenario, budget: &SendPermit, meanwhile: impl Future<Output = ()>) -> RunView {
    run_driver_with_budget(scenario.driver(), scenario, budget, meanwhile).await
}

/// As [`run_with_budget`], but users of `driver` make the scenario's load.
async fn run_driver_with_budget(
    driver: impl Driver,
    scenario: &Scenario,
    budget: &SendPermit,
    meanwhile: impl Future<Output = ()>,
) -> RunView {
    let config = EngineConfig::new(scenario.plan.load.clone(), scenario.plan.tasks.clone());
    let config = EngineConfig { threads: 1, send_permit: Some(budget.clone()), ..config };
    let mut engine = Engine::prepare(driver, config).await.expect("a sound scenario");
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    let run = async {
        while let Some(delta) = engine.next_delta().await {
            collector.merge(delta).expect("deltas in order");
        }
        collector.finish()
    };
    tokio::join!(run, meanwhile).0
}

fn one_iteration(target: &TargetServer, task: &str) -> Scenario {
    scenario(target, &format!("[load]\nusers = 1\nrequests = 1\n[[task]]\nname = 'go'\n{task}"))
}

fn outcomes(view: &RunView) -> Vec<String> {
    let code = |(outcome, n): (&squall_metrics::Outcome, &u64)| format!("{}×{n}", outcome.code);
    view.all.outcomes.iter().map(code).collect()
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Both for a constant task and for a flow: the time limit makes the task a flow.
#[test]
fn redirect_is_not_sent_before_the_budget_allows_redirects() {
    for task in ["get = '/redirect/2'", "get = '/redirect/2'\ntimeout = '60s'"] {
        let target = target();
        let budget = SendPermit::new(1);
        let view = block_on(run_with_budget(&one_iteration(&target, task), &budget, async {
            until(|| budget.redirect_pending()).await;
            assert_eq!(target.requests(), 1, "{task}");
            budget.allow_redirects();
        }));
        assert_eq!((target.requests(), view.all.errors), (3, 0), "{task}");
    }
}

#[test]
fn task_timeout_cuts_the_wait_for_the_send_budget() {
    let target = target();
    let budget = SendPermit::new(1);
    budget.raise_limits(&[0]);
    let scenario = one_iteration(&target, "get = '/health'\ntimeout = '50ms'");
    let view = block_on(run_with_budget(&scenario, &budget, async {}));
    assert_eq!((outcomes(&view), target.requests()), (vec!["TASK_TIMEOUT×1".to_owned()], 0));
    let accounting = view.accounting();
    assert_eq!((accounting.sent, accounting.unsent, accounting.balances()), (0, 1, true));
}

/// Users that open a stream in each iteration and read only its head.
#[derive(Clone)]
struct StreamDriver {
    connector: Connector,
    request: PreparedRequest,
}

#[derive(Clone)]
struct StreamUser {
    driver: StreamDriver,
    recorder: ThreadRecorder,
    metric: MetricId,
}

impl StreamDriver {
    fn new(url: &str) -> StreamDriver {
        let connector = Connector::new(HttpConfig::default()).expect("sound settings");
        let request = HttpRequest::get(url).expect("a sound URL");
        StreamDriver { request: PreparedRequest::new(&request, &connector).expect("a sound request"), connector }
    }
}

impl Driver for StreamDriver {
    type Thread = StreamUser;

    fn thread(&self, recorder: ThreadRecorder) -> Result<StreamUser, DriverError> {
        let metric = recorder.metric(MetricKey::request("stream"));
        Ok(StreamUser { driver: self.clone(), recorder, metric })
    }
}

/// The thread's state is that of each of its users.
impl DriverThread for StreamUser {
    type User = StreamUser;

    fn user(&self, _identity: UserIdentity) -> StreamUser {
        self.clone()
    }
}

impl VirtualUser for StreamUser {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let StreamDriver { connector, request } = &self.driver;
        let Iteration { intended, started, .. } = iteration;
        let start = RequestStart { metric: self.metric, intended, started };
        let mut opener = StreamOpener::new(connector, Cookies::default());
        let mut handler = StreamHandler { metric: self.metric };
        let opened = RequestRunner::new(&self.recorder).run(&mut opener, request, start, &mut handler).await;
        opened && opener.into_response().is_some()
    }
}

/// Records every request in one metric. Its output is whether there is a response.
struct StreamHandler {
    metric: MetricId,
}

impl<'p> RequestHandler<'p> for StreamHandler {
    type Output = bool;

    fn body_mode(&self) -> BodyMode {
        BodyMode::Discard
    }

    fn redirect_metric(&mut self) -> MetricId {
        self.metric
    }

    fn on_response(
        &mut self,
        request: EndedRequest<'p>,
        _response: HttpResponse<'_>,
        _exchange: &Exchange<'_>,
    ) -> bool {
        request.record();
        true
    }

    fn on_failure(&mut self, failure: RequestFailure<'p, '_>) -> bool {
        if let RequestFailure::NoResponse { request, .. } | RequestFailure::BadRedirect { request, .. } = failure {
            request.record();
        }
        false
    }
}

#[test]
fn redirect_of_a_stream_is_not_sent_before_the_budget_allows_redirects() {
    let target = target();
    let budget = SendPermit::new(1);
    let driver = StreamDriver::new(&target.url("/redirect/2"));
    let scenario = one_iteration(&target, "get = '/health'");
    let view = block_on(run_driver_with_budget(driver, &scenario, &budget, async {
        until(|| budget.redirect_pending()).await;
        assert_eq!(target.requests(), 1);
        budget.allow_redirects();
    }));
    assert_eq!((target.requests(), view.all.errors, view.accounting().sent), (3, 0, 3));
}

#[test]
fn dropped_opening_of_a_stream_is_recorded_with_its_bytes() {
    let target = target();
    let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
    let mut user =
        StreamDriver::new(&target.url("/delay/60000")).thread(recorder.clone()).expect("a thread without state");
    let now = Instant::now();
    let iteration = Iteration { number: 0, task: squall_model::TaskIndex(0), intended: now, started: now };
    block_on(async {
        tokio::select! {
            _ = user.iterate(iteration) => panic!("the target responds after a minute"),
            () = until(|| target.requests() == 1) => {}
        }
    });
    let (metrics, notes, engine) = recorder.harvest(0, 0);
    let bytes_out: u64 = metrics.iter().map(|metric| metric.bytes_out).sum();
    let run = RecordedRun { metrics, notes, engine };
    assert_eq!(run.lines(MetricKind::Request), ["stream: ABORTED×1"]);
    assert!(bytes_out > 0);
}
