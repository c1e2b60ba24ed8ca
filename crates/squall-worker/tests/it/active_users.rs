//! The users that a worker shows in Redis as active.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore, fleet_key_prefix};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, OnStartError, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_model::{Bundle, Load, LoadModel, Pause, Profile, RunPhase, RunSpec, protocol::WorkerReport};
use squall_testkit::redis::RedisServer;
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{TEST_TIMEOUT, bundle_of, only_scenario};

/// Users whose `on_start` waits for a permit.
#[derive(Clone)]
struct WaitingDriver {
    starts: Arc<Semaphore>,
}

impl DriverFactory for WaitingDriver {
    type Driver = WaitingDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<WaitingDriver>, OpenBundleError> {
        Ok(RunnableBundle {
            scenarios: vec![only_scenario(bundle, self.clone(), 1)],
            pools: Vec::new(),
            shared_counters: Vec::new(),
            hooks: None,
        })
    }
}

impl Driver for WaitingDriver {
    type Thread = WaitingDriver;

    fn thread(&self, _: ThreadRecorder) -> Result<WaitingDriver, DriverError> {
        Ok(self.clone())
    }
}

impl DriverThread for WaitingDriver {
    type User = WaitingDriver;

    fn user(&self, _: UserIdentity) -> WaitingDriver {
        self.clone()
    }
}

impl VirtualUser for WaitingDriver {
    async fn on_start(&mut self) -> Result<(), OnStartError> {
        self.starts.acquire().await.expect("the semaphore stays open").forget();
        Ok(())
    }

    async fn iterate(&mut self, _: Iteration) -> bool {
        tokio::time::sleep(Duration::from_millis(5)).await;
        true
    }
}

struct Store {
    client: RedisClient,
    stores: RedisFleetStores,
    started: Instant,
}

impl Store {
    async fn active(&self) -> BTreeSet<u64> {
        let key = format!("{}worker:w:active_users", fleet_key_prefix("active"));
        redis::cmd("SMEMBERS").arg(key).query_async(&mut self.client.connection()).await.expect("Redis answers")
    }

    async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        while !condition().await {
            assert!(self.started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn write_record(&self, phase: RunPhase, spec: &RunSpec, raise_epoch: bool) {
        let (run, text) = (self.stores.run(), serde_json::to_string(spec).unwrap());
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, phase.name(), &text, raise_epoch).await.unwrap().expect("no other writer");
    }

    async fn report(&self) -> Option<WorkerReport> {
        self.stores.run().reports().await.unwrap().get("w").map(WorkerReport::decode)
    }
}

#[tokio::test]
async fn user_is_active_in_the_store_once_its_on_start_has_succeeded() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let stores = RedisFleetStores::new(&client, "active");
    let store = Store { client, stores: stores.clone(), started: Instant::now() };
    let (driver, stop) = (WaitingDriver { starts: Arc::new(Semaphore::new(0)) }, CancellationToken::new());
    let mut config = WorkerConfig::new("w");
    (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
    let working = Worker::new(stores.clone(), driver.clone(), config).run(stop.clone());
    let task = tokio::spawn(async move { working.await.expect("the worker leaves in good order") });
    store.until("all shares", async || store.report().await.is_some_and(|report| report.share_count == 256)).await;

    let users = Profile::constant(3.0, Duration::from_secs(3600)).unwrap();
    let model = LoadModel::Closed { users, pause: Pause::NONE };
    let bundle = bundle_of(Load { model, iterations: None, warm_up: Duration::ZERO }, Duration::from_secs(1));
    let name = stores.run().put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap();
    let mut spec = RunSpec::new("r", name, bundle.plan.load.model.profile().clone());
    store.write_record(RunPhase::Preparing, &spec, true).await;
    store.until("its users to be built", async || store.report().await.is_some_and(|report| report.ready == 1)).await;
    spec.start_at_ms = Some(stores.run().read_record().await.unwrap().now_ms);
    store.write_record(RunPhase::Running, &spec, false).await;

    // All three users wait in `on_start`.
    driver.starts.add_permits(1);
    store.until("one user", async || store.active().await.len() == 1).await;
    driver.starts.add_permits(2);
    store.until("all users", async || store.active().await == BTreeSet::from([1, 2, 3])).await;
    spec.ramp_level(Duration::from_secs(1), 1.0, Duration::ZERO).unwrap();
    store.write_record(RunPhase::Running, &spec, false).await;
    store.until("one user of three", async || store.active().await == BTreeSet::from([1])).await;
    store.write_record(RunPhase::Stopping, &spec, false).await;
    store.until("no user", async || store.active().await.is_empty()).await;
    stop.cancel();
    task.await.expect("no panic");
}
