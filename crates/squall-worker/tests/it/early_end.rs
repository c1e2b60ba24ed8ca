//! Workers that end their part of a run early: they release their shares to other workers and
//! report the reason.

use squall_coord::{
    FleetStores, LeaseStore, MemoryFleetStores, RedisClient, RedisFleetStores, RunStore, START_POSITION, ShippedDelta,
};
use squall_engine::{Driver, DriverError, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_metrics::decode_delta;
use squall_model::{
    Bundle, Load, LoadModel, Pause, Profile, RunPhase, RunSpec,
    protocol::{WorkerHealth, WorkerReport},
};
use squall_testkit::redis::RedisServer;
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use crate::{TEST_TIMEOUT, bundle_of, only_scenario};

const HOUR: Duration = Duration::from_secs(3600);

/// Users that count their iterations, and panic once after `panics` is set.
#[derive(Clone, Default)]
struct CountingDriver {
    iterations: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl DriverFactory for CountingDriver {
    type Driver = CountingDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<CountingDriver>, OpenBundleError> {
        Ok(RunnableBundle {
            scenarios: vec![only_scenario(bundle, self.clone(), 2)],
            pools: Vec::new(),
            shared_counters: Vec::new(),
            hooks: None,
        })
    }
}

impl Driver for CountingDriver {
    type Thread = CountingDriver;

    fn thread(&self, _: ThreadRecorder) -> Result<CountingDriver, DriverError> {
        Ok(self.clone())
    }
}

impl DriverThread for CountingDriver {
    type User = CountingDriver;

    fn user(&self, _: UserIdentity) -> CountingDriver {
        self.clone()
    }
}

impl VirtualUser for CountingDriver {
    async fn iterate(&mut self, _: Iteration) -> bool {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "panic of a test user");
        self.iterations.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        true
    }
}

/// Four users.
fn bundle(duration: Duration) -> Bundle {
    let users = Profile::constant(4.0, duration).expect("a load");
    let load =
        Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO };
    bundle_of(load, Duration::from_secs(1))
}

/// A worker that makes the load of a run.
struct RunningWorker<C: FleetStores> {
    stores: C,
    driver: CountingDriver,
    spec: RunSpec,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    status: tokio::sync::watch::Receiver<squall_worker::WorkerStatus>,
    started: Instant,
}

impl<C: FleetStores> RunningWorker<C> {
    /// Starts a run of `duration` and waits for its first delta.
    async fn start(stores: C, duration: Duration, max_unshipped_deltas: usize) -> RunningWorker<C> {
        let (driver, stop) = (CountingDriver::default(), CancellationToken::new());
        let mut config = WorkerConfig::new("w");
        // So long that the membership does not expire on a busy machine.
        (config.heartbeat_interval, config.ttl, config.max_unshipped_deltas) =
            (Duration::from_millis(20), HOUR, max_unshipped_deltas);
        let worker = Worker::new(stores.clone(), driver.clone(), config);
        let status = worker.status();
        let working = worker.run(stop.clone());
        let task = tokio::spawn(async move { working.await.expect("the worker leaves in good order") });
        let run = stores.run();
        let bundle = bundle(duration);
        let name = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
        let spec = RunSpec::new("r", name, bundle.plan.load.model.profile().clone());
        let mut worker = RunningWorker { stores, driver, spec, stop, task, status, started: Instant::now() };
        worker.wait_for_leases("all shares", 256).await;
        worker.write_record(RunPhase::Preparing, true).await;
        worker.wait_for_report("its users to be built", |report| report.ready == 1).await;
        worker.spec.start_at_ms = Some(run.read_record().await.unwrap().now_ms);
        worker.write_record(RunPhase::Running, false).await;
        while worker.last_flags().await.is_empty() {
            worker.pause("its first delta").await;
        }
        worker
    }

    async fn write_record(&self, phase: RunPhase, raise_epoch: bool) {
        let (run, text) = (self.stores.run(), serde_json::to_string(&self.spec).unwrap());
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, phase.name(), &text, raise_epoch).await.unwrap().expect("no other writer");
    }

    /// For each shipped delta, whether it is marked as the last.
    async fn last_flags(&self) -> Vec<bool> {
        let shipped = self.stores.run().deltas(1, START_POSITION, 1000).await.unwrap();
        shipped.iter().filter_map(|shipped| decode_delta(&shipped.bytes).ok()).map(|delta| delta.last).collect()
    }

    async fn pause(&self, what: &str) {
        let report = self.status.borrow().report.clone();
        assert!(self.started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}: {report:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    /// Waits until the worker's own report fulfils `done`.
    async fn wait_for_report(&self, what: &str, done: impl Fn(&WorkerReport) -> bool) -> WorkerReport {
        loop {
            let report = self.status.borrow().report.clone();
            if done(&report) {
                return report;
            }
            self.pause(what).await;
        }
    }

    async fn wait_for_leases(&self, what: &str, shares: usize) {
        while self.stores.workers().snapshot().await.map_or(usize::MAX, |view| view.leases.len()) != shares {
            self.pause(what).await;
        }
    }

    /// The worker reports `reason`, makes no load and holds no share during the rest of the run,
    /// and joins again after it.
    async fn assert_early_end(self, reason: &str) {
        let report = self.wait_for_report("the failure report", |report| report.given_up_run.is_some()).await;
        let failed = report.given_up_run.as_ref();
        assert!(failed.is_some_and(|failed| failed.epoch == 1 && failed.message.contains(reason)), "{report:?}");
        self.wait_for_report("its end", |report| report.done == 1).await;
        self.wait_for_leases("its shares to be released", 0).await;
        let iterations = self.driver.iterations.load(Ordering::SeqCst);
        let report = self.wait_for_report("a report without shares", |report| report.share_count == 0).await;
        assert_eq!(report.health, WorkerHealth::Healthy, "{report:?}");
        // Nothing changes in the next 200 ms of heartbeats.
        let heard = self.status.borrow().last_acknowledged;
        while self
            .status
            .borrow()
            .last_acknowledged
            .zip(heard)
            .is_none_or(|(now, then)| now < then + Duration::from_millis(200))
        {
            self.pause("heartbeats").await;
        }
        assert!(self.stores.workers().snapshot().await.unwrap().leases.is_empty(), "the worker does not join again");
        assert_eq!(self.driver.iterations.load(Ordering::SeqCst), iterations, "the load has ended");
        self.write_record(RunPhase::Idle, false).await;
        self.wait_for_leases("all shares for the next run", 256).await;
        self.leave().await;
    }

    async fn leave(self) {
        self.stop.cancel();
        self.task.await.expect("no panic");
    }
}

#[tokio::test]
async fn worker_cut_off_for_too_long_ends_its_part_of_the_run() {
    let mut server = RedisServer::start_persistent();
    let stores = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "cut_off");
    let worker = RunningWorker::start(stores, HOUR, 2).await;
    server.kill();
    worker.wait_for_report("too many unshipped deltas", |report| report.waiting > 2).await;
    server.restart();
    worker.wait_for_report("its last delta to be shipped", |report| report.done == 1).await;
    assert_eq!(worker.last_flags().await.last(), Some(&true), "every delta was shipped");
    worker.assert_early_end("away for too long").await;
}

/// A restart or a failover of Redis may lose more acknowledged deltas than a worker keeps.
#[tokio::test]
async fn worker_whose_deltas_the_store_lost_ends_its_load() {
    let server = RedisServer::start();
    let stores = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "lost");
    let worker = RunningWorker::start(stores, HOUR, 5).await;
    let is_delta = |shipped: &ShippedDelta| decode_delta(&shipped.bytes).is_ok();
    while worker.stores.run().deltas(1, START_POSITION, 100).await.unwrap().iter().filter(|one| is_delta(one)).count()
        < 7
    {
        worker.pause("deltas").await;
    }
    let mut answer = [0; 2];
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(connection, "DEL {}\r\n", worker.stores.run().keys().shipped(1)).unwrap();
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":1");
    worker.assert_early_end("lost what was measured").await;
}

#[tokio::test]
async fn worker_whose_driver_panics_ships_its_deltas_and_ends_early() {
    let worker = RunningWorker::start(MemoryFleetStores::default(), HOUR, 120).await;
    worker.driver.panics.store(true, Ordering::SeqCst);
    worker.wait_for_report("its end", |report| report.done == 1).await;
    assert_eq!(worker.last_flags().await.last(), Some(&true), "every delta was shipped");
    worker.assert_early_end("panicked").await;
}

/// The load is over everywhere, and the users keep their leased resources until the run ends.
#[tokio::test]
async fn worker_whose_planned_load_is_over_keeps_its_shares() {
    let worker = RunningWorker::start(MemoryFleetStores::default(), Duration::from_millis(1500), 120).await;
    let report = worker.wait_for_report("its end", |report| report.done == 1).await;
    assert_eq!((&report.given_up_run, report.share_count), (&None, 256), "{report:?}");
    let heard = worker.status.borrow().last_acknowledged;
    while worker
        .status
        .borrow()
        .last_acknowledged
        .zip(heard)
        .is_none_or(|(now, then)| now < then + Duration::from_millis(200))
    {
        worker.pause("heartbeats").await;
    }
    assert_eq!(worker.stores.workers().snapshot().await.unwrap().leases.len(), 256);
    worker.leave().await;
}
