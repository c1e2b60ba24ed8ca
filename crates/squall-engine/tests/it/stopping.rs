//! Stopping early: a drain finishes what is under way, an abort records it, and both report exactly.

use crate::drivers::{Scripted, closed, config, open, run};
use squall_engine::EngineConfig;
use squall_metrics::Outcome;
use squall_model::EngineLimits;
use std::{sync::atomic::Ordering, time::Duration};

const MS: fn(u64) -> Duration = Duration::from_millis;
const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_drain_finishes_what_is_under_way() {
    let driver = Scripted::new(|_| MS(200));
    let (config, log) = (config(closed(10.0, MS(0), LONG), &driver), driver.log.clone());
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert!(!end.cut_off);
    assert!(view.accounting().balances());
    assert_eq!(view.all.errors, 0);
    assert_eq!(log.stopped.load(Ordering::Relaxed), 10);
}

#[tokio::test]
async fn an_abort_records_what_it_cut_off() {
    let driver = Scripted::new(|_| LONG);
    let config = config(closed(10.0, MS(0), LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().abort()).await;
    assert!(end.cut_off);
    assert!(view.accounting().balances(), "{:?}", view.accounting());
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 10);
    assert!(view.all.service.min() > 0, "with the time it took so far");
}

#[tokio::test]
async fn the_grace_has_an_end() {
    let driver = Scripted::new(|_| LONG);
    let config = EngineConfig {
        limits: EngineLimits { grace: MS(100), ..EngineLimits::default() },
        ..config(closed(3.0, MS(0), MS(300)), &driver)
    };
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert!(end.cut_off);
    assert_eq!(view.all.outcomes[&Outcome::ABORTED], 3);
}

#[tokio::test]
async fn users_in_a_pause_leave_at_once() {
    let driver = Scripted::new(|_| MS(1));
    let config = config(closed(5.0, LONG, LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert_eq!(view.all.requests, 5);
    assert!(end.elapsed < LONG);
}

#[tokio::test]
async fn starts_that_never_found_a_user_are_counted_as_dropped() {
    let driver = Scripted::new(|_| LONG);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 2, grace: MS(50), ..EngineLimits::default() },
        ..config(open(100.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests + view.engine.dropped, 100);
    assert_eq!(view.all.requests, 2);
}

#[tokio::test]
async fn a_drained_open_run_gives_up_its_backlog() {
    let driver = Scripted::new(|_| MS(1500));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 2, ..EngineLimits::default() },
        ..config(open(100.0, LONG), &driver)
    };
    let (view, _) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert_eq!(view.all.requests, 2);
    assert!(view.engine.dropped > 50, "{}", view.engine.dropped);
}

/// Users that found no descriptor for a socket spun for ever and were deaf to the end of the run.
#[tokio::test]
async fn iterations_that_never_wait_do_not_starve_the_conductor() {
    let driver = Scripted::new(|_| MS(0));
    let config = config(closed(3.0, MS(0), LONG), &driver);
    let (view, end) = run(driver, config, |engine, _| engine.stop_handle().drain()).await;
    assert!(!end.cut_off);
    assert!(view.accounting().balances());
}
