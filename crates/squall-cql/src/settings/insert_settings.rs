//! `-insert`: how rows are put into operations. Values that are typed win over those of a profile.

use crate::{
    Distribution, Ratio,
    command_line::{CommandLineProblem, GroupValues, OptionReader, one_of},
};

#[derive(Debug, Clone, PartialEq)]
pub struct InsertSettings {
    pub visits: Distribution,
    pub revisit: Distribution,
    /// `None`: the profile decides, or 1.
    pub partitions: Option<Distribution>,
    pub batch: Option<BatchKind>,
    pub select: Option<Ratio>,
    /// `None`: the profile decides, or all columns.
    pub row_population: Option<Ratio>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    Logged,
    Unlogged,
    Counter,
}

impl InsertSettings {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> InsertSettings {
        let mut reader = OptionReader::new(values, problems);
        let typed_population = reader.flag("row-population-ratio=");
        InsertSettings {
            visits: reader.value("visits=", Distribution::Fixed(1), str::parse),
            revisit: reader.value("revisit=", Distribution::uniform(1, 1_000_000), str::parse),
            partitions: reader.optional("partitions=", str::parse),
            batch: reader.optional("batchtype=", parse_batch_kind),
            select: reader.optional("select-ratio=", str::parse),
            row_population: reader.optional("row-population-ratio=", str::parse).filter(|_| typed_population),
        }
    }

    /// Whether several operations write one partition.
    pub fn has_revisits(&self) -> bool {
        self.visits.max().max(self.visits.min()) > 1
    }
}

pub(crate) fn parse_batch_kind(text: &str) -> Result<BatchKind, String> {
    let kinds = [("logged", BatchKind::Logged), ("unlogged", BatchKind::Unlogged), ("counter", BatchKind::Counter)];
    one_of(text, &kinds)
}

impl BatchKind {
    /// The name in the settings and in CQL.
    pub fn name(self) -> &'static str {
        match self {
            BatchKind::Logged => "LOGGED",
            BatchKind::Unlogged => "UNLOGGED",
            BatchKind::Counter => "COUNTER",
        }
    }
}
