//! The open-loop clock as a pure sequence: which start is due when. Start `k` is due when the area under the profile reaches
//! `k`, so nothing can be dropped or repeated, and segments of one run never overlap. Knows no present time.

use fastrand::Rng;
use squall_model::{Arrivals, Profile, ShareSet};
use std::time::Duration;

/// One start that is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledStart {
    /// Unique within the run.
    pub number: u64,
    /// Distance from the start of the run.
    pub at: Duration,
}

/// All starts that fall to some shares of a run, in order.
pub struct Schedule {
    profile: Profile,
    shares: ShareSet,
    /// Starts of the whole run, if limited.
    limit: Option<u64>,
    /// Just behind the last start that was taken.
    consumed: StartCursor,
    /// Just behind `next`.
    lookahead: StartCursor,
    next: Option<ScheduledStart>,
}

/// A position in the starts of the whole run.
#[derive(Clone)]
struct StartCursor {
    /// The number of the start that comes next.
    number: u64,
    gaps: ArrivalGaps,
}

#[derive(Clone)]
enum ArrivalGaps {
    Even,
    /// Everybody draws the gaps of the whole run and keeps its own starts, so that the shares together are one Poisson process
    /// whose arrivals depend on the seed alone. `area` is where the last one drawn lies.
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

    /// How many starts of a whole run are due before `at`; exactly those that its shares make.
    pub fn due_before(profile: &Profile, arrivals: Arrivals, limit: Option<u64>, seed: u64, at: Duration) -> u64 {
        let mut cursor = StartCursor::new(arrivals, seed);
        cursor.skip_before(profile, at);
        limit.map_or(cursor.number, |limit| cursor.number.min(limit))
    }

    /// The next start; stays the same until [`Iterator::acquire`] takes it.
    pub fn peek(&self) -> Option<ScheduledStart> {
        self.next
    }

    /// Holds other shares, and follows another profile, for everything due at `from` or later. The profile must be the same up to
    /// there, see [`Profile::replace_tail`].
    pub fn change(&mut self, shares: ShareSet, profile: Profile, from: Duration) {
        (self.shares, self.profile) = (shares, profile);
        self.consumed.skip_before(&self.profile, from);
        self.lookahead = self.consumed.clone();
        self.look_ahead();
    }

    /// When the last start of the whole run is over and done with: rates are taken up to here.
    pub fn end(&self) -> Duration {
        let limited = self.limit.and_then(|limit| match self.lookahead.gaps {
            ArrivalGaps::Even => self.profile.time_of_area(limit as f64),
            // Chance decides when the last one is due; it is known when all are drawn.
            ArrivalGaps::Poisson { area, .. } => {
                let drawn = self.next.is_none() && self.lookahead.number >= limit;
                self.profile.time_of_area(area).filter(|_| drawn)
            }
        });
        limited.unwrap_or(self.profile.duration())
    }

    /// Moves `ahead` to the next start of ours.
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

    /// The area at which the next start is due; moves behind it.
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

    /// Moves to the first start due at `from` or later: who held the shares before has started the others.
    fn skip_before(&mut self, profile: &Profile, from: Duration) {
        // By the very times at which starts are due, so that rounding cannot give one to both sides or to neither.
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
    fn a_constant_rate_is_evenly_spaced_and_complete() {
        let starts = even(Profile::constant(500.0, S(30)).unwrap(), ShareSet::ALL, None);
        assert_eq!(starts.len(), 15_000);
        assert_eq!(starts[0].at, Duration::ZERO);
        assert_eq!(starts[750].at, Duration::from_millis(1500));
    }

    /// Found by a reader: 361 requests of 360.
    #[test]
    fn a_pause_makes_no_start_more_or_less() {
        for at in (1..6000).step_by(7).map(Duration::from_millis) {
            let mut order = RunSpec::new("r", "b", Profile::constant(60.0, Duration::from_secs(6)).unwrap());
            order.pause(at).unwrap();
            order.resume(at + Duration::from_millis(7_123)).unwrap();
            assert_eq!(even(order.profile, ShareSet::ALL, None).len(), 360, "{at:?}");
        }
    }

    #[test]
    fn fractional_rates_do_not_round() {
        assert_eq!(even(Profile::constant(0.5, S(60)).unwrap(), ShareSet::ALL, None).len(), 30);
        assert_eq!(even(Profile::constant(1.0 / 3600.0 * 90.0, S(3600)).unwrap(), ShareSet::ALL, None).len(), 90);
    }

    #[test]
    fn a_limit_is_exact_over_all_segments() {
        let profile = Profile::constant(100.0, S(60)).unwrap();
        let total: usize = (0..3).map(|i| even(profile.clone(), ShareSet::ALL.part(i, 3), Some(1000)).len()).sum();
        assert_eq!(total, 1000);
        let whole = Schedule::new(profile, Arrivals::Even, ShareSet::ALL, Some(1000), 0);
        assert_eq!(whole.end(), S(10));
    }

    #[test]
    fn poisson_arrivals_repeat_with_their_seed_and_have_the_right_mean() {
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
        fn no_schedule_drops_or_repeats_a_start(profile in profiles(), threads in 1usize..7, limit in prop::option::of(0u64..500)) {
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
        fn starts_are_in_order_and_within_the_run(profile in profiles(), poisson in any::<bool>(), seed in any::<u64>()) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
            let starts: Vec<_> = Schedule::new(profile.clone(), arrivals, ShareSet::ALL, None, seed).map(|s| s.at).collect();
            prop_assert!(starts.is_sorted());
            prop_assert!(starts.last().is_none_or(|at| *at <= profile.duration()));
        }

        #[test]
        fn what_is_due_is_what_is_started(
            profile in profiles(), poisson in any::<bool>(), part in 0.0..1.2f64, limit in prop::option::of(0u64..500),
        ) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
            let at = profile.duration().mul_f64(part);
            let started = Schedule::new(profile.clone(), arrivals, ShareSet::ALL, limit, 3).take_while(|start| start.at < at).count();
            prop_assert_eq!(Schedule::due_before(&profile, arrivals, limit, 3, at), started as u64);
        }

        #[test]
        fn shares_that_change_hands_lose_and_repeat_nothing(
            profile in profiles(), poisson in any::<bool>(), part in 0.0..1.0f64, before in 1usize..5, after in 1usize..5, at_a_start in any::<bool>(),
        ) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
            let schedule = |shares| Schedule::new(profile.clone(), arrivals, shares, None, 7);
            let whole: Vec<_> = schedule(ShareSet::ALL).collect();
            let some_start = whole.get((whole.len() as f64 * part) as usize).filter(|_| at_a_start);
            let now = some_start.map_or(profile.duration().mul_f64(part), |start| start.at);
            let mut numbers = Vec::new();
            // Holders 0..4 exist throughout; those beyond `before` hold nothing at first, those beyond `after` nothing later.
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
