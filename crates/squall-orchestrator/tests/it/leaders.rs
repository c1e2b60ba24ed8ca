//! One leader after the other: what the first knew the second knows, and the report says that there were two.

use squall_coord::{Cell, RunStore};
use squall_model::{ShareSet, StopReason};
use squall_orchestrator::{Control, Fleet, FleetError, FleetRun, run_fleet};
use std::{collections::BTreeMap, time::Duration};

use crate::{
    shown::delta,
    stage::{Stage, bundle},
};

#[tokio::test]
async fn a_change_of_leader_is_told_and_nobody_joins_again() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    let leader = stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let run = stage.cell.run();
    let instance = u64::from_str_radix(&run.reports().await.unwrap()["w0"]["instance"], 16).unwrap();
    let fleet = Fleet::new(stage.cell.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    // Later than a worker can come and still have been there from the beginning.
    while fleet.status().await.unwrap().elapsed_s.is_none_or(|elapsed| elapsed < 1.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leader.cancel();
    stage.lead();
    run.ship(epoch, "s", 0, &delta(instance, 0, 5)).await.unwrap();
    stage.until("XLEN", "metric:browse", 1).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it runs");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    let facts = fleet.finished(epoch).await.unwrap().expect("a result").facts.fleet.expect("a fleet made it");
    let events: Vec<&str> = facts.events.iter().map(|event| event.text.as_str()).collect();
    assert!(events.iter().any(|text| text.starts_with("orchestrator o leads now")), "{events:?}");
    assert!(!events.iter().any(|text| text.contains("joined")), "{events:?}");
    assert!(facts.workers.iter().all(|worker| worker.joined_s < 0.5), "{:?}", facts.workers);
    stage.end().await;
}

/// Ctrl-C was heard only after the time in which workers may appear, and then it was an error that there were none.
#[tokio::test]
async fn a_stop_takes_effect_while_workers_are_awaited() {
    let (stage, control, bundle) = (Stage::new().await, Control::new(), bundle(1.0));
    control.drain();
    let run = FleetRun { bundle: &bundle, params: BTreeMap::new(), keep_s: 1 };
    let finished = run_fleet(&stage.cell, run, &control, &mut []).await.expect("no error but an end");
    assert_eq!((finished.facts.stop, finished.view.all.requests), (StopReason::Interrupted, 0));
    stage.end().await;
}

/// Whoever heard no answer asks again, and must neither be refused nor get a second run.
#[tokio::test]
async fn a_run_with_a_name_is_begun_once_however_often_it_is_asked_for() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    let fleet = Fleet::new(stage.cell.clone());
    let first = fleet.start_as("mine", &bundle(1.0), BTreeMap::new()).await.expect("it starts");
    let again = fleet.start_as("mine", &bundle(1.0), BTreeMap::new()).await.expect("it has started");
    assert_eq!(first, again);
    let refused = fleet.start_as("another", &bundle(1.0), BTreeMap::new()).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    stage.end().await;
}

/// The plan of a run was forgotten a day after its start, and its result with it.
#[tokio::test]
async fn what_a_run_needs_is_kept_as_long_as_it_lasts() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let fleet = Fleet::new(stage.cell.clone());
    fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    let name = fleet.status().await.unwrap().order.expect("it runs").bundle;
    let key = format!("bundle:{name}");
    assert!(stage.ask::<bool>("EXPIRE", &key, &["600"]).await, "{key}");
    while stage.ask::<i64>("TTL", &key, &[]).await <= 600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.end().await;
}

/// Before the first run there is no order to be read, and that is not what is wrong.
#[tokio::test]
async fn a_fleet_without_a_test_says_so() {
    let stage = Stage::new().await;
    let refused = Fleet::new(stage.cell.clone()).set_level(5.0).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    stage.end().await;
}
