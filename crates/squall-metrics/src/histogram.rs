//! The histogram that is merged, sent and queried: counts that exist only where values are. Merging is
//! commutative and associative, and equal counts give equal results in any order they were merged.

use crate::{
    bucket_counts::BucketCounts,
    bucket_layout::{coarse_of, highest_of, index_of, lowest_of, middle_of},
};

/// A distribution of nanosecond values with three digits of precision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: BucketCounts,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: BucketCounts::default(), count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one value. For tests and rare events: threads record into a
    /// [`LiveHistogram`](crate::LiveHistogram).
    pub fn record(&mut self, nanos: u64) {
        self.add_bucket(index_of(nanos), 1);
        self.add_extremes(u128::from(nanos), nanos, nanos);
    }

    /// Adds all counts of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.merge(&other.counts);
        self.count += other.count;
        self.add_extremes(other.sum, other.min, other.max);
    }

    pub(crate) fn add_chunk(&mut self, chunk: usize, counts: &[u64]) {
        self.count += self.counts.add_chunk(chunk, counts);
    }

    pub(crate) fn add_extremes(&mut self, sum: u128, min: u64, max: u64) {
        self.sum += sum;
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Adds `n` values to a bucket. The caller adds their extremes separately.
    pub(crate) fn add_bucket(&mut self, index: usize, n: u64) {
        self.counts.add(index, n);
        self.count += n;
    }

    /// How many chunks the values lie in.
    pub(crate) fn chunks(&self) -> usize {
        self.counts.chunks()
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The exact sum of all values in nanoseconds.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The exact smallest value; 0 if empty.
    pub fn min(&self) -> u64 {
        if self.is_empty() { 0 } else { self.min }
    }

    /// The exact largest value; 0 if empty.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The exact mean; 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation, from bucket middles; 0 if empty.
    pub fn stdev(&self) -> f64 {
        // For equal values it is exactly 0, which bucket middles would not give.
        if self.is_empty() || self.min() == self.max() {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.buckets().map(|(index, n)| (middle_of(index) as f64 - mean).powi(2) * n as f64).sum();
        (squares / self.count as f64).sqrt()
    }

    /// The smallest value that is not exceeded by at least `percentile` (0..=100) of all values,
    /// exact to three digits; 0 if empty.
    pub fn percentile(&self, percentile: f64) -> u64 {
        self.value_at_rank(rank_of(percentile, self.count))
    }

    /// The value that `rank` values do not exceed, exact to three digits; 0 if there are fewer.
    pub(crate) fn value_at_rank(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for (index, n) in self.buckets() {
            seen += n;
            if seen >= rank {
                return highest_of(index).min(self.max).max(self.min());
            }
        }
        0
    }

    /// How many values are at most `nanos` (to bucket precision).
    pub fn count_at_most(&self, nanos: u64) -> u64 {
        let last = index_of(nanos);
        self.buckets().take_while(|(index, _)| *index <= last).map(|(_, n)| n).sum()
    }

    /// `(lowest, highest, count)` of every bucket that is not empty, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.buckets().map(|(index, n)| (lowest_of(index), highest_of(index), n))
    }

    /// `(coarse bucket, count)` with 8 buckets per doubling, without empty ones, in ascending order.
    /// [`coarse_bucket_bounds`](crate::coarse_bucket_bounds) has their limits.
    pub fn coarse_buckets(&self) -> Vec<(u16, u64)> {
        let mut coarse: Vec<(u16, u64)> = Vec::new();
        for (index, n) in self.buckets() {
            match coarse.last_mut() {
                Some((last, count)) if *last == coarse_of(index) => *count += n,
                _ => coarse.push((coarse_of(index), n)),
            }
        }
        coarse
    }

    /// The same counts in the HdrHistogram library's type, for its file formats.
    pub fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        let mut hdr =
            hdrhistogram::Histogram::new_with_bounds(1, crate::HIGHEST_TRACKABLE_NS, 3).expect("bounds are in order");
        for (index, n) in self.buckets() {
            hdr.record_n(highest_of(index), n).expect("every bucket is below the upper bound");
        }
        hdr
    }

    /// `(index, count)` of every bucket that is not empty, in ascending order.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts.iter()
    }
}

/// How many of `count` values are `percentile` of them, rounded up; at least 1. In whole numbers:
/// in floating point, 0.999 · 2000 is slightly more than 1998, and rounding up would give the next
/// rank.
pub(crate) fn rank_of(percentile: f64, count: u64) -> u64 {
    const UNITS: f64 = 1e9;
    let units = (percentile.clamp(0.0, 100.0) * UNITS).round() as u128;
    let rank = (units * u128::from(count)).div_ceil(100 * UNITS as u128);
    (rank as u64).clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiveHistogram;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&v| histogram.record(v));
        histogram
    }

    fn latencies() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..42, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)), 1..300)
    }

    /// p99.9 of a thousand values is the 999th, as in the HDR log, not the slowest.
    #[test]
    fn percentile_of_a_whole_rank_is_not_rounded_up() {
        for (p, n) in [(99.9, 1000), (99.9, 2000), (99.9, 5000), (55.0, 100), (99.99, 10_000), (7.0, 100), (14.5, 200)]
        {
            let below = (p * n as f64 / 100.0).round() as u64;
            let mut histogram = Histogram::default();
            histogram.add_bucket(index_of(1000), below);
            histogram.add_bucket(index_of(2000), n - below);
            histogram.add_extremes(0, 1000, 2000);
            assert_eq!(histogram.percentile(p), 1000, "p{p} of {n}");
            // Counting the values of the HDR log gives the same.
            assert_eq!(histogram.to_hdr().count_between(0, 1000), below, "p{p} of {n}");
        }
    }

    #[test]
    fn standard_deviation_of_equal_values_is_zero() {
        assert_eq!(of(&[4_057_482]).stdev(), 0.0);
        assert_eq!(of(&[4_057_482, 4_057_482]).stdev(), 0.0);
        assert!(of(&[4_057_482, 4_157_482]).stdev() > 0.0);
    }

    proptest! {
        #[test]
        fn merge_result_does_not_depend_on_the_order(parts in prop::collection::vec(latencies(), 1..5)) {
            let mut forward = Histogram::default();
            parts.iter().for_each(|p| forward.merge(&of(p)));
            let mut backward = Histogram::default();
            parts.iter().rev().for_each(|p| backward.merge(&of(p)));
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(&forward, &of(&parts.concat()));
        }

        /// In thousandths of a percent, so that the test can count the exact rank.
        #[test]
        fn percentiles_match_an_exact_sort_within_a_tenth_of_a_percent(mut values in latencies(), p in 0usize..=100_000) {
            let histogram = of(&values);
            values.sort_unstable();
            let n = values.len();
            let exact = *(1..=n).find(|rank| rank * 100_000 >= p * n).map(|rank| &values[rank - 1]).unwrap() as f64;
            prop_assert!((histogram.percentile(p as f64 / 1000.0) as f64 - exact).abs() <= exact * 0.001);
        }

        #[test]
        fn rank_is_the_smallest_that_covers_the_percentile(p in 0u64..=100_000, n in 1u64..10_000_000, thousands in any::<bool>()) {
            let n = if thousands { n * 1000 } else { n };
            let rank = rank_of(p as f64 / 1000.0, n);
            prop_assert!(rank * 100_000 >= p * n, "{} of {} is too few", rank, n);
            prop_assert!(rank == 1 || (rank - 1) * 100_000 < p * n, "{} of {} is too many", rank, n);
        }

        #[test]
        fn harvest_moves_all_counts_of_a_live_histogram(values in latencies(), cut in 0usize..300) {
            let mut live = LiveHistogram::default();
            let mut harvested = Histogram::default();
            for (i, &v) in values.iter().enumerate() {
                live.record(v);
                if i == cut { live.harvest(&mut harvested); }
            }
            live.harvest(&mut harvested);
            prop_assert_eq!(harvested, of(&values));
        }

        #[test]
        fn coarse_buckets_keep_all_counts_in_ascending_order(values in latencies()) {
            let coarse = of(&values).coarse_buckets();
            prop_assert_eq!(coarse.iter().map(|(_, n)| n).sum::<u64>(), values.len() as u64);
            prop_assert!(coarse.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }

        #[test]
        fn percentiles_agree_with_the_hdr_library(values in latencies(), p in 0.0..=100.0f64) {
            let hdr = of(&values).to_hdr();
            prop_assert_eq!(hdr.len(), values.len() as u64);
            prop_assert!(hdr.value_at_percentile(p).abs_diff(of(&values).percentile(p)) <= hdr.max() / 1000 + 1);
        }
    }

    #[test]
    fn empty_histogram_returns_zeros() {
        let empty = Histogram::default();
        assert_eq!((empty.min(), empty.max(), empty.percentile(99.0), empty.mean()), (0, 0, 0, 0.0));
    }
}
