//! Workers that come late, and that leave while their users still use what they have borrowed.

use squall_coord::{FleetStores, LeaseStore, MemoryFleetStores, PoolName, PoolStore, RunStore};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, ResourceLease, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_model::{Bundle, Load, LoadModel, Pause, PoolContents, Profile, RunPhase, RunSpec};
use squall_worker::{DriverFactory, RunnableBundle, Worker, WorkerConfig};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{PATIENCE, bundle_of};

const HOUR: Duration = Duration::from_secs(3600);

/// Users that borrow the only thing there is, and keep it in use until they are let go; for good when `go` is closed.
#[derive(Clone)]
struct Borrowing {
    using: Arc<watch::Sender<usize>>,
    go: Arc<Semaphore>,
}

struct User {
    of: Borrowing,
    probe: ThreadRecorder,
    loan: Option<ResourceLease>,
}

struct Thread(Borrowing, ThreadRecorder);

impl DriverFactory for Borrowing {
    type Driver = Borrowing;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<Borrowing>, String> {
        let stock = vec![PoolContents { pool: "only".to_owned(), payloads: vec!["{}".to_owned()] }];
        let (driver, threads) = (self.clone(), Some(1));
        Ok(RunnableBundle {
            driver,
            threads,
            plan: None,
            additional: Vec::new(),
            pools: stock,
            shared_counters: Vec::new(),
            hooks: None,
        })
    }
}

impl Driver for Borrowing {
    type Thread = Thread;

    fn thread(&self, probe: ThreadRecorder) -> Result<Thread, DriverError> {
        Ok(Thread(self.clone(), probe))
    }
}

impl DriverThread for Thread {
    type User = User;

    fn user(&self, _: UserIdentity) -> User {
        User { of: self.0.clone(), probe: self.1.clone(), loan: None }
    }
}

impl VirtualUser for User {
    async fn iterate(&mut self, _: Iteration) -> bool {
        let lender = self.probe.resources().expect("there are pools");
        if self.loan.is_none() {
            self.loan = lender.acquire("only", PATIENCE).await.ok();
        }
        self.of.using.send_modify(|using| *using += 1);
        if let Ok(permit) = self.of.go.acquire().await {
            permit.forget();
        }
        self.of.using.send_modify(|using| *using -= 1);
        true
    }
}

/// Two users.
fn users(lasts: Duration) -> Profile {
    Profile::constant(2.0, lasts).expect("a load")
}

fn bundle(users: Profile) -> Bundle {
    let load =
        Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO };
    bundle_of(load, PATIENCE)
}

/// Starts a run that was planned for `planned`, is to last for `lasts` by now, and began some time ago.
async fn run_for(run: &impl RunStore, planned: Duration, lasts: Duration, ago: Duration) {
    let bundle = bundle(users(planned));
    let name = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
    let mut order = RunSpec::new("r", name, users(lasts));
    let seen = run.read_record().await.unwrap();
    let text = serde_json::to_string(&order).unwrap();
    let seen = run.compare_and_set(&seen, RunPhase::Preparing.name(), &text, true).await.unwrap().expect("alone");
    order.start_at_ms = Some(seen.now_ms - ago.as_millis() as u64);
    let text = serde_json::to_string(&order).unwrap();
    run.compare_and_set(&seen, RunPhase::Running.name(), &text, false).await.unwrap().expect("alone");
}

/// Found by a reader: a run that was paused goes on longer than planned, and whoever came after its planned end took shares and made
/// nothing of them.
#[tokio::test]
async fn who_comes_after_the_planned_end_of_a_longer_run_takes_part() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    run_for(&cell.run(), Duration::from_secs(1), HOUR, Duration::from_secs(60)).await;
    let host = Borrowing { using: Arc::default(), go: Arc::new(Semaphore::new(0)) };
    let mut config = WorkerConfig::new("w");
    (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), HOUR);
    let working = tokio::spawn(Worker::new(cell.clone(), host.clone(), config).run(stop.clone()));
    let mut using = host.using.subscribe();
    let used = tokio::time::timeout(PATIENCE, using.wait_for(|using| *using == 1)).await.is_ok();
    assert!(used, "nobody makes the load: {:?}", cell.run().reports().await);
    host.go.close();
    stop.cancel();
    working.await.expect("no panic").expect("it leaves");
}

#[tokio::test]
async fn what_a_leaver_still_uses_is_nobody_elses() {
    let cell = MemoryFleetStores::default();
    let (run, pools, only) = (cell.run(), cell.pools(), PoolName::new("only").unwrap());
    let using = Arc::new(watch::Sender::default());
    let hosts: [Borrowing; 2] =
        std::array::from_fn(|_| Borrowing { using: using.clone(), go: Arc::new(Semaphore::new(0)) });
    let stops: [CancellationToken; 2] = std::array::from_fn(|_| CancellationToken::new());
    let mut workers = Vec::new();
    for (at, (host, stop)) in hosts.iter().zip(&stops).enumerate() {
        let mut config = WorkerConfig::new(format!("w{at}"));
        (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
        workers.push(tokio::spawn(Worker::new(cell.clone(), host.clone(), config).run(stop.clone())));
    }
    let began = Instant::now();
    let until = async |what: &str, done: &mut dyn FnMut(Vec<(String, u32)>) -> bool| {
        loop {
            let view = cell.workers().snapshot().await.unwrap();
            let held =
                |id: &str| view.leases.values().filter(|holder| holder.member.as_str().starts_with(id)).count() as u32;
            if done(["w0", "w1"].map(|id| (id.to_owned(), held(id))).into()) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain for {what}: {:?}", run.reports().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until("both", &mut |held| held.iter().all(|(_, shares)| *shares == 128)).await;

    run_for(&run, HOUR, HOUR, Duration::ZERO).await;

    // One of the two has it, the other waits for it.
    using.subscribe().wait_for(|using| *using == 1).await.unwrap();
    let holder = pools.list(&only, 1).await.unwrap()[0].held.clone().expect("it is lent").member;
    let leaver = usize::from(holder.as_str().starts_with("w1"));
    stops[leaver].cancel();
    let other = 1 - leaver;
    until("all shares with the other", &mut |held| held[other].1 == 256).await;
    // Whoever sweeps now finds it in use.
    pools.sweep().await.unwrap();
    assert_eq!(pools.list(&only, 1).await.unwrap()[0].held.as_ref().map(|held| &held.member), Some(&holder));
    assert_eq!(*using.borrow(), 1, "nobody else has it");

    // When its iteration is over it goes, and the other has the thing.
    hosts[leaver].go.add_permits(1);
    workers.remove(leaver).await.expect("no panic").expect("it leaves");
    using.subscribe().wait_for(|using| *using == 1).await.unwrap();
    assert_ne!(pools.list(&only, 1).await.unwrap()[0].held.as_ref().map(|held| &held.member), Some(&holder));
    hosts[other].go.close();
    stops[other].cancel();
    workers.remove(0).await.expect("no panic").expect("it leaves");
}
