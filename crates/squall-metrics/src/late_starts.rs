//! How much of a percentile of response times can come from late starts. It bounds the effect from
//! merged histograms and judges nothing. squall-orchestrator calls it when it states the facts.

use crate::{Histogram, histogram::rank_of};

/// Delays that [`most_added_by_late_starts`] tries as the line between late starts and others, as
/// percentiles of the schedule lag. Each gives a valid bound, and the smallest counts.
const DIVIDING_PERCENTILES: [f64; 9] = [0.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.9, 100.0];

/// The most nanoseconds that late starts can have added to a percentile of the response times.
///
/// The histograms do not say which request was late, so this is a bound. Take any delay: `k` starts were
/// later than it. Without lag, at most these `k` requests can move below the others, and the others
/// become faster by at most that delay. So the value at the percentile's rank is at least the value `k`
/// ranks lower, minus the delay.
///
/// ```
/// use squall_metrics::{Histogram, most_added_by_late_starts};
///
/// let (mut response, mut lag) = (Histogram::default(), Histogram::default());
/// for i in 0..1000 {
///     let late = if i < 30 { 25_000_000 } else { 0 };
///     lag.record(late);
///     response.record(200_000_000 + late);
/// }
/// let added = most_added_by_late_starts(&response, &lag, 99.0);
/// assert!((24_900_000..=25_100_000).contains(&added), "{added}");
/// ```
pub fn most_added_by_late_starts(response: &Histogram, lag: &Histogram, percentile: f64) -> u64 {
    let measured = response.percentile(percentile);
    let rank = rank_of(percentile, response.count());
    let least_without_lag = |delay: u64| {
        let later = lag.count() - lag.count_at_most(delay);
        // With no rank left, every request up to this one can have been faster.
        let value = if later < rank { response.value_at_rank(rank - later) } else { 0 };
        value.saturating_sub(delay)
    };
    let least = DIVIDING_PERCENTILES.iter().map(|dividing| least_without_lag(lag.percentile(*dividing))).max();
    measured - least.unwrap_or(0).min(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// The bound for p99 of these numbers of requests, each with a service time and a lag in milliseconds.
    #[track_caller]
    fn check(requests: &[(usize, u64, u64)], expected_ms: u64) {
        let (mut response, mut lag) = (Histogram::default(), Histogram::default());
        for (n, service, late) in requests {
            (0..*n).for_each(|_| {
                response.record((service + late) * MS);
                lag.record(late * MS);
            });
        }
        let added = most_added_by_late_starts(&response, &lag, 99.0) as f64 / MS as f64;
        assert!((added - expected_ms as f64).abs() <= 1.0, "{added} ms, not {expected_ms} ms");
    }

    #[test]
    fn bound_is_the_delay_of_the_late_starts_if_the_target_is_fast() {
        check(&[(169, 1, 0), (6, 1, 12)], 12);
        check(&[(169, 200, 0), (6, 200, 12)], 12);
    }

    #[test]
    fn late_starts_add_nothing_to_a_percentile_that_slow_responses_decide() {
        check(&[(900, 1, 0), (90, 500, 0), (10, 1, 3000)], 0);
    }

    #[test]
    fn starts_on_time_add_nothing() {
        check(&[(990, 1, 0), (10, 900, 0)], 0);
        assert_eq!(most_added_by_late_starts(&Histogram::default(), &Histogram::default(), 99.0), 0);
    }

    #[test]
    fn lag_of_every_start_counts_whole() {
        check(&[(1000, 5, 300)], 300);
    }

    proptest! {
        #[test]
        fn bound_is_never_below_what_the_lag_added(
            requests in prop::collection::vec((1..5000u64, prop_oneof![5 => 0..2u64, 1 => 0..3000u64]), 1..300),
            percentile in 50.0..=100.0f64,
        ) {
            let (mut with_lag, mut without, mut lag) = (Histogram::default(), Histogram::default(), Histogram::default());
            for (service, late) in &requests {
                with_lag.record((service + late) * MS);
                without.record(service * MS);
                lag.record(late * MS);
            }
            let measured = with_lag.percentile(percentile);
            let added = measured - without.percentile(percentile).min(measured);
            let bound = most_added_by_late_starts(&with_lag, &lag, percentile);
            // Histograms have three digits.
            prop_assert!(bound + measured / 400 >= added, "{} added, at most {}", added, bound);
            prop_assert!(bound <= measured);
        }
    }
}
