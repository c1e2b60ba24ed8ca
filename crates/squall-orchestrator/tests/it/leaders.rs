//! One leader after the other: what the first knew the second knows, and the report says that there were two.

use squall_coord::{FleetStores, RedisClient, RedisFleetStores, RunStore};
use squall_model::{Bundle, RunPhase, ShareSet, StopReason};
use squall_orchestrator::{FleetClient, FleetError, FleetRunRequest, RunControl, StopRunCommand, run_fleet};
use squall_testkit::{fault_proxy::FaultProxy, redis::RedisServer};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use crate::{
    compat_views::delta,
    fleet_fixture::{Stage, bundle},
};

#[tokio::test]
async fn a_change_of_leader_is_told_and_nobody_joins_again() {
    let (mut stage, fleet, epoch, leader) = under_way(&bundle(1.0)).await;
    let (run, instance) = (stage.cell.run(), instance(&stage).await);
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
    let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts.fleet.expect("a fleet made it");
    let events: Vec<&str> = facts.events.iter().map(|event| event.text.as_str()).collect();
    assert!(events.iter().any(|text| text.starts_with("orchestrator o leads now")), "{events:?}");
    assert!(!events.iter().any(|text| text.contains("joined")), "{events:?}");
    assert!(facts.workers.iter().all(|worker| worker.joined_s < 0.5), "{:?}", facts.workers);
    stage.end().await;
}

/// A fleet of one worker, `w0`, that carries out a run; with its epoch, and whoever leads it.
async fn under_way(bundle: &Bundle) -> (Stage, FleetClient<RedisFleetStores>, u64, CancellationToken) {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    let leader = stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    let epoch = fleet.start(bundle, BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    (stage, fleet, epoch, leader)
}

/// The number of this life of `w0`.
async fn instance(stage: &Stage) -> u64 {
    let reports = stage.cell.run().reports().await.unwrap();
    u64::from_str_radix(&reports["w0"]["instance"], 16).unwrap()
}

/// Waits until the leader has saved the run together with this text.
async fn saved_with(stage: &Stage, epoch: u64, text: &str) {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for `{text}`");
        let saved = stage.cell.run().load_checkpoint(epoch).await.unwrap();
        if saved.is_some_and(|(_, made)| made.windows(text.len()).any(|part| part == text.as_bytes())) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A threshold over a window that was breached long before the leader died was kept in the end: the histograms of that window were gone.
#[tokio::test]
async fn what_was_breached_under_one_leader_is_breached_under_the_next() {
    let mut bundle = bundle(1.0);
    bundle.plan.thresholds = ["requests[1s]<=5", "requests[1s]<=50"].map(|text| text.parse().unwrap()).into();
    let (mut stage, fleet, epoch, leader) = under_way(&bundle).await;
    let (run, instance) = (stage.cell.run(), instance(&stage).await);
    // Too many in the second second only, and more seconds after it than are kept with their histograms.
    for second in 0..12 {
        let requests = if second == 1 { 10 } else { 5 };
        run.ship(epoch, "s", second, &delta(instance, second, requests)).await.unwrap();
    }
    stage.until("XLEN", "metric:browse", 12).await;
    // Whoever comes is saved at once.
    stage.join("late", ShareSet::NONE);
    saved_with(&stage, epoch, "late").await;
    leader.cancel();
    stage.lead();
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it runs");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts;
    let verdicts: Vec<_> = facts.thresholds.iter().map(|one| (one.passed, one.value, one.breached_at_s)).collect();
    assert_eq!(verdicts, [(false, Some(10.0), Some(2)), (true, Some(10.0), None)]);
    stage.end().await;
}

/// The leader looked for events that it had told before, and panicked.
#[tokio::test]
async fn a_store_that_went_back_to_an_older_saving_ends_no_leader() {
    let (mut stage, fleet, epoch, _) = under_way(&bundle(1.0)).await;
    let run = stage.cell.run();
    let (_, older) = run.load_checkpoint(epoch).await.unwrap().expect("it is saved before it starts");
    // Two events: somebody comes and is lost.
    while fleet.status().await.unwrap().elapsed_s.is_none_or(|elapsed| elapsed < 1.0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = stage.join("late", ShareSet::NONE);
    saved_with(&stage, epoch, "late joined").await;
    *late.lock().unwrap() = None;
    saved_with(&stage, epoch, "late was lost").await;
    let key = format!("test:{epoch}:saved");
    let mut went_back = redis::cmd("HSET");
    went_back
        .arg(format!("{}{key}", squall_coord::fleet_key_prefix("t")))
        .arg("place")
        .arg("0-1")
        .arg("made")
        .arg(older);
    let _: i64 = went_back.query_async(&mut stage.link.connection()).await.unwrap();
    // The leader's next saving is refused, and it takes up what is there.
    stage.join("later", ShareSet::NONE);
    saved_with(&stage, epoch, "later joined").await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it runs");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    stage.end().await;
}

/// Found by a reader: the leader waited for ever until a saving would fit that was not there any more.
#[tokio::test]
async fn a_saving_that_is_lost_is_made_again() {
    let (mut stage, fleet, epoch, _) = under_way(&bundle(1.0)).await;
    let (run, instance) = (stage.cell.run(), instance(&stage).await);
    run.ship(epoch, "s", 0, &delta(instance, 0, 5)).await.unwrap();
    stage.until("XLEN", "metric:browse", 1).await;
    // Whoever comes is saved at once, with the place of that delta.
    stage.join("late", ShareSet::NONE);
    saved_with(&stage, epoch, "late").await;
    assert_eq!(stage.ask::<i64>("DEL", &format!("test:{epoch}:saved"), &[]).await, 1);
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it runs");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    let finished = fleet.stored_result(epoch).await.unwrap().expect("a result");
    assert_eq!(finished.view.all.requests, 5, "nothing that was merged is lost with it");
    stage.end().await;
}

/// Found by a reader: starts were missing, and nothing in the report said why.
#[tokio::test]
async fn a_store_that_was_away_is_told_of() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let mut stage = Stage::on(server).await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    let link = RedisClient::open(&format!("redis://127.0.0.1:{}/", proxy.port())).await.expect("the server runs");
    let stop = stage.lead_by(RedisFleetStores::new(&link, "t"));
    let fleet = FleetClient::new(stage.cell.clone());
    let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    proxy.half_open();
    // Longer than somebody leads who is not heard, and than an answer is waited for.
    tokio::time::sleep(Duration::from_secs(7)).await;
    proxy.cut();
    proxy.heal();
    saved_with(&stage, epoch, "the store did not answer for").await;
    stop.cancel();
    stage.end().await;
}

/// Ctrl-C while the store was away ended the command at once and left the load to itself.
#[tokio::test]
async fn a_stop_that_the_store_has_not_heard_is_asked_for_again() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let mut stage = Stage::on(server).await;
    stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let link = RedisClient::open(&format!("redis://127.0.0.1:{}/", proxy.port())).await.expect("the server runs");
    let (cell, control, bundle) = (RedisFleetStores::new(&link, "t"), RunControl::new(), bundle(1.0));
    let run = FleetRunRequest { bundle: &bundle, params: BTreeMap::new(), histogram_window_s: 1 };
    let asking = async {
        stage.until("GET", "test:state", Some("RUNNING".to_owned())).await;
        proxy.half_open();
        control.drain();
        // Longer than an answer is waited for.
        tokio::time::sleep(Duration::from_millis(3500)).await;
        proxy.cut();
        proxy.heal();
    };
    let (finished, ()) = tokio::join!(run_fleet(&cell, run, &control, &mut []), asking);
    let finished = finished.expect("it ends as it was asked to");
    assert_eq!(finished.facts.stop, StopReason::Interrupted);
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    stage.end().await;
}

/// Ctrl-C was heard only after the time in which workers may appear, and then it was an error that there were none.
#[tokio::test]
async fn a_stop_takes_effect_while_workers_are_awaited() {
    let (stage, control, bundle) = (Stage::new().await, RunControl::new(), bundle(1.0));
    control.drain();
    let run = FleetRunRequest { bundle: &bundle, params: BTreeMap::new(), histogram_window_s: 1 };
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
    let fleet = FleetClient::new(stage.cell.clone());
    let first = fleet.start_named("mine", &bundle(1.0), BTreeMap::new()).await.expect("it starts");
    let again = fleet.start_named("mine", &bundle(1.0), BTreeMap::new()).await.expect("it has started");
    assert_eq!(first, again);
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it is prepared");
    stage.lead();
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    // Also where both have found the fleet idle, as a client does that repeats a step whose answer was lost.
    let bundle = bundle(1.0);
    let ask = || fleet.start_named("twice", &bundle, BTreeMap::new());
    let (one, other) = tokio::join!(ask(), ask());
    assert_eq!((one.expect("it starts"), other.expect("it has started")), (first + 1, first + 1));
    let refused = fleet.start_named("another", &bundle, BTreeMap::new()).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    stage.end().await;
}

/// A leader that was frozen, or somebody's Ctrl-C after the end of their own run, ended the run after it.
#[tokio::test]
async fn a_stop_of_a_run_that_is_over_ends_no_other() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    let (fleet, run) = (FleetClient::new(stage.cell.clone()), stage.cell.run());
    fleet.start_named("first", &bundle(1.0), BTreeMap::new()).await.expect("it starts");
    let record = run.read_record().await.unwrap();
    run.compare_and_set(&record, RunPhase::Idle.name(), &record.spec, false)
        .await
        .unwrap()
        .expect("nobody else is here");
    fleet.start_named("second", &bundle(1.0), BTreeMap::new()).await.expect("it starts");
    let stop = || StopRunCommand { reason: StopReason::Completed, abort: false, message: None };
    let refused = fleet.stop_run("first", stop()).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { current: RunPhase::Idle, .. }), "{refused}");
    assert_eq!(fleet.status().await.unwrap().state, RunPhase::Preparing);
    fleet.stop_run("second", stop()).await.expect("it is on");
    assert_eq!(fleet.status().await.unwrap().state, RunPhase::Stopping);
    stage.end().await;
}

/// The plan of a run was forgotten a day after its start, and its result with it.
#[tokio::test]
async fn what_a_run_needs_is_kept_as_long_as_it_lasts() {
    let (stage, fleet, ..) = under_way(&bundle(1.0)).await;
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
    let refused = FleetClient::new(stage.cell.clone()).set_level(5.0).await.unwrap_err();
    assert!(matches!(refused, FleetError::InvalidState { .. }), "{refused}");
    stage.end().await;
}
