//! A run is divided into 256 equal shares, and each process that makes load holds some of them:
//! start or user number `k` belongs to share `k mod 256`. Shares never overlap and together are the
//! whole run. Therefore any division among threads and workers, changed at any time, adds up to
//! exactly the planned load. A local run holds all shares.

/// The number of shares of a run. Enough that the loads of workers differ by less than a percent,
/// few enough to lease one by one.
pub const SHARE_COUNT: u32 = 256;

/// Some of a run's shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareSet([u64; 4]);

impl ShareSet {
    /// The whole run.
    pub const ALL: ShareSet = ShareSet([u64::MAX; 4]);
    pub const NONE: ShareSet = ShareSet([0; 4]);

    pub fn insert(&mut self, share: u32) {
        self.0[(share % SHARE_COUNT / 64) as usize] |= 1 << (share % 64);
    }

    /// Whether start or user `number` belongs to these shares.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        let share = number % u64::from(SHARE_COUNT);
        self.0[(share / 64) as usize] >> (share % 64) & 1 == 1
    }

    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub fn is_empty(&self) -> bool {
        *self == ShareSet::NONE
    }

    /// The shares of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: ShareSet) -> ShareSet {
        ShareSet(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// The shares, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..SHARE_COUNT).filter(|share| self.contains(u64::from(*share)))
    }

    /// Part `part` of these shares, divided evenly into `parts` in turn.
    #[must_use]
    pub fn part(&self, part: usize, parts: usize) -> ShareSet {
        self.iter().skip(part).step_by(parts).collect()
    }

    /// The first number from `from` on that belongs to these shares.
    pub fn next_number(&self, from: u64) -> Option<u64> {
        (from..from + u64::from(SHARE_COUNT)).find(|number| self.contains(*number))
    }

    /// The set as text, for messages.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|word| format!("{word:016x}")).collect()
    }

    /// Parses the text of [`ShareSet::to_hex`].
    pub fn from_hex(text: &str) -> Option<ShareSet> {
        let plain = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word = |at: usize| u64::from_str_radix(text.get(at * 16..at * 16 + 16)?, 16).ok();
        plain.then_some(())?;
        Some(ShareSet([word(0)?, word(1)?, word(2)?, word(3)?]))
    }

    /// How many of the numbers below `total` belong to these shares.
    pub fn count_below(&self, total: u64) -> u64 {
        let (rounds, rest) = (total / u64::from(SHARE_COUNT), total % u64::from(SHARE_COUNT));
        rounds * u64::from(self.len()) + self.iter().filter(|share| u64::from(*share) < rest).count() as u64
    }
}

impl FromIterator<u32> for ShareSet {
    fn from_iter<I: IntoIterator<Item = u32>>(shares: I) -> ShareSet {
        let mut set = ShareSet::NONE;
        shares.into_iter().for_each(|share| set.insert(share));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sets() -> impl Strategy<Value = ShareSet> {
        prop::collection::vec(0..SHARE_COUNT, 0..300).prop_map(ShareSet::from_iter)
    }

    proptest! {
        #[test]
        fn parts_of_a_set_are_disjoint_complete_and_even(set in sets(), parts in 1usize..9) {
            let divided: Vec<_> = (0..parts).map(|part| set.part(part, parts)).collect();
            for share in 0..u64::from(SHARE_COUNT) {
                let owners = divided.iter().filter(|part| part.contains(share)).count();
                prop_assert_eq!(owners, usize::from(set.contains(share)));
            }
            let sizes: Vec<_> = divided.iter().map(ShareSet::len).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }

        #[test]
        fn hex_of_a_set_parses_back(set in sets(), junk in ".{0,70}") {
            prop_assert_eq!(ShareSet::from_hex(&set.to_hex()), Some(set));
            // Any other text is refused.
            prop_assert!(ShareSet::from_hex(&junk).is_none_or(|set| set.to_hex() == junk.to_lowercase()));
        }

        #[test]
        fn count_below_equals_the_numbers_enumerated(set in sets(), total in 0u64..2000) {
            let mut walked = 0;
            let mut at = 0;
            while let Some(next) = set.next_number(at).filter(|next| *next < total) {
                walked += 1;
                at = next + 1;
            }
            prop_assert_eq!(set.count_below(total), walked);
        }
    }

    #[test]
    fn first_two_users_are_in_different_parts() {
        assert!(ShareSet::ALL.part(0, 2).contains(0) && ShareSet::ALL.part(1, 2).contains(1));
    }
}
