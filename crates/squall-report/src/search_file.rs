//! The result file `squall.search/1` of a search for the highest rate. It is a public format,
//! described by docs/search.schema.json. This module holds the data only; `squall run --find-max`
//! does the search.

use serde::{Deserialize, Serialize};

/// The name and version of the format.
pub const SEARCH_SCHEMA: &str = "squall.search/1";

/// One search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchFile {
    pub schema: String,
    /// Version of Squall that wrote the file.
    pub version: String,
    /// The scenario and its target.
    pub name: String,
    pub target: String,
    /// The threshold whose limit the search looks for, as the user wrote it.
    pub threshold: String,
    /// The relative precision of the outcome, as a fraction.
    pub precision: f64,
    /// Length of each probe, and of the warm-up before it, which is not judged.
    pub probe_s: f64,
    pub warm_up_s: f64,
    #[serde(rename = "answer")]
    pub outcome: SearchOutcome,
    /// In the order in which they ran.
    pub probes: Vec<SearchProbeJson>,
    pub exit_code: u8,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchOutcome {
    /// `found`, `generator_limit` (at the rate `above` the generator failed, not the target),
    /// `no_limit`, `nothing_holds`, `nothing_made` or `unknown` (the search ended before it had a
    /// result).
    pub kind: String,
    /// The highest rate at which the threshold held, per second.
    pub rate: Option<f64>,
    /// The lowest rate at which it did not hold.
    pub above: Option<f64>,
    /// The user stopped the search: the fields hold the result so far.
    pub interrupted: bool,
}

/// One probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchProbeJson {
    /// The requested rate, per second.
    pub rate: f64,
    /// Whether the threshold held: `yes`, `no` or `generator_too_slow`, which says nothing about
    /// the target.
    #[serde(rename = "held")]
    pub verdict: String,
    /// Value of the threshold's statistic; null if there was no data.
    pub value: Option<f64>,
    /// Unit of `value`: `ms`, `fraction`, `per_s` or `count`.
    pub unit: String,
    pub requests: u64,
    pub error_rate: f64,
    /// Starts that were due and never happened.
    pub dropped: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Why the threshold did not hold; empty if it held.
    #[serde(rename = "because")]
    pub failure_reason: String,
}

impl SearchFile {
    /// The content of the file: indented JSON, ending in a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form") + "\n"
    }
}
