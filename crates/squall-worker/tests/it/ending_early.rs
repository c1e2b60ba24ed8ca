//! Workers that end their part of a run before they are told to: they leave their load to others, and say why.

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
use squall_worker::{DriverFactory, RunnableBundle, Worker, WorkerConfig};
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

use crate::{PATIENCE, bundle_of};

const HOUR: Duration = Duration::from_secs(3600);

/// Users that count their iterations, and panic when they are told to.
#[derive(Clone, Default)]
struct Counting {
    made: Arc<AtomicU64>,
    panics: Arc<AtomicBool>,
}

impl DriverFactory for Counting {
    type Driver = Counting;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<Counting>, String> {
        let (beside, stock, rations) = (Vec::new(), Vec::new(), Vec::new());
        Ok(RunnableBundle {
            driver: self.clone(),
            threads: Some(2),
            plan: None,
            additional: beside,
            pools: stock,
            shared_counters: rations,
            hooks: None,
        })
    }
}

impl Driver for Counting {
    type Thread = Counting;

    fn thread(&self, _: ThreadRecorder) -> Result<Counting, DriverError> {
        Ok(self.clone())
    }
}

impl DriverThread for Counting {
    type User = Counting;

    fn user(&self, _: UserIdentity) -> Counting {
        self.clone()
    }
}

impl VirtualUser for Counting {
    async fn iterate(&mut self, _: Iteration) -> bool {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "told to");
        self.made.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        true
    }
}

/// Four users.
fn bundle(lasts: Duration) -> Bundle {
    let users = Profile::constant(4.0, lasts).expect("a load");
    let load =
        Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO };
    bundle_of(load, Duration::from_secs(1))
}

/// A worker at work on a run of its own.
struct Scene<C: FleetStores> {
    cell: C,
    host: Counting,
    order: RunSpec,
    stop: CancellationToken,
    working: tokio::task::JoinHandle<()>,
    status: tokio::sync::watch::Receiver<squall_worker::WorkerStatus>,
    begun: Instant,
}

impl<C: FleetStores> Scene<C> {
    /// The load goes on, and something of it has been shipped.
    async fn begin(cell: C, lasts: Duration, most_waiting: usize) -> Scene<C> {
        let (host, stop) = (Counting::default(), CancellationToken::new());
        let mut config = WorkerConfig::new("w");
        // Its place is its own all the time: nobody is forgotten because this machine is busy.
        (config.heartbeat_interval, config.ttl, config.max_unshipped_deltas) =
            (Duration::from_millis(20), HOUR, most_waiting);
        let worker = Worker::new(cell.clone(), host.clone(), config);
        let status = worker.status();
        let work = worker.run(stop.clone());
        let working = tokio::spawn(async move { work.await.expect("it leaves in good order") });
        let run = cell.run();
        let bundle = bundle(lasts);
        let name = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
        let order = RunSpec::new("r", name, bundle.plan.load.model.profile().clone());
        let mut scene = Scene { cell, host, order, stop, working, status, begun: Instant::now() };
        scene.until_held("its shares", 256).await;
        scene.put(RunPhase::Preparing, true).await;
        scene.until("its users", |report| report.ready == 1).await;
        scene.order.start_at_ms = Some(run.read_record().await.unwrap().now_ms);
        scene.put(RunPhase::Running, false).await;
        while scene.last_words().await.is_empty() {
            scene.moment("its first delta").await;
        }
        scene
    }

    async fn put(&self, phase: RunPhase, raise: bool) {
        let (run, text) = (self.cell.run(), serde_json::to_string(&self.order).unwrap());
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, phase.name(), &text, raise).await.unwrap().expect("alone");
    }

    /// Of each delta that was shipped, whether it says that it is the last.
    async fn last_words(&self) -> Vec<bool> {
        let shipped = self.cell.run().deltas(1, START_POSITION, 1000).await.unwrap();
        shipped.iter().filter_map(|shipped| decode_delta(&shipped.bytes).ok()).map(|delta| delta.last).collect()
    }

    async fn moment(&self, what: &str) {
        let said = &self.status.borrow().report.clone();
        assert!(self.begun.elapsed() < PATIENCE, "waited in vain for {what}: {said:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    /// Waits for a report that the worker would make.
    async fn until(&self, what: &str, done: impl Fn(&WorkerReport) -> bool) -> WorkerReport {
        loop {
            let report = self.status.borrow().report.clone();
            if done(&report) {
                return report;
            }
            self.moment(what).await;
        }
    }

    async fn until_held(&self, what: &str, shares: usize) {
        while self.cell.workers().snapshot().await.map_or(usize::MAX, |view| view.leases.len()) != shares {
            self.moment(what).await;
        }
    }

    /// It says why, makes nothing and holds nothing while the run goes on, and is there for the next one.
    async fn ends_early(self, why: &str) {
        let report = self.until("its word", |report| report.failed_run.is_some()).await;
        let failed = report.failed_run.as_ref();
        assert!(failed.is_some_and(|failed| failed.epoch == 1 && failed.message.contains(why)), "{report:?}");
        self.until("its end", |report| report.done == 1).await;
        self.until_held("others to have its shares", 0).await;
        let made = self.host.made.load(Ordering::SeqCst);
        let report = self.until("a report without them", |report| report.share_count == 0).await;
        assert_eq!(report.health, WorkerHealth::Healthy, "{report:?}");
        // Some beats later nothing has changed.
        let heard = self.status.borrow().last_acknowledged;
        while self
            .status
            .borrow()
            .last_acknowledged
            .zip(heard)
            .is_none_or(|(now, then)| now < then + Duration::from_millis(200))
        {
            self.moment("beats").await;
        }
        assert!(self.cell.workers().snapshot().await.unwrap().leases.is_empty(), "it stays away");
        assert_eq!(self.host.made.load(Ordering::SeqCst), made, "no load that nobody counts");
        self.put(RunPhase::Idle, false).await;
        self.until_held("its place in the next run", 256).await;
        self.leave().await;
    }

    async fn leave(self) {
        self.stop.cancel();
        self.working.await.expect("no panic");
    }
}

#[tokio::test]
async fn who_was_cut_off_for_too_long_leaves_the_rest_of_the_run_to_others() {
    let mut server = RedisServer::start_persistent();
    let cell = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "cut_off");
    let scene = Scene::begin(cell, HOUR, 2).await;
    server.kill();
    scene.until("too many deltas that wait", |report| report.waiting > 2).await;
    server.restart();
    scene.until("its last delta", |report| report.done == 1).await;
    assert_eq!(scene.last_words().await.last(), Some(&true), "nothing is lost");
    scene.ends_early("away for too long").await;
}

/// A restart or a failover of Redis may lose what it had acknowledged, and more of it than a worker has kept.
#[tokio::test]
async fn who_has_shipped_what_the_store_has_lost_ends_its_load() {
    let server = RedisServer::start();
    let cell = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "lost");
    let scene = Scene::begin(cell, HOUR, 5).await;
    let is_delta = |shipped: &ShippedDelta| decode_delta(&shipped.bytes).is_ok();
    while scene.cell.run().deltas(1, START_POSITION, 100).await.unwrap().iter().filter(|one| is_delta(one)).count() < 7
    {
        scene.moment("deltas").await;
    }
    let mut answer = [0; 2];
    let mut connection = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    write!(connection, "DEL {}\r\n", scene.cell.run().keys().shipped(1)).unwrap();
    connection.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":1");
    scene.ends_early("lost what was measured").await;
}

#[tokio::test]
async fn whose_code_panics_ends_its_part_and_ships_what_it_has_measured() {
    let scene = Scene::begin(MemoryFleetStores::default(), HOUR, 120).await;
    scene.host.panics.store(true, Ordering::SeqCst);
    scene.until("its end", |report| report.done == 1).await;
    assert_eq!(scene.last_words().await.last(), Some(&true), "nothing is lost");
    scene.ends_early("panicked").await;
}

/// Its load is over because it is over everywhere, and what its users have borrowed is theirs until the run is.
#[tokio::test]
async fn whose_load_is_over_by_its_own_clock_keeps_its_place() {
    let scene = Scene::begin(MemoryFleetStores::default(), Duration::from_millis(1500), 120).await;
    let report = scene.until("its end", |report| report.done == 1).await;
    assert_eq!((&report.failed_run, report.share_count), (&None, 256), "{report:?}");
    let heard = scene.status.borrow().last_acknowledged;
    while scene
        .status
        .borrow()
        .last_acknowledged
        .zip(heard)
        .is_none_or(|(now, then)| now < then + Duration::from_millis(200))
    {
        scene.moment("beats").await;
    }
    assert_eq!(scene.cell.workers().snapshot().await.unwrap().leases.len(), 256);
    scene.leave().await;
}
