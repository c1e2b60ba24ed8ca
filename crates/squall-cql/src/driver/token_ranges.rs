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
    /// Ranges that users have taken and not finished.
    unfinished: AtomicUsize,
}

/// What a user that asks for a range gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextRange {
    Range(TokenRange),
    /// Other users still read the last ranges.
    OthersRead,
    AllRead,
}

impl TokenRanges {
    pub(super) fn new(settings: TokenRangeSettings) -> TokenRanges {
        TokenRanges { settings, ranges: OnceLock::new(), next: AtomicUsize::new(0), unfinished: AtomicUsize::new(0) }
    }

    /// Takes the tokens of the ring from the first thread that is connected.
    pub(super) fn set_ring(&self, tokens: impl FnOnce() -> Vec<i64>) {
        self.ranges.get_or_init(|| split_ring(tokens(), self.settings.split_factor));
    }

    /// The next range. The ranges end after the last one, unless `-tokenrange wrap` is typed.
    pub(super) fn take(&self) -> NextRange {
        // Counted before the range is taken, so that no other user finds all ranges read in between.
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        let number = self.next.fetch_add(1, Ordering::AcqRel);
        let ranges = self.ranges.get().map_or(&[][..], Vec::as_slice);
        let index = if self.settings.wrap { number % ranges.len().max(1) } else { number };
        match ranges.get(index) {
            Some(range) => NextRange::Range(*range),
            None if self.finish() == 0 => NextRange::AllRead,
            None => NextRange::OthersRead,
        }
    }

    /// Notes that the last page of a range was read. Returns how many ranges are unfinished.
    pub(super) fn finish(&self) -> usize {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) - 1
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
            let mut last = Vec::new();
            while let (NextRange::Range(range), ..3) = (ranges.take(), last.len()) {
                last.push(range.last);
            }
            last
        };
        assert_eq!(take(false), [5, i64::MAX]);
        assert_eq!(take(true), [5, i64::MAX, 5]);
    }

    #[test]
    fn the_ranges_are_read_when_the_last_user_has_finished() {
        let ranges = TokenRanges::new(TokenRangeSettings { split_factor: 1, wrap: false });
        ranges.set_ring(|| vec![5]);
        assert!(matches!((ranges.take(), ranges.take()), (NextRange::Range(_), NextRange::Range(_))));
        assert_eq!(ranges.take(), NextRange::OthersRead);
        ranges.finish();
        assert_eq!(ranges.take(), NextRange::OthersRead);
        ranges.finish();
        assert_eq!(ranges.take(), NextRange::AllRead);
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
