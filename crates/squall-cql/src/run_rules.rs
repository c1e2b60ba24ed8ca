//! The decisions of a run: how long the warm-up is, when the rate is known well enough, and which
//! number of threads comes next. It counts nothing and keeps no time; the run passes its figures.

use crate::StopRule;

/// The most operations of one kind in a warm-up on one node.
const MAX_WARM_UP: u64 = 50_000;
/// The most threads of a warm-up.
const MAX_WARM_UP_THREADS: u32 = 100;

/// How many operations of each kind the warm-up sends.
pub fn warm_up_operations(stop: &StopRule, nodes: usize) -> u64 {
    let per_node = match stop {
        StopRule::Partitions(count) => MAX_WARM_UP.min(count / 4),
        StopRule::Time(_) | StopRule::StandardError { .. } => MAX_WARM_UP,
    };
    per_node.saturating_mul(nodes as u64)
}

/// How many threads the warm-up has.
pub fn warm_up_threads(threads: u32) -> u32 {
    threads.min(MAX_WARM_UP_THREADS)
}

/// The number of threads after `threads` in a search: doubled below 16, then half as many more.
pub fn next_thread_count(threads: u32) -> u32 {
    if threads < 16 { threads.saturating_mul(2) } else { threads.saturating_add(threads / 2) }
}

/// Decides about the next step of `-rate auto` from the rates of the steps so far.
#[derive(Debug, Clone, Default)]
pub struct ThreadSearch {
    rates: Vec<f64>,
}

impl ThreadSearch {
    /// Notes the rate of a step. Returns the change against the step before, as a fraction.
    pub fn record(&mut self, rate: f64) -> Option<f64> {
        let before = self.rates.last().copied();
        self.rates.push(rate);
        before.map(|before| relative_change(before, rate))
    }

    /// Whether more threads may still improve the rate: the last three steps made it no worse, and
    /// the last five made it better by at least the precision of the measurement.
    pub fn may_improve(&self, stop: &StopRule) -> bool {
        let precision = match stop {
            StopRule::StandardError { target, .. } => *target,
            StopRule::Partitions(_) | StopRule::Time(_) => -1.0,
        };
        (self.rates.len() < 4 || self.mean_change(3) >= 0.0)
            && (self.rates.len() < 6 || self.mean_change(5) >= precision)
    }

    /// The mean relative change of the rate over the last `steps` steps.
    fn mean_change(&self, steps: usize) -> f64 {
        let last = &self.rates[self.rates.len() - steps - 1..];
        let sum: f64 = last.windows(2).map(|pair| relative_change(pair[0], pair[1])).sum();
        sum / steps as f64
    }
}

fn relative_change(before: f64, after: f64) -> f64 {
    if before > 0.0 { (after - before) / before } else { 0.0 }
}

/// The standard error of the mean rate, as a fraction of the mean, updated with each interval.
///
/// The rates are operations divided by the length of their interval, so the error is never
/// negative.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateUncertainty {
    intervals: u32,
    mean: f64,
    /// The sum of squared distances from the mean.
    spread: f64,
}

impl RateUncertainty {
    /// Adds the rate of an interval.
    pub fn record(&mut self, rate: f64) {
        self.intervals += 1;
        let distance = rate - self.mean;
        self.mean += distance / f64::from(self.intervals);
        self.spread += distance * (rate - self.mean);
    }

    /// The error as a fraction; 0 for fewer than two intervals, as the table shows it.
    pub fn standard_error(&self) -> f64 {
        if self.intervals < 2 || self.mean <= 0.0 {
            return 0.0;
        }
        let intervals = f64::from(self.intervals);
        let deviation = (self.spread.max(0.0) / (intervals - 1.0)).sqrt();
        deviation / intervals.sqrt() / self.mean
    }

    /// Whether a run with this rule ends now.
    pub fn reached(&self, stop: &StopRule) -> bool {
        match stop {
            StopRule::StandardError { target, min_intervals, max_intervals } => {
                let precise = self.intervals >= *min_intervals && self.standard_error() < *target;
                precise || self.intervals >= *max_intervals
            }
            StopRule::Partitions(_) | StopRule::Time(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const RULE: StopRule = StopRule::StandardError { target: 0.02, min_intervals: 30, max_intervals: 200 };

    #[test]
    fn the_warm_up_is_a_quarter_of_the_run_at_most() {
        assert_eq!(warm_up_operations(&StopRule::Partitions(2000), 1), 500);
        assert_eq!(warm_up_operations(&StopRule::Partitions(10_000_000), 3), 150_000);
        assert_eq!(warm_up_operations(&StopRule::Partitions(3), 1), 0);
        assert_eq!(warm_up_operations(&StopRule::Time(Duration::from_secs(5)), 2), 100_000);
        assert_eq!([warm_up_threads(4), warm_up_threads(400)], [4, 100]);
    }

    #[test]
    fn thread_counts_double_and_then_grow_by_half() {
        let counts: Vec<u32> =
            std::iter::successors(Some(4), |count| Some(next_thread_count(*count))).take(9).collect();
        assert_eq!(counts, [4, 8, 16, 24, 36, 54, 81, 121, 181]);
        assert_eq!(next_thread_count(u32::MAX), u32::MAX);
    }

    #[track_caller]
    fn check_search(rates: &[f64], stop: &StopRule, expected: bool) {
        let mut search = ThreadSearch::default();
        rates.iter().for_each(|rate| _ = search.record(*rate));
        assert_eq!(search.may_improve(stop), expected, "{rates:?}");
    }

    #[test]
    fn a_search_ends_when_more_threads_do_not_help() {
        let by_time = StopRule::Time(Duration::from_secs(5));
        check_search(&[], &RULE, true);
        check_search(&[100.0, 50.0, 25.0], &RULE, true);
        check_search(&[100.0, 50.0, 25.0, 10.0], &RULE, false);
        check_search(&[100.0, 101.0, 101.0, 101.0], &RULE, true);
        // Five steps of less than 2 % each.
        check_search(&[100.0, 101.0, 102.0, 103.0, 104.0, 105.0], &RULE, false);
        check_search(&[100.0, 101.0, 102.0, 103.0, 104.0, 105.0], &by_time, true);
        let mut search = ThreadSearch::default();
        assert_eq!((search.record(100.0), search.record(112.0)), (None, Some(0.12)));
    }

    #[test]
    fn a_run_ends_when_its_rate_is_known() {
        let mut steady = RateUncertainty::default();
        (0..29).for_each(|_| steady.record(1000.0));
        assert!(!steady.reached(&RULE));
        steady.record(1000.0);
        assert!(steady.reached(&RULE));
        let mut unsteady = RateUncertainty::default();
        (0..199).for_each(|i| unsteady.record(if i % 2 == 0 { 100.0 } else { 2000.0 }));
        assert!(!unsteady.reached(&RULE), "{}", unsteady.standard_error());
        unsteady.record(100.0);
        assert!(unsteady.reached(&RULE));
        assert!(!unsteady.reached(&StopRule::Partitions(1)));
    }

    proptest! {
        #[test]
        fn the_standard_error_equals_its_definition(rates in proptest::collection::vec(0.0..1e6, 2..50)) {
            let mut uncertainty = RateUncertainty::default();
            rates.iter().for_each(|rate| uncertainty.record(*rate));
            let count = rates.len() as f64;
            let mean = rates.iter().sum::<f64>() / count;
            let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let expected = if mean > 0.0 { (variance / count).sqrt() / mean } else { 0.0 };
            let error = uncertainty.standard_error();
            prop_assert!(error >= 0.0 && (error - expected).abs() <= 1e-9 * expected.max(1.0), "{error} {expected}");
        }
    }
}
