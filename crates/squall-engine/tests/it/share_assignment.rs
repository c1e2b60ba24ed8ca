//! Assignments that change during a run: shares move, and the load rises and falls.

use crate::scripted_driver::{ScriptedDriver, closed, config, open, run};
use squall_engine::{Engine, EngineConfig, SendPermit, ShareAssignment};
use squall_model::{Arrivals, EngineLimits, Load, LoadModel, Profile, ProfileStage, RunSpec, ShareSet};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test]
async fn process_makes_only_the_starts_of_its_shares() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let shares = ShareSet::ALL.part(1, 3);
    let config = EngineConfig { shares, ..config(open(500.0, S(1)), &driver) };
    let log = driver.log.clone();
    run(driver, config, |_, _| {}).await;
    let numbers: BTreeSet<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (0..500).filter(|n| shares.contains(*n)).collect());
}

#[tokio::test]
async fn gained_shares_start_at_the_present_of_the_run() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let (half, profile) = (ShareSet::ALL.part(0, 2), Profile::constant(512.0, S(4)).unwrap());
    let config = EngineConfig { shares: half, ..config(open(512.0, S(4)), &driver) };
    let log = driver.log.clone();
    run(driver, config, |engine, view| {
        if view.timeline.len() == 2 {
            engine.set_assignment(ShareAssignment::new(ShareSet::ALL, profile.clone(), MS(2005)));
        }
    })
    .await;
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "no start is made twice");
    let early = numbers.iter().filter(|n| **n < 1024).count();
    let late = numbers.iter().filter(|n| **n >= 1536).count();
    assert_eq!((early, late), (512, 512), "half before the change, everything well after it");
}

/// `max_users` is that of the whole fleet: a worker that loses shares loses users, busy or idle,
/// and gets them back with shares.
#[tokio::test]
async fn users_leave_when_shares_are_lost() {
    for (rate, fewest) in [(400.0, 4), (1.0, 0)] {
        let driver = ScriptedDriver::new(|_| MS(50));
        let profile = Profile::constant(rate, S(6)).unwrap();
        let quarter = ShareSet::from_iter(0..4);
        let config = EngineConfig {
            limits: EngineLimits { max_users: 16, ..EngineLimits::default() },
            threads: 1,
            ..config(open(rate, S(6)), &driver)
        };
        let (view, _) = run(driver, config, |engine, view| match view.timeline.len() {
            1 => drop(engine.set_assignment(ShareAssignment::new(quarter, profile.clone(), Duration::ZERO))),
            4 => drop(engine.set_assignment(ShareAssignment::new(ShareSet::ALL, profile.clone(), Duration::ZERO))),
            _ => {}
        })
        .await;
        let users: Vec<u64> = view.timeline.iter().map(|second| second.users).collect();
        assert!((fewest..=4).contains(&users[3]), "{rate}: {users:?}");
        if fewest > 0 {
            assert_eq!((users[0], users[4]), (16, 16), "{rate}: {users:?}");
        }
    }
}

#[tokio::test]
async fn paused_run_keeps_queued_starts_queued() {
    let driver = ScriptedDriver::new(|_| MS(50));
    let send_permit = SendPermit::new(1);
    // One user makes 20 requests per second at most; the other starts are queued.
    let load = open(40.0, S(3));
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        send_permit: Some(send_permit.clone()),
        threads: 1,
        ..config(load, &driver)
    };
    let mut spec = RunSpec::new("r", "b", Profile::constant(40.0, S(3)).unwrap());
    let (view, _) = run(driver, config, |engine, view| {
        match view.timeline.len() {
            1 => spec.pause(MS(1200)).unwrap(),
            4 => spec.resume(MS(4200)).unwrap(),
            _ => return,
        }
        send_permit.set_paused(spec.paused.is_some());
        engine.set_assignment(ShareAssignment::new(ShareSet::ALL, spec.profile.clone(), Duration::ZERO));
    })
    .await;
    let made: Vec<u64> = view.timeline.iter().map(|second| second.requests).collect();
    assert_eq!((made[2], made[3]), (0, 0), "{made:?}");
    assert!(made[0] > 5 && made[5] > 5, "{made:?}");
}

/// The response times would be those of the person who paused the run, and breach thresholds.
#[tokio::test]
async fn pause_is_not_in_the_response_times_of_queued_starts() {
    // The only user is busy until the run is paused.
    let driver = ScriptedDriver::new(|number| if number == 0 { MS(1300) } else { Duration::ZERO });
    let send_permit = SendPermit::new(1);
    let config = EngineConfig {
        limits: EngineLimits { max_users: 1, ..EngineLimits::default() },
        send_permit: Some(send_permit.clone()),
        threads: 1,
        ..config(open(20.0, S(2)), &driver)
    };
    let mut spec = RunSpec::new("r", "b", Profile::constant(20.0, S(2)).unwrap());
    let (mut paused_at, mut pause) = (Instant::now(), Duration::ZERO);
    let (view, _) = run(driver, config, |engine, view| {
        match view.timeline.len() {
            1 => {
                paused_at = Instant::now();
                spec.pause(MS(1200)).unwrap();
            }
            4 => {
                pause = paused_at.elapsed();
                spec.resume(MS(4200)).unwrap();
            }
            _ => return,
        }
        send_permit.set_paused(spec.paused.is_some());
        engine.set_assignment(ShareAssignment::new(ShareSet::ALL, spec.profile.clone(), Duration::ZERO));
    })
    .await;
    let longest = Duration::from_nanos(view.all.response.max());
    assert!(
        view.all.requests > 20 && longest < pause,
        "{longest:?} of {} requests, paused for {pause:?}",
        view.all.requests
    );
}

#[tokio::test]
async fn profile_can_change_during_the_run() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let config = config(open(100.0, S(3)), &driver);
    let profile = Profile::constant(100.0, S(3)).unwrap();
    // From 2 s on, ten times the rate for one second.
    let faster = profile.replace_tail(S(2), &[ProfileStage { duration: S(1), from: 1000.0, to: 1000.0 }]).unwrap();
    let (view, _) = run(driver, config, |engine, view| {
        if view.timeline.len() == 1 {
            engine.set_assignment(ShareAssignment::new(ShareSet::ALL, faster.clone(), MS(1010)));
        }
    })
    .await;
    assert_eq!(view.all.requests, 200 + 1000);
}

#[tokio::test]
async fn closed_users_move_with_their_shares() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let profile = Profile::constant(8.0, S(4)).unwrap();
    let config = config(closed(8.0, MS(5), S(4)), &driver);
    let (view, _) = run(driver, config, |engine, view| {
        let shares = match view.timeline.len() {
            1 => ShareSet::ALL.part(0, 4),
            2 => ShareSet::ALL,
            _ => return,
        };
        engine.set_assignment(ShareAssignment::new(shares, profile.clone(), S(view.timeline.len() as u64) + MS(10)));
    })
    .await;
    let users: Vec<_> = view.timeline.iter().map(|s| s.users).collect();
    assert_eq!(users[..3], [8, 2, 8]);
}

/// A user that moves to another thread starts anew, so users of kept shares stay on their thread.
#[tokio::test]
async fn users_of_kept_shares_are_not_restarted() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let (log, profile) = (driver.log.clone(), Profile::constant(32.0, S(3)).unwrap());
    // One of two workers, when a third joins.
    let half = ShareSet::ALL.part(0, 2);
    let third = half.without(half.part(2, 3));
    let config = EngineConfig { shares: half, ..config(closed(32.0, MS(5), S(3)), &driver) };
    run(driver, config, |engine, view| {
        if view.timeline.len() == 1 {
            engine.set_assignment(ShareAssignment::new(third, profile.clone(), Duration::ZERO));
        }
    })
    .await;
    assert_eq!(log.started.load(Ordering::SeqCst), 16);
}

/// Shares move between two processes of two threads each, with a gap in which neither holds them.
#[tokio::test]
async fn starts_are_made_once_when_shares_move_with_a_gap() {
    const RUN: Duration = Duration::from_secs(2);
    let profile = Profile::constant(2000.0, RUN).unwrap();
    let driver = ScriptedDriver::new(|_| Duration::ZERO);
    let log = driver.log.clone();
    let mut engines = Vec::new();
    let other = ScriptedDriver { log: log.clone(), ..ScriptedDriver::new(|_| Duration::ZERO) };
    for (driver, shares) in [(driver, ShareSet::ALL), (other, ShareSet::NONE)] {
        let send_permit = Some(SendPermit::new(2));
        let config = EngineConfig { shares, send_permit, threads: 2, ..config(open(2000.0, RUN), &driver) };
        engines.push(Engine::prepare(driver, config).await.unwrap());
    }
    let start = Instant::now();
    engines.iter().for_each(|engine| engine.start(start));
    let mut held = [ShareSet::ALL, ShareSet::NONE];
    for round in 0..12u32 {
        tokio::time::sleep(MS(100)).await;
        let moving = held[0].part(round as usize % 3, 3);
        let kept = held[0].without(moving);
        let at = engines[0].set_assignment(ShareAssignment::new(kept, profile.clone(), Duration::ZERO));
        tokio::time::sleep(MS(40)).await;
        // The other process continues later, from where the first stopped.
        let left: BTreeMap<u32, Duration> = moving.iter().map(|share| (share, at)).collect();
        let gained: ShareSet = held[1].iter().chain(moving.iter()).collect();
        let taken = ShareAssignment {
            resume_from: Arc::new(left),
            ..ShareAssignment::new(gained, profile.clone(), Duration::ZERO)
        };
        engines[1].set_assignment(taken);
        held = [gained, kept];
        engines.swap(0, 1);
    }
    for mut engine in engines {
        while engine.next_delta().await.is_some() {}
        engine.join().unwrap();
    }
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..4000).collect::<Vec<_>>());
}

/// Shares may move while all threads wait for the start.
#[tokio::test]
async fn assignments_changed_before_the_start_repeat_no_start() {
    let profile = Profile::constant(100.0, S(1)).unwrap();
    let driver = ScriptedDriver::new(|_| Duration::ZERO);
    let (log, send_permit) = (driver.log.clone(), Some(SendPermit::new(2)));
    let config = EngineConfig { shares: ShareSet::NONE, send_permit, threads: 2, ..config(open(100.0, S(1)), &driver) };
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    engine.start(Instant::now() + MS(200));
    for shares in [ShareSet::ALL, ShareSet::ALL.part(0, 2), ShareSet::ALL.part(1, 2), ShareSet::ALL] {
        assert_eq!(
            engine.set_assignment(ShareAssignment::new(shares, profile.clone(), Duration::ZERO)),
            Duration::ZERO
        );
    }
    while engine.next_delta().await.is_some() {}
    engine.join().unwrap();
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

/// Clocks differ: the previous holder may have made starts that are still in the future here.
#[tokio::test]
async fn starts_made_by_a_faster_clock_are_not_repeated() {
    let profile = Profile::constant(100.0, S(2)).unwrap();
    let driver = ScriptedDriver::new(|_| Duration::ZERO);
    let (log, send_permit) = (driver.log.clone(), Some(SendPermit::new(2)));
    let config = EngineConfig { shares: ShareSet::NONE, send_permit, threads: 2, ..config(open(100.0, S(2)), &driver) };
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    engine.start(Instant::now());
    let resume_from = Arc::new((0..256).map(|share| (share, S(1))).collect());
    let at = engine.set_assignment(ShareAssignment {
        resume_from,
        ..ShareAssignment::new(ShareSet::ALL, profile, Duration::ZERO)
    });
    assert!(at >= S(1));
    while engine.next_delta().await.is_some() {}
    engine.join().unwrap();
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (100..200).collect::<Vec<_>>());
}

/// A worker that joins an idle fleet must not begin with all starts of the idle time.
#[tokio::test]
async fn missed_starts_of_shares_without_holder_for_over_5s_are_not_replayed() {
    let begun = |profile: Profile, now: Duration, left: [Duration; 2]| async move {
        let driver = ScriptedDriver::new(|_| Duration::ZERO);
        let (log, send_permit) = (driver.log.clone(), Some(SendPermit::new(2)));
        let rate = LoadModel::Open { rate: profile.clone(), arrivals: Arrivals::Even };
        let load = Load { model: rate, iterations: None, warm_up: Duration::ZERO };
        let config = EngineConfig { shares: ShareSet::NONE, send_permit, threads: 2, ..config(load, &driver) };
        let mut engine = Engine::prepare(driver, config).await.unwrap();
        engine.start(Instant::now().checked_sub(now).expect("the machine has been up for a minute"));
        // Two groups of shares, each without a holder since its own time.
        let resume_from = Arc::new((0..256).map(|share| (share, left[share as usize % 2])).collect());
        engine.set_assignment(ShareAssignment {
            resume_from,
            ..ShareAssignment::new(ShareSet::ALL, profile, Duration::ZERO)
        });
        while engine.next_delta().await.is_some() {}
        engine.join().unwrap();
        let mut numbers: Vec<u64> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
        numbers.sort_unstable();
        numbers
    };
    // Even shares have had no holder for seven seconds, odd ones for two.
    let made = begun(Profile::constant(100.0, S(11)).unwrap(), S(8), [S(1), S(6)]).await;
    let odd: Vec<u64> = (600..800).filter(|number| number % 2 == 1).collect();
    assert_eq!(made.iter().copied().filter(|number| *number < 800).collect::<Vec<_>>(), odd);
    assert!(made.contains(&1098), "all shares make later starts");
    // A pause of twenty seconds within the gap does not count.
    let paused = Profile::constant(100.0, S(1)).unwrap();
    let stage = |duration: Duration, level: f64| ProfileStage { duration, from: level, to: level };
    let paused = paused.replace_tail(S(1), &[stage(S(20), 0.0), stage(S(1), 100.0)]).unwrap();
    let made = begun(paused, MS(21_500), [MS(900), MS(900)]).await;
    assert_eq!(made, (90..200).collect::<Vec<_>>());
}

/// The membership is invalid for a while, and no other worker gets the shares.
#[tokio::test]
async fn load_continues_when_the_send_budget_is_valid_again() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let send_permit = SendPermit::new(1);
    let config =
        EngineConfig { send_permit: Some(send_permit.clone()), threads: 1, ..config(open(500.0, S(4)), &driver) };
    let log = driver.log.clone();
    send_permit.set_valid_until(Instant::now() + MS(500));
    run(driver, config, |_, view| {
        if view.timeline.len() == 2 {
            send_permit.set_valid_until(Instant::now() + S(3600));
        }
    })
    .await;
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "no start is made twice");
    assert!(numbers.contains(&1999), "the load continues to the end");
    assert!(!numbers.contains(&700), "starts due while it was fenced are not made");
}

/// A process that was suspended until its membership expired has queued starts when it continues.
/// It must not make them.
#[tokio::test]
async fn expired_membership_stops_all_starts() {
    let driver = ScriptedDriver::new(|_| MS(1));
    let send_permit = SendPermit::new(1);
    let config =
        EngineConfig { send_permit: Some(send_permit.clone()), threads: 1, ..config(open(500.0, S(2)), &driver) };
    let log = driver.log.clone();
    send_permit.set_valid_until(Instant::now() + S(1));
    let (view, _) = run(driver, config, |_, _| {}).await;
    // The run began after the budget was set, so start 500 was never due while the budget was
    // valid.
    let made = log.iterations.lock().unwrap().clone();
    assert!(made.iter().all(|(number, _)| *number <= 500), "{made:?}");
    assert_eq!(view.accounting().sent, made.len() as u64);
}

/// When no worker holds the shares at the start of the load, the delay is the generator's, not the
/// target's.
#[tokio::test]
async fn starts_of_shares_without_holder_at_the_start_count_as_lag() {
    let profile = Profile::constant(100.0, S(2)).unwrap();
    let driver = ScriptedDriver::new(|_| Duration::ZERO);
    let config = EngineConfig {
        shares: ShareSet::NONE,
        send_permit: Some(SendPermit::new(1)),
        threads: 1,
        ..config(open(100.0, S(2)), &driver)
    };
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    engine.start(Instant::now().checked_sub(S(1)).unwrap());
    let resume_from = Arc::new((0..256).map(|share| (share, Duration::ZERO)).collect());
    engine.set_assignment(ShareAssignment {
        resume_from,
        ..ShareAssignment::new(ShareSet::ALL, profile, Duration::ZERO)
    });
    let mut behind = 0;
    while let Some(delta) = engine.next_delta().await {
        let lag = &delta.engine.schedule_lag;
        behind += lag.count() - lag.count_at_most(MS(400).as_nanos() as u64);
    }
    engine.join().unwrap();
    assert!(behind >= 50, "{behind} of the hundred starts due before the assignment");
}

/// The thread is stalled when the drain arrives.
#[tokio::test]
async fn starts_due_before_a_drain_are_made_or_counted_as_dropped() {
    static STALLED: AtomicBool = AtomicBool::new(false);
    let driver = ScriptedDriver::new(|number| {
        if number == 0 {
            STALLED.store(true, Ordering::SeqCst);
            std::thread::sleep(MS(400));
        }
        Duration::ZERO
    });
    let config = EngineConfig { threads: 1, ..config(open(100.0, S(60)), &driver) };
    let mut engine = Engine::prepare(driver, config).await.unwrap();
    engine.start(Instant::now());
    while !STALLED.load(Ordering::SeqCst) {
        tokio::time::sleep(MS(1)).await;
    }
    tokio::time::sleep(MS(200)).await;
    engine.stop_handle().drain();
    let mut counted = 0;
    while let Some(delta) = engine.next_delta().await {
        counted += delta.engine.iterations + delta.engine.dropped;
    }
    engine.join().unwrap();
    assert!(counted >= 20, "{counted}");
}
