//! A segment is one share of a run: start number `k` belongs to segment `k mod count`. Shares of one run never overlap and
//! together are the whole, whatever their number, so a local run is simply segment 0 of 1.

use serde::{Deserialize, Serialize};

/// Share `index` of `count` equal shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub index: u32,
    pub count: u32,
}

impl Segment {
    /// The whole run.
    pub const WHOLE: Segment = Segment { index: 0, count: 1 };

    /// Splits this segment further into `parts`, of which this is number `part`.
    #[must_use]
    pub fn split(self, part: u32, parts: u32) -> Segment {
        assert!(part < parts, "part {part} of {parts}");
        Segment { index: self.index + self.count * part, count: self.count * parts }
    }

    /// The run-wide number of this segment's `n`-th start.
    pub fn global_number(self, n: u64) -> u64 {
        u64::from(self.index) + n * u64::from(self.count)
    }

    /// How many of `total` units fall to this segment; the shares of all segments add up to `total`.
    pub fn share(self, total: u64) -> u64 {
        let (index, count) = (u64::from(self.index), u64::from(self.count));
        total / count + u64::from(index < total % count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up(total in 0u64..1_000_000, outer in 1u32..9, inner in 1u32..9) {
            let sum: u64 = (0..outer)
                .flat_map(|o| (0..inner).map(move |i| Segment { index: o, count: outer }.split(i, inner)))
                .map(|segment| segment.share(total))
                .sum();
            prop_assert_eq!(sum, total);
        }

        #[test]
        fn every_start_has_exactly_one_owner(k in 0u64..10_000, outer in 1u32..9, inner in 1u32..9) {
            let owners = (0..outer)
                .flat_map(|o| (0..inner).map(move |i| Segment { index: o, count: outer }.split(i, inner)))
                .filter(|s| k >= u64::from(s.index) && (k - u64::from(s.index)) % u64::from(s.count) == 0)
                .count();
            prop_assert_eq!(owners, 1);
        }
    }
}
