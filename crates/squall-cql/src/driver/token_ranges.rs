//! The token ranges of a run, which token-range queries read one after the other; the workers of a fleet
//! share them. It sends nothing.

use super::{StatementError, profile_operations::TokenRangeScan, seed_source::MAX_FLEET_NUMBERS};
use crate::TokenRangeSettings;
use squall_engine::{NumberQuota, SharedCounter};
use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// The name of the counter that the workers of a fleet share.
const FLEET_COUNTER: &str = "cql token ranges";

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
    numbers: RangeNumbers,
    /// Ranges that users have taken and not finished.
    unfinished: AtomicUsize,
    /// Ranges with further pages that no user reads at the moment, by the number of the operation.
    left: Mutex<Vec<(usize, TokenRangeScan)>>,
}

/// Where the numbers of ranges come from. Each number is used once.
#[derive(Debug)]
enum RangeNumbers {
    /// The next number, for a run in one process.
    Process(AtomicU64),
    Fleet {
        quota: NumberQuota,
        /// Whether a user of this worker got a number after the last range.
        all_taken: AtomicBool,
    },
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
        TokenRanges::with_numbers(settings, RangeNumbers::Process(AtomicU64::new(0)))
    }

    /// The ranges of one worker of a fleet, and the counter that it shares with the other workers.
    pub(super) fn of_fleet(settings: TokenRangeSettings) -> (TokenRanges, SharedCounter) {
        let (quota, refill) = NumberQuota::with_refill();
        let ranges =
            TokenRanges::with_numbers(settings, RangeNumbers::Fleet { quota, all_taken: AtomicBool::new(false) });
        // How many ranges there are is known when the database is connected.
        (ranges, SharedCounter { name: FLEET_COUNTER.to_owned(), limit: MAX_FLEET_NUMBERS, refill })
    }

    fn with_numbers(settings: TokenRangeSettings, numbers: RangeNumbers) -> TokenRanges {
        let (ranges, unfinished, left) = Default::default();
        TokenRanges { settings, ranges, numbers, unfinished, left }
    }

    /// Takes the tokens of the ring from the first thread that is connected.
    pub(super) fn set_ring(&self, tokens: impl FnOnce() -> Vec<i64>) {
        self.ranges.get_or_init(|| split_ring(tokens(), self.settings.split_factor));
    }

    /// Waits for the number of the next range, if the workers of a fleet share the ranges. `None` in one
    /// process, and when all ranges are taken.
    pub(super) async fn reserve(&self) -> Option<u64> {
        let RangeNumbers::Fleet { quota, all_taken } = &self.numbers else { return None };
        if all_taken.load(Ordering::Relaxed) {
            return None;
        }
        let number = quota.acquire().await?;
        if self.range(number).is_none() {
            all_taken.store(true, Ordering::Relaxed);
        }
        Some(number)
    }

    /// The next range, on a fleet the one with the reserved number. The ranges end after the last one, unless
    /// `-tokenrange wrap` is typed. A worker of a fleet does not know whether the others have read theirs.
    pub(super) fn take(&self, reserved: Option<u64>) -> NextRange {
        match &self.numbers {
            RangeNumbers::Process(next) => {
                // Counted before the range is taken, so that no other user finds all ranges read in between.
                self.unfinished.fetch_add(1, Ordering::AcqRel);
                match self.range(next.fetch_add(1, Ordering::AcqRel)) {
                    Some(range) => NextRange::Range(range),
                    None if self.finish() == 0 => NextRange::AllRead,
                    None => NextRange::OthersRead,
                }
            }
            RangeNumbers::Fleet { .. } => match reserved.and_then(|number| self.range(number)) {
                Some(range) => {
                    self.unfinished.fetch_add(1, Ordering::AcqRel);
                    NextRange::Range(range)
                }
                None => NextRange::OthersRead,
            },
        }
    }

    fn range(&self, number: u64) -> Option<TokenRange> {
        let ranges = self.ranges.get().map_or(&[][..], Vec::as_slice);
        let number = if self.settings.wrap { number % (ranges.len() as u64).max(1) } else { number };
        ranges.get(usize::try_from(number).ok()?).copied()
    }

    /// Notes that the last page of a range was read. Returns how many ranges are unfinished.
    pub(super) fn finish(&self) -> usize {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) - 1
    }

    /// Takes a range back after a page of it was read, or could not be read.
    pub(super) fn leave(&self, operation: usize, scan: TokenRangeScan) {
        if scan.is_finished() {
            self.finish();
            return;
        }
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push((operation, scan));
    }

    /// The next page's place in a range of the operation that is not read to its end. Such ranges come
    /// before new ones, so no more of them wait than there are users.
    pub(super) fn take_left(&self, operation: usize) -> Option<TokenRangeScan> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let position = left.iter().position(|(of, _)| *of == operation)?;
        Some(left.swap_remove(position).1)
    }
}

/// The most ranges of a ring. Each takes 16 bytes in every process.
const MAX_RANGES: u64 = 1 << 22;

impl TokenRangeSettings {
    /// Refuses more ranges than fit into memory.
    pub(super) fn check(self, tokens: &[i64]) -> Result<(), StatementError> {
        let ranges = (tokens.len() as u64 + 1).saturating_mul(u64::from(self.split_factor));
        if ranges > MAX_RANGES { Err(StatementError::TokenRanges { ranges, most: MAX_RANGES }) } else { Ok(()) }
    }

    /// How many ranges a ring with these tokens has; `None` if they begin again after the last one.
    pub(crate) fn count(self, tokens: Vec<i64>) -> Option<u64> {
        (!self.wrap).then(|| split_ring(tokens, self.split_factor).len() as u64)
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
            while let (NextRange::Range(range), ..3) = (ranges.take(None), last.len()) {
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
        assert!(matches!((ranges.take(None), ranges.take(None)), (NextRange::Range(_), NextRange::Range(_))));
        assert_eq!(ranges.take(None), NextRange::OthersRead);
        ranges.finish();
        assert_eq!(ranges.take(None), NextRange::OthersRead);
        ranges.finish();
        assert_eq!(ranges.take(None), NextRange::AllRead);
    }

    #[test]
    fn a_split_factor_that_makes_too_many_ranges_is_refused() {
        let check = |split_factor| TokenRangeSettings { split_factor, wrap: false }.check(&[1, 2, 3]);
        assert!(check(1 << 20).is_ok());
        assert!(matches!(check((1 << 20) + 1), Err(StatementError::TokenRanges { ranges: 4_194_308, .. })));
        assert!(check(u32::MAX).is_err());
    }

    #[tokio::test]
    async fn a_worker_of_a_fleet_reads_the_ranges_that_it_is_given() {
        let settings = TokenRangeSettings { split_factor: 2, wrap: false };
        let (ranges, counter) = TokenRanges::of_fleet(settings);
        ranges.set_ring(|| vec![0]);
        assert_eq!(settings.count(vec![0]), Some(4));
        // Another worker has the first and the third range.
        counter.refill.add_block(1..2);
        counter.refill.add_block(3..5);
        let mut after = Vec::new();
        for _ in 0..2 {
            let reserved = ranges.reserve().await;
            let NextRange::Range(range) = ranges.take(reserved) else { panic!("{reserved:?}") };
            after.push(range.after);
        }
        assert_eq!(after, [i64::MIN / 2, i64::MAX / 2]);
        let last = ranges.reserve().await;
        assert_eq!((last, ranges.take(last)), (Some(4), NextRange::OthersRead));
        // No further number is taken: this would wait for one.
        assert_eq!(ranges.reserve().await, None);
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
