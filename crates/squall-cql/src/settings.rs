//! The settings of a run with real types, read from the groups of a command line. It validates
//! values and their combinations; it opens no file.
//! Each part reads one or a few groups. The run and the settings dump use the result.

mod column_settings;
mod command_settings;
mod connection_settings;
mod insert_settings;
mod output_settings;
mod population_settings;
mod rate_settings;
mod schema_settings;

use crate::{
    KeyspaceSchema,
    command_line::{CommandGroups, CommandLineProblem},
};

pub use column_settings::ColumnSettings;
pub use command_settings::{
    BasicOperation, CommandSettings, Consistency, SerialConsistency, StopRule, StressOperation, Truncate, WarmUp,
};
pub(crate) use command_settings::{parse_consistency, parse_serial_consistency};
#[cfg(feature = "database")]
pub(crate) use connection_settings::parse_nodes;
pub use connection_settings::{
    ConnectionMode, FrameCompression, NodeAddress, NodeList, NodeSettings, TlsSettings, parse_node_file,
};
pub(crate) use insert_settings::parse_batch_kind;
pub use insert_settings::{BatchKind, InsertSettings};
pub use output_settings::{
    DelayPolicy, ErrorSettings, GraphSettings, LogLevel, LogSettings, RowValidation, TokenRangeSettings,
};
pub use population_settings::{PartitionOrder, Population, PopulationSettings};
pub use rate_settings::{Pacing, RateSettings, ThreadPlan};

/// Everything that a command line says about a run.
#[derive(Debug, Clone, PartialEq)]
pub struct StressSettings {
    pub command: CommandSettings,
    pub rate: RateSettings,
    pub population: PopulationSettings,
    pub columns: ColumnSettings,
    pub insert: InsertSettings,
    pub schema: KeyspaceSchema,
    pub errors: ErrorSettings,
    pub log: LogSettings,
    pub mode: ConnectionMode,
    pub nodes: NodeSettings,
    /// `None`: no TLS.
    pub tls: Option<TlsSettings>,
    pub graph: Option<GraphSettings>,
    pub token_range: TokenRangeSettings,
}

impl StressSettings {
    pub(crate) fn read(groups: &CommandGroups, problems: &mut Vec<CommandLineProblem>) -> StressSettings {
        let command = CommandSettings::read(&groups.command, problems);
        if groups.has("-schema") && matches!(command.operation, StressOperation::User { .. }) {
            problems.push(CommandLineProblem::Combination(
                "-schema cannot be used with user: the profile has the schema".to_owned(),
            ));
        }
        if groups.group("-mode").value("unprepared").is_some()
            && matches!(command.operation, StressOperation::User { .. })
        {
            problems.push(CommandLineProblem::Combination(
                "-mode unprepared cannot be used with user: the statements of a profile are always prepared".to_owned(),
            ));
        }
        StressSettings {
            rate: RateSettings::read(groups, &command, problems),
            population: PopulationSettings::read(&groups.group("-pop"), &command, problems),
            columns: ColumnSettings::read(&groups.group("-col"), problems),
            insert: InsertSettings::read(&groups.group("-insert"), problems),
            schema: KeyspaceSchema::read(&groups.group("-schema"), problems),
            errors: ErrorSettings::read(&groups.group("-errors"), problems),
            log: LogSettings::read(groups, problems),
            mode: ConnectionMode::read(groups, problems),
            nodes: NodeSettings::read(groups, problems),
            tls: TlsSettings::read(&groups.group("-transport"), problems),
            graph: GraphSettings::read(groups),
            token_range: TokenRangeSettings::read(&groups.group("-tokenrange"), problems),
            command,
        }
    }
}
