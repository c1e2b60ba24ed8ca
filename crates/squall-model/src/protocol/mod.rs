//! Every message that the processes of a fleet exchange through the store: one type each, with its
//! encoding. It reads and writes no store. Workers, orchestrators and the worker's health endpoint
//! call it.
//!
//! | message              | where in the store                  | written by   | read by                    |
//! |----------------------|-------------------------------------|--------------|----------------------------|
//! | [`WorkerReport`]     | fields of the worker's status hash  | worker       | orchestrator, health check |
//! | [`RunNote`]          | one field of the run's notes        | both         | both, through [`RunNotes`] |
//! | [`SendBudgetReport`] | an entry of the delta stream        | worker       | orchestrator               |
//! | [`SourceName`]       | the source of stream entries, and the holder of counter blocks | worker | orchestrator |
//! | [`GroupName`]        | name of a metric of kind group      | Python driver | orchestrator              |
//!
//! Golden tests pin the bytes of all of them, because workers and orchestrators of different
//! releases may share a store. A reader ignores fields and notes that it does not know, so a release
//! may add some. A release that gives new meaning to old ones gets another [`ProtocolVersion`].
//!
//! Each worker report and each [`RunSpec`](crate::RunSpec) names its version, so every other message
//! of a run has the version of the run's spec. A worker takes no part in a run of another version. A
//! leader gives a run of another version up, and counts on no worker of another version.

mod group_name;
mod protocol_version;
mod run_note;
mod send_budget_report;
mod source_name;
mod worker_report;

pub use group_name::GroupName;
pub use protocol_version::ProtocolVersion;
pub use run_note::{HookOutcome, ResumePoints, RunNote, RunNotes, ShareNote};
pub use send_budget_report::SendBudgetReport;
pub use source_name::{ParseSourceNameError, SourceName};
pub use worker_report::{GivenUpRun, WorkerHealth, WorkerReport};

/// The text of a worker's instance in every message: 16 hexadecimal digits.
pub fn format_instance(instance: u64) -> String {
    format!("{instance:016x}")
}

/// Reads the text that [`format_instance`] writes.
pub fn parse_instance(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}
