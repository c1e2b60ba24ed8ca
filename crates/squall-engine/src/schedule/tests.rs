//! Tests of the start times of an open model.

use super::*;
use proptest::prelude::*;
use squall_model::{ProfileStage, RunSpec};

const S: fn(u64) -> Duration = Duration::from_secs;

fn even(profile: Profile, shares: ShareSet, limit: Option<u64>) -> Vec<ScheduledStart> {
    Schedule::new(profile, Arrivals::Even, shares, limit, 0).collect()
}

#[test]
fn constant_rate_gives_evenly_spaced_starts() {
    let starts = even(Profile::constant(500.0, S(30)).unwrap(), ShareSet::ALL, None);
    assert_eq!(starts.len(), 15_000);
    assert_eq!(starts[0].at, Duration::ZERO);
    assert_eq!(starts[750].at, Duration::from_millis(1500));
}

/// Rounding at the pause must not add a start.
#[test]
fn pausing_a_run_keeps_the_number_of_starts() {
    for at in (1..6000).step_by(7).map(Duration::from_millis) {
        let mut spec = RunSpec::new("r", "b", Profile::constant(60.0, Duration::from_secs(6)).unwrap());
        spec.pause(at).unwrap();
        spec.resume(at + Duration::from_millis(7_123)).unwrap();
        assert_eq!(even(spec.profile, ShareSet::ALL, None).len(), 360, "{at:?}");
    }
}

#[test]
fn fractional_rates_give_exact_numbers_of_starts() {
    assert_eq!(even(Profile::constant(0.5, S(60)).unwrap(), ShareSet::ALL, None).len(), 30);
    assert_eq!(even(Profile::constant(1.0 / 3600.0 * 90.0, S(3600)).unwrap(), ShareSet::ALL, None).len(), 90);
}

#[test]
fn iteration_limit_is_exact_over_all_shares() {
    let profile = Profile::constant(100.0, S(60)).unwrap();
    let total: usize = (0..3).map(|i| even(profile.clone(), ShareSet::ALL.part(i, 3), Some(1000)).len()).sum();
    assert_eq!(total, 1000);
    let whole = Schedule::new(profile, Arrivals::Even, ShareSet::ALL, Some(1000), 0);
    assert_eq!(whole.end(), S(10));
}

#[test]
fn poisson_arrivals_depend_on_the_seed_and_have_the_profile_as_mean() {
    let profile = Profile::constant(1000.0, S(20)).unwrap();
    let starts =
        |seed| Schedule::new(profile.clone(), Arrivals::Poisson, ShareSet::ALL, None, seed).collect::<Vec<_>>();
    assert_eq!(starts(1), starts(1));
    assert_ne!(starts(1), starts(2));
    // Six standard deviations of a Poisson count with mean 20,000.
    assert!(starts(1).len().abs_diff(20_000) < 850, "{}", starts(1).len());
}

fn profiles() -> impl Strategy<Value = Profile> {
    prop::collection::vec((1u64..5_000, 0.0..300.0f64, 0.0..300.0f64), 1..5).prop_filter_map("zero", |parts| {
        let stage = |(ms, from, to)| ProfileStage { duration: Duration::from_millis(ms), from, to };
        Profile::from_stages(parts.into_iter().map(stage).collect()).ok()
    })
}

proptest! {
    #[test]
    fn shares_together_make_every_start_once(profile in profiles(), threads in 1usize..7, limit in prop::option::of(0u64..500)) {
        let mut numbers: Vec<u64> = (0..threads)
            .flat_map(|i| even(profile.clone(), ShareSet::ALL.part(i, threads), limit))
            .map(|start| start.number)
            .collect();
        numbers.sort_unstable();
        let whole = even(profile.clone(), ShareSet::ALL, limit).len() as u64;
        prop_assert_eq!(numbers, (0..whole).collect::<Vec<_>>());
        let area = profile.area(profile.duration());
        let expected = limit.map_or(area, |l| area.min(l as f64));
        prop_assert!((whole as f64 - expected).abs() <= 1.0, "{} starts for an area of {}", whole, expected);
    }

    #[test]
    fn starts_are_ordered_and_within_the_run(profile in profiles(), poisson in any::<bool>(), seed in any::<u64>()) {
        let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
        let starts: Vec<_> = Schedule::new(profile.clone(), arrivals, ShareSet::ALL, None, seed).map(|s| s.at).collect();
        prop_assert!(starts.is_sorted());
        prop_assert!(starts.last().is_none_or(|at| *at <= profile.duration()));
    }

    #[test]
    fn due_before_equals_the_number_of_starts_made(
        profile in profiles(), poisson in any::<bool>(), part in 0.0..1.2f64, limit in prop::option::of(0u64..500),
    ) {
        let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
        let at = profile.duration().mul_f64(part);
        let started = Schedule::new(profile.clone(), arrivals, ShareSet::ALL, limit, 3).take_while(|start| start.at < at).count();
        prop_assert_eq!(Schedule::due_before(&profile, arrivals, limit, 3, at), started as u64);
    }

    #[test]
    fn shares_that_change_holders_make_every_start_once(
        profile in profiles(), poisson in any::<bool>(), part in 0.0..1.0f64, before in 1usize..5, after in 1usize..5, at_a_start in any::<bool>(),
    ) {
        let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
        let schedule = |shares| Schedule::new(profile.clone(), arrivals, shares, None, 7);
        let whole: Vec<_> = schedule(ShareSet::ALL).collect();
        let some_start = whole.get((whole.len() as f64 * part) as usize).filter(|_| at_a_start);
        let now = some_start.map_or(profile.duration().mul_f64(part), |start| start.at);
        let mut numbers = Vec::new();
        // Holders 0..4 exist throughout. Those from `before` on hold nothing at first, those
        // from `after` on nothing later.
        for holder in 0..4 {
            let part_of = |holders| if holder < holders { ShareSet::ALL.part(holder, holders) } else { ShareSet::NONE };
            let mut mine = schedule(part_of(before));
            while mine.peek().is_some_and(|next| next.at < now) {
                numbers.extend(mine.next().map(|start| start.number));
            }
            mine.change(part_of(after), profile.clone(), now);
            numbers.extend(mine.map(|start| start.number));
        }
        numbers.sort_unstable();
        prop_assert_eq!(numbers, whole.into_iter().map(|start| start.number).collect::<Vec<_>>());
    }
}
