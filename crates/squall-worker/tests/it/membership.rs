//! Workers that join late, and workers that leave while their users still hold leased resources.

use squall_coord::{FleetStores, LeaseStore, MemoryFleetStores, PoolName, PoolStore, RunStore};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, ResourceLease, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_model::{Bundle, Load, LoadModel, Pause, PoolContents, Profile, RunPhase, RunSpec};
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::{TEST_TIMEOUT, bundle_of, only_scenario};

const HOUR: Duration = Duration::from_secs(3600);

/// Users that acquire the only item of a pool and use it in each iteration until
/// `permits` has a permit. Once `permits` is closed, iterations end at once.
#[derive(Clone)]
struct LeasingDriver {
    users_in_iteration: Arc<watch::Sender<usize>>,
    permits: Arc<Semaphore>,
}

struct User {
    driver: LeasingDriver,
    recorder: ThreadRecorder,
    lease: Option<ResourceLease>,
}

struct Thread(LeasingDriver, ThreadRecorder);

impl DriverFactory for LeasingDriver {
    type Driver = LeasingDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<LeasingDriver>, OpenBundleError> {
        let pools = vec![PoolContents { pool: "only".to_owned(), payloads: vec!["{}".to_owned()] }];
        let driver = self.clone();
        Ok(RunnableBundle {
            scenarios: vec![only_scenario(bundle, driver, 1)],
            pools,
            shared_counters: Vec::new(),
            hooks: None,
        })
    }
}

impl Driver for LeasingDriver {
    type Thread = Thread;

    fn thread(&self, recorder: ThreadRecorder) -> Result<Thread, DriverError> {
        Ok(Thread(self.clone(), recorder))
    }
}

impl DriverThread for Thread {
    type User = User;

    fn user(&self, _: UserIdentity) -> User {
        User { driver: self.0.clone(), recorder: self.1.clone(), lease: None }
    }
}

impl VirtualUser for User {
    async fn iterate(&mut self, _: Iteration) -> bool {
        let resources = self.recorder.resources().expect("the run has pools");
        if self.lease.is_none() {
            self.lease = resources.acquire("only", TEST_TIMEOUT).await.ok();
        }
        self.driver.users_in_iteration.send_modify(|users| *users += 1);
        if let Ok(permit) = self.driver.permits.acquire().await {
            permit.forget();
        }
        self.driver.users_in_iteration.send_modify(|users| *users -= 1);
        true
    }
}

/// Two users.
fn users(duration: Duration) -> Profile {
    Profile::constant(2.0, duration).expect("a load")
}

fn bundle(users: Profile) -> Bundle {
    let load =
        Load { model: LoadModel::Closed { users, pause: Pause::NONE }, iterations: None, warm_up: Duration::ZERO };
    bundle_of(load, TEST_TIMEOUT)
}

/// Starts a run that was planned for `planned`, now lasts for `actual`, and started `ago`.
async fn start_run(run: &impl RunStore, planned: Duration, actual: Duration, ago: Duration) {
    let bundle = bundle(users(planned));
    let name = run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
    let mut spec = RunSpec::new("r", name, users(actual));
    let seen = run.read_record().await.unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    let seen =
        run.compare_and_set(&seen, RunPhase::Preparing.name(), &text, true).await.unwrap().expect("no other writer");
    spec.start_at_ms = Some(seen.now_ms - ago.as_millis() as u64);
    let text = serde_json::to_string(&spec).unwrap();
    run.compare_and_set(&seen, RunPhase::Running.name(), &text, false).await.unwrap().expect("no other writer");
}

/// A paused run lasts longer than planned. A worker that joins after its planned end must not hold
/// shares without making their load.
#[tokio::test]
async fn worker_that_joins_after_the_planned_end_of_a_longer_run_makes_load() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    start_run(&stores.run(), Duration::from_secs(1), HOUR, Duration::from_secs(60)).await;
    let driver = LeasingDriver { users_in_iteration: Arc::default(), permits: Arc::new(Semaphore::new(0)) };
    let mut config = WorkerConfig::new("w");
    (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), HOUR);
    let working = tokio::spawn(Worker::new(stores.clone(), driver.clone(), config).run(stop.clone()));
    let mut users = driver.users_in_iteration.subscribe();
    let started = tokio::time::timeout(TEST_TIMEOUT, users.wait_for(|users| *users == 1)).await.is_ok();
    assert!(started, "the worker makes no load: {:?}", stores.run().reports().await);
    driver.permits.close();
    stop.cancel();
    working.await.expect("no panic").expect("the worker leaves");
}

#[tokio::test]
async fn resources_of_a_leaving_worker_are_not_reassigned_until_its_users_finish() {
    let stores = MemoryFleetStores::default();
    let (run, pools, only) = (stores.run(), stores.pools(), PoolName::new("only").unwrap());
    let users = Arc::new(watch::Sender::default());
    let drivers: [LeasingDriver; 2] = std::array::from_fn(|_| LeasingDriver {
        users_in_iteration: users.clone(),
        permits: Arc::new(Semaphore::new(0)),
    });
    let stops: [CancellationToken; 2] = std::array::from_fn(|_| CancellationToken::new());
    let mut workers = Vec::new();
    for (at, (driver, stop)) in drivers.iter().zip(&stops).enumerate() {
        let mut config = WorkerConfig::new(format!("w{at}"));
        (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
        workers.push(tokio::spawn(Worker::new(stores.clone(), driver.clone(), config).run(stop.clone())));
    }
    let started = Instant::now();
    let wait_for_shares = async |what: &str, done: &mut dyn FnMut(Vec<(String, u32)>) -> bool| {
        loop {
            let view = stores.workers().snapshot().await.unwrap();
            let held =
                |id: &str| view.leases.values().filter(|holder| holder.member.as_str().starts_with(id)).count() as u32;
            if done(["w0", "w1"].map(|id| (id.to_owned(), held(id))).into()) {
                return;
            }
            assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}: {:?}", run.reports().await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait_for_shares("both workers to hold half of the shares", &mut |held| {
        held.iter().all(|(_, shares)| *shares == 128)
    })
    .await;

    start_run(&run, HOUR, HOUR, Duration::ZERO).await;

    // A user of one worker holds the item; a user of the other worker waits for it.
    users.subscribe().wait_for(|users| *users == 1).await.unwrap();
    let holder = pools.list(&only, 1).await.unwrap()[0].held.clone().expect("the item is leased").member;
    let leaving = usize::from(holder.as_str().starts_with("w1"));
    stops[leaving].cancel();
    let other = 1 - leaving;
    wait_for_shares("the other worker to hold all shares", &mut |held| held[other].1 == 256).await;
    // A sweep does not release the item.
    pools.sweep().await.unwrap();
    assert_eq!(pools.list(&only, 1).await.unwrap()[0].held.as_ref().map(|held| &held.member), Some(&holder));
    assert_eq!(*users.borrow(), 1, "no other user has the item");

    // When its iteration is over, the worker leaves, and the other worker's user gets the item.
    drivers[leaving].permits.add_permits(1);
    workers.remove(leaving).await.expect("no panic").expect("the worker leaves");
    users.subscribe().wait_for(|users| *users == 1).await.unwrap();
    assert_ne!(pools.list(&only, 1).await.unwrap()[0].held.as_ref().map(|held| &held.member), Some(&holder));
    drivers[other].permits.close();
    stops[other].cancel();
    workers.remove(0).await.expect("no panic").expect("the worker leaves");
}
