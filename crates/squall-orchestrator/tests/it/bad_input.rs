//! What stands in the store and is not ours: a leader refuses it, says so, and leaves the fleet usable.

use squall_coord::{FleetStores, RunStore};
use squall_model::{ShareSet, StopReason};
use squall_orchestrator::FleetClient;
use std::collections::BTreeMap;

use crate::fleet_fixture::{Stage, bundle};

/// A plan that nobody can read must not keep the fleet in PREPARING for ever.
#[tokio::test]
async fn a_run_whose_plan_cannot_be_read_is_given_up() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    // Nobody leads yet, so that the plan can be spoilt in time.
    for (epoch, spoil, value) in [(1, "SET", "{"), (2, "SET", "{\"plan\": 7}"), (3, "RPUSH", "x"), (4, "DEL", "")] {
        println!("{spoil} {value}");
        let started = fleet.start(&bundle(f64::from(epoch)), BTreeMap::new()).await.expect("it starts");
        assert_eq!(started, u64::try_from(epoch).unwrap());
        let order = fleet.status().await.unwrap().order.unwrap();
        let key = format!("bundle:{}", order.bundle);
        stage.ask::<i64>("DEL", &key, &[]).await;
        if spoil != "DEL" {
            stage.ask::<redis::Value>(spoil, &key, &[value]).await;
        }
        let leader = stage.lead();
        stage.until("GET", "test:state", "IDLE".to_owned()).await;
        leader.cancel();
    }
    stage.end().await;
}

/// What nobody can go on from must not keep the fleet from the next run.
#[tokio::test]
async fn a_run_whose_saving_cannot_be_read_is_given_up() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
    stage.ask::<i64>("HSET", &format!("test:{epoch}:saved"), &["place", "7-0", "made", "nothing"]).await;
    stage.lead();
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    fleet.start(&bundle(2.0), BTreeMap::new()).await.expect("the next one starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    stage.end().await;
}

#[tokio::test]
async fn entries_of_somebody_else_in_the_stream_of_deltas_are_passed_over() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    let key = format!("test:{epoch}:deltas");
    for fields in [["*", "other", "x"], ["*", "d", "short"], ["*", "d", "long enough to be a delta, but none"]] {
        stage.ask::<String>("XADD", &key, &fields).await;
    }
    let instance = stage.cell.run().reports().await.unwrap()["w0"]["instance"].clone();
    let number = u64::from_str_radix(&instance, 16).unwrap();
    stage.cell.run().ship(epoch, "s", 0, &crate::compat_views::delta(number, 0, 5)).await.unwrap();
    // What came after them is merged.
    stage.until("XLEN", "metric:browse", 1).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it runs");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    let view = fleet.stored_result(epoch).await.unwrap().expect("a result").view;
    assert_eq!(view.all.requests, 5);
    stage.end().await;
}
