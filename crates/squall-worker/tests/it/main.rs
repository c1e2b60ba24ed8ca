//! A worker and what it hears: whatever is sent to it, it stays, counts what it refuses and obeys only the record.

mod ending_early;
mod lost_request_bounds;
mod membership;
mod shared_counters;

use squall_coord::{FleetStores, LeaseStore, MemoryFleetStores, RunStore};
use squall_engine::{Driver, DriverError, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_model::{
    Bundle, EngineLimits, Load, Plan, TaskSpec,
    protocol::{WorkerHealth, WorkerReport},
};
use squall_worker::{DriverFactory, RunnableBundle, Worker, WorkerConfig, WorkerError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Longest that anything is waited for; reached only by a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A run of one task with this load.
pub(crate) fn bundle_of(load: Load, grace: Duration) -> Bundle {
    let tasks = vec![TaskSpec::new("a")];
    let plan = Plan { name: "p".into(), target: "t".into(), load, tasks, thresholds: Vec::new(), seed: 1 };
    let (slack, late_after) = (Duration::from_millis(1), Duration::from_secs(1));
    let limits = EngineLimits { threads: None, max_users: 10, grace, slack, late_after, phases: false };
    Bundle::new(plan, limits)
}

/// Opens nothing.
struct Closed;

struct Nothing;

impl DriverFactory for Closed {
    type Driver = Nothing;

    fn open_bundle(&self, _: &Bundle) -> Result<RunnableBundle<Nothing>, String> {
        Err("closed".to_owned())
    }
}

impl Driver for Nothing {
    type Thread = Nothing;

    fn thread(&self, _: ThreadRecorder) -> Result<Nothing, DriverError> {
        Ok(Nothing)
    }
}

impl DriverThread for Nothing {
    type User = Nothing;

    fn user(&self, _: UserIdentity) -> Nothing {
        Nothing
    }
}

impl VirtualUser for Nothing {
    async fn iterate(&mut self, _: Iteration) -> bool {
        true
    }
}

async fn until(cell: &MemoryFleetStores, what: &str, done: impl Fn(&WorkerReport) -> bool) -> WorkerReport {
    let begin = Instant::now();
    loop {
        let reports = cell.run().reports().await.unwrap();
        if let Some(report) = reports.get("w").map(WorkerReport::decode).filter(|report| done(report)) {
            return report;
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// When the store last received a report of the worker.
async fn last_heartbeat(cell: &MemoryFleetStores) -> f64 {
    cell.run().reports().await.unwrap().get("w").map_or(0.0, WorkerReport::last_heartbeat)
}

/// A worker with quick beats that has reported once.
async fn worker(cell: &MemoryFleetStores, stop: &CancellationToken) -> tokio::task::JoinHandle<()> {
    let mut config = WorkerConfig::new("w");
    // Nobody is forgotten because this machine is busy.
    (config.heartbeat_interval, config.ttl) = (Duration::from_millis(20), Duration::from_secs(600));
    let worker = Worker::new(cell.clone(), Closed, config).run(stop.clone());
    let working = tokio::spawn(async move { worker.await.expect("timings that fit") });
    until(cell, "the worker", |_| true).await;
    working
}

/// A message with this epoch, and this kind and payload.
fn message(epoch: u64, kind: &str, payload: &str) -> String {
    format!(r#"{{"type":"{kind}","command_id":"c","epoch":{epoch},"sent_at":1.5,"payload":{payload}}}"#)
}

#[tokio::test]
async fn commands_that_are_none_and_commands_of_earlier_runs_are_counted_and_ignored() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = cell.run();
    // The third run, whose plan nobody has.
    let order = r#"{"run":"r","bundle":"b","profile":{"stages":[{"duration":{"secs":9,"nanos":0},"from":1.0,"to":1.0}]},"start_at_ms":null,"expected":[],"ready_by_ms":0}"#;
    for _ in 0..3 {
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, "IDLE", order, true).await.unwrap().expect("nobody else is here");
    }
    let working = worker(&cell, &stop).await;
    let bad = [
        "",
        "[]",
        "{",
        r#"{"type":"start_test"}"#,
        &message(3, "add_user", "{}"),
        &message(3, "explode", "{}"),
        &message(3, "stop_test", r#"{"a":1}"#),
        &message(3, "start_test", r#"{"target_users":"many","init_params":{}}"#),
    ];
    let mut expected = 0;
    for text in bad {
        // An empty message is the store's own: something may have been missed.
        expected += u64::from(!text.is_empty());
        assert_eq!(run.publish("w", text).await.unwrap(), 1, "it listens");
    }
    until(&cell, "refusals", |report| report.bad_commands == expected).await;
    // Of the current run and of one that is to come: both only wake.
    for epoch in [3, 9] {
        run.publish("w", &message(epoch, "add_user", r#"{"user_ids":[1,2]}"#)).await.unwrap();
        run.publish("w", &message(epoch, "remove_user", r#"{"user_id":7}"#)).await.unwrap();
    }
    for (kind, payload) in [("start_test", r#"{"target_users":7,"init_params":{}}"#), ("stop_test", "{}")] {
        run.publish("w", &message(2, kind, payload)).await.unwrap();
    }
    run.publish("w", &message(1, "add_user", r#"{"user_id":1}"#)).await.unwrap();
    let report = until(&cell, "stale ones", |report| report.stale_commands == 3).await;
    assert_eq!((report.bad_commands, report.ready), (expected, 0), "{report:?}");
    stop.cancel();
    working.await.expect("no panic");
}

/// An order whose times cannot be added up.
fn endless() -> String {
    let stage = format!(r#"{{"duration":{{"secs":{},"nanos":0}},"from":1.0,"to":1e300}}"#, u64::MAX);
    format!(
        r#"{{"bundle":"b","profile":{{"stages":[{stage},{stage}]}},"start_at_ms":1,"expected":[],"ready_by_ms":0}}"#
    )
}

#[tokio::test]
async fn an_order_that_nobody_understands_is_ignored() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = cell.run();
    let working = worker(&cell, &stop).await;
    for order in ["nonsense", "{}", "[1,2]", "\u{0}", r#"{"bundle":1}"#, &endless()] {
        let seen = run.read_record().await.unwrap();
        run.compare_and_set(&seen, "RUNNING", order, true).await.unwrap().expect("nobody else is here");
    }
    let (before, begin) = (last_heartbeat(&cell).await, Instant::now());
    while last_heartbeat(&cell).await == before {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for another report");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = until(&cell, "a report", |_| true).await;
    assert_eq!((report.health, report.ready), (WorkerHealth::Healthy, 0));
    stop.cancel();
    working.await.expect("no panic");
}

/// Shares held by somebody who makes nothing of them are load that nobody makes.
#[tokio::test]
async fn who_cannot_carry_out_a_run_holds_no_shares_of_it() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let run = cell.run();
    let working = worker(&cell, &stop).await;
    let until_holding = async |holds: bool| {
        let begin = Instant::now();
        while cell.workers().snapshot().await.unwrap().leases.is_empty() == holds {
            assert!(begin.elapsed() < PATIENCE, "waited in vain for shares: {holds}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    until_holding(true).await;
    let order = |of: &str| {
        format!(
            r#"{{"run":"{of}","bundle":"b","profile":{{"stages":[{{"duration":{{"secs":9,"nanos":0}},"from":1.0,"to":1.0}}]}},"start_at_ms":null,"expected":[],"ready_by_ms":0}}"#
        )
    };
    for epoch in 1..=2 {
        let seen = run.read_record().await.unwrap();
        let seen =
            run.compare_and_set(&seen, "RUNNING", &order(&epoch.to_string()), true).await.unwrap().expect("alone");
        until_holding(false).await;
        let failed = |report: &WorkerReport| report.failed_run.clone().filter(|failed| failed.epoch == epoch);
        let report = until(&cell, "a failure report", |report| failed(report).is_some()).await;
        assert!(failed(&report).is_some_and(|failed| failed.message.contains("not in the store")), "{report:?}");
        // The next one may be for everybody.
        run.compare_and_set(&seen, "IDLE", &order(&epoch.to_string()), false).await.unwrap().expect("alone");
        until_holding(true).await;
    }
    stop.cancel();
    working.await.expect("no panic");
}

/// The live holder keeps its name; when it is forgotten the newcomer has it.
#[tokio::test]
async fn a_name_belongs_to_one_worker_at_a_time() {
    let (cell, stop) = (MemoryFleetStores::default(), CancellationToken::new());
    let working = worker(&cell, &stop).await;
    let instance = until(&cell, "the worker", |_| true).await.instance;
    let mut config = WorkerConfig::new("w");
    config.heartbeat_interval = Duration::from_millis(50);
    let refused = Worker::new(cell.clone(), Closed, config.clone()).run(CancellationToken::new()).await;
    assert!(matches!(&refused, Err(WorkerError::NameTaken(name)) if name == "w"), "{refused:?}");
    assert_eq!(until(&cell, "the worker", |_| true).await.instance, instance);
    // Killed: it says nothing any more, and is forgotten in the end.
    working.abort();
    assert!(working.await.unwrap_err().is_cancelled());
    let newcomer = Worker::new(cell.clone(), Closed, config).run(stop.clone());
    let newcomer = tokio::spawn(async move { newcomer.await.expect("the name is free in the end") });
    cell.run().remove_worker("w").await.unwrap();
    until(&cell, "the newcomer", |report| report.instance != instance).await;
    stop.cancel();
    newcomer.await.expect("no panic");
}
