//! Runs with an iteration limit: the limit is exact, and the run waits for all its iterations.

use crate::scripted_driver::{ScriptedDriver, closed, config, open, run};
use squall_engine::{EngineConfig, Schedule};
use squall_model::{Arrivals, EngineLimits, LoadModel, ShareSet};
use std::{sync::atomic::Ordering, time::Duration};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test]
async fn closed_run_makes_exactly_its_limit_of_iterations() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = closed(7.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(333);
    let (config, log) = (config(load, &driver), driver.log.clone());
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.accounting().reported, 333);
    assert_eq!((log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed)), (7, 7));
}

#[tokio::test]
async fn open_run_makes_exactly_its_limit_of_iterations() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = open(1000.0, Duration::from_secs(60));
    load.iterations = Some(321);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.accounting().reported, 321);
    // Until the last start is made, which is late on a machine that stalls, and not as long as the profile.
    assert!((MS(321)..Duration::from_secs(60)).contains(&end.active), "{:?}", end.active);
}

#[tokio::test]
async fn limited_run_keeps_its_starts_while_users_fail_to_start() {
    let driver = ScriptedDriver::new(|_| MS(0));
    // On each of two threads, no user starts before its second attempt.
    driver.failing_starts.store(5, Ordering::Relaxed);
    let mut load = open(1000.0, Duration::from_secs(60));
    load.iterations = Some(10);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (10, 0));
    assert!(end.active >= MS(500), "they began when a user could start: {:?}", end.active);
}

#[tokio::test]
async fn limited_run_makes_all_starts_even_after_the_grace_period() {
    let driver = ScriptedDriver::new(|_| MS(20));
    let mut load = open(1000.0, Duration::from_secs(60));
    load.iterations = Some(10);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, grace: MS(50), ..EngineLimits::default() },
        threads: 1,
        ..config(load, &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (10, 0));
}

#[tokio::test]
async fn limited_run_makes_more_starts_than_fit_into_the_queue() {
    let driver = ScriptedDriver::new(|_| MS(0));
    // All are due within a millisecond, and one user takes them one after the other.
    let mut load = open(1e9, Duration::from_secs(600));
    load.iterations = Some(1_010_000);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(load, &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (1_010_000, 0));
}

#[tokio::test]
async fn limited_run_ends_when_no_user_can_start() {
    // Two threads, one of them without a user in the closed run.
    for (mut load, dropped) in [(closed(1.0, MS(0), Duration::from_secs(600)), 0), (open(100.0, MS(600_000)), 10)] {
        let driver = ScriptedDriver::new(|_| MS(0));
        driver.failing_starts.store(u64::MAX, Ordering::Relaxed);
        load.iterations = Some(10);
        let config = EngineConfig { on_start_failure_timeout: MS(300), ..config(load, &driver) };
        let (view, end) = run(driver, config, |_, _| {}).await;
        assert_eq!((view.engine.iterations, view.engine.dropped), (0, dropped));
        assert!(end.active <= end.elapsed, "{end:?}");
    }
}

#[tokio::test]
async fn limited_run_continues_while_one_user_has_started() {
    let driver = ScriptedDriver::new(|_| MS(100));
    driver.failing_starts.store(1, Ordering::Relaxed);
    let mut load = closed(2.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(12);
    let config = EngineConfig { threads: 1, on_start_failure_timeout: MS(1), ..config(load, &driver) };
    let log = driver.log.clone();
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.engine.iterations, 12);
    assert_eq!(log.started.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn reached_limit_ends_threads_without_users() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = closed(1.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(5);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.peak_users), (5, 1));
    assert_eq!(view.timeline.len(), 1);
    assert!(end.active <= end.elapsed);
}

#[tokio::test]
async fn closed_run_with_refilled_quota_runs_exactly_its_iterations() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = closed(5.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(1_000_000);
    let (quota, refill) = squall_engine::NumberQuota::with_refill();
    let config = EngineConfig { iteration_quota: Some(quota), ..config(load, &driver) };
    let log = driver.log.clone();
    let refilling = tokio::spawn(async move {
        for block in [0..1, 1..7, 7..100] {
            while refill.status().available > 0 || refill.status().waiting == 0 {
                refill.refill_requested().await;
            }
            refill.add_block(block);
        }
        while refill.status().available > 0 {
            refill.refill_requested().await;
        }
        refill.close();
        refill.status().taken
    });
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(refilling.await.unwrap(), 100);
    assert_eq!((view.accounting().reported, view.engine.iterations), (100, 100));
    assert_eq!((log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed)), (5, 5));
}

#[tokio::test]
async fn drain_ends_users_that_wait_for_the_quota() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = closed(3.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(50);
    let (quota, refill) = squall_engine::NumberQuota::with_refill();
    let config = EngineConfig { iteration_quota: Some(quota), ..config(load, &driver) };
    refill.add_block(0..4);
    let (view, _) = run(driver, config, |engine, _| {
        if refill.status().waiting > 0 {
            engine.stop_handle().drain();
        }
    })
    .await;
    assert_eq!(view.accounting().reported, 4);
}

#[tokio::test]
async fn limited_poisson_run_ends_at_its_last_start() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let mut load = open(200.0, Duration::from_secs(60));
    let LoadModel::Open { arrivals, rate } = &mut load.model else { unreachable!() };
    *arrivals = Arrivals::Poisson;
    let last = Schedule::new(rate.clone(), *arrivals, ShareSet::ALL, Some(40), 1).last().unwrap().at;
    load.iterations = Some(40);
    let config = EngineConfig { seed: 1, ..config(load, &driver) };
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests, 40);
    assert!(last != MS(200) && end.active >= last && end.active <= end.elapsed, "{last:?} {end:?}");
}

#[tokio::test]
async fn limited_open_run_makes_all_iterations_and_reports_their_real_duration() {
    let driver = ScriptedDriver::new(|_| MS(100));
    let mut load = open(100.0, Duration::from_secs(60));
    load.iterations = Some(10);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(load, &driver)
    };
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (10, 0));
    assert!(end.active >= MS(900), "the last began after nine others: {:?}", end.active);
}
