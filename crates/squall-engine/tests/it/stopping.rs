//! Stopping early: a drain finishes iterations in progress, an abort records them, and both counts
//! balance.

use crate::scripted_driver::{ScriptedDriver, closed, config, open, run};
use squall_engine::EngineConfig;
use squall_metrics::Outcome;
use squall_model::EngineLimits;
use std::{sync::atomic::Ordering, time::Duration};

const MS: fn(u64) -> Duration = Duration::from_millis;
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn drain_lets_iterations_in_progress_finish() {
    let driver = ScriptedDriver::new(|_| MS(200));
    let (config, log) = (config(closed(10.0, MS(0), LONG), &driver), driver.log.clone());
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert!(!end.cut_off);
    assert!(view.accounting().balances());
    assert_eq!(view.all.errors, 0);
    assert_eq!(log.stopped.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn abort_records_requests_in_progress_as_aborted() {
    let driver = ScriptedDriver::new(|_| LONG);
    let config = config(closed(10.0, MS(0), LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().abort()).await;
    assert!(end.cut_off);
    assert!(view.accounting().balances(), "{:?}", view.accounting());
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 10);
    assert!(view.all.service.min() > 0, "with the time it took so far");
}

#[tokio::test]
async fn iterations_are_aborted_when_the_grace_period_ends() {
    let driver = ScriptedDriver::new(|_| LONG);
    let config = EngineConfig {
        limits: EngineLimits { grace: MS(100), ..EngineLimits::default() },
        ..config(closed(3.0, MS(0), MS(300)), &driver)
    };
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert!(end.cut_off);
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 3);
}

#[tokio::test]
async fn drain_ends_pausing_users_at_once() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let config = config(closed(5.0, LONG, LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert_eq!(view.all.requests, 5);
    assert!(end.elapsed < LONG);
}

#[tokio::test]
async fn starts_without_a_free_user_are_counted_as_dropped() {
    let driver = ScriptedDriver::new(|_| LONG);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 2, grace: MS(50), ..EngineLimits::default() },
        ..config(open(100.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests + view.engine.dropped, 100);
    assert_eq!(view.all.requests, 2);
}

#[tokio::test]
async fn drained_open_run_drops_its_queued_starts() {
    let driver = ScriptedDriver::new(|_| MS(1500));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 2, ..EngineLimits::default() },
        ..config(open(100.0, LONG), &driver)
    };
    let (view, _) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert_eq!(view.all.requests, 2);
    assert!(view.engine.dropped > 50, "{}", view.engine.dropped);
}

/// A user without a free file descriptor for its socket fails at once, again and again.
#[tokio::test]
async fn iterations_that_never_wait_do_not_starve_the_scheduler() {
    let driver = ScriptedDriver::new(|_| MS(0));
    let config = config(closed(3.0, MS(0), LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert!(!end.cut_off);
    assert!(view.accounting().balances());
}
