//! `-schema`: keyspace and table options of the commands without a profile.

use crate::{
    command_line::{CommandLineProblem, GroupValues, OptionReader, pairs},
    standard::KeyspaceSchema,
};

const DEFAULT_STRATEGY: &str = "NetworkTopologyStrategy";

impl KeyspaceSchema {
    pub(super) fn read(values: &GroupValues, problems: &mut Vec<CommandLineProblem>) -> KeyspaceSchema {
        let mut reader = OptionReader::new(values, problems);
        let (strategy, replication_options) = replication(reader.value("replication(", Vec::new(), pairs));
        let mut compaction_options = reader.value("compaction(", Vec::new(), pairs);
        let compaction_strategy = take(&mut compaction_options, "strategy");
        if compaction_strategy.is_none() && !compaction_options.is_empty() {
            reader.problem("compaction(…)", "it has options but no strategy: add strategy=".to_owned());
        }
        KeyspaceSchema {
            keyspace: reader.text("keyspace=").unwrap_or_default(),
            replication_strategy: strategy,
            replication_options,
            compaction_strategy,
            compaction_options,
            compression: reader.text("compression="),
            storage_options: reader.value("storage(", Vec::new(), pairs),
        }
    }
}

/// A replication factor is an option of every strategy unless data centres have their own.
fn replication(mut options: Vec<(String, String)>) -> (String, Vec<(String, String)>) {
    let strategy = take(&mut options, "strategy").unwrap_or_else(|| DEFAULT_STRATEGY.to_owned());
    let factor = take(&mut options, "factor");
    if let Some(factor) = factor.or_else(|| options.is_empty().then(|| "1".to_owned())) {
        options.insert(0, ("replication_factor".to_owned(), factor));
    }
    (strategy, options)
}

fn take(options: &mut Vec<(String, String)>, name: &str) -> Option<String> {
    let position = options.iter().position(|(option, _)| option.eq_ignore_ascii_case(name))?;
    Some(options.remove(position).1)
}
