//! Maps values to histogram buckets: the HDR layout with three digits from 1 ns to over an hour, so
//! that any HdrHistogram reader can take the counts bucket by bucket. Memory is allocated in chunks
//! of 1,024 counts: a latency distribution uses only a few of the 33 chunks.

/// The highest value (4,398 s). Higher values count as this one.
pub const HIGHEST_TRACKABLE_NS: u64 = (1 << 42) - 1;

pub(crate) const CHUNK: usize = 1024;
pub(crate) const CHUNKS: usize = 33;
pub(crate) const BUCKETS: usize = CHUNK * CHUNKS;

/// Values up to 2,047 have a bucket each. Above, every doubling has 1,024 buckets, which is a
/// resolution of at least 0.1 %.
#[inline]
pub(crate) fn index_of(value: u64) -> usize {
    let value = value.min(HIGHEST_TRACKABLE_NS);
    let shift = 53 - (value | 2047).leading_zeros();
    (shift as usize) * CHUNK + (value >> shift) as usize
}

/// The lowest value of bucket `index`.
pub(crate) fn lowest_of(index: usize) -> u64 {
    let shift = shift_of(index);
    ((index - shift * CHUNK) as u64) << shift
}

/// The highest value of bucket `index`.
pub(crate) fn highest_of(index: usize) -> u64 {
    lowest_of(index) + (1 << shift_of(index)) - 1
}

/// Buckets per coarse bucket. A doubling has 1,024 buckets, so it has 8 coarse ones.
const COARSE: usize = CHUNK / 8;

/// The coarse bucket that contains bucket `index`.
pub(crate) fn coarse_of(index: usize) -> u16 {
    (index / COARSE) as u16
}

/// The lowest value of each coarse bucket, in nanoseconds.
pub fn coarse_bucket_bounds() -> impl Iterator<Item = u64> {
    (0..BUCKETS / COARSE).map(|coarse| lowest_of(coarse * COARSE))
}

/// The middle of bucket `index`, which represents its values in calculations.
pub(crate) fn middle_of(index: usize) -> u64 {
    lowest_of(index) + (1u64 << shift_of(index)) / 2
}

fn shift_of(index: usize) -> usize {
    (index / CHUNK).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn highest_value_has_a_bucket() {
        assert!(index_of(u64::MAX) < CHUNK * CHUNKS);
        assert_eq!(highest_of(index_of(u64::MAX)), HIGHEST_TRACKABLE_NS);
    }

    proptest! {
        #[test]
        fn value_lies_within_the_bounds_of_its_bucket(value in 0..=HIGHEST_TRACKABLE_NS) {
            let index = index_of(value);
            prop_assert!(lowest_of(index) <= value && value <= highest_of(index));
            prop_assert!((highest_of(index) - lowest_of(index)) as f64 <= value as f64 / 1000.0);
        }

        #[test]
        fn coarse_bucket_contains_the_value_and_spans_an_eighth_of_a_doubling(value in 1024..HIGHEST_TRACKABLE_NS) {
            let bounds: Vec<u64> = coarse_bucket_bounds().collect();
            let coarse = usize::from(coarse_of(index_of(value)));
            let end = bounds.get(coarse + 1).copied().unwrap_or(u64::MAX);
            prop_assert!(bounds[coarse] <= value && value < end);
            prop_assert!(end == u64::MAX || end - bounds[coarse] <= value.next_power_of_two() / 8);
        }

        #[test]
        fn bucket_index_grows_with_the_value(a in 0..=HIGHEST_TRACKABLE_NS, b in 0..=HIGHEST_TRACKABLE_NS) {
            prop_assert_eq!(a.cmp(&b), index_of(a).cmp(&index_of(b)).then(a.cmp(&b)));
        }
    }
}
