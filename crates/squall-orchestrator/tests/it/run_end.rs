//! How runs begin and end: nothing that was due is silently absent, a start waits for everybody, and what was set up is torn down.

use squall_coord::{FleetStores, RunStore};
use squall_model::{
    Arrivals, Bundle, LoadModel, Profile, RunPhase, RunSpec, ShareSet, StopReason, WorkerState,
    protocol::{HookOutcome, RunNote},
};
use squall_orchestrator::FleetClient;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::fleet_fixture::{Stage, bundle};

/// A rate for a while.
fn open(rate: f64, lasts: Duration) -> Bundle {
    let mut bundle = bundle(1.0);
    let rate = Profile::constant(rate, lasts).expect("a load");
    bundle.plan.load.model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    bundle
}

async fn order(stage: &Stage) -> RunSpec {
    serde_json::from_str(&stage.cell.run().read_record().await.unwrap().spec).expect("an order")
}

/// They were stated only if a worker was lost or the leader had changed.
#[tokio::test]
async fn starts_that_nobody_made_are_stated_whatever_the_reason() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    // The worker is there from beginning to end, and makes nothing.
    let epoch = fleet.start(&open(50.0, Duration::from_secs(1)), BTreeMap::new()).await.expect("it starts");
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    let finished = fleet.stored_result(epoch).await.unwrap().expect("a result");
    assert_eq!(finished.facts.stop, StopReason::Completed);
    assert_eq!(finished.facts.fleet.expect("a fleet made it").missed_starts, 50);
    stage.end().await;
}

/// Found by a reader: it was called complete, and passed.
#[tokio::test]
async fn a_run_whose_workers_have_ended_long_before_it_is_not_complete() {
    for iterations in [None, Some(700)] {
        let mut stage = Stage::new().await;
        let held = stage.join("w0", ShareSet::ALL);
        stage.lead();
        stage.until("SCARD", "workers", 1).await;
        let (fleet, run) = (FleetClient::new(stage.cell.clone()), stage.cell.run());
        let mut bundle = open(50.0, Duration::from_secs(600));
        bundle.plan.load.iterations = iterations;
        let epoch = fleet.start(&bundle, BTreeMap::new()).await.expect("it starts");
        stage.until("GET", "test:state", "RUNNING".to_owned()).await;
        // It says that it is done, and nothing more; at first that it leaves, and then others may come.
        let mut report = run.reports().await.unwrap()["w0"].clone();
        report.insert("done".to_owned(), epoch.to_string());
        report.insert("status".to_owned(), "unhealthy".to_owned());
        *held.lock().expect("no panic") = None;
        for _ in 0..50 {
            run.report("w0", &report, Duration::from_secs(600)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fleet.status().await.unwrap().state, RunPhase::Running);
        report.insert("status".to_owned(), "healthy".to_owned());
        while fleet.status().await.unwrap().state != RunPhase::Idle {
            run.report("w0", &report, Duration::from_secs(600)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts;
        // Of a run of so many the workers know when it is over.
        let expected = if iterations.is_some() { StopReason::Completed } else { StopReason::Aborted };
        assert_eq!(facts.stop, expected, "{facts:?}");
        stage.end().await;
    }
}

/// Who goes before the start has made nothing that could be lost; unless it was only frozen, and takes part after all.
#[tokio::test]
async fn who_leaves_before_the_start_is_not_lost() {
    for returns in [false, true] {
        let mut stage = Stage::new().await;
        let both = ["w0", "w1"].map(|id| stage.join(id, ShareSet::ALL));
        stage.until("SCARD", "workers", 2).await;
        let (fleet, run) = (FleetClient::new(stage.cell.clone()), stage.cell.run());
        let bundle = Bundle { hooks: true, ..open(50.0, Duration::from_secs(1)) };
        let epoch = fleet.start(&bundle, BTreeMap::new()).await.expect("it starts");
        stage.lead();
        // The set-up holds the run up; the leader has met both by then.
        let begin = Instant::now();
        while order(&stage).await.set_up.is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for the set-up");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        *both[1].lock().expect("no panic") = None;
        run.remove_worker("w1").await.unwrap();
        stage.until("SCARD", "workers", 1).await;
        // Some looks of the leader.
        let looks = || tokio::time::sleep(Duration::from_millis(1000));
        looks().await;
        if returns {
            stage.join("w1", ShareSet::ALL);
            stage.until("SCARD", "workers", 2).await;
            looks().await;
        }
        run.set_notes(
            epoch,
            &[RunNote::SetUp, RunNote::TearDown].map(|hook| hook(HookOutcome::Done(String::new())).encode()),
        )
        .await
        .unwrap();
        stage.until("GET", "test:state", "IDLE".to_owned()).await;
        let facts = fleet.stored_result(epoch).await.unwrap().expect("a result").facts.fleet.expect("a fleet");
        let state = |id: &str| facts.workers.iter().find(|worker| worker.id == id).map(|worker| worker.state);
        // Nobody here ships a last delta, so whoever took part is lost.
        let expected = if returns { WorkerState::Lost } else { WorkerState::Left };
        assert_eq!((state("w0"), state("w1")), (Some(WorkerState::Lost), Some(expected)), "{facts:?}");
        stage.end().await;
    }
}

/// Shares of workers that are gone are nobody's for seconds, and what was due of them at the start was late.
#[tokio::test]
async fn a_start_waits_until_every_share_is_held() {
    let mut stage = Stage::new().await;
    let held = stage.join("w0", ShareSet::ALL.part(0, 2));
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let fleet = FleetClient::new(stage.cell.clone());
    fleet.start(&open(50.0, Duration::from_secs(1)), BTreeMap::new()).await.expect("it starts");
    // Time in which it would start if it did not wait.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = stage.cell.run().read_record().await.unwrap().now_ms;
    *held.lock().expect("no panic") = Some(ShareSet::ALL);
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    assert!(order(&stage).await.start_at_ms > Some(before), "{before}: {:?}", order(&stage).await);
    stage.end().await;
}

/// The fleet was idle at once, and what the set-up went on to make stayed.
#[tokio::test]
async fn a_run_that_is_stopped_during_its_set_up_is_torn_down() {
    let mut stage = Stage::new().await;
    stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let (fleet, run) = (FleetClient::new(stage.cell.clone()), stage.cell.run());
    let bundle = Bundle { hooks: true, ..bundle(1.0) };
    let epoch = fleet.start(&bundle, BTreeMap::new()).await.expect("it starts");
    let until = async |what: &str, done: &dyn Fn(&RunSpec) -> bool| {
        let begin = Instant::now();
        while !done(&order(&stage).await) {
            assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until("set-up", &|order| order.set_up.is_some()).await;
    fleet.stop(StopReason::Interrupted, false, None).await.expect("it is prepared");
    // The set-up ends only now.
    run.set_notes(epoch, &[RunNote::SetUp(HookOutcome::Done("7".to_owned())).encode()]).await.unwrap();
    until("tear-down", &|order| order.tear_down.is_some()).await;
    run.set_notes(epoch, &[RunNote::TearDown(HookOutcome::Done(String::new())).encode()]).await.unwrap();
    stage.until("GET", "test:state", "IDLE".to_owned()).await;
    stage.end().await;
}

/// After a stall of the store every report has expired, and the worker that ran the set-up was called lost before it could report again.
#[tokio::test]
async fn a_worker_that_is_not_heard_for_a_moment_goes_on_with_the_set_up() {
    let mut stage = Stage::new().await;
    let held = stage.join("w0", ShareSet::ALL);
    stage.lead();
    stage.until("SCARD", "workers", 1).await;
    let (fleet, run) = (FleetClient::new(stage.cell.clone()), stage.cell.run());
    let bundle = Bundle { hooks: true, ..bundle(1.0) };
    let epoch = fleet.start(&bundle, BTreeMap::new()).await.expect("it starts");
    while order(&stage).await.set_up.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    *held.lock().expect("no panic") = None;
    run.remove_worker("w0").await.unwrap();
    stage.until("SCARD", "workers", 0).await;
    // Some looks of the leader.
    tokio::time::sleep(Duration::from_millis(1000)).await;
    stage.join("w0", ShareSet::ALL);
    stage.until("SCARD", "workers", 1).await;
    run.set_notes(epoch, &[RunNote::SetUp(HookOutcome::Done(String::new())).encode()]).await.unwrap();
    stage.until("GET", "test:state", "RUNNING".to_owned()).await;
    stage.end().await;
}

/// Nobody waits for ever for workers that do not get ready: at the deadline half of them are enough, and fewer are not.
#[tokio::test]
async fn at_the_deadline_half_of_the_workers_are_enough_and_fewer_are_not() {
    for slow in [["w1"].as_slice(), &["w1", "w2"]] {
        let mut stage = Stage::new().await;
        let run = stage.cell.run();
        stage.join("w0", ShareSet::ALL);
        for id in slow {
            // There, and never ready.
            let report = [("status", "healthy"), ("instance", "00000000000000ff")];
            let report = report.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
            run.report(id, &report, Duration::from_secs(600)).await.unwrap();
        }
        stage.until("SCARD", "workers", 1 + slow.len()).await;
        let fleet = FleetClient::new(stage.cell.clone());
        let epoch = fleet.start(&bundle(1.0), BTreeMap::new()).await.expect("it starts");
        // Nobody leads yet: the deadline passes before anybody looks.
        let (record, mut order) = (run.read_record().await.unwrap(), order(&stage).await);
        assert!(order.ready_by_ms <= record.now_ms + 60_000, "a minute at most");
        order.ready_by_ms = record.now_ms;
        let text = serde_json::to_string(&order).unwrap();
        run.compare_and_set(&record, &record.state, &text, false).await.unwrap().expect("nobody else is here");
        stage.lead();
        if slow.len() == 1 {
            stage.until("GET", "test:state", "RUNNING".to_owned()).await;
        } else {
            stage.until("GET", "test:state", "IDLE".to_owned()).await;
            let events =
                fleet.stored_result(epoch).await.unwrap().expect("a result").facts.fleet.expect("a fleet").events;
            let said = "1 of 3 workers were ready in time; not: w1, w2";
            assert!(events.iter().any(|event| event.text == said), "{events:?}");
        }
        stage.end().await;
    }
}
