//! `-pop`: which partitions the operations work on.

use super::{CommandSettings, StopRule};
use crate::{
    DataSet, Distribution, SeedSequence, SequenceEnd,
    command_line::{CommandLineProblem, GroupValues, OptionReader, one_of},
    distribution::parse_range,
};

#[derive(Debug, Clone, PartialEq)]
pub struct PopulationSettings {
    pub seeds: Population,
    pub order: PartitionOrder,
    pub data_set: DataSet,
}

/// Where seeds come from. Reads and writes share the source.
#[derive(Debug, Clone, PartialEq)]
pub enum Population {
    Sequence {
        sequence: SeedSequence,
        /// How far behind the newest written seed a read goes; without it reads take the next seed.
        read_lookback: Option<Distribution>,
    },
    Drawn(Distribution),
}

/// The order of the rows of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionOrder {
    /// As they are generated.
    Generated,
    Sorted,
    Shuffled,
}

/// The highest seed of a run without `n=`.
const DEFAULT_SEEDS: i64 = 1_000_000;

impl PopulationSettings {
    pub(super) fn read(
        values: &GroupValues,
        command: &CommandSettings,
        problems: &mut Vec<CommandLineProblem>,
    ) -> PopulationSettings {
        let mut reader = OptionReader::new(values, problems);
        let orders = [("sorted", PartitionOrder::Sorted), ("shuffled", PartitionOrder::Shuffled)];
        let data_sets = [("classic", DataSet::Classic), ("apache4", DataSet::Apache4)];
        PopulationSettings {
            seeds: read_seeds(&mut reader, command),
            order: reader.value("contents=", PartitionOrder::Generated, |text| one_of(text, &orders)),
            data_set: reader.value("seeds=", DataSet::Classic, |text| one_of(text, &data_sets)),
        }
    }
}

fn read_seeds(reader: &mut OptionReader<'_>, command: &CommandSettings) -> Population {
    let last = match command.stop {
        StopRule::Partitions(count) => i64::try_from(count).unwrap_or(i64::MAX).max(1),
        _ => DEFAULT_SEEDS,
    };
    if let Some(distribution) = reader.optional("dist=", str::parse) {
        return Population::Drawn(distribution);
    }
    let range = reader.optional("seq=", parse_range);
    if range.is_none() && !command.only_writes() {
        return Population::Drawn(Distribution::gaussian(1, last));
    }
    let (first, last) = range.unwrap_or((1, last));
    let end = if reader.flag("no-wrap") { SequenceEnd::Stop } else { SequenceEnd::Wrap };
    let read_lookback = reader.optional("read-lookback=", str::parse);
    Population::Sequence { sequence: SeedSequence { first, last, end }, read_lookback }
}
