//! A worker keeps its deltas while the store is away, and ends its load when it has too many.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore, START_POSITION, ShippedDelta};
use squall_model::{Arrivals, Bundle, Load, LoadModel, Profile, RunPhase, RunSpec};
use squall_testkit::redis::RedisServer;
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::{IdleDriver, TEST_TIMEOUT, bundle_of, only_scenario};

/// Opens every bundle with users that do nothing.
struct IdleFactory;

impl DriverFactory for IdleFactory {
    type Driver = IdleDriver;

    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<IdleDriver>, OpenBundleError> {
        Ok(RunnableBundle {
            scenarios: vec![only_scenario(bundle, IdleDriver, 1)],
            pools: Vec::new(),
            shared_counters: Vec::new(),
            hooks: None,
        })
    }
}

/// Ten starts a second for an hour.
fn bundle() -> Bundle {
    let rate = Profile::constant(10.0, Duration::from_secs(3600)).expect("a load");
    let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    let load = Load { model, iterations: None, warm_up: Duration::ZERO };
    bundle_of(load, Duration::from_secs(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn load_ends_when_too_many_deltas_wait_for_the_store() {
    let mut server = RedisServer::start();
    let stores = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "bound");
    let mut config = WorkerConfig::new("w");
    // The membership does not expire, so only the limit of unshipped deltas ends the load.
    (config.heartbeat_interval, config.ttl, config.max_unshipped_deltas) =
        (Duration::from_millis(100), Duration::from_secs(600), 3);
    let worker = Worker::new(stores.clone(), IdleFactory, config);
    let status = worker.status();
    let task = tokio::spawn(worker.run(CancellationToken::new()));
    let started = Instant::now();
    let check_timeout = || assert!(started.elapsed() < TEST_TIMEOUT, "timed out: {:?}", status.borrow().report);
    let pause = || tokio::time::sleep(Duration::from_millis(20));
    let waiting = || status.borrow().report.waiting;

    let (run, bundle) = (stores.run(), bundle());
    let mut spec = RunSpec::new(
        "r",
        run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap(),
        bundle.plan.load.model.profile().clone(),
    );
    let seen = run.read_record().await.unwrap();
    let text = serde_json::to_string(&spec).unwrap();
    let seen =
        run.compare_and_set(&seen, RunPhase::Preparing.name(), &text, true).await.unwrap().expect("no other writer");
    while status.borrow().report.ready != 1 {
        check_timeout();
        pause().await;
    }
    spec.start_at_ms = Some(seen.now_ms);
    let text = serde_json::to_string(&spec).unwrap();
    run.compare_and_set(&seen, RunPhase::Running.name(), &text, false).await.unwrap().expect("no other writer");
    // The load has started when the stream has a delta; announcements come earlier.
    let is_delta = |shipped: &ShippedDelta| squall_metrics::decode_delta(&shipped.bytes).is_ok();
    while !run.deltas(1, START_POSITION, 1000).await.unwrap().iter().any(is_delta) {
        check_timeout();
        pause().await;
    }
    server.kill();
    while waiting() <= 3 {
        check_timeout();
        pause().await;
    }
    // The load makes one delta a second. When it has ended, the number stays the same.
    loop {
        let before = waiting();
        tokio::time::sleep(Duration::from_secs(4)).await;
        if waiting() == before {
            break;
        }
        check_timeout();
    }
    task.abort();
}
