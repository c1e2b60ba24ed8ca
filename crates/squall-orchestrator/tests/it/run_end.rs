//! How runs start and end: a start waits for workers and shares, the report states every missing
//! start, and tear-down follows set-up. On the in-memory store and paused time, so that the leader
//! polls at known times.

use squall_coord::{FleetStores, MemoryFleetStores, RunStore};
use squall_model::{
    Arrivals, Bundle, LoadModel, Profile, RunFacts, RunPhase, ShareSet, StopReason, WorkerState,
    protocol::{HookOutcome, RunNote},
};
use std::{collections::BTreeMap, time::Duration};

use crate::fleet_fixture::{FleetFixture, ReportedShares, bundle};

/// Time in which the leader polls several times.
const SEVERAL_POLLS: Duration = Duration::from_secs(1);

fn open_load(rate: f64, duration: Duration) -> Bundle {
    let mut bundle = bundle(1.0);
    let rate = Profile::constant(rate, duration).expect("a load");
    bundle.plan.load.model = LoadModel::Open { rate, arrivals: Arrivals::Even };
    bundle
}

/// A fleet with a leader and the worker `w0`, which holds every share.
async fn fleet_with_one_worker() -> (FleetFixture<MemoryFleetStores>, ReportedShares) {
    let mut fixture = FleetFixture::in_memory();
    let shares = fixture.join("w0", ShareSet::ALL);
    fixture.lead();
    fixture.until_workers(1).await;
    (fixture, shares)
}

async fn start(fixture: &FleetFixture<MemoryFleetStores>, bundle: &Bundle) -> u64 {
    fixture.fleet.start(bundle, BTreeMap::new()).await.expect("the run starts")
}

async fn stored_facts(fixture: &FleetFixture<MemoryFleetStores>, epoch: u64) -> RunFacts {
    fixture.fleet.stored_result(epoch).await.unwrap().expect("a result").facts
}

/// The worker stays from the start to the end and makes no load.
#[tokio::test(start_paused = true)]
async fn starts_that_no_worker_makes_are_reported_as_missed() {
    let (fixture, _) = fleet_with_one_worker().await;
    let epoch = start(&fixture, &open_load(50.0, Duration::from_secs(1))).await;
    fixture.until_phase(RunPhase::Idle).await;
    let facts = stored_facts(&fixture, epoch).await;
    assert_eq!(facts.stop, StopReason::Completed);
    assert_eq!(facts.fleet.expect("facts of a fleet").missed_starts, 50);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn run_whose_workers_end_early_is_aborted_unless_it_has_an_iteration_limit() {
    for (iterations, expected) in [(None, StopReason::Aborted), (Some(700), StopReason::Completed)] {
        let (fixture, shares) = fleet_with_one_worker().await;
        let run = fixture.stores.run();
        let mut bundle = open_load(50.0, Duration::from_secs(600));
        bundle.plan.load.iterations = iterations;
        let epoch = start(&fixture, &bundle).await;
        fixture.until_phase(RunPhase::Running).await;
        // A worker that is done and unhealthy leaves. The run waits for another worker.
        let mut report = run.reports().await.unwrap()["w0"].clone();
        report.insert("done".to_owned(), epoch.to_string());
        report.insert("status".to_owned(), "unhealthy".to_owned());
        *shares.lock().expect("no panic") = None;
        tokio::time::sleep(SEVERAL_POLLS).await;
        run.report("w0", &report, Duration::from_secs(600)).await.unwrap();
        tokio::time::sleep(SEVERAL_POLLS).await;
        assert_eq!(fixture.fleet.status().await.unwrap().phase, RunPhase::Running);
        // A worker that is done and healthy has ended the load.
        report.insert("status".to_owned(), "healthy".to_owned());
        run.report("w0", &report, Duration::from_secs(600)).await.unwrap();
        fixture.until_phase(RunPhase::Idle).await;
        let facts = stored_facts(&fixture, epoch).await;
        assert_eq!(facts.stop, expected, "{facts:?}");
        fixture.end().await;
    }
}

/// A worker that leaves before the start has measured nothing. A worker that was only frozen takes
/// part again.
#[tokio::test(start_paused = true)]
async fn worker_that_leaves_before_the_start_is_not_lost() {
    for returns in [false, true] {
        let mut fixture = FleetFixture::in_memory();
        let shares = ["w0", "w1"].map(|id| fixture.join(id, ShareSet::ALL));
        fixture.until_workers(2).await;
        let run = fixture.stores.run();
        let epoch = start(&fixture, &Bundle { hooks: true, ..open_load(50.0, Duration::from_secs(1)) }).await;
        fixture.lead();
        // Set-up delays the start; the leader has seen both workers by then.
        fixture.until_spec("set-up", |spec| spec.set_up.is_some()).await;
        *shares[1].lock().expect("no panic") = None;
        tokio::time::sleep(SEVERAL_POLLS).await;
        run.remove_worker("w1").await.unwrap();
        tokio::time::sleep(SEVERAL_POLLS).await;
        if returns {
            fixture.join("w1", ShareSet::ALL);
            tokio::time::sleep(SEVERAL_POLLS).await;
        }
        let done = [RunNote::SetUp, RunNote::TearDown].map(|hook| hook(HookOutcome::Done(String::new())).encode());
        run.set_notes(epoch, &done).await.unwrap();
        fixture.until_phase(RunPhase::Idle).await;
        let facts = stored_facts(&fixture, epoch).await.fleet.expect("facts of a fleet");
        let state = |id: &str| facts.workers.iter().find(|worker| worker.id == id).map(|worker| worker.state);
        // The workers of this test ship no last delta, so each one that takes part is lost.
        let expected = if returns { WorkerState::Lost } else { WorkerState::Left };
        assert_eq!((state("w0"), state("w1")), (Some(WorkerState::Lost), Some(expected)), "{facts:?}");
        fixture.end().await;
    }
}

/// The shares of a lost worker have no holder for seconds, and their first starts would be late.
#[tokio::test(start_paused = true)]
async fn start_waits_until_workers_hold_every_share() {
    let mut fixture = FleetFixture::in_memory();
    let shares = fixture.join("w0", ShareSet::ALL.part(0, 2));
    fixture.lead();
    fixture.until_workers(1).await;
    start(&fixture, &open_load(50.0, Duration::from_secs(1))).await;
    // Longer than the leader needs for a start that does not wait.
    tokio::time::sleep(5 * SEVERAL_POLLS).await;
    assert_eq!(fixture.fleet.status().await.unwrap().phase, RunPhase::Preparing);
    *shares.lock().expect("no panic") = Some(ShareSet::ALL);
    fixture.until_phase(RunPhase::Running).await;
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn run_stopped_during_set_up_is_torn_down() {
    let (fixture, _) = fleet_with_one_worker().await;
    let run = fixture.stores.run();
    let epoch = start(&fixture, &Bundle { hooks: true, ..bundle(1.0) }).await;
    fixture.until_spec("set-up", |spec| spec.set_up.is_some()).await;
    fixture.fleet.stop(StopReason::Interrupted, false, None).await.expect("the run is preparing");
    tokio::time::sleep(SEVERAL_POLLS).await;
    assert_eq!(fixture.fleet.status().await.unwrap().phase, RunPhase::Stopping, "the leader waits for set-up");
    run.set_notes(epoch, &[RunNote::SetUp(HookOutcome::Done("7".to_owned())).encode()]).await.unwrap();
    fixture.until_spec("tear-down", |spec| spec.tear_down.is_some()).await;
    run.set_notes(epoch, &[RunNote::TearDown(HookOutcome::Done(String::new())).encode()]).await.unwrap();
    fixture.until_phase(RunPhase::Idle).await;
    fixture.end().await;
}

/// After a stall of the store every report has expired, also that of the worker that runs set-up.
#[tokio::test(start_paused = true)]
async fn worker_silent_for_a_moment_during_set_up_is_not_lost() {
    let (mut fixture, shares) = fleet_with_one_worker().await;
    let run = fixture.stores.run();
    let epoch = start(&fixture, &Bundle { hooks: true, ..bundle(1.0) }).await;
    fixture.until_spec("set-up", |spec| spec.set_up.is_some()).await;
    *shares.lock().expect("no panic") = None;
    tokio::time::sleep(SEVERAL_POLLS).await;
    run.remove_worker("w0").await.unwrap();
    tokio::time::sleep(SEVERAL_POLLS).await;
    fixture.join("w0", ShareSet::ALL);
    fixture.until_workers(1).await;
    run.set_notes(epoch, &[RunNote::SetUp(HookOutcome::Done(String::new())).encode()]).await.unwrap();
    fixture.until_phase(RunPhase::Running).await;
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn run_starts_at_the_deadline_only_if_half_of_the_workers_are_ready() {
    for unready in [["w1"].as_slice(), &["w1", "w2"]] {
        let mut fixture = FleetFixture::in_memory();
        let run = fixture.stores.run();
        fixture.join("w0", ShareSet::ALL);
        for id in unready {
            let report = [("status", "healthy"), ("instance", "00000000000000ff")];
            let report = report.map(|(field, value)| (field.to_owned(), value.to_owned())).into();
            run.report(id, &report, Duration::from_secs(600)).await.unwrap();
        }
        fixture.until_workers(1 + unready.len()).await;
        let epoch = start(&fixture, &bundle(1.0)).await;
        let deadline_ms = fixture.run_spec().await.ready_by_ms;
        fixture.lead();
        let until_deadline = Duration::from_millis(deadline_ms - run.read_record().await.unwrap().now_ms);
        assert!(until_deadline <= Duration::from_secs(60), "{until_deadline:?}");
        tokio::time::sleep(until_deadline.saturating_sub(SEVERAL_POLLS)).await;
        assert_eq!(fixture.fleet.status().await.unwrap().phase, RunPhase::Preparing);
        if unready.len() == 1 {
            fixture.until_phase(RunPhase::Running).await;
        } else {
            fixture.until_phase(RunPhase::Idle).await;
            let events = stored_facts(&fixture, epoch).await.fleet.expect("facts of a fleet").events;
            let text = "1 of 3 workers were ready in time; not ready: w1, w2";
            assert!(events.iter().any(|event| event.text == text), "{events:?}");
        }
        fixture.end().await;
    }
}
