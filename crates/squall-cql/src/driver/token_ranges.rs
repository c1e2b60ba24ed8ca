//! The token ranges of a run, which token-range queries read one after the other. It sends nothing.

use crate::TokenRangeSettings;
use std::sync::{
    OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// Tokens above `after` up to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenRange {
    pub(super) after: i64,
    pub(super) last: i64,
}

/// What all users of a run share.
#[derive(Debug)]
pub(super) struct TokenRanges {
    settings: TokenRangeSettings,
    ranges: OnceLock<Vec<TokenRange>>,
    next: AtomicUsize,
}

impl TokenRanges {
    pub(super) fn new(settings: TokenRangeSettings) -> TokenRanges {
        TokenRanges { settings, ranges: OnceLock::new(), next: AtomicUsize::new(0) }
    }

    /// Takes the tokens of the ring from the first thread that is connected.
    pub(super) fn set_ring(&self, tokens: impl FnOnce() -> Vec<i64>) {
        self.ranges.get_or_init(|| split_ring(tokens(), self.settings.split_factor));
    }

    /// The next range; `None` after the last one, unless `-tokenrange wrap` is typed.
    pub(super) fn take(&self) -> Option<TokenRange> {
        let ranges = self.ranges.get()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.settings.wrap { ranges.get(number % ranges.len()).copied() } else { ranges.get(number).copied() }
    }
}

/// Every token is in exactly one range. No row has the lowest token.
fn split_ring(mut tokens: Vec<i64>, split_factor: u32) -> Vec<TokenRange> {
    tokens.push(i64::MAX);
    tokens.sort_unstable();
    tokens.dedup();
    let mut after = i64::MIN;
    let mut ranges = Vec::with_capacity(tokens.len() * split_factor as usize);
    for last in tokens {
        let width = i128::from(last) - i128::from(after);
        let start = after;
        for part in 1..=i128::from(split_factor) {
            let end = (i128::from(start) + width * part / i128::from(split_factor)) as i64;
            if end > after {
                ranges.push(TokenRange { after, last: end });
                after = end;
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_end_or_begin_again() {
        let take = |wrap| {
            let ranges = TokenRanges::new(TokenRangeSettings { split_factor: 1, wrap });
            ranges.set_ring(|| vec![5]);
            [ranges.take(), ranges.take(), ranges.take()].map(|range| range.map(|range| range.last))
        };
        assert_eq!(take(false), [Some(5), Some(i64::MAX), None]);
        assert_eq!(take(true), [Some(5), Some(i64::MAX), Some(5)]);
    }

    proptest! {
        #[test]
        fn ranges_cover_the_ring_without_overlap(tokens: Vec<i64>, split_factor in 1_u32..20) {
            let ranges = split_ring(tokens, split_factor);
            prop_assert_eq!((ranges[0].after, ranges[ranges.len() - 1].last), (i64::MIN, i64::MAX));
            prop_assert!(ranges.iter().all(|range| range.after < range.last));
            prop_assert!(ranges.windows(2).all(|pair| pair[0].last == pair[1].after));
        }
    }
}
