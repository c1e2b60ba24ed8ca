//! Leaders that change, stores that lose data or become unreachable, and requests that a client
//! repeats: the run continues with what the previous leader knew.

use squall_coord::{FleetStores, RedisFleetStores, RunStore};
use squall_model::{Bundle, RunPhase, ShareSet, StopReason};
use squall_orchestrator::{
    FleetClient, FleetError, FleetRunRequest, OrchestratorConfig, RunControl, StopRunCommand, run_fleet,
};
use std::{collections::BTreeMap, time::Duration};
use tokio_util::sync::CancellationToken;

use crate::{
    compat_views::delta,
    fleet_fixture::{FleetFixture, bundle},
    switched_stores::SwitchedStores,
};

#[tokio::test]
async fn change_of_leader_is_recorded_and_workers_do_not_join_again() {
    let (mut fixture, fleet, epoch, leader) = running_fleet(&bundle(1.0)).await;
    let (run, instance) = (fixture.stores.run(), instance(&fixture).await);
    // After this time a worker that is new to the leader counts as a late one.
    while fleet.status().await.unwrap().elapsed_s.is_none_or(|elapsed| elapsed < 1.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    leader.cancel();
    fixture.lead();
    run.ship(epoch, "s", 0, &delta(instance, 0, 5)).await.unwrap();
    fixture.until("XLEN", "metric:browse", 1).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts.fleet.expect("facts of a fleet");
    let events: Vec<&str> = facts.events.iter().map(|event| event.text.as_str()).collect();
    assert!(events.iter().any(|text| text.starts_with("orchestrator o leads now")), "{events:?}");
    assert!(!events.iter().any(|text| text.contains("joined")), "{events:?}");
    assert!(facts.workers.iter().all(|worker| worker.joined_s < 0.5), "{:?}", facts.workers);
    fixture.end().await;
}

/// The run record keeps the changes, so neither a new leader nor one that restarts from a checkpoint repeats or
/// misses one, and two changes between two polls of a leader stay two.
#[tokio::test]
async fn each_change_of_the_load_is_one_event_also_after_a_change_of_leader() {
    let (mut fixture, fleet, epoch, leader) = running_fleet(&bundle(10.0)).await;
    fixture.until_true("the start", async || fleet.status().await.unwrap().elapsed_s.is_some()).await;
    let mut revisions = Vec::new();
    for level in [20.0, 15.0] {
        fleet.set_level(level).await.expect("the run is active");
        revisions.push(fleet.revision().await.unwrap());
    }
    leader.cancel();
    let second = fixture.lead();
    fixture.until_saved(epoch, "leads now").await;
    fleet.pause().await.expect("the run is active");
    revisions.push(fleet.revision().await.unwrap());
    assert!(fleet.pause().await.is_err(), "a refused change");
    second.cancel();
    fixture.lead();
    fleet.resume().await.expect("the run is paused");
    revisions.push(fleet.revision().await.unwrap());
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts;
    let changes = facts.events().iter().filter(|event| event.revision.is_some());
    let (texts, seen): (Vec<&str>, Vec<u64>) =
        changes.map(|event| (event.text.as_str(), event.revision.unwrap())).unzip();
    assert_eq!(texts, ["users 10 → 20", "users 20 → 15", "load paused", "load resumed at 15 users"]);
    assert_eq!(seen, revisions);
    fixture.end().await;
}

/// A fleet of one worker, `w0`, in the middle of a run, with the epoch of the run and the token
/// that ends its leader.
async fn running_fleet(bundle: &Bundle) -> (FleetFixture, FleetClient<RedisFleetStores>, u64, CancellationToken) {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    let leader = fixture.lead();
    fixture.until_workers(1).await;
    let fleet = fixture.fleet.clone();
    let epoch = fleet.start(bundle, BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    (fixture, fleet, epoch, leader)
}

/// The instance of `w0`.
async fn instance(fixture: &FleetFixture) -> u64 {
    let reports = fixture.stores.run().reports().await.unwrap();
    u64::from_str_radix(&reports["w0"]["instance"], 16).unwrap()
}

/// The successor no longer has the histograms of the breached window.
#[tokio::test]
async fn window_threshold_breached_under_one_leader_stays_breached_under_the_next() {
    let mut bundle = bundle(1.0);
    bundle.plan.thresholds = ["requests[1s]<=5", "requests[1s]<=50"].map(|text| text.parse().unwrap()).into();
    let (mut fixture, fleet, epoch, leader) = running_fleet(&bundle).await;
    let (run, instance) = (fixture.stores.run(), instance(&fixture).await);
    // Only second 1 has too many requests, and more seconds follow than histograms are kept for.
    for second in 0..12 {
        let requests = if second == 1 { 10 } else { 5 };
        run.ship(epoch, "s", second, &delta(instance, second, requests)).await.unwrap();
    }
    fixture.until("XLEN", "metric:browse", 12).await;
    // The leader saves a checkpoint when a worker joins.
    fixture.join("late", ShareSet::NONE);
    fixture.until_saved(epoch, "late").await;
    leader.cancel();
    fixture.lead();
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts;
    let verdicts: Vec<_> = facts.thresholds.iter().map(|one| (one.passed, one.value, one.breached_at_s)).collect();
    assert_eq!(verdicts, [(false, Some(10.0), Some(2)), (true, Some(10.0), None)]);
    fixture.end().await;
}

/// The older checkpoint has fewer events than the leader has logged.
#[tokio::test]
async fn leader_continues_after_the_store_returns_to_an_older_checkpoint() {
    let (mut fixture, fleet, epoch, _) = running_fleet(&bundle(1.0)).await;
    let run = fixture.stores.run();
    let older = run.load_checkpoint(epoch).await.unwrap().expect("the leader saves before the start").data;
    // Two events: a worker joins and is lost.
    while fleet.status().await.unwrap().elapsed_s.is_none_or(|elapsed| elapsed < 1.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = fixture.join("late", ShareSet::NONE);
    fixture.until_saved(epoch, "late joined").await;
    *late.lock().unwrap() = None;
    fixture.until_saved(epoch, "late was lost").await;
    let key = format!("test:{epoch}:saved");
    let mut restore_older = redis::cmd("HSET");
    restore_older
        .arg(format!("{}{key}", squall_coord::fleet_key_prefix("t")))
        .arg("place")
        .arg("0-1")
        .arg("made")
        .arg(older);
    let _: i64 = fixture.query(&restore_older).await;
    // The store rejects the leader's next checkpoint, and the leader restores the older one.
    fixture.join("later", ShareSet::NONE);
    fixture.until_saved(epoch, "later joined").await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    fixture.end().await;
}

#[tokio::test]
async fn lost_checkpoint_is_saved_again_with_all_merged_deltas() {
    let (mut fixture, fleet, epoch, _) = running_fleet(&bundle(1.0)).await;
    let (run, instance) = (fixture.stores.run(), instance(&fixture).await);
    run.ship(epoch, "s", 0, &delta(instance, 0, 5)).await.unwrap();
    fixture.until("XLEN", "metric:browse", 1).await;
    // The leader saves a checkpoint when a worker joins, at the position of that delta.
    fixture.join("late", ShareSet::NONE);
    fixture.until_saved(epoch, "late").await;
    assert_eq!(fixture.ask::<i64>("DEL", &format!("test:{epoch}:saved"), &[]).await, 1);
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.until_phase(RunPhase::Idle).await;
    let finished = fleet.stored_result(epoch).await.unwrap().expect("a result");
    assert_eq!(finished.view.all.requests, 5, "merged requests survive the loss of the checkpoint");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn store_outage_longer_than_the_lease_is_recorded_as_event() {
    let mut fixture = FleetFixture::in_memory();
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let leader_stores = SwitchedStores::new(&fixture.stores);
    fixture.lead_with(leader_stores.clone());
    let epoch = fixture.fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    fixture.until_phase(RunPhase::Running).await;
    leader_stores.set_reachable(false);
    tokio::time::sleep(2 * OrchestratorConfig::new("o").ttl).await;
    leader_stores.set_reachable(true);
    fixture.until_saved(epoch, "the store did not answer for").await;
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn stop_request_during_a_store_outage_is_repeated_until_it_arrives() {
    let mut fixture = FleetFixture::in_memory();
    fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    let (client_stores, control, bundle) = (SwitchedStores::new(&fixture.stores), RunControl::new(), bundle(1.0));
    let request = FleetRunRequest { bundle: &bundle, params: BTreeMap::new(), histogram_window_s: 1 };
    let stop_during_outage = async {
        fixture.until_phase(RunPhase::Running).await;
        client_stores.set_reachable(false);
        control.drain();
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(fixture.fleet.status().await.unwrap().phase, RunPhase::Running);
        client_stores.set_reachable(true);
    };
    let (result, ()) = tokio::join!(run_fleet(&client_stores, request, &control, &mut []), stop_during_outage);
    assert_eq!(result.expect("the run ends").facts.stop, StopReason::Interrupted);
    fixture.until_phase(RunPhase::Idle).await;
    fixture.end().await;
}

#[tokio::test]
async fn stop_request_takes_effect_while_the_start_waits_for_workers() {
    let (fixture, control, bundle) = (FleetFixture::on_redis().await, RunControl::new(), bundle(1.0));
    control.drain();
    let run = FleetRunRequest { bundle: &bundle, params: BTreeMap::new(), histogram_window_s: 1 };
    let finished = run_fleet(&fixture.stores, run, &control, &mut []).await.expect("a cancelled run is not an error");
    assert_eq!((finished.facts.stop, finished.view.all.requests), (StopReason::Interrupted, 0));
    fixture.end().await;
}

/// A client whose response was lost repeats the start. It must neither fail nor start a second run.
#[tokio::test]
async fn repeated_start_of_a_named_run_starts_it_once() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let fleet = FleetClient::new(fixture.stores.clone());
    let first = fleet.start_once("mine", &bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    let again = fleet.start_once("mine", &bundle(1.0), BTreeMap::new()).await.expect("the run has started");
    assert_eq!(first, again);
    fleet.stop(StopReason::Interrupted, false, None).await.expect("a run is active");
    fixture.lead();
    fixture.until_phase(RunPhase::Idle).await;
    // Also if both calls find the fleet idle.
    let bundle = bundle(1.0);
    let ask = || fleet.start_once("twice", &bundle, BTreeMap::new());
    let (one, other) = tokio::join!(ask(), ask());
    assert_eq!((one.expect("the run starts"), other.expect("the run has started")), (first + 1, first + 1));
    let refused = fleet.start_once("another", &bundle, BTreeMap::new()).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    fixture.end().await;
}

/// A frozen leader, or a Ctrl-C after the end of a run, may send a stop too late.
#[tokio::test]
async fn stop_of_a_finished_run_does_not_stop_the_next_run() {
    let mut fixture = FleetFixture::on_redis().await;
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    let (fleet, run) = (FleetClient::new(fixture.stores.clone()), fixture.stores.run());
    fleet.start_once("first", &bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    let record = run.read_record().await.unwrap();
    run.compare_and_set(&record, RunPhase::Idle.name(), &record.spec, false).await.unwrap().expect("no other writer");
    fleet.start_once("second", &bundle(1.0), BTreeMap::new()).await.expect("the run starts");
    let stop = || StopRunCommand { reason: StopReason::Completed, abort: false, message: None };
    let refused = fleet.stop_run("first", stop()).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { current: RunPhase::Idle, .. }), "{refused}");
    assert_eq!(fleet.status().await.unwrap().phase, RunPhase::Preparing);
    fleet.stop_run("second", stop()).await.expect("the run is active");
    assert_eq!(fleet.status().await.unwrap().phase, RunPhase::Stopping);
    fixture.end().await;
}

/// A run may last longer than the store keeps a bundle.
#[tokio::test]
async fn leader_extends_the_retention_of_the_bundle_during_the_run() {
    let (fixture, fleet, ..) = running_fleet(&bundle(1.0)).await;
    let name = fleet.status().await.unwrap().spec.expect("a run is active").bundle;
    let key = format!("bundle:{name}");
    assert!(fixture.ask::<bool>("EXPIRE", &key, &["600"]).await, "{key}");
    while fixture.ask::<i64>("TTL", &key, &[]).await <= 600 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.end().await;
}

/// Before the first run the record has no spec, which must not be reported as an unreadable one.
#[tokio::test]
async fn set_level_before_the_first_run_returns_invalid_state() {
    let fixture = FleetFixture::on_redis().await;
    let refused = FleetClient::new(fixture.stores.clone()).set_level(5.0).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    fixture.end().await;
}
