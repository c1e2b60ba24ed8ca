//! The open-loop clock as a pure sequence: which start is due when. Start `k` is due when the area under the profile reaches
//! `k`, so nothing can be dropped or repeated, and segments of one run never overlap. Knows no present time.

use fastrand::Rng;
use squall_model::{Arrivals, Profile, Segment};
use std::time::Duration;

/// One start that is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Unique within the run.
    pub number: u64,
    /// Distance from the start of the run.
    pub at: Duration,
}

/// All starts of one segment, in order.
pub struct Schedule {
    profile: Profile,
    segment: Segment,
    /// Starts of the whole run, if limited.
    limit: Option<u64>,
    /// How many of this segment's starts were handed out.
    taken: u64,
    gaps: Gaps,
}

enum Gaps {
    Even,
    /// Area reached so far, in this segment's own Poisson process.
    Poisson {
        random: Rng,
        area: f64,
    },
}

impl Schedule {
    pub fn new(profile: Profile, arrivals: Arrivals, segment: Segment, limit: Option<u64>, seed: u64) -> Schedule {
        let gaps = match arrivals {
            Arrivals::Even => Gaps::Even,
            Arrivals::Poisson => {
                Gaps::Poisson { random: Rng::with_seed(seed ^ u64::from(segment.index) << 32), area: 0.0 }
            }
        };
        Schedule { profile, segment, limit, taken: 0, gaps }
    }

    /// When the last start of the whole run is over and done with: rates are taken up to here.
    pub fn end(&self) -> Duration {
        let limited = self.limit.and_then(|n| self.profile.time_of_area(n as f64));
        limited.unwrap_or(self.profile.duration())
    }
}

impl Iterator for Schedule {
    type Item = Start;

    fn next(&mut self) -> Option<Start> {
        let number = self.segment.global(self.taken);
        if self.limit.is_some_and(|limit| number >= limit) {
            return None;
        }
        let area = match &mut self.gaps {
            Gaps::Even => number as f64,
            Gaps::Poisson { random, area } => {
                // Each of n segments carries an n-th of the rate; together they are one Poisson process again.
                *area += -(1.0 - random.f64()).ln() * f64::from(self.segment.count);
                *area
            }
        };
        let at = self.profile.time_of_area(area)?;
        self.taken += 1;
        Some(Start { number, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use squall_model::Stage;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn even(profile: Profile, segment: Segment, limit: Option<u64>) -> Vec<Start> {
        Schedule::new(profile, Arrivals::Even, segment, limit, 0).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced_and_complete() {
        let starts = even(Profile::constant(500.0, S(30)).unwrap(), Segment::WHOLE, None);
        assert_eq!(starts.len(), 15_000);
        assert_eq!(starts[0].at, Duration::ZERO);
        assert_eq!(starts[750].at, Duration::from_millis(1500));
    }

    #[test]
    fn fractional_rates_do_not_round() {
        assert_eq!(even(Profile::constant(0.5, S(60)).unwrap(), Segment::WHOLE, None).len(), 30);
        assert_eq!(even(Profile::constant(1.0 / 3600.0 * 90.0, S(3600)).unwrap(), Segment::WHOLE, None).len(), 90);
    }

    #[test]
    fn a_limit_is_exact_over_all_segments() {
        let profile = Profile::constant(100.0, S(60)).unwrap();
        let total: usize =
            (0..3).map(|i| even(profile.clone(), Segment { index: i, count: 3 }, Some(1000)).len()).sum();
        assert_eq!(total, 1000);
        let whole = Schedule::new(profile, Arrivals::Even, Segment::WHOLE, Some(1000), 0);
        assert_eq!(whole.end(), S(10));
    }

    #[test]
    fn poisson_arrivals_repeat_with_their_seed_and_have_the_right_mean() {
        let profile = Profile::constant(1000.0, S(20)).unwrap();
        let starts =
            |seed| Schedule::new(profile.clone(), Arrivals::Poisson, Segment::WHOLE, None, seed).collect::<Vec<_>>();
        assert_eq!(starts(1), starts(1));
        assert_ne!(starts(1), starts(2));
        // Six standard deviations of a Poisson count with mean 20,000.
        assert!(starts(1).len().abs_diff(20_000) < 850, "{}", starts(1).len());
    }

    fn profiles() -> impl Strategy<Value = Profile> {
        prop::collection::vec((1u64..5_000, 0.0..300.0f64, 0.0..300.0f64), 1..5).prop_filter_map("zero", |parts| {
            let stage = |(ms, from, to)| Stage { duration: Duration::from_millis(ms), from, to };
            Profile::from_stages(parts.into_iter().map(stage).collect()).ok()
        })
    }

    proptest! {
        #[test]
        fn no_schedule_drops_or_repeats_a_start(profile in profiles(), threads in 1u32..7, limit in prop::option::of(0u64..500)) {
            let mut numbers: Vec<u64> = (0..threads)
                .flat_map(|i| even(profile.clone(), Segment { index: i, count: threads }, limit))
                .map(|start| start.number)
                .collect();
            numbers.sort_unstable();
            let whole = even(profile.clone(), Segment::WHOLE, limit).len() as u64;
            prop_assert_eq!(numbers, (0..whole).collect::<Vec<_>>());
            let area = profile.area(profile.duration());
            let expected = limit.map_or(area, |l| area.min(l as f64));
            prop_assert!((whole as f64 - expected).abs() <= 1.0, "{} starts for an area of {}", whole, expected);
        }

        #[test]
        fn starts_are_in_order_and_within_the_run(profile in profiles(), poisson in any::<bool>(), seed in any::<u64>()) {
            let arrivals = if poisson { Arrivals::Poisson } else { Arrivals::Even };
            let starts: Vec<_> = Schedule::new(profile.clone(), arrivals, Segment::WHOLE, None, seed).map(|s| s.at).collect();
            prop_assert!(starts.is_sorted());
            prop_assert!(starts.last().is_none_or(|at| *at <= profile.duration()));
        }
    }
}
