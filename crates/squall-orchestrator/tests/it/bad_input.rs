//! Unreadable data in the store: the leader abandons the run or skips the data, and the fleet stays
//! usable.

use squall_coord::{FleetStores, RunStore};
use squall_model::{RunPhase, ShareSet, StopReason};
use squall_orchestrator::FleetClient;
use std::collections::BTreeMap;

use crate::fleet_fixture::{FleetFixture, bundle};

/// An unreadable plan must not keep the fleet in PREPARING forever.
#[tokio::test]
async fn run_with_an_unreadable_plan_is_abandoned() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    // No orchestrator leads yet, so that the test can damage the plan first.
    for (epoch, damage, value) in [(1, "SET", "{"), (2, "SET", "{\"plan\": 7}"), (3, "RPUSH", "x"), (4, "DEL", "")] {
        println!("{damage} {value}");
        let started = fleet.start(&bundle(f64::from(epoch)), BTreeMap::new()).await.expect("the run starts");
        assert_eq!(started, u64::try_from(epoch).unwrap());
        let order = fleet.status().await.unwrap().spec.unwrap();
        let key = format!("bundle:{}", order.bundle);
        fixture.ask::<i64>("DEL", &key, &[]).await;
        if damage != "DEL" {
            fixture.ask::<redis::Value>(damage, &key, &[value]).await;
        }
        let leader = fixture.lead();
        fixture.until_phase(RunPhase::Idle).await;
        leader.cancel();
    }
    fixture.end().await;
}

/// An unreadable checkpoint must not keep the fleet from the next run.
#[tokio::test]
async fn run_with_an_unreadable_checkpoint_is_abandoned() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.ask::<i64>("HSET", &format!("test:{epoch}:saved"), &["place", "7-0", "made", "nothing"]).await;
    fixture.lead();
    fixture.until_phase(RunPhase::Idle).await;
    fleet.start(&bundle(2.0), BTreeMap::new()).await.expect("the next run starts");
    fixture.until_phase(RunPhase::Running).await;
    fixture.end().await;
}

#[tokio::test]
async fn foreign_entries_in_the_delta_stream_are_skipped() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    let key = format!("test:{epoch}:deltas");
    for fields in [["*", "other", "x"], ["*", "d", "short"], ["*", "d", "long enough to be a delta, but none"]] {
        fixture.ask::<String>("XADD", &key, &fields).await;
    }
    let instance = fixture.stores.run().reports().await.unwrap()["w0"]["instance"].clone();
    let number = u64::from_str_radix(&instance, 16).unwrap();
    fixture.stores.run().ship(epoch, "s", 0, &crate::compat_views::delta(number, 0, 5)).await.unwrap();
    // The delta after them is merged.
    fixture.until("XLEN", "metric:browse", 1).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let view = fleet.stored_result(epoch).await.unwrap().expect("a result").view;
    assert_eq!(view.all.requests, 5);
    fixture.end().await;
}
