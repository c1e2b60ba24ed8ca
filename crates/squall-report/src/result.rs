//! The result file `squall.result/1`, a public format described by docs/result.schema.json. New
//! versions only add fields, and readers ignore unknown fields, so every file of this schema stays
//! readable.

mod build;
mod fleet;
mod recorded_run;
mod result_summary;

pub(crate) use build::{
    accounting_without_lost, errors_json, explain_accounting, is_balanced, kind_name, outcomes_json, percentiles,
};
pub use build::{build_result, result_summary};
pub use fleet::{FleetEventJson, FleetJson, WorkerJson};
pub use recorded_run::{RecordedRun, RestoreRunError};
pub use result_summary::ResultSummary;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::RunVerdict;

/// The name and version of the format.
pub const SCHEMA: &str = "squall.result/1";

/// One run. Fields whose names end in `_ms` are in milliseconds, those that end in `_s` in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    pub schema: String,
    /// Version of Squall that wrote the file.
    pub version: String,
    pub run: RunJson,
    pub totals: TotalsJson,
    pub accounting: AccountingJson,
    pub latency_ms: LatencyJson,
    /// Outcomes of all requests.
    pub outcomes: Vec<OutcomeJson>,
    pub metrics: Vec<MetricJson>,
    /// Error messages, the most frequent first; messages of the warm-up are left out.
    pub errors: Vec<ErrorJson>,
    pub thresholds: Vec<ThresholdJson>,
    pub generator: GeneratorJson,
    /// The workers, if a fleet made the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetJson>,
    /// What happened in a local run, in order: changes of its load. The events of a fleet are in `fleet`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<FleetEventJson>,
    /// One entry per second, without gaps.
    pub timeline: Vec<SecondJson>,
    pub verdict: RunVerdict,
    pub exit_code: u8,
    /// The run as [`RecordedRun`] reads it; not part of the public format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<String>,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunJson {
    pub name: String,
    pub target: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    pub started_unix_ms: u64,
    /// How long the generator made load.
    pub active_s: f64,
    /// Time until the last response arrived.
    pub elapsed_s: f64,
    pub warm_up_s: f64,
    /// `active_s` less `warm_up_s`: the time that rates refer to.
    pub measured_s: f64,
    /// `completed`, `interrupted`, `aborted` or `threshold`.
    pub stop: String,
    pub strict: bool,
    /// Whether the run can pass without 99 % of its planned starts.
    #[serde(default)]
    pub allow_missing: bool,
    pub load: LoadJson,
}

/// The requested load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadJson {
    /// `open` (levels are starts per second) or `closed` (levels are users).
    pub model: String,
    /// The highest level.
    pub peak: f64,
    pub duration_s: f64,
    pub iterations: Option<u64>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TotalsJson {
    pub requests: u64,
    pub errors: u64,
    /// A fraction, 0 to 1.
    pub error_rate: f64,
    /// Requests per measured second.
    pub rate: f64,
    /// Starts that were due and never happened.
    pub dropped: u64,
    /// Starts that happened later than allowed.
    pub late: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub iterations: u64,
    pub peak_users: u64,
}

/// Sent + unsent = recorded = reported, or `explanation` says why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountingJson {
    /// Requests that began, without the unsent ones.
    pub sent: u64,
    pub recorded: u64,
    pub reported: u64,
    /// Requests of the warm-up: part of the three counts above, and of no total, rate or latency in
    /// this file.
    pub warm_up: u64,
    /// Requests that were recorded and reported but never sent: they failed before sending, for
    /// example because this machine had no free descriptor or port.
    #[serde(default)]
    pub unsent: u64,
    /// Upper bound of the requests that lost workers sent and that are not reported; 0 unless a
    /// worker was lost.
    #[serde(default)]
    pub lost_at_most: u64,
    /// Whether `sent + unsent = recorded = reported`, apart from the requests of lost workers.
    pub balanced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyJson {
    /// From the actual start to the end.
    pub service: Percentiles,
    /// From the intended start to the end.
    pub response: Percentiles,
    /// From the intended start to the actual one.
    pub wait: Percentiles,
}

/// A distribution in milliseconds; all zero if it has no values.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    pub stdev: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeJson {
    /// `ok`, `protocol_error`, `transport_error`, `timeout`, `check_failed` or `exception`.
    pub category: String,
    /// `HTTP_200`, `CONNECT_REFUSED`, …
    pub code: String,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricJson {
    pub name: String,
    /// `request`, `group` or `custom`; only requests count towards the totals.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    pub requests: u64,
    pub errors: u64,
    pub error_rate: f64,
    pub rate: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub outcomes: Vec<OutcomeJson>,
    pub service_ms: Percentiles,
    pub response_ms: Percentiles,
    pub wait_ms: Percentiles,
    /// Times by phase (`dns`, `connect`, `tls`, `first_byte`, `body`), if phases were recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases_ms: BTreeMap<String, Percentiles>,
    /// Seconds with at least one sample. `squall compare` reads them.
    pub timeline: Vec<MetricSecondJson>,
}

/// One second of one metric; times are response times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MetricSecondJson {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    pub requests: u64,
    pub errors: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorJson {
    pub metric: String,
    pub category: String,
    pub code: String,
    pub message: String,
    pub count: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdJson {
    /// As the user writes it: `browse:p95<300ms`.
    pub threshold: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    pub statistic: String,
    /// Unit of `limit` and `value`: `ms`, `fraction`, `per_s` or `count`.
    pub unit: String,
    pub limit: f64,
    /// The final value, or that of the worst window; null if there was no data, which is a breach.
    pub value: Option<f64>,
    pub passed: bool,
    pub breached_at_s: Option<u32>,
}

/// The cost of making the load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorJson {
    pub threads: u32,
    pub cpu_s: f64,
    pub cpu_us_per_request: f64,
    pub max_rss_bytes: u64,
    /// How late the engine was for each start.
    pub schedule_lag_ms: Percentiles,
    pub saturated: bool,
    pub saturated_because: Vec<String>,
}

/// One second of the whole run; times are response times unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondJson {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    /// `requests` divided by `length_s`.
    pub rate: f64,
    /// Requests that ended in this second.
    #[serde(default)]
    pub requests: u64,
    /// Usually 1. It is less for the last second of a run and for the first after a warm-up, and up
    /// to 1.02 for a last second that includes responses that arrived just after it.
    #[serde(default = "whole_second")]
    pub length_s: f64,
    pub users: u64,
    pub errors: u64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub mean_ms: f64,
    pub service_p50_ms: f64,
    pub service_p99_ms: f64,
    pub lag_p99_ms: f64,
    /// The level of the profile in this second: starts per second, or users.
    pub target: f64,
    pub busy: u64,
    pub iterations: u64,
    pub dropped: u64,
    pub late: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The whole second was warm-up, so it has no results.
    #[serde(rename = "warm_up")]
    pub in_warm_up: bool,
}

fn whole_second() -> f64 {
    1.0
}

/// Why a text is not a result file.
#[derive(Debug, thiserror::Error)]
pub enum ReadResultError {
    #[error("not a Squall result file; `squall run … --json FILE` writes one")]
    NotAResult(#[source] serde_json::Error),
    #[error("the result file has the schema `{found}`, but this version of Squall reads `{SCHEMA}`")]
    UnsupportedSchema { found: String },
}

impl ResultFile {
    /// Reads a file written by any version of this schema.
    pub fn parse(text: &str) -> Result<ResultFile, ReadResultError> {
        #[derive(Deserialize)]
        struct SchemaHeader {
            schema: String,
        }
        let header: SchemaHeader = serde_json::from_str(text).map_err(ReadResultError::NotAResult)?;
        if header.schema != SCHEMA {
            return Err(ReadResultError::UnsupportedSchema { found: header.schema });
        }
        serde_json::from_str(text).map_err(ReadResultError::NotAResult)
    }

    /// The content of the file: indented JSON, ending in a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form") + "\n"
    }
}
