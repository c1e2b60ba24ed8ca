//! Whole runs: every start happens once, limits are exact, waiting counts.

use crate::drivers::{Scripted, closed, config, open, run};
use squall_engine::{Engine, EngineConfig, Schedule};
use squall_metrics::Collector;
use squall_model::{Arrivals, EngineLimits, LoadModel, Pause, ShareSet, TaskIndex, TaskSpec};
use std::{
    sync::{Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;

#[tokio::test]
async fn an_open_run_starts_every_number_exactly_once() {
    let driver = Scripted::new(|_| MS(1));
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
async fn weights_are_exact_over_the_whole_process() {
    let mut driver = Scripted::new(|_| MS(0));
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
async fn a_frozen_target_shows_in_response_times_and_not_in_the_number_of_starts() {
    // Number 50 (at 0.5 s) freezes its user for a second; one user only, so everything behind it waits.
    let driver = Scripted::new(|n| if n == 50 { MS(1000) } else { MS(0) });
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
async fn a_closed_run_keeps_its_limit_exactly() {
    let driver = Scripted::new(|_| MS(1));
    let mut load = closed(7.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(333);
    let (config, log) = (config(load, &driver), driver.log.clone());
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.accounting().reported, 333);
    assert_eq!((log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed)), (7, 7));
}

#[tokio::test]
async fn an_open_run_keeps_its_limit_exactly() {
    let driver = Scripted::new(|_| MS(1));
    let mut load = open(1000.0, Duration::from_secs(60));
    load.iterations = Some(321);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.accounting().reported, 321);
    assert_eq!(end.active, MS(321));
}

#[tokio::test]
async fn warm_up_is_kept_out_of_the_results_and_accounted_for() {
    let driver = Scripted::new(|_| MS(0));
    let mut load = open(200.0, MS(1000));
    load.warm_up = MS(500);
    let config = config(load, &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.warm_up), (100, 100));
    assert!(view.accounting().balances());
}

#[tokio::test]
async fn users_follow_a_profile_up_and_down() {
    let driver = Scripted::new(|_| MS(1));
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
async fn a_task_runs_after_what_it_requires() {
    let mut driver = Scripted::new(|_| MS(0));
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
async fn a_user_that_cannot_start_is_retried() {
    let driver = Scripted::new(|_| MS(0));
    driver.failing_starts.store(1, Ordering::Relaxed);
    let mut load = closed(1.0, MS(0), Duration::from_secs(10));
    load.iterations = Some(5);
    let config = EngineConfig { threads: 1, ..config(load, &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests, 5);
}

/// Found by a reader: an open run of ten requests whose login failed at first made none of them.
#[tokio::test]
async fn starts_of_a_limited_run_wait_for_users_that_cannot_start_at_once() {
    let driver = Scripted::new(|_| MS(0));
    // On each of two threads: nobody comes through before the second try.
    driver.failing_starts.store(5, Ordering::Relaxed);
    let mut load = open(1000.0, Duration::from_secs(60));
    load.iterations = Some(10);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (10, 0));
    assert!(end.active >= MS(500), "they began when somebody could: {:?}", end.active);
}

/// However long that takes; the grace is for what is under way.
#[tokio::test]
async fn starts_of_a_limited_run_wait_longer_than_the_grace() {
    let driver = Scripted::new(|_| MS(20));
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

/// Found by a reader: a closed run of so many requests whose login always failed never ended.
#[tokio::test]
async fn a_limited_run_that_nobody_can_begin_ends() {
    // Two threads, one of them without a user in the closed run.
    for (mut load, dropped) in [(closed(1.0, MS(0), Duration::from_secs(600)), 0), (open(100.0, MS(600_000)), 10)] {
        let driver = Scripted::new(|_| MS(0));
        driver.failing_starts.store(u64::MAX, Ordering::Relaxed);
        load.iterations = Some(10);
        let config = EngineConfig { start_failure_timeout: MS(300), ..config(load, &driver) };
        let (view, end) = run(driver, config, |_, _| {}).await;
        assert_eq!((view.engine.iterations, view.engine.dropped), (0, dropped));
        assert!(end.active <= end.elapsed, "{end:?}");
    }
}

/// Somebody gets on with it: who cannot start yet is waited for, and tried again.
#[tokio::test]
async fn a_limited_run_goes_on_while_somebody_came_through() {
    let driver = Scripted::new(|_| MS(100));
    driver.failing_starts.store(1, Ordering::Relaxed);
    let mut load = closed(2.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(12);
    let config = EngineConfig { threads: 1, start_failure_timeout: MS(1), ..config(load, &driver) };
    let log = driver.log.clone();
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.engine.iterations, 12);
    assert_eq!(log.started.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_run_of_two_seconds_has_two_seconds() {
    let driver = Scripted::new(|_| MS(5));
    let config = config(open(100.0, MS(2000)), &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    // Unless the machine stood still at its end.
    if end.elapsed < MS(2009) {
        assert_eq!(view.timeline.len(), 2, "{:?}", view.timeline);
    }
}

/// Found by a reader: 109 answers in the last second of a steady 100/s.
#[tokio::test]
async fn what_ends_after_the_last_second_is_not_part_of_it() {
    let driver = Scripted::new(|_| MS(90));
    let config = config(open(100.0, MS(1000)), &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    let seconds: Vec<_> = view.timeline.iter().map(|second| second.requests).collect();
    assert_eq!(seconds.iter().sum::<u64>(), 100);
    // Unless the machine stood still at its end.
    if end.elapsed < MS(1100) {
        assert!(seconds.len() == 2 && seconds[1] >= 5, "the last nine end after a second: {seconds:?}");
    }
}

#[tokio::test]
async fn the_limit_ends_threads_without_users_too() {
    let driver = Scripted::new(|_| MS(1));
    let mut load = closed(1.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(5);
    let config = config(load, &driver);
    let (view, end) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.peak_users), (5, 1));
    assert_eq!(view.timeline.len(), 1);
    assert!(end.active <= end.elapsed);
}

#[tokio::test]
async fn starts_of_users_that_never_could_start_are_dropped_and_said_so() {
    let driver = Scripted::new(|_| MS(0));
    driver.failing_starts.store(u64::MAX, Ordering::Relaxed);
    let config = config(open(50.0, MS(1000)), &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (0, 50));
}

#[tokio::test]
async fn the_most_users_are_kept_exactly_over_the_threads() {
    let driver = Scripted::new(|_| Duration::from_secs(5));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 5, grace: MS(10), ..EngineLimits::default() },
        ..config(open(100.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.engine.peak_users, view.all.requests), (5, 5));
}

/// They are the whole run's: who holds a third of it has a third of them.
#[tokio::test]
async fn the_most_users_are_divided_with_the_shares() {
    for (part, most) in [(0, 4), (1, 3), (2, 3)] {
        let driver = Scripted::new(|_| Duration::from_secs(5));
        let config = EngineConfig {
            limits: EngineLimits { max_users: 10, grace: MS(10), ..EngineLimits::default() },
            shares: ShareSet::ALL.part(part, 3),
            ..config(open(200.0, MS(1000)), &driver)
        };
        let (view, _) = run(driver, config, |_, _| {}).await;
        assert_eq!((view.engine.peak_users, view.all.requests), (most, most), "part {part}");
    }
}

/// As a fleet would: blocks come when they are asked for, what is not used goes back, and the end is said.
#[tokio::test]
async fn a_closed_run_that_is_supplied_starts_what_it_was_given_and_no_more() {
    let driver = Scripted::new(|_| MS(1));
    let mut load = closed(5.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(1_000_000);
    let (tickets, supply) = squall_engine::NumberQuota::with_refill();
    let config = EngineConfig { iteration_quota: Some(tickets), ..config(load, &driver) };
    let log = driver.log.clone();
    let supplying = tokio::spawn(async move {
        for block in [0..1, 1..7, 7..100] {
            while supply.status().available > 0 || supply.status().waiting == 0 {
                supply.refill_requested().await;
            }
            supply.add_block(block);
        }
        while supply.status().available > 0 {
            supply.refill_requested().await;
        }
        supply.close();
        supply.status().taken
    });
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(supplying.await.unwrap(), 100);
    assert_eq!((view.accounting().reported, view.engine.iterations), (100, 100));
    assert_eq!((log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed)), (5, 5));
}

/// A run that is drained while its users wait for more ends at once.
#[tokio::test]
async fn users_that_wait_for_more_go_home_when_told_to() {
    let driver = Scripted::new(|_| MS(1));
    let mut load = closed(3.0, MS(0), Duration::from_secs(600));
    load.iterations = Some(50);
    let (tickets, supply) = squall_engine::NumberQuota::with_refill();
    let config = EngineConfig { iteration_quota: Some(tickets), ..config(load, &driver) };
    supply.add_block(0..4);
    let (view, _) = run(driver, config, |engine, _| {
        if supply.status().waiting > 0 {
            engine.stop_handle().drain();
        }
    })
    .await;
    assert_eq!(view.accounting().reported, 4);
}

/// Found by a reader: starts that a stopped generator was late with went to users that had just come, and counted as punctual.
#[tokio::test]
async fn a_generator_that_stood_still_is_behind_whoever_takes_the_starts() {
    // One thread, held by its own driver for half a second; every start needs a user of its own.
    let driver = Scripted::new(|n| {
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

/// Found by a reader: 60 starts of a run of 3 s were made over 12 s and reported as 20/s.
#[tokio::test]
async fn what_waits_for_a_user_at_the_end_is_dropped() {
    let driver = Scripted::new(|_| MS(400));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        threads: 1,
        ..config(open(20.0, MS(1000)), &driver)
    };
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!(view.all.requests + view.engine.dropped, 20);
    assert!(view.all.requests <= 4, "a user that takes 400 ms begins at 0, 400 and 800 ms: {}", view.all.requests);
}

/// Found by a reader: while users were short, load went on for a tenth of a second after the end.
#[tokio::test]
async fn nothing_that_waited_for_a_user_begins_after_the_end() {
    static BEGUN: Mutex<Vec<Instant>> = Mutex::new(Vec::new());
    // One user, for whom far too much is due: it is free again and again just after the end.
    let driver = Scripted::new(|_| {
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
    assert!(after <= 2, "{after} began after the end: no more than a thread that stands still may overlook");
}

/// Found by a reader: starts that were dropped and due in the warm-up were in the results.
#[tokio::test]
async fn what_was_due_in_the_warm_up_is_not_dropped_in_the_results() {
    let driver = Scripted::new(|_| Duration::from_secs(5));
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

/// Found by a reader: 462 to 178 of 640 iterations with weights of 3 to 1, on 64 threads.
#[tokio::test]
async fn weights_are_exact_over_all_threads_of_a_closed_load() {
    let mut driver = Scripted::new(|_| MS(1));
    driver.tasks = vec![TaskSpec { weight: 3.0, ..TaskSpec::new("a") }, TaskSpec::new("b")];
    let mut load = closed(16.0, MS(0), Duration::from_secs(60));
    load.iterations = Some(160);
    let config = EngineConfig { threads: 16, ..config(load, &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    let requests = |name: &str| view.metric(name).map_or(0, |metric| metric.requests);
    assert_eq!((requests("a"), requests("b")), (120, 40));
}

/// Found by a reader: a closed load whose generator was stopped showed no lag at all.
#[tokio::test]
async fn a_closed_load_that_stood_still_says_so() {
    // One thread, held by its own driver for half a second.
    let driver = Scripted::new(|n| {
        if n == 2 {
            std::thread::sleep(MS(500));
        }
        MS(5)
    });
    let config = EngineConfig { threads: 1, ..config(closed(1.0, MS(0), MS(1500)), &driver) };
    let (view, _) = run(driver, config, |_, _| {}).await;
    let lag = view.engine.schedule_lag.max();
    assert!(lag >= MS(350).as_nanos() as u64, "half a second, less the 100 ms between two looks: {lag} ns");
}

/// Found by a reader: whoever joined a fleet's closed run had stood still since its start.
#[tokio::test]
async fn who_is_told_late_of_a_start_has_not_stood_still() {
    let driver = Scripted::new(|_| MS(5));
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

/// Found by a reader: 40 requests that chance had put into 1.5 s were told as 20/s.
#[tokio::test]
async fn a_limited_poisson_run_is_as_long_as_its_last_start() {
    let driver = Scripted::new(|_| MS(1));
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
async fn a_run_of_so_many_iterations_makes_them_all_and_is_as_long_as_it_took() {
    let driver = Scripted::new(|_| MS(100));
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

/// Found by a reader: users that had to wait for their `every` held starts that others could have made.
#[tokio::test]
async fn a_user_whose_tasks_must_wait_leaves_the_start_to_another() {
    let mut driver = Scripted::new(|_| MS(0));
    driver.tasks = vec![TaskSpec { every: Some(Pause::Fixed(MS(500))), ..TaskSpec::new("only") }];
    let config = config(open(40.0, MS(1500)), &driver);
    let (view, _) = run(driver, config, |_, _| {}).await;
    assert_eq!((view.all.requests, view.engine.dropped), (60, 0));
    assert!(view.engine.peak_users >= 15, "each user makes two a second: {}", view.engine.peak_users);
}

/// Whoever has lost its place in the fleet may have lost what its users had borrowed: they begin anew, of either model.
#[tokio::test]
async fn users_begin_anew_after_their_process_had_lost_its_place() {
    let loads = [(open(200.0, MS(2500)), 1), (closed(3.0, MS(5), MS(2500)), 3)];
    for (load, least) in loads {
        let driver = Scripted::new(|_| MS(1));
        let (lender, _asks) = squall_engine::ResourceClient::new();
        let config = EngineConfig { resources: Some(lender.clone()), ..config(load, &driver) };
        let log = driver.log.clone();
        let mut before = 0;
        run(driver, config, |_, _| {
            if before == 0 {
                before = log.started.load(Ordering::Relaxed);
                lender.invalidate_leases();
            }
        })
        .await;
        let (started, stopped) = (log.started.load(Ordering::Relaxed), log.stopped.load(Ordering::Relaxed));
        assert_eq!(started, stopped, "whoever began has ended");
        assert!(before >= least && started >= before + least, "{before} before the lapse, {started} in all");
    }
}
