//! cassandra-stress for Squall: its command line, its data byte for byte, its operations as a driver
//! of the engine, and its output. It makes no load and prints nothing: it turns words into settings,
//! seeds into rows, iterations into operations and measured values into text. The command line calls
//! it.
// Without connections, some of the data's functions have no caller.
#![cfg_attr(not(feature = "database"), allow(dead_code))]

mod command_line;
mod cql_text;
#[cfg(feature = "database")]
mod database;
mod distribution;
#[cfg(feature = "database")]
mod driver;
mod hint;
mod output;
mod profile;
mod random;
mod run_rules;
mod seeds;
mod settings;
mod standard;
#[cfg(feature = "database")]
mod statement;
#[cfg(feature = "database")]
mod tls;

pub use command_line::{CommandLineError, CommandLineProblem, CqlCommand, has_wrong_dashes, parse_command_line};
#[cfg(feature = "database")]
pub use database::{
    AttemptTimes, Database, DatabaseConnectError, DatabaseHost, DatabaseTarget, LostDatabase, SchemaChange,
    SchemaError, TableError,
};
pub use distribution::{Distribution, DistributionError, Extreme, Ratio, RatioSampler, Sampler, print_distribution};
#[cfg(feature = "database")]
pub use driver::{
    CqlDriver, CqlThread, CqlUser, DriverWork, OperationCounts, ProfileWorkload, RunCounts, RunEnd, RunEndReason,
    StatementError, Workload, WorkloadError,
};
pub use output::{
    Latencies, OperationRates, OperationSummary, TableRow, hdr_log_header, hdr_log_line, host_line, improvement_line,
    labelled_line, running_line, settings_dump, step_line, summary, table_header, warm_up_line,
};
pub use profile::{
    ArgumentSource, ColumnSpec, CqlType, CqlTypeError, CqlValue, GeneratedRow, Partition, PartitionGenerator,
    ProfileInsert, ProfileQuery, TableColumn, TableColumns, TokenRangeQuery, UnsupportedColumn, UserProfile,
    UserProfileError, insert_statement,
};
pub use run_rules::{RateUncertainty, ThreadSearch, next_thread_count, warm_up_operations, warm_up_threads};
pub use seeds::{DataSet, SeedDistribution, SeedMultiplier, SeedSequence, SequenceEnd, WrittenSeeds, number_before};
pub use settings::{
    BasicOperation, BatchKind, ColumnSettings, CommandSettings, ConnectionMode, Consistency, DelayPolicy,
    ErrorSettings, FrameCompression, GraphSettings, InsertSettings, LogLevel, LogSettings, NodeAddress, NodeList,
    NodeSettings, Pacing, PartitionOrder, Population, PopulationSettings, RateSettings, RowValidation,
    SerialConsistency, StopRule, StressOperation, StressSettings, ThreadPlan, TlsSettings, TokenRangeSettings,
    Truncate, WarmUp, parse_node_file,
};
pub use standard::{KeyspaceSchema, StandardColumns, StandardRow, StandardStatements, populated_columns};
#[cfg(feature = "database")]
pub use statement::{
    BindError, BoundValues, GeneratedValue, GeneratedValueError, KeptRows, Login, RowValue, ScalarKind,
    ScenarioStatement, StatementConnection, StatementFailure, StatementOptions, StatementRows, StatementSession,
    StatementSessionError, StatementValue,
};
#[cfg(feature = "database")]
pub use tls::TlsStoreError;
