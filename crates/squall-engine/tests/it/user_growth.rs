//! How many users an open load starts if each of them runs an `on_start`.

use squall_engine::{ShareAssignment, UserStart};
use squall_metrics::RunView;
use squall_model::ShareSet;
use std::{sync::atomic::Ordering, time::Duration};

use crate::scripted_driver::{ScriptedDriver, config, open, run};

/// Users that were added because all were busy, as the report shows them.
fn added_users(view: &RunView) -> u64 {
    let name = "(user added because all were busy)";
    view.metrics.iter().filter(|metric| metric.key.name == name).map(|metric| metric.requests).sum()
}

fn driver(service: fn(u64) -> Duration, login: Duration, user_start: UserStart) -> ScriptedDriver {
    ScriptedDriver { login, user_start, ..ScriptedDriver::new(service) }
}

#[tokio::test]
async fn slow_on_start_does_not_run_once_per_start() {
    let driver = driver(|_| Duration::from_millis(2), Duration::from_millis(300), UserStart::OnStart);
    let (log, config) = (driver.log.clone(), config(open(200.0, Duration::from_secs(1)), &driver));
    let (view, _) = run(driver, config, |_, _| {}).await;
    // On a machine that stalls, all users may be busy at once.
    let added = added_users(&view);
    assert_eq!(log.started.load(Ordering::Relaxed), 5 + added, "200 starts");
    assert_eq!((view.engine.iterations, view.engine.dropped), (200, 0));
    assert!(added < 20, "{added} users were added");
}

#[tokio::test]
async fn users_start_at_once_if_the_driver_asks_for_it() {
    let driver = driver(|_| Duration::ZERO, Duration::ZERO, UserStart::OnStartAtOnce);
    let (log, config) = (driver.log.clone(), config(open(2.0, Duration::from_secs(1)), &driver));
    run(driver, config, |_, _| {}).await;
    assert_eq!(log.started.load(Ordering::Relaxed), 5, "two starts need one user");
}

#[tokio::test]
async fn start_users_sets_the_first_users() {
    let driver = driver(|_| Duration::ZERO, Duration::ZERO, UserStart::OnStart);
    let (log, mut config) = (driver.log.clone(), config(open(2.0, Duration::from_secs(1)), &driver));
    config.limits.start_users = Some(9);
    run(driver, config, |_, _| {}).await;
    assert_eq!(log.started.load(Ordering::Relaxed), 9);
}

#[tokio::test]
async fn more_threads_than_first_users_start_no_further_users() {
    for (user_start, start_users, expected) in
        [(UserStart::OnStart, Some(2), 2), (UserStart::OnStartAtOnce, None, 5), (UserStart::OnStart, Some(1), 1)]
    {
        let driver = driver(|_| Duration::ZERO, Duration::ZERO, user_start);
        let (log, mut config) = (driver.log.clone(), config(open(40.0, Duration::from_secs(1)), &driver));
        (config.threads, config.limits.start_users) = (16, start_users);
        let (view, _) = run(driver, config, |_, _| {}).await;
        assert_eq!(log.started.load(Ordering::Relaxed), expected, "{user_start:?} {start_users:?}");
        assert_eq!((view.engine.iterations, view.engine.dropped, added_users(&view)), (40, 0, 0));
    }
}

/// A worker that joins a run under way has no shares when it prepares.
#[tokio::test]
async fn shares_taken_during_the_run_start_their_part_of_the_first_users() {
    let driver = driver(|_| Duration::ZERO, Duration::ZERO, UserStart::OnStart);
    let (log, mut config) = (driver.log.clone(), config(open(40.0, Duration::from_secs(3)), &driver));
    (config.threads, config.limits.start_users, config.shares) = (4, Some(3), ShareSet::NONE);
    let profile = config.load.model.profile().clone();
    let mut assigned = false;
    let (view, _) = run(driver, config, |engine, _| {
        if !std::mem::replace(&mut assigned, true) {
            engine.set_assignment(ShareAssignment::new(ShareSet::ALL, profile.clone(), Duration::ZERO));
        }
    })
    .await;
    assert_eq!(log.started.load(Ordering::Relaxed), 3);
    assert!(view.engine.iterations > 0 && view.engine.dropped == 0);
}

#[tokio::test]
async fn users_are_added_and_reported_when_all_are_busy() {
    let driver = driver(|_| Duration::from_millis(500), Duration::ZERO, UserStart::OnStart);
    let (log, config) = (driver.log.clone(), config(open(40.0, Duration::from_secs(3)), &driver));
    let (view, _) = run(driver, config, |_, _| {}).await;
    let started = log.started.load(Ordering::Relaxed);
    assert!(started > 5, "five users make 10 of 40 iterations a second");
    assert_eq!(added_users(&view), started - 5);
    assert!(started < 60, "{started} users started for 120 iterations");
}
