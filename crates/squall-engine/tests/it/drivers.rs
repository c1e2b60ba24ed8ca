//! Drivers whose behaviour a test can dictate.

use squall_engine::{
    Driver, DriverError, DriverThread, Engine, EngineConfig, Iteration, LoadOutcome, ThreadRecorder, UserIdentity,
    UserStartError, VirtualUser,
};
use squall_metrics::{Collector, MetricId, MetricKey, Outcome, RunView};
use squall_model::{Arrivals, Load, LoadModel, Pause, Profile, TaskSpec};
use std::{
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Every request takes what `service` says for its number.
pub(crate) struct Scripted {
    pub(crate) service: fn(u64) -> Duration,
    pub(crate) failing_starts: AtomicU64,
    pub(crate) log: Arc<Log>,
    pub(crate) tasks: Vec<TaskSpec>,
}

#[derive(Default)]
pub(crate) struct Log {
    pub(crate) iterations: Mutex<Vec<(u64, usize)>>,
    pub(crate) started: AtomicU64,
    pub(crate) stopped: AtomicU64,
}

pub(crate) struct Thread {
    service: fn(u64) -> Duration,
    failing_starts: Rc<std::cell::Cell<u64>>,
    log: Arc<Log>,
    probe: ThreadRecorder,
    metrics: Rc<[MetricId]>,
}

pub(crate) struct User {
    thread: Rc<Thread>,
}

impl Scripted {
    pub(crate) fn new(service: fn(u64) -> Duration) -> Scripted {
        let tasks = vec![TaskSpec::new("only")];
        Scripted { service, failing_starts: AtomicU64::new(0), log: Arc::default(), tasks }
    }
}

impl Driver for Scripted {
    type Thread = Shared;

    fn thread(&self, probe: ThreadRecorder) -> Result<Shared, DriverError> {
        let metrics = self.tasks.iter().map(|t| probe.metric(MetricKey::request(&t.name))).collect();
        let failing_starts = Rc::new(std::cell::Cell::new(self.failing_starts.load(Ordering::Relaxed)));
        let log = self.log.clone();
        Ok(Shared(Rc::new(Thread { service: self.service, failing_starts, log, probe, metrics })))
    }
}

pub(crate) struct Shared(Rc<Thread>);

impl DriverThread for Shared {
    type User = User;

    fn user(&self, _seat: UserIdentity) -> User {
        User { thread: self.0.clone() }
    }
}

impl VirtualUser for User {
    async fn start(&mut self) -> Result<(), UserStartError> {
        let failing = &self.thread.failing_starts;
        if failing.get() > 0 {
            failing.set(failing.get() - 1);
            return Err(UserStartError("told to".to_owned()));
        }
        self.thread.log.started.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let Iteration { number, task, intended, started } = iteration;
        let begun = self.thread.probe.begin(self.thread.metrics[task.0], intended, started);
        let Some(flight) = begun else { return false };
        self.thread.log.iterations.lock().unwrap().push((number, task.0));
        let service = (self.thread.service)(number);
        // A service of nothing never waits, as a request does that fails before anything is sent.
        if !service.is_zero() {
            tokio::time::sleep(service).await;
        }
        flight.end(Instant::now(), Outcome::of_status(200), 10, 5);
        true
    }

    async fn stop(&mut self) {
        self.thread.log.stopped.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn open(rate: f64, run: Duration) -> Load {
    let model = LoadModel::Open { rate: Profile::constant(rate, run).unwrap(), arrivals: Arrivals::Even };
    Load { model, iterations: None, warm_up: Duration::ZERO }
}

pub(crate) fn closed(users: f64, pause: Duration, run: Duration) -> Load {
    let model = LoadModel::Closed { users: Profile::constant(users, run).unwrap(), pause: Pause::Fixed(pause) };
    Load { model, iterations: None, warm_up: Duration::ZERO }
}

pub(crate) fn config(load: Load, driver: &Scripted) -> EngineConfig {
    EngineConfig { threads: 2, ..EngineConfig::new(load, driver.tasks.clone()) }
}

/// Runs to the end; `meddle` is called with the view after each closed second.
pub(crate) async fn run(
    driver: Scripted,
    config: EngineConfig,
    mut meddle: impl FnMut(&Engine, &RunView),
) -> (RunView, LoadOutcome) {
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    while let Some(delta) = engine.next_delta().await {
        if collector.merge(delta).unwrap() > 0 {
            meddle(&engine, collector.view());
        }
    }
    assert!(collector.is_complete());
    (collector.finish(), engine.join().unwrap())
}
