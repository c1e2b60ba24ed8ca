//! The result of a search for the highest rate, `squall.search/1`: a public format, described by docs/search.schema.json. Holds what
//! was found; searching is not its business.

use serde::{Deserialize, Serialize};

/// The name and version of the format.
pub const SEARCH_SCHEMA: &str = "squall.search/1";

/// One search, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchFile {
    pub schema: String,
    /// Of the Squall that wrote it.
    pub version: String,
    /// What is run, and where.
    pub name: String,
    pub target: String,
    /// The promise whose limit was looked for, as people write it.
    pub threshold: String,
    /// A fraction: the answer is known this well.
    pub precision: f64,
    /// Length of each probe, and of the part before it that is not judged.
    pub probe_s: f64,
    pub warm_up_s: f64,
    pub outcome: SearchOutcome,
    /// In the order in which they were made.
    pub probes: Vec<SearchProbeJson>,
    pub exit_code: u8,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchOutcome {
    /// `found`, `generator_limit` (at `above` the generator gave in, not the target), `no_limit`, `nothing_holds`, `nothing_made` or
    /// `unknown` (it ended before anything was known).
    pub kind: String,
    /// The highest rate that held, per second.
    pub rate: Option<f64>,
    /// The lowest rate that did not.
    pub above: Option<f64>,
    /// Stopped by a person: this is what was known so far.
    pub interrupted: bool,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchProbeJson {
    /// Asked for, per second.
    pub rate: f64,
    /// `yes`, `no` or `generator_too_slow`, which says nothing about the target.
    pub verdict: String,
    /// Of the promise's statistic; null if there was nothing to judge.
    pub value: Option<f64>,
    /// Of `value`: `ms`, `fraction`, `per_s` or `count`.
    pub unit: String,
    pub requests: u64,
    pub error_rate: f64,
    /// Starts that never happened.
    pub dropped: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Why it did not hold; empty if it did.
    pub failure_reason: String,
}

impl SearchFile {
    /// The file as it is written: indented, ending in a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form") + "\n"
    }
}
