//! Whole runs: every start is made once, limits are exact, waiting counts as response time.

use crate::scripted_driver::{ScriptedDriver, closed, config, open, run};
use squall_engine::{Engine, EngineConfig};
use squall_metrics::Collector;
use squall_model::{EngineLimits, Pause, ShareSet, TaskIndex, TaskSpec};
use std::{
    sync::{Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test]
async fn open_run_makes_every_start_exactly_once() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let (config, log) = (config(open(500.0, MS(2000)), &driver), driver.log.clone());
    let (view, _) = run(driver, config, |_, _| {}).await;
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    let accounting = view.accounting();
    assert!(accounting.balances(), "{accounting:?}");
    assert_eq!((accounting.sent, view.engine.dropped), (1000, 0));
}

#[tokio::test]
async fn task_weights_of_an_open_run_are_exact_over_all_threads() {
    let mut driver = ScriptedDriver::new(|_| MS(0));
    driver.tasks = vec![TaskSpec { weight: 3.0, ..TaskSpec::new("a") }, TaskSpec::new("b")];
    let (config, log) = (config(open(400.0, MS(1000)), &driver), driver.log.clone());
    run(driver, config, |_, _| {}).await;
    let mut order = log.iterations.lock().unwrap().clone();
    order.sort_unstable();
    for window in order.windows(80) {
        assert_eq!(window.iter().filter(|(_, task)| *task == 0).count(), 60);
    }
}

#[tokio::test]
async fn frozen_target_raises_response_times_but_not_the_number_of_starts() {
    // Start 50 (at 0.5 s) blocks its user for a second. There is only one user, so all later starts
    // wait.
    let driver = ScriptedDriver::new(|n| if n == 50 { MS(1000) } else { MS(0) });
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(open(100.0, MS(2000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests, 200);
    let (response, service) = (view.all.response.percentile(75.0), view.all.service.percentile(75.0));
    assert!(response > MS(300).as_nanos() as u64, "the wait of the starts behind is in the response time: {response}");
    assert!(service < MS(100).as_nanos() as u64, "and not in the service time: {service}");
    assert!(view.engine.late >= 90, "late starts are counted: {}", view.engine.late);
}

#[tokio::test]
async fn warm_up_requests_are_counted_but_not_in_the_results() {
    let driver = ScriptedDriver::new(|_| MS(0));
    let mut load = open(200.0, MS(1000));
    load.warm_up = MS(500);
    let config = config(load, &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.warm_up_requests), (100, 100));
    assert!(view.accounting().balances());
}

#[tokio::test]
async fn number_of_users_follows_the_profile() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let stages = [(MS(1000), 8.0), (MS(1500), 8.0), (MS(500), 0.0), (MS(500), 0.0)];
    let profile = squall_model::Profile::from_targets(&stages).unwrap();
    let mut load = closed(1.0, MS(1), MS(1));
    load.model = squall_model::LoadModel::Closed { users: profile, pause: Pause::Fixed(MS(5)) };
    let (config, log) = (config(load, &driver), driver.log.clone());
    let (view, _) = run(driver, config, |_, _| {}).await;
    let users: Vec<_> = view.timeline.iter().map(|s| s.users).collect();
    assert_eq!(users[1], 8, "{users:?}");
    assert_eq!(log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed));
    assert_eq!(view.engine.users, 0);
}

#[tokio::test]
async fn task_runs_only_after_its_required_task() {
    let mut driver = ScriptedDriver::new(|_| MS(0));
    driver.tasks = vec![TaskSpec::new("browse"), TaskSpec { requires: vec![TaskIndex(0)], ..TaskSpec::new("buy") }];
    let mut load = closed(1.0, MS(0), Duration::from_secs(10));
    load.iterations = Some(20);
    let (config, log) = (config(load, &driver), driver.log.clone());
    run(driver, config, |_, _| {}).await;
    let tasks: Vec<_> = log.iterations.lock().unwrap().iter().map(|(_, task)| *task).collect();
    assert_eq!(tasks[0], 0);
    assert_eq!(tasks.iter().filter(|t| **t == 1).count(), 9, "every second one once it may: {tasks:?}");
}

#[tokio::test]
async fn user_whose_start_fails_is_retried() {
    let driver = ScriptedDriver::new(|_| MS(0));
    driver.failing_starts.store(1, Ordering::Relaxed);
    let mut load = closed(1.0, MS(0), Duration::from_secs(10));
    load.iterations = Some(5);
    let config = EngineConfig { threads: 1, ..config(load, &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests, 5);
}

/// Open runs must not drop their starts while a login fails at first.
/// The grace period is only for iterations in progress.
/// A closed run whose login always fails must not wait for its iterations for ever.
/// The run waits for users that fail to start, and the engine retries them.
#[tokio::test]
async fn run_of_two_seconds_has_two_seconds_in_its_timeline() {
    let driver = ScriptedDriver::new(|_| MS(5));
    let config = config(open(100.0, MS(2000)), &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    // Unless the machine stalled at the end of the run.
    if end.elapsed < MS(2009) {
        assert_eq!(view.timeline.len(), 2, "{:?}", view.timeline);
    }
}

/// The last second must not include the responses that arrive after it.
#[tokio::test]
async fn requests_that_end_after_the_run_are_not_in_its_last_second() {
    let driver = ScriptedDriver::new(|_| MS(90));
    let config = config(open(100.0, MS(1000)), &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    let seconds: Vec<_> = view.timeline.iter().map(|second| second.requests).collect();
    assert_eq!(seconds.iter().sum::<u64>(), 100);
    // Unless the machine stalled at the end of the run.
    if end.elapsed < MS(1100) {
        assert!(seconds.len() == 2 && seconds[1] >= 5, "the last nine end after a second: {seconds:?}");
    }
}

#[tokio::test]
async fn starts_are_counted_as_dropped_when_users_never_start() {
    let driver = ScriptedDriver::new(|_| MS(0));
    driver.failing_starts.store(u64::MAX, Ordering::Relaxed);
    let config = config(open(50.0, MS(1000)), &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (0, 50));
}

#[tokio::test]
async fn max_users_holds_exactly_over_all_threads() {
    let driver = ScriptedDriver::new(|_| Duration::from_secs(5));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 5, grace: MS(10), ..EngineLimits::default() },
        ..config(open(100.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.engine.peak_users, view.all.requests), (5, 5));
}

/// `max_users` is that of the whole run: a third of the shares has a third of the users.
#[tokio::test]
async fn max_users_is_divided_by_shares() {
    for (part, most) in [(0, 4), (1, 3), (2, 3)] {
        let driver = ScriptedDriver::new(|_| Duration::from_secs(5));
        let config = EngineConfig {
            limits: EngineLimits { max_users: 10, grace: MS(10), ..EngineLimits::default() },
            shares: ShareSet::ALL.part(part, 3),
            ..config(open(200.0, MS(1000)), &driver)
        };
        let (view, _) = run(driver, config, |_, _| {}).await;
        assert_eq!((view.engine.peak_users, view.all.requests), (most, most), "part {part}");
    }
}

/// As in a fleet: blocks are added on request, and the quota is closed at the end.
/// Late starts that newly created users take must still count as the engine's lag.
#[tokio::test]
async fn stall_of_an_open_run_shows_as_lag_of_late_starts() {
    // One thread, blocked by its driver for half a second; every start needs a user of its own.
    let driver = ScriptedDriver::new(|n| {
        if n == 20 {
            std::thread::sleep(MS(500));
        }
        MS(1500)
    });
    let config = EngineConfig { threads: 1, ..config(open(100.0, MS(1000)), &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (100, 0));
    let lag = &view.engine.schedule_lag;
    let behind = lag.count() - lag.count_at_most(MS(100).as_nanos() as u64);
    assert!(behind >= 35, "{behind} of the 50 starts of that half second were over 100 ms behind");
}

/// Making them after the end would stretch the run and lower its rate.
#[tokio::test]
async fn starts_still_queued_at_the_end_are_dropped() {
    let driver = ScriptedDriver::new(|_| MS(400));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(open(20.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests + view.engine.dropped, 20);
    assert!(view.all.requests <= 4, "a user that takes 400 ms begins at 0, 400 and 800 ms: {}", view.all.requests);
}

#[tokio::test]
async fn queued_starts_do_not_begin_after_the_end() {
    static BEGUN: Mutex<Vec<Instant>> = Mutex::new(Vec::new());
    // One user for far too many starts: it becomes free many times around the end.
    let driver = ScriptedDriver::new(|_| {
        BEGUN.lock().unwrap().push(Instant::now());
        MS(1)
    });
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(open(100_000.0, MS(500)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests + view.engine.dropped, 50_000);
    let begun = BEGUN.lock().unwrap();
    let after = begun.iter().filter(|at| at.duration_since(begun[0]) > MS(500)).count();
    assert!(after <= 2, "{after} began after the end: a stalled thread may overlook at most two");
}

#[tokio::test]
async fn dropped_starts_of_the_warm_up_are_not_in_the_results() {
    let driver = ScriptedDriver::new(|_| Duration::from_secs(5));
    let mut load = open(100.0, MS(1000));
    load.warm_up = MS(600);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, grace: MS(10), ..EngineLimits::default() },
        threads: 1,
        ..config(load, &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.accounting().reported, view.all.requests, view.engine.dropped), (1, 0, 40));
}

/// A cycle per thread would be off by up to one iteration per thread.
#[tokio::test]
async fn task_weights_of_a_closed_run_are_exact_over_all_threads() {
    let mut driver = ScriptedDriver::new(|_| MS(1));
    driver.tasks = vec![TaskSpec { weight: 3.0, ..TaskSpec::new("a") }, TaskSpec::new("b")];
    let mut load = closed(16.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(160);
    let config = EngineConfig { threads: 16, ..config(load, &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    let requests = |name: &str| view.metric(name).map_or(0, |metric| metric.requests);
    assert_eq!((requests("a"), requests("b")), (120, 40));
}

#[tokio::test]
async fn stall_of_a_closed_run_shows_as_lag() {
    // One thread, blocked by its driver for half a second.
    let driver = ScriptedDriver::new(|n| {
        if n == 2 {
            std::thread::sleep(MS(500));
        }
        MS(5)
    });
    let config = EngineConfig { threads: 1, ..config(closed(1.0, MS(0), MS(1500)), &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    let lag = view.engine.schedule_lag.max();
    assert!(lag >= MS(350).as_nanos() as u64, "half a second, less the 100 ms between two wake-ups: {lag} ns");
}

/// A worker may join a fleet's run long after its start.
#[tokio::test]
async fn late_start_command_is_not_recorded_as_stall() {
    let driver = ScriptedDriver::new(|_| MS(5));
    let config = EngineConfig { threads: 1, ..config(closed(1.0, MS(0), Duration::from_secs(61)), &driver) };
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    engine.start(Instant::now() - Duration::from_secs(60));
    let mut collector = Collector::new(engine.sources().iter().copied(), 1);
    while let Some(delta) = engine.next_delta().await {
        collector.merge(delta).unwrap();
    }
    engine.join().unwrap();
    let lag = collector.finish().engine.schedule_lag.max();
    assert!(lag < Duration::from_secs(30).as_nanos() as u64, "{lag} ns");
}

/// The rate of the report must be that of the real duration.
/// A user that waits for its `every` must not hold a start that another user can make.
#[tokio::test]
async fn user_whose_tasks_wait_leaves_the_start_to_another_user() {
    let mut driver = ScriptedDriver::new(|_| MS(0));
    driver.tasks = vec![TaskSpec { every: Some(Pause::Fixed(MS(500))), ..TaskSpec::new("only") }];
    let config = config(open(40.0, MS(1500)), &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (60, 0));
    assert!(view.engine.peak_users >= 15, "each user makes two a second: {}", view.engine.peak_users);
}

/// A worker that has lost its membership may have lost its leases, so its users are created anew in
/// both models.
#[tokio::test]
async fn users_are_recreated_after_their_leases_were_invalidated() {
    let loads = [(open(200.0, MS(2500)), 1), (closed(3.0, MS(5), MS(2500)), 3)];
    for (load, least) in loads {
        let driver = ScriptedDriver::new(|_| MS(1));
        let (resources, _requests) = squall_engine::ResourceClient::new();
        let config = EngineConfig { resources: Some(resources.clone()), ..config(load, &driver) };
        let log = driver.log.clone();
        let mut before = 0;
        run(driver, config, |_, _| {
            if before == 0 {
                before = log.started.load(Ordering::Relaxed);
                resources.invalidate_leases();
            }
        })
        .await;
        let (started, stopped) = (log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed));
        assert_eq!(started, stopped, "every started user has stopped");
        assert!(before >= least && started >= before + least, "{before} before the invalidation, {started} in total");
    }
}
