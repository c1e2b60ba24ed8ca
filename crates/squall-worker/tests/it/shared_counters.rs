//! What a whole fleet uses once each: so many iterations, and a row for every one of them. Workers in this process, a record written by hand.

use squall_coord::{CounterState, CounterStore, FleetStores, MemoryFleetStores, RunStore};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, NumberQuota, SharedCounter, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_metrics::{MetricId, MetricKey, Outcome};
use squall_model::{
    Bundle, ITERATIONS_COUNTER, Load, LoadModel, Pause, Profile, RunPhase, RunSpec, RunStopRequest, StopReason,
    protocol::{SourceName, WorkerReport},
};
use squall_worker::{DriverFactory, RunnableBundle, Worker, WorkerConfig};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{PATIENCE, bundle_of};

/// What the users of all workers did.
#[derive(Clone, Default)]
struct Log {
    /// The row of every iteration; none if there was none left.
    rows: Arc<Mutex<Vec<Option<u64>>>>,
}

/// Runs one iteration after the other, each with a row of its own.
#[derive(Clone)]
struct Rows {
    log: Log,
    limit: u64,
}

struct User {
    log: Log,
    rows: NumberQuota,
    probe: ThreadRecorder,
    metric: MetricId,
}

struct Source(Rows, NumberQuota);

struct Thread(Rows, NumberQuota, ThreadRecorder);

impl DriverFactory for Rows {
    type Driver = Source;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<Source>, String> {
        let (tickets, supply) = NumberQuota::with_refill();
        let rations = vec![SharedCounter { name: "rows".to_owned(), limit: self.limit, refill: supply }];
        let driver = Source(self.clone(), tickets);
        Ok(RunnableBundle {
            driver,
            threads: Some(2),
            plan: None,
            additional: Vec::new(),
            pools: Vec::new(),
            shared_counters: rations,
            hooks: None,
        })
    }
}

impl Driver for Source {
    type Thread = Thread;

    fn thread(&self, probe: ThreadRecorder) -> Result<Thread, DriverError> {
        Ok(Thread(self.0.clone(), self.1.clone(), probe))
    }
}

impl DriverThread for Thread {
    type User = User;

    fn user(&self, _: UserIdentity) -> User {
        let Thread(Rows { log, .. }, rows, probe) = self;
        let metric = probe.metric(MetricKey::request("a"));
        User { log: log.clone(), rows: rows.clone(), probe: probe.clone(), metric }
    }
}

impl VirtualUser for User {
    async fn iterate(&mut self, iteration: Iteration) -> bool {
        let row = self.rows.acquire().await;
        self.log.rows.lock().unwrap().push(row);
        if let Some(flight) = self.probe.begin(self.metric, iteration.intended, iteration.started) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            flight.end(Instant::now(), Outcome::of_status(200), 0, 0);
        }
        true
    }
}

/// `users` who make `iterations` together.
fn bundle(users: f64, iterations: u64) -> Bundle {
    let profile = Profile::constant(users, Duration::from_secs(3600)).expect("a load");
    let model = LoadModel::Closed { users: profile, pause: Pause::NONE };
    bundle_of(Load { model, iterations: Some(iterations), warm_up: Duration::ZERO }, Duration::from_secs(60))
}

struct Fleet {
    cell: MemoryFleetStores,
    log: Log,
    workers: Vec<(CancellationToken, JoinHandle<()>)>,
}

impl Fleet {
    /// So many workers, of which nobody is taken for dead.
    fn of(workers: usize, rows: u64) -> Fleet {
        let (cell, log) = (MemoryFleetStores::default(), Log::default());
        let workers = (0..workers).map(|at| {
            let mut config = WorkerConfig::new(format!("w{at}"));
            (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
            let stop = CancellationToken::new();
            let host = Rows { log: log.clone(), limit: rows };
            let working = Worker::new(cell.clone(), host, config).run(stop.clone());
            (stop, tokio::spawn(async move { working.await.expect("timings that fit") }))
        });
        let workers = workers.collect();
        Fleet { cell, log, workers }
    }

    /// Changes the record as a leader would.
    async fn order(&self, phase: RunPhase, order: &RunSpec, begins: bool) -> u64 {
        let run = self.cell.run();
        let seen = run.read_record().await.unwrap();
        let text = serde_json::to_string(order).unwrap();
        run.compare_and_set(&seen, phase.name(), &text, begins).await.unwrap().expect("nobody else is here").epoch
    }

    /// Begins at once; everybody who is there takes part.
    async fn begin(&self, bundle: &Bundle) -> RunSpec {
        let run = self.cell.run();
        let name = run.put_bundle(&serde_json::to_vec(bundle).unwrap()).await.unwrap();
        let mut order = RunSpec::new("r", name, bundle.plan.load.model.profile().clone());
        assert_eq!(self.order(RunPhase::Preparing, &order, true).await, 1);
        self.until("ready workers", |_| true, self.workers.len(), |report| report.ready).await;
        order.start_at_ms = Some(run.read_record().await.unwrap().now_ms);
        self.order(RunPhase::Running, &order, false).await;
        order
    }

    /// Waits until `count` workers report run 1 by `epoch_of`, and the counter of iterations is as it should be.
    async fn until(
        &self,
        what: &str,
        counted: impl Fn(&CounterState) -> bool,
        count: usize,
        epoch_of: fn(&WorkerReport) -> u64,
    ) {
        let begin = Instant::now();
        loop {
            let reports = self.cell.run().reports().await.unwrap();
            let saying = reports.values().filter(|report| epoch_of(&WorkerReport::decode(report)) == 1).count();
            let counters = self.cell.run().counters(1).await.unwrap();
            if saying == count && counted(counters.get(ITERATIONS_COUNTER).unwrap_or(&CounterState::default())) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}: {saying} workers, {counters:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(&self, mut order: RunSpec) {
        order.stop =
            Some(RunStopRequest { reason: StopReason::Completed, abort: false, asked_at_ms: 0, message: None });
        self.order(RunPhase::Stopping, &order, false).await;
    }

    async fn end(self) {
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
async fn a_fleet_makes_so_many_iterations_with_every_row_once() {
    let fleet = Fleet::of(3, 2000);
    let order = fleet.begin(&bundle(8.0, 2000)).await;
    fleet.until("all iterations", is_used_up, 3, |report| report.ready).await;
    fleet.stop(order).await;
    fleet.until("the end", is_used_up, 3, |report| report.done).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    assert_eq!(rows.len(), 2000, "every iteration was made once");
    assert_eq!(rows.iter().flatten().copied().collect::<BTreeSet<_>>(), (0..2000).collect());
    fleet.end().await;
}

/// More iterations than rows: who finds none left is told so, and nobody waits for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_used_up_are_told_to_be() {
    let fleet = Fleet::of(2, 50);
    fleet.begin(&bundle(5.0, 120)).await;
    fleet.until("all iterations", is_used_up, 2, |report| report.ready).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    let given: Vec<u64> = rows.iter().flatten().copied().collect();
    assert_eq!((given.len(), given.into_iter().collect::<BTreeSet<_>>().len()), (50, 50));
    fleet.end().await;
}

/// A worker that leaves gives the rest of what it had drawn to the others; one that is killed takes it along, and nobody uses it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_takes_along_is_used_by_nobody_else() {
    let mut fleet = Fleet::of(3, 5000);
    let order = fleet.begin(&bundle(9.0, 5000)).await;
    fleet.until("some iterations", |counter| counter.used() > 500, 3, |report| report.ready).await;
    let run = fleet.cell.run();
    let instance = WorkerReport::decode(&run.reports().await.unwrap()["w1"]).instance;
    let dead = SourceName::Thread { instance, thread: 0 }.to_string();
    let (_, killed) = fleet.workers.remove(1);
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    let (stop, leaving) = fleet.workers.remove(0);
    stop.cancel();
    leaving.await.expect("no panic");
    let begin = Instant::now();
    while !run.counters(1).await.unwrap().get(ITERATIONS_COUNTER).is_some_and(is_used_up) {
        // As a leader does again and again with those it does not hear.
        for counter in [ITERATIONS_COUNTER, "rows"] {
            run.write_off(1, counter, &dead).await.unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {:?}", run.counters(1).await.unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fleet.stop(order).await;
    let rows = fleet.log.rows.lock().unwrap().clone();
    let given: Vec<u64> = rows.iter().flatten().copied().collect();
    let different: BTreeSet<u64> = given.iter().copied().collect();
    assert_eq!(given.len(), different.len(), "no row was used twice");
    let counters = run.counters(1).await.unwrap();
    let taken_along: u64 = counters[ITERATIONS_COUNTER].sources.values().map(|source| source.unused()).sum();
    assert!(rows.len() as u64 + taken_along >= 5000 && rows.len() <= 5000, "{} and {taken_along}", rows.len());
    fleet.end().await;
}
