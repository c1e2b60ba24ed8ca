//! Numbers that a whole fleet uses once each: limited iterations, and one row of data per
//! iteration. The workers run in this process, and the test writes the run record.

use squall_coord::{CounterState, CounterStore, FleetStores, MemoryFleetStores, RunStore};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, NumberQuota, SharedCounter, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_metrics::{MetricId, MetricKey, Outcome};
use squall_model::{
    Bundle, ITERATIONS_COUNTER, Load, LoadModel, Pause, Profile, RunPhase, RunSpec, RunStopRequest, StopReason,
    protocol::{SourceName, WorkerReport},
};
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{TEST_TIMEOUT, bundle_of, only_scenario};

/// The iterations of the users of all workers.
#[derive(Clone, Default)]
struct Log {
    /// The row of every iteration; `None` if no row was left.
    rows: Arc<Mutex<Vec<Option<u64>>>>,
}

/// Opens bundles whose users take one row per iteration.
#[derive(Clone)]
struct RowFactory {
    log: Log,
    limit: u64,
}

struct User {
    log: Log,
    rows: NumberQuota,
    recorder: ThreadRecorder,
    metric: MetricId,
}

struct RowDriver(RowFactory, NumberQuota);

struct Thread(RowFactory, NumberQuota, ThreadRecorder);

impl DriverFactory for RowFactory {
    type Driver = RowDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<RowDriver>, OpenBundleError> {
        let (quota, refill) = NumberQuota::with_refill();
        let shared_counters = vec![SharedCounter { name: "rows".to_owned(), limit: self.limit, refill }];
        let driver = RowDriver(self.clone(), quota);
        Ok(RunnableBundle {
            scenarios: vec![only_scenario(bundle, driver, 2)],
            pools: Vec::new(),
            shared_counters,
            hooks: None,
        })
    }
}

impl Driver for RowDriver {
    type Thread = Thread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<Thread, DriverError> {
        Ok(Thread(self.0.clone(), self.1.clone(), recorder))
    }
}

impl DriverThread for Thread {
    type User = User;

    fn user(&self, _: UserIdentity) -> User {
        let Thread(RowFactory { log, .. }, rows, recorder) = self;
        let metric = recorder.metric(MetricKey::request("a"));
        User { log: log.clone(), rows: rows.clone(), recorder: recorder.clone(), metric }
    }
}

impl VirtualUser for User {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let row = self.rows.acquire().await;
        self.log.rows.lock().unwrap().push(row);
        if let Some(flight) = self.recorder.begin(self.metric, iteration.intended, iteration.started) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            flight.end(Instant::now(), Outcome::of_status(200), 0, 0);
        }
        true
    }
}

/// `users` users that make `iterations` iterations together.
fn bundle(users: f64, iterations: u64) -> Bundle {
    let profile = Profile::constant(users, Duration::from_secs(3600)).expect("a load");
    let model = LoadModel::Closed { users: profile, pause: Pause::NONE };
    bundle_of(Load { model, iterations: Some(iterations), warm_up: Duration::ZERO }, Duration::from_secs(60))
}

struct Fleet {
    stores: MemoryFleetStores,
    log: Log,
    workers: Vec<(CancellationToken, JoinHandle<()>)>,
}

impl Fleet {
    /// `workers` workers that do not expire on a busy machine.
    fn spawn(workers: usize, rows: u64) -> Fleet {
        let (stores, log) = (MemoryFleetStores::default(), Log::default());
        let workers = (0..workers).map(|at| {
            let mut config = WorkerConfig::new(format!("w{at}"));
            (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
            let stop = CancellationToken::new();
            let factory = RowFactory { log: log.clone(), limit: rows };
            let working = Worker::new(stores.clone(), factory, config).run(stop.clone());
            (stop, tokio::spawn(async move { working.await.expect("valid timings") }))
        });
        let workers = workers.collect();
        Fleet { stores, log, workers }
    }

    /// Writes the record as a leader does.
    async fn write_record(&self, phase: RunPhase, spec: &RunSpec, raise_epoch: bool) -> u64 {
        let run = self.stores.run();
        let seen = run.read_record().await.unwrap();
        let text = serde_json::to_string(spec).unwrap();
        run.compare_and_set(&seen, phase.name(), &text, raise_epoch).await.unwrap().expect("no other writer").epoch
    }

    /// Starts a run with all workers.
    async fn start_run(&self, bundle: &Bundle) -> RunSpec {
        let run = self.stores.run();
        let name = run.put_bundle(&serde_json::to_vec(bundle).unwrap()).await.unwrap();
        let mut spec = RunSpec::new("r", name, bundle.plan.load.model.profile().clone());
        assert_eq!(self.write_record(RunPhase::Preparing, &spec, true).await, 1);
        self.wait_until("ready workers", |_| true, self.workers.len(), |report| report.ready).await;
        spec.start_at_ms = Some(run.read_record().await.unwrap().now_ms);
        self.write_record(RunPhase::Running, &spec, false).await;
        spec
    }

    /// Waits until `epoch_of` is run 1 for `count` workers and the counter of iterations fulfils
    /// `counted`.
    async fn wait_until(
        &self,
        what: &str,
        counted: impl Fn(&CounterState) -> bool,
        count: usize,
        epoch_of: fn(&WorkerReport) -> u64,
    ) {
        let started = Instant::now();
        loop {
            let reports = self.stores.run().reports().await.unwrap();
            let matching = reports.values().filter(|report| epoch_of(&WorkerReport::decode(report)) == 1).count();
            let counters = self.stores.run().counters(1).await.unwrap();
            if matching == count && counted(counters.get(ITERATIONS_COUNTER).unwrap_or(&CounterState::default())) {
                return;
            }
            assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}: {matching} workers, {counters:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(&self, mut spec: RunSpec) {
        spec.stop = Some(RunStopRequest { reason: StopReason::Completed, abort: false, asked_at_ms: 0, message: None });
        self.write_record(RunPhase::Stopping, &spec, false).await;
    }

    async fn leave(self) {
        for (stop, working) in self.workers {
            stop.cancel();
            working.await.expect("no panic");
        }
    }
}

fn is_used_up(counter: &CounterState) -> bool {
    counter.limit > 0 && counter.remaining() == 0 && counter.outstanding() == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limited_iterations_are_made_once_with_every_row_once() {
    let fleet = Fleet::spawn(3, 2000);
    let spec = fleet.start_run(&bundle(8.0, 2000)).await;
    fleet.wait_until("all iterations", is_used_up, 3, |report| report.ready).await;
    fleet.stop(spec).await;
    fleet.wait_until("the end", is_used_up, 3, |report| report.done).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    assert_eq!(rows.len(), 2000, "iterations");
    assert_eq!(rows.iter().flatten().copied().collect::<BTreeSet<_>>(), (0..2000).collect());
    fleet.leave().await;
}

/// With more iterations than rows, users without a row learn it and do not wait forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_get_no_row_when_all_rows_are_used() {
    let fleet = Fleet::spawn(2, 50);
    fleet.start_run(&bundle(5.0, 120)).await;
    fleet.wait_until("all iterations", is_used_up, 2, |report| report.ready).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    let used_rows: Vec<u64> = rows.iter().flatten().copied().collect();
    assert_eq!((used_rows.len(), used_rows.into_iter().collect::<BTreeSet<_>>().len()), (50, 50));
    fleet.leave().await;
}

/// A leaving worker returns its unused numbers. Those of a killed worker are written off, and no
/// other worker uses them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_of_a_killed_worker_are_not_used_again() {
    let mut fleet = Fleet::spawn(3, 5000);
    let spec = fleet.start_run(&bundle(9.0, 5000)).await;
    fleet.wait_until("some iterations", |counter| counter.used() > 500, 3, |report| report.ready).await;
    let run = fleet.stores.run();
    let instance = WorkerReport::decode(&run.reports().await.unwrap()["w1"]).instance;
    let dead = SourceName::Thread { instance, thread: 0 }.to_string();
    let (_, killed) = fleet.workers.remove(1);
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    let (stop, leaving) = fleet.workers.remove(0);
    stop.cancel();
    leaving.await.expect("no panic");
    let started = Instant::now();
    while !run.counters(1).await.unwrap().get(ITERATIONS_COUNTER).is_some_and(is_used_up) {
        // The leader does the same for workers whose report has expired.
        for counter in [ITERATIONS_COUNTER, "rows"] {
            run.write_off(1, counter, &dead).await.unwrap();
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting: {:?}", run.counters(1).await.unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fleet.stop(spec).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    let used_rows: Vec<u64> = rows.iter().flatten().copied().collect();
    let distinct_rows: BTreeSet<u64> = used_rows.iter().copied().collect();
    assert_eq!(used_rows.len(), distinct_rows.len(), "no row was used twice");
    let counters = run.counters(1).await.unwrap();
    let written_off: u64 = counters[ITERATIONS_COUNTER].sources.values().map(|source| source.unused()).sum();
    assert!(rows.len() as u64 + written_off >= 5000 && rows.len() <= 5000, "{} and {written_off}", rows.len());
    fleet.leave().await;
}
