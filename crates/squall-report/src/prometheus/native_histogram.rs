//! Counts values in native (exponential) histogram buckets: sixteen per doubling, each 4.4 % wider
//! than the previous one. `protobuf.rs` encodes them.

use squall_metrics::Histogram;

/// Each power of two has `2^NATIVE_SCHEMA` buckets.
pub(super) const NATIVE_SCHEMA: i32 = 4;

/// Values up to this many seconds count as zero: the smallest measured time is a nanosecond.
pub(super) const ZERO_THRESHOLD: f64 = 1e-9;

/// A histogram in the layout of the protobuf message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NativeHistogram {
    pub(super) zeros: u64,
    /// `(gap to the previous span, length)`; the first gap counts from bucket 0.
    pub(super) spans: Vec<(i32, u32)>,
    /// Each bucket's count less that of the previous bucket.
    pub(super) deltas: Vec<i64>,
}

impl NativeHistogram {
    pub(super) fn from_histogram(histogram: &Histogram) -> NativeHistogram {
        let mut native = NativeHistogram::default();
        let (mut next, mut previous) = (None, 0);
        for (index, n) in buckets(histogram, &mut native.zeros) {
            match (next, native.spans.last_mut()) {
                (Some(next), Some((_, length))) if index == next => *length += 1,
                (next, _) => native.spans.push((index - next.unwrap_or(0), 1)),
            }
            native.deltas.push(n as i64 - previous);
            (next, previous) = (Some(index + 1), n as i64);
        }
        native
    }
}

/// Bucket numbers in ascending order with their counts, without empty buckets. Adds zeros to
/// `zeros`.
fn buckets(histogram: &Histogram, zeros: &mut u64) -> Vec<(i32, u64)> {
    let mut buckets: Vec<(i32, u64)> = Vec::new();
    for (lowest, highest, n) in histogram.ranges() {
        let middle = (lowest + highest) as f64 / 2.0;
        if middle <= 1.0 {
            *zeros += n;
            continue;
        }
        let index = bucket_index(middle / 1e9);
        match buckets.last_mut() {
            Some((last, count)) if *last == index => *count += n,
            _ => buckets.push((index, n)),
        }
    }
    buckets
}

/// Bucket `i` holds values above `2^((i-1)/16)` and up to `2^(i/16)` seconds.
fn bucket_index(seconds: f64) -> i32 {
    (seconds.log2() * f64::from(1 << NATIVE_SCHEMA)).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native_histogram(values: &[u64]) -> NativeHistogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&v| histogram.record(v));
        NativeHistogram::from_histogram(&histogram)
    }

    #[test]
    fn neighbouring_buckets_share_a_span_and_a_gap_opens_a_new_one() {
        // Just below one second is bucket 0; the next is 4.4 % higher; two seconds are bucket 16.
        let native = native_histogram(&[990_000_000, 1_020_000_000, 1_020_000_000, 1_990_000_000]);
        assert_eq!(native.spans, [(0, 2), (14, 1)]);
        assert_eq!(native.deltas, [1, 1, -1]);
    }

    #[test]
    fn bucket_bounds_are_upper_and_inclusive() {
        assert_eq!([bucket_index(1.0), bucket_index(1.000_001), bucket_index(0.5), bucket_index(2.0)], [0, 1, -16, 16]);
    }

    #[test]
    fn zero_values_are_counted_in_the_zero_bucket() {
        let native = native_histogram(&[0, 0, 1_000_000]);
        assert_eq!((native.zeros, native.deltas.len()), (2, 1));
    }
}
