//! The start times of an open model as a pure sequence. Start `k` is due when the area under the
//! profile reaches `k`, so no start can be dropped or repeated, and the shares of a run never
//! overlap. It does not read the clock.

use fastrand::Rng;
use squall_model::{Arrivals, Profile, ShareSet};
use std::time::Duration;

/// One start of an open model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledStart {
    /// Unique within the run.
    pub number: u64,
    /// The time from the start of the run.
    pub at: Duration,
}

/// All starts of some shares of a run, in spec.
pub struct Schedule {
    profile: Profile,
    shares: ShareSet,
    /// The starts of the whole run, if it has an iteration limit.
    limit: Option<u64>,
    /// Right after the last start that was taken.
    consumed: StartCursor,
    /// Right after `next`.
    lookahead: StartCursor,
    next: Option<ScheduledStart>,
}

/// A position in the starts of the whole run.
#[derive(Clone)]
struct StartCursor {
    /// The number of the next start.
    number: u64,
    gaps: ArrivalGaps,
}

#[derive(Clone)]
enum ArrivalGaps {
    Even,
    /// Every holder draws the gaps of the whole run and keeps its own starts. Together the shares
    /// are one Poisson process whose arrivals depend only on the seed. `area` is the position of
    /// the last arrival drawn.
    Poisson {
        random: Rng,
        area: f64,
    },
}

impl Schedule {
    pub fn new(profile: Profile, arrivals: Arrivals, shares: ShareSet, limit: Option<u64>, seed: u64) -> Schedule {
        let cursor = StartCursor::new(arrivals, seed);
        let mut schedule = Schedule { profile, shares, limit, consumed: cursor.clone(), lookahead: cursor, next: None };
        schedule.look_ahead();
        schedule
    }

    /// How many starts of a whole run are due before `at`. It equals the number of starts that all
    /// shares make.
    pub fn due_before(profile: &Profile, arrivals: Arrivals, limit: Option<u64>, seed: u64, at: Duration) -> u64 {
        let mut cursor = StartCursor::new(arrivals, seed);
        cursor.skip_before(profile, at);
        limit.map_or(cursor.number, |limit| cursor.number.min(limit))
    }

    /// The next start. It stays the same until [`Iterator::next`] takes it.
    pub fn peek(&self) -> Option<ScheduledStart> {
        self.next
    }

    /// Changes the shares and the profile for all starts due at `from` or later. The profile must
    /// be the same up to `from`, see [`Profile::replace_tail`].
    pub fn change(&mut self, shares: ShareSet, profile: Profile, from: Duration) {
        (self.shares, self.profile) = (shares, profile);
        self.consumed.skip_before(&self.profile, from);
        self.lookahead = self.consumed.clone();
        self.look_ahead();
    }

    /// The end of the load of the whole run. Rates are calculated up to this time.
    pub fn end(&self) -> Duration {
        let limited = self.limit.and_then(|limit| match self.lookahead.gaps {
            ArrivalGaps::Even => self.profile.time_of_area(limit as f64),
            // The time of the last start is random; it is known when all starts are drawn.
            ArrivalGaps::Poisson { area, .. } => {
                let drawn = self.next.is_none() && self.lookahead.number >= limit;
                self.profile.time_of_area(area).filter(|_| drawn)
            }
        });
        limited.unwrap_or(self.profile.duration())
    }

    /// Moves `lookahead` to the next start of these shares.
    fn look_ahead(&mut self) {
        self.next = None;
        while self.limit.is_none_or(|limit| self.lookahead.number < limit) {
            if let ArrivalGaps::Even = self.lookahead.gaps {
                let Some(number) = self.shares.next_number(self.lookahead.number) else { return };
                self.lookahead.number = number;
            }
            let number = self.lookahead.number;
            if self.limit.is_some_and(|limit| number >= limit) {
                return;
            }
            let area = self.lookahead.next_area();
            let Some(at) = self.profile.time_of_area(area) else { return };
            if self.shares.contains(number) {
                self.next = Some(ScheduledStart { number, at });
                return;
            }
        }
    }
}

impl StartCursor {
    fn new(arrivals: Arrivals, seed: u64) -> StartCursor {
        let gaps = match arrivals {
            Arrivals::Even => ArrivalGaps::Even,
            Arrivals::Poisson => ArrivalGaps::Poisson { random: Rng::with_seed(seed), area: 0.0 },
        };
        StartCursor { number: 0, gaps }
    }

    /// The area at which the next start is due. Moves the cursor past it.
    fn next_area(&mut self) -> f64 {
        let number = self.number;
        self.number += 1;
        match &mut self.gaps {
            ArrivalGaps::Even => number as f64,
            ArrivalGaps::Poisson { random, area } => {
                *area -= (1.0 - random.f64()).ln();
                *area
            }
        }
    }

    /// Moves to the first start due at `from` or later. The previous holder of the shares has made
    /// the earlier ones.
    fn skip_before(&mut self, profile: &Profile, from: Duration) {
        // Compares exact start times, so that rounding cannot assign a start to both holders or to
        // neither.
        let early = |area: f64| profile.time_of_area(area).is_some_and(|at| at < from);
        match self.gaps {
            ArrivalGaps::Even => {
                let mut number = profile.area(from).floor() as u64;
                while early(number as f64) {
                    number += 1;
                }
                while number > 0 && !early((number - 1) as f64) {
                    number -= 1;
                }
                self.number = self.number.max(number);
            }
            ArrivalGaps::Poisson { .. } => loop {
                let before = self.clone();
                if !early(self.next_area()) {
                    *self = before;
                    return;
                }
            },
        }
    }
}

impl Iterator for Schedule {
    type Item = ScheduledStart;

    fn next(&mut self) -> Option<ScheduledStart> {
        let next = self.next?;
        self.consumed = self.lookahead.clone();
        self.look_ahead();
        Some(next)
    }
}

#[cfg(test)]
mod tests {
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
}
