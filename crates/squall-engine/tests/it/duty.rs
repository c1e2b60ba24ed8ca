//! Duties that change while a run goes on: shares move, the load is raised and lowered.

use crate::drivers::{Scripted, closed, config, open, run};
use squall_engine::{Duty, EngineConfig};
use squall_model::{Profile, ShareSet, Stage};
use std::{collections::BTreeSet, time::Duration};

const MS: fn(u64) -> Duration = Duration::from_millis;
const S: fn(u64) -> Duration = Duration::from_secs;

#[tokio::test]
async fn a_process_starts_only_what_its_shares_hold() {
    let driver = Scripted::new(|_| MS(1));
    let shares = ShareSet::ALL.part(1, 3);
    let config = EngineConfig { shares, ..config(open(500.0, S(1)), &driver) };
    let log = driver.log.clone();
    run(driver, config, |_, _| {}).await;
    let numbers: BTreeSet<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    assert_eq!(numbers, (0..500).filter(|n| shares.contains(*n)).collect());
}

#[tokio::test]
async fn shares_gained_are_taken_up_where_the_run_is() {
    let driver = Scripted::new(|_| MS(1));
    let (half, profile) = (ShareSet::ALL.part(0, 2), Profile::constant(512.0, S(4)).unwrap());
    let config = EngineConfig { shares: half, ..config(open(512.0, S(4)), &driver) };
    let log = driver.log.clone();
    run(driver, config, |engine, view| {
        if view.timeline.len() == 2 {
            engine.set_duty(Duty { shares: ShareSet::ALL, profile: profile.clone() });
        }
    })
    .await;
    let mut numbers: Vec<_> = log.iterations.lock().unwrap().iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "nothing is started twice");
    let early = numbers.iter().filter(|n| **n < 1024).count();
    let late = numbers.iter().filter(|n| **n >= 1536).count();
    assert_eq!((early, late), (512, 512), "half before the change, everything well after it");
}

#[tokio::test]
async fn the_load_can_be_changed_while_it_runs() {
    let driver = Scripted::new(|_| MS(1));
    let config = config(open(100.0, S(3)), &driver);
    let profile = Profile::constant(100.0, S(3)).unwrap();
    // From the second 2 on, ten times as much for a second.
    let faster = profile.replace_tail(S(2), &[Stage { duration: S(1), from: 1000.0, to: 1000.0 }]).unwrap();
    let (view, _) = run(driver, config, |engine, view| {
        if view.timeline.len() == 1 {
            engine.set_duty(Duty { shares: ShareSet::ALL, profile: faster.clone() });
        }
    })
    .await;
    assert_eq!(view.all.requests, 200 + 1000);
}

#[tokio::test]
async fn users_move_with_their_shares() {
    let driver = Scripted::new(|_| MS(1));
    let profile = Profile::constant(8.0, S(4)).unwrap();
    let config = config(closed(8.0, MS(5), S(4)), &driver);
    let (view, _) = run(driver, config, |engine, view| {
        let shares = match view.timeline.len() {
            1 => ShareSet::ALL.part(0, 4),
            2 => ShareSet::ALL,
            _ => return,
        };
        engine.set_duty(Duty { shares, profile: profile.clone() });
    })
    .await;
    let users: Vec<_> = view.timeline.iter().map(|s| s.users).collect();
    assert_eq!(users[..3], [8, 2, 8]);
}
