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
        fn bucket_index_grows_with_the_value(a in 0..=HIGHEST_TRACKABLE_NS, b in 0..=HIGHEST_TRACKABLE_NS) {
            prop_assert_eq!(a.cmp(&b), index_of(a).cmp(&index_of(b)).then(a.cmp(&b)));
        }
    }
}
