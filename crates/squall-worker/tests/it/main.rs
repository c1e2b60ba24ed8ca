//! A worker follows only the run record: it counts invalid messages and ignores records that it
//! cannot read. Also the fixtures that all test files of this crate use.

mod active_users;
mod early_end;
mod membership;
mod shared_counters;
mod unshipped_deltas;
mod vikhry_orchestrator;

use squall_coord::{FleetStores, LeaseStore, MemoryFleetStores, RunStore};
use squall_engine::{
    Driver, DriverError, DriverThread, Iteration, PlannedScenario, ThreadRecorder, UserIdentity, VirtualUser,
};
use squall_model::{
    Bundle, EngineLimits, Load, Plan, TaskSpec,
    protocol::{ProtocolVersion, WorkerHealth, WorkerReport},
};
use squall_worker::{DriverFactory, OpenBundleError, RunnableBundle, Worker, WorkerConfig, WorkerError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// The timeout of every wait; only a failing test reaches it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A run of one task with `load`.
pub(crate) fn bundle_of(load: Load, grace: Duration) -> Bundle {
    let tasks = vec![TaskSpec::new("a")];
    let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
    let (slack, late_after) = (Duration::from_millis(1), Duration::from_secs(1));
    let limits = EngineLimits { max_users: 10, grace, slack, late_after, ..EngineLimits::default() };
    Bundle::new(plan, limits)
}

/// The scenario of `bundle` with a driver.
pub(crate) fn only_scenario<D>(bundle: &Bundle, driver: D, threads: usize) -> PlannedScenario<D> {
    PlannedScenario { plan: bundle.plan.clone(), driver, threads: Some(threads), background: false }
}

/// Refuses every bundle.
struct RefusingFactory;

/// Users that do nothing.
pub(crate) struct IdleDriver;

impl DriverFactory for RefusingFactory {
    type Driver = IdleDriver;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<IdleDriver>, OpenBundleError> {
        Err(OpenBundleError::Scenario("closed".to_owned()))
    }
}

impl Driver for IdleDriver {
    type Thread = IdleDriver;

    fn thread(&self, _: ThreadRecorder) -> Result<IdleDriver, DriverError> {
        Ok(IdleDriver)
    }
}

impl DriverThread for IdleDriver {
    type User = IdleDriver;

    fn user(&self, _: UserIdentity) -> IdleDriver {
        IdleDriver
    }
}

impl VirtualUser for IdleDriver {
    async fn iterate(&mut self, _: Iteration) -> bool {
        true
    }
}

async fn wait_for_report(stores: &MemoryFleetStores, what: &str, done: impl Fn(&WorkerReport) -> bool) -> WorkerReport {
    let started = Instant::now();
    loop {
        let reports = stores.run().reports().await.unwrap();
        if let Some(report) = reports.get("w").map(WorkerReport::decode).filter(|report| done(report)) {
            return report;
        }
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// When the store last received a report of the worker.
async fn last_report_at(stores: &MemoryFleetStores) -> f64 {
    stores.run().reports().await.unwrap().get("w").map_or(0.0, WorkerReport::last_report_at)
}

/// A worker with a short heartbeat interval that has reported once.
async fn spawn_worker(stores: &MemoryFleetStores, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let mut config = WorkerConfig::new("w");
    // So long that the worker does not expire on a busy machine.
    (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
    let worker = Worker::new(stores.clone(), RefusingFactory, config).run(stop.clone());
    let task = tokio::spawn(async move { worker.await.expect("valid timings") });
    wait_for_report(stores, "the worker", |_| true).await;
    task
}

/// A command of this epoch, type and payload.
fn command(epoch: u64, kind: &str, payload: &str) -> String {
    format!(r#"{{"type":"{kind}","command_id":"c","epoch":{epoch},"sent_at":1773180000,"payload":{payload}}}"#)
}

#[tokio::test]
async fn invalid_and_stale_commands_are_counted_and_ignored() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = stores.run();
    // RunEpoch 3, whose bundle is not in the store.
    let spec = r#"{"run":"r","bundle":"b","profile":{"stages":[{"duration":{"secs":9,"nanos":0},"from":1.0,"to":1.0}]},"start_at_ms":null,"expected":[],"ready_by_ms":0}"#;
    for _ in 0..3 {
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, "IDLE", spec, true).await.unwrap().expect("no other writer");
    }
    let task = spawn_worker(&stores, &stop).await;
    let invalid = [
        "",
        "[]",
        "{",
        r#"{"type":"start_test"}"#,
        &command(3, "add_user", "{}"),
        &command(3, "explode", "{}"),
        &command(3, "stop_test", r#"{"a":1}"#),
        &command(3, "start_test", r#"{"target_users":"many","init_params":{}}"#),
    ];
    let mut expected = 0;
    for text in invalid {
        // The store itself sends an empty message when messages may have been missed.
        expected += u64::from(!text.is_empty());
        assert_eq!(run.publish("w", text).await.unwrap(), 1, "the worker listens");
    }
    wait_for_report(&stores, "refused commands", |report| report.bad_commands == expected).await;
    // Commands of the current run and of a later one only wake the worker.
    for epoch in [3, 9] {
        run.publish("w", &command(epoch, "add_user", r#"{"user_ids":[1,2]}"#)).await.unwrap();
        run.publish("w", &command(epoch, "remove_user", r#"{"user_id":7}"#)).await.unwrap();
    }
    for (kind, payload) in [("start_test", r#"{"target_users":7,"init_params":{}}"#), ("stop_test", "{}")] {
        run.publish("w", &command(2, kind, payload)).await.unwrap();
    }
    run.publish("w", &command(1, "add_user", r#"{"user_id":1}"#)).await.unwrap();
    let report = wait_for_report(&stores, "stale commands", |report| report.stale_commands == 3).await;
    assert_eq!((report.bad_commands, report.ready), (expected, 0), "{report:?}");
    stop.cancel();
    task.await.expect("no panic");
}

/// A run specification whose durations overflow when added.
fn overflowing_spec() -> String {
    let stage = format!(r#"{{"duration":{{"secs":{},"nanos":0}},"from":1.0,"to":1e300}}"#, u64::MAX);
    format!(
        r#"{{"bundle":"b","profile":{{"stages":[{stage},{stage}]}},"start_at_ms":1,"expected":[],"ready_by_ms":0}}"#
    )
}

#[tokio::test]
async fn unreadable_run_spec_is_ignored() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = stores.run();
    let task = spawn_worker(&stores, &stop).await;
    for spec in ["nonsense", "{}", "[1,2]", "\u{0}", r#"{"bundle":1}"#, &overflowing_spec()] {
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, "RUNNING", spec, true).await.unwrap().expect("no other writer");
    }
    let (before, started) = (last_report_at(&stores).await, Instant::now());
    while last_report_at(&stores).await == before {
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for another report");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = wait_for_report(&stores, "a report", |_| true).await;
    assert_eq!((report.health, report.ready), (WorkerHealth::Healthy, 0));
    stop.cancel();
    task.await.expect("no panic");
}

/// Waits until the worker holds shares, or none.
async fn wait_for_shares(stores: &MemoryFleetStores, holds: bool) {
    let started = Instant::now();
    while stores.workers().snapshot().await.unwrap().leases.is_empty() == holds {
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for shares: {holds}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Shares that it held would be load that no worker makes.
#[tokio::test]
async fn worker_that_cannot_open_the_bundle_holds_no_shares() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = stores.run();
    let task = spawn_worker(&stores, &stop).await;
    wait_for_shares(&stores, true).await;
    let spec = |run_id: &str| {
        format!(
            r#"{{"run":"{run_id}","bundle":"b","profile":{{"stages":[{{"duration":{{"secs":9,"nanos":0}},"from":1.0,"to":1.0}}]}},"start_at_ms":null,"expected":[],"ready_by_ms":0}}"#
        )
    };
    for epoch in 1..=2 {
        let seen = run.read_record().await.unwrap();
        let seen = run
            .compare_and_set(&seen, "RUNNING", &spec(&epoch.to_string()), true)
            .await
            .unwrap()
            .expect("no other writer");
        wait_for_shares(&stores, false).await;
        let failed = |report: &WorkerReport| report.given_up_run.clone().filter(|failed| failed.epoch == epoch);
        let report = wait_for_report(&stores, "a failure report", |report| failed(report).is_some()).await;
        assert!(failed(&report).is_some_and(|failed| failed.message.contains("not in the store")), "{report:?}");
        // The worker may be able to carry out the next run.
        run.compare_and_set(&seen, "IDLE", &spec(&epoch.to_string()), false).await.unwrap().expect("no other writer");
        wait_for_shares(&stores, true).await;
    }
    stop.cancel();
    task.await.expect("no panic");
}

/// It joins again when the run is over.
#[tokio::test]
async fn worker_takes_no_part_in_a_run_of_another_protocol_version() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = stores.run();
    let task = spawn_worker(&stores, &stop).await;
    wait_for_shares(&stores, true).await;
    let spec = r#"{"protocol":2,"other":"fields"}"#;
    let seen = run.read_record().await.unwrap();
    let seen = run.compare_and_set(&seen, "RUNNING", spec, true).await.unwrap().expect("no other writer");
    wait_for_shares(&stores, false).await;
    let report = wait_for_report(&stores, "a refused run", |report| report.given_up_run.is_some()).await;
    let given_up = report.given_up_run.expect("the condition above");
    assert_eq!((given_up.epoch, report.protocol), (1, ProtocolVersion::CURRENT));
    assert!(
        given_up.message.starts_with("the run has fleet protocol 2 and this program has 1"),
        "{}",
        given_up.message
    );
    run.compare_and_set(&seen, "IDLE", spec, false).await.unwrap().expect("no other writer");
    wait_for_shares(&stores, true).await;
    wait_for_report(&stores, "no failure", |report| report.given_up_run.is_none()).await;
    stop.cancel();
    task.await.expect("no panic");
}

/// A command of an earlier run drains it too: it is about the worker.
#[tokio::test]
async fn drained_worker_gives_its_shares_up_and_ends() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let task = spawn_worker(&stores, &stop).await;
    wait_for_shares(&stores, true).await;
    stores.run().publish("w", &command(0, "drain", "{}")).await.unwrap();
    task.await.expect("the worker ends by itself");
    wait_for_shares(&stores, false).await;
    assert!(stores.run().reports().await.unwrap().is_empty());
}

/// The live worker keeps its name. A second worker gets it once the report of the first has
/// expired.
#[tokio::test]
async fn second_worker_of_a_name_is_refused_while_the_first_is_alive() {
    let (stores, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let task = spawn_worker(&stores, &stop).await;
    let instance = wait_for_report(&stores, "the worker", |_| true).await.instance;
    let mut config = WorkerConfig::new("w");
    config.heartbeat_interval = Duration::from_millis(50);
    let second = Worker::new(stores.clone(), RefusingFactory, config.clone()).run(CancellationToken::new()).await;
    assert!(matches!(&second, Err(WorkerError::NameTaken(name)) if name == "w"), "{second:?}");
    assert_eq!(wait_for_report(&stores, "the worker", |_| true).await.instance, instance);
    // The first worker is killed.
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let third = Worker::new(stores.clone(), RefusingFactory, config).run(stop.clone());
    let third = tokio::spawn(async move { third.await.expect("the name is free") });
    stores.run().remove_worker("w").await.unwrap();
    wait_for_report(&stores, "the third worker", |report| report.instance != instance).await;
    stop.cancel();
    third.await.expect("no panic");
}
