//! A worker whose store is away keeps what it has measured, and does not measure for ever.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore, START_POSITION, ShippedDelta};
use squall_model::{Arrivals, Bundle, Load, LoadModel, Profile, RunPhase, RunSpec};
use squall_testkit::redis::RedisServer;
use squall_worker::{DriverFactory, RunnableBundle, Worker, WorkerConfig};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use crate::{Nothing, PATIENCE, bundle_of};

/// Opens anything, and does nothing with it.
struct Open;

impl DriverFactory for Open {
    type Driver = Nothing;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<Nothing>, String> {
        let (beside, stock, rations) = (Vec::new(), Vec::new(), Vec::new());
        Ok(RunnableBundle {
            driver: Nothing,
            threads: Some(1),
            plan: None,
            additional: beside,
            pools: stock,
            shared_counters: rations,
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
async fn deltas_wait_for_a_store_that_is_away_within_a_bound() {
    let mut server = RedisServer::start();
    let cell = RedisFleetStores::new(&RedisClient::open(&server.url()).await.unwrap(), "bound");
    let mut config = WorkerConfig::new("w");
    // Its place is its own all the time: nothing but the bound ends its load.
    (config.heartbeat_interval, config.ttl, config.max_unshipped_deltas) =
        (Duration::from_millis(100), Duration::from_secs(600), 3);
    let worker = Worker::new(cell.clone(), Open, config);
    let status = worker.status();
    let working = tokio::spawn(worker.run(CancellationToken::new()));
    let begin = Instant::now();
    let patient = || assert!(begin.elapsed() < PATIENCE, "waited in vain: {:?}", status.borrow().report);
    let moment = || tokio::time::sleep(Duration::from_millis(20));
    let waiting = || status.borrow().report.waiting;

    let (run, bundle) = (cell.run(), bundle());
    let mut order = RunSpec::new(
        "r",
        run.put_bundle(&serde_json::to_vec(&bundle).unwrap()).await.unwrap(),
        bundle.plan.load.model.profile().clone(),
    );
    let seen = run.read_record().await.unwrap();
    let text = serde_json::to_string(&order).unwrap();
    let seen = run.compare_and_set(&seen, RunPhase::Preparing.name(), &text, true).await.unwrap().expect("alone");
    while status.borrow().report.ready != 1 {
        patient();
        moment().await;
    }
    order.start_at_ms = Some(seen.now_ms);
    let text = serde_json::to_string(&order).unwrap();
    run.compare_and_set(&seen, RunPhase::Running.name(), &text, false).await.unwrap().expect("alone");
    // It has begun when something has been shipped that is no announcement.
    let is_delta = |shipped: &ShippedDelta| squall_metrics::decode_delta(&shipped.bytes).is_ok();
    while !run.deltas(1, START_POSITION, 1000).await.unwrap().iter().any(is_delta) {
        patient();
        moment().await;
    }
    server.kill();
    while waiting() <= 3 {
        patient();
        moment().await;
    }
    // One a second as long as it makes load: that ends, and then there are no more.
    loop {
        let before = waiting();
        tokio::time::sleep(Duration::from_secs(4)).await;
        if waiting() == before {
            break;
        }
        patient();
    }
    working.abort();
}
