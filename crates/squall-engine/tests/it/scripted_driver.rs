//! A driver whose service times and failures a test sets, and helpers that run it.

use squall_engine::{
    Driver, DriverError, DriverThread, Engine, EngineConfig, Iteration, LoadOutcome, OnStartError, ThreadRecorder,
    UserIdentity, UserStart, VirtualUser,
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

/// A driver whose request number `n` takes `service(n)`.
pub(crate) struct ScriptedDriver {
    pub(crate) service: fn(u64) -> Duration,
    pub(crate) failing_starts: AtomicU64,
    pub(crate) log: Arc<IterationLog>,
    pub(crate) tasks: Vec<TaskSpec>,
    /// How long `on_start` takes.
    pub(crate) login: Duration,
    pub(crate) user_start: UserStart,
}

#[derive(Default)]
pub(crate) struct IterationLog {
    pub(crate) iterations: Mutex<Vec<(u64, usize)>>,
    pub(crate) started: AtomicU64,
    pub(crate) stopped: AtomicU64,
}

pub(crate) struct ThreadData {
    service: fn(u64) -> Duration,
    login: Duration,
    failing_starts: Rc<std::cell::Cell<u64>>,
    log: Arc<IterationLog>,
    recorder: ThreadRecorder,
    metrics: Rc<[MetricId]>,
}

pub(crate) struct User {
    thread: Rc<ThreadData>,
}

impl ScriptedDriver {
    pub(crate) fn new(service: fn(u64) -> Duration) -> ScriptedDriver {
        let tasks = vec![TaskSpec::new("only")];
        let (login, user_start) = (Duration::ZERO, UserStart::Free);
        ScriptedDriver { service, failing_starts: AtomicU64::new(0), log: Arc::default(), tasks, login, user_start }
    }
}

impl Driver for ScriptedDriver {
    type Thread = ScriptedThread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<ScriptedThread, DriverError> {
        let metrics = self.tasks.iter().map(|t| recorder.metric(MetricKey::request(&t.name))).collect();
        let failing_starts = Rc::new(std::cell::Cell::new(self.failing_starts.load(Ordering::Relaxed)));
        let (service, login, log) = (self.service, self.login, self.log.clone());
        Ok(ScriptedThread(Rc::new(ThreadData { service, login, failing_starts, log, recorder, metrics })))
    }

    fn user_start(&self) -> UserStart {
        self.user_start
    }
}

pub(crate) struct ScriptedThread(Rc<ThreadData>);

impl DriverThread for ScriptedThread {
    type User = User;

    fn user(&self, _identity: UserIdentity) -> User {
        User { thread: self.0.clone() }
    }
}

impl VirtualUser for User {
    async fn on_start(&mut self) -> Result<(), OnStartError> {
        let failing = &self.thread.failing_starts;
        if failing.get() > 0 {
            failing.set(failing.get() - 1);
            return Err(OnStartError("this test makes starts fail".to_owned()));
        }
        if !self.thread.login.is_zero() {
            tokio::time::sleep(self.thread.login).await;
        }
        self.thread.log.started.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let Iteration { number, task, intended, started } = iteration;
        let begun = self.thread.recorder.begin(self.thread.metrics[task.0], intended, started);
        let Some(request) = begun else { return false };
        self.thread.log.iterations.lock().unwrap().push((number, task.0));
        let service = (self.thread.service)(number);
        // Without a service time the iteration never waits, like a request that fails before it is
        // sent.
        if !service.is_zero() {
            tokio::time::sleep(service).await;
        }
        request.end(Instant::now(), Outcome::of_status(200), 10, 5);
        true
    }

    async fn on_stop(&mut self) {
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

pub(crate) fn config(load: Load, driver: &ScriptedDriver) -> EngineConfig {
    EngineConfig { threads: 2, ..EngineConfig::new(load, driver.tasks.clone()) }
}

/// Runs to the end. Calls `on_second` with the view after each closed second.
pub(crate) async fn run(
    driver: ScriptedDriver,
    config: EngineConfig,
    mut on_second: impl FnMut(&Engine, &RunView),
) -> (RunView, LoadOutcome) {
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    let mut collector = Collector::new(engine.sources().to_vec(), 10);
    engine.start(Instant::now());
    while let Some(delta) = engine.next_delta().await {
        if collector.merge(delta).unwrap() > 0 {
            on_second(&engine, collector.view());
        }
    }
    assert!(collector.is_complete());
    (collector.finish(), engine.join().unwrap())
}
