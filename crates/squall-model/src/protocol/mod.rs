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
//! All of them are version 1. Golden tests pin their bytes, because workers and orchestrators of
//! different releases share a store. A reader ignores fields and notes that it does not know, so a
//! later version may add some; it must not give new meaning to old ones.

mod group_name;
mod run_note;
mod send_budget_report;
mod source_name;
mod worker_report;

pub use group_name::GroupName;
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
