//! Which partition an operation works on: seeds in sequence or from a distribution, seeds that were
//! written lately, and the factor of Apache Cassandra 4.
//! It counts no operations and shares nothing between threads; the caller draws the numbers of a
//! sequence from one counter.

use crate::{Distribution, Sampler};
use std::collections::BTreeSet;

/// The two data sets of cassandra-stress. Rows of one are not found by the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataSet {
    /// Apache Cassandra up to 3.11, the tool of ScyllaDB, and cql-stress.
    #[default]
    Classic,
    /// Apache Cassandra 4.0 and later.
    Apache4,
}

/// What a seed is multiplied with before it becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeedMultiplier(i64);

impl DataSet {
    /// The name in `-pop seeds=`.
    pub fn name(self) -> &'static str {
        match self {
            DataSet::Classic => "classic",
            DataSet::Apache4 => "apache4",
        }
    }
}

impl SeedMultiplier {
    /// `revisit` is the distribution of `-insert revisit=`, on whose range the factor of Apache
    /// Cassandra 4 depends.
    pub fn new(data_set: DataSet, revisit: &Distribution) -> SeedMultiplier {
        match data_set {
            DataSet::Classic => SeedMultiplier(1),
            DataSet::Apache4 => {
                let size = (revisit.max() as f64 - revisit.min() as f64) + 1.0;
                let factor = 10_f64.powf(22.0 - size.log10()).round() as i64;
                SeedMultiplier(factor.wrapping_add(1))
            }
        }
    }

    /// The seed that keys are made of.
    pub fn apply(self, seed: i64) -> i64 {
        seed.wrapping_mul(self.0)
    }
}

/// The seeds of `-pop seq=A..B`, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeedSequence {
    pub first: i64,
    pub last: i64,
    pub end: SequenceEnd,
}

/// What follows the last seed of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceEnd {
    /// The first seed again.
    Wrap,
    /// The end of the run (`no-wrap`).
    Stop,
}

impl SeedSequence {
    /// How many seeds there are; at least 1.
    pub fn count(&self) -> u64 {
        self.last.abs_diff(self.first).saturating_add(1)
    }

    /// The seed with the given number, counted from 0. `None` ends the run.
    pub fn seed(&self, number: u64) -> Option<i64> {
        match self.end {
            SequenceEnd::Stop if number >= self.count() => None,
            _ => Some(self.wrapped_seed(number)),
        }
    }

    /// The seed with the given number, whether the sequence wraps or not.
    pub fn wrapped_seed(&self, number: u64) -> i64 {
        self.first.wrapping_add_unsigned(number % self.count())
    }
}

/// The number of the seed that a read takes when the seeds with the numbers below `written` are written and
/// `read-lookback` drew `distance`.
pub fn number_before(written: u64, distance: i64) -> u64 {
    match i128::from(written) - i128::from(distance) {
        number if number >= 0 => u64::try_from(number).unwrap_or(u64::MAX),
        _ if written == 0 => 0,
        _ => i128::from(distance).rem_euclid(i128::from(written)) as u64,
    }
}

/// Counts the seeds of a sequence that are written without a gap.
#[derive(Debug, Default)]
pub struct WrittenSeeds {
    without_gap: u64,
    /// Numbers that were written before a lower number.
    later: BTreeSet<u64>,
}

impl WrittenSeeds {
    /// Notes that the seed with this number is written.
    pub fn mark(&mut self, number: u64) {
        if number > self.without_gap {
            self.later.insert(number);
            return;
        }
        if number == self.without_gap {
            self.without_gap += 1;
        }
        while self.later.remove(&self.without_gap) {
            self.without_gap += 1;
        }
    }

    /// How many seeds are written before the first gap.
    pub fn without_gap(&self) -> u64 {
        self.without_gap
    }
}

/// The seeds of `-pop dist=`: each draw is one. Every thread has its own, because the draws are
/// random anyway.
#[derive(Debug, Clone)]
pub struct SeedDistribution(Sampler);

impl SeedDistribution {
    pub fn new(distribution: Distribution) -> SeedDistribution {
        SeedDistribution(Sampler::new(distribution))
    }

    /// The seed of the next partition.
    pub fn draw(&mut self) -> i64 {
        self.0.draw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_factor_of_apache_4_depends_on_the_revisit_range() {
        let factor = |revisit: &str| SeedMultiplier::new(DataSet::Apache4, &revisit.parse().unwrap()).apply(1);
        assert_eq!(factor("uniform(1..1M)"), 10_000_000_000_000_001);
        assert_eq!(factor("uniform(1..1B)"), 10_000_000_000_001);
        assert_eq!(factor("fixed(1)"), i64::MIN);
        assert_eq!(SeedMultiplier::new(DataSet::Classic, &Distribution::uniform(1, 10)).apply(-3), -3);
        let classic = SeedMultiplier::new(DataSet::Apache4, &Distribution::uniform(1, 1_000_000));
        assert_eq!(classic.apply(1000), 10_000_000_000_000_001_i64.wrapping_mul(1000));
    }

    #[test]
    fn a_sequence_wraps_or_ends() {
        let wrapping = SeedSequence { first: 5, last: 7, end: SequenceEnd::Wrap };
        assert_eq!((0..5).map(|i| wrapping.seed(i)).collect::<Option<Vec<_>>>().unwrap(), [5, 6, 7, 5, 6]);
        let ending = SeedSequence { end: SequenceEnd::Stop, ..wrapping };
        assert_eq!([ending.seed(2), ending.seed(3)], [Some(7), None]);
        let all = SeedSequence { first: i64::MIN, last: i64::MAX, end: SequenceEnd::Wrap };
        assert_eq!(all.seed(0), Some(i64::MIN));
    }

    #[test]
    fn reads_look_back_from_the_last_written_seed() {
        let sequence = SeedSequence { first: 100, last: 199, end: SequenceEnd::Wrap };
        let seed_before = |written, distance| sequence.wrapped_seed(number_before(written, distance));
        assert_eq!(seed_before(0, 7), 100);
        assert_eq!(seed_before(10, 3), 107);
        assert_eq!(seed_before(10, 10), 100);
        // Further back than anything written: somewhere among the written ones.
        assert_eq!(seed_before(10, 23), 103);
        assert_eq!(seed_before(250, 1), 149);
    }

    proptest! {
        #[test]
        fn written_seeds_are_counted_up_to_the_first_gap(order in Just((0..50_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let (mut written, mut seen) = (WrittenSeeds::default(), BTreeSet::new());
            for number in order {
                written.mark(number);
                seen.insert(number);
                let expected = (0..).find(|number| !seen.contains(number)).unwrap();
                prop_assert_eq!(written.without_gap(), expected);
            }
            prop_assert!(written.later.is_empty());
        }

        #[test]
        fn a_read_never_leaves_the_sequence(first: i32, length in 1_i64..1000, written in 0_u64..5000, distance: i64) {
            let first = i64::from(first);
            let sequence = SeedSequence { first, last: first + length - 1, end: SequenceEnd::Wrap };
            let seed = sequence.wrapped_seed(number_before(written, distance));
            prop_assert!((sequence.first..=sequence.last).contains(&seed), "{seed}");
        }
    }
}
