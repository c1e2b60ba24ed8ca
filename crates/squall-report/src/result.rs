//! The result file `squall.result/1`: a public format, described by docs/result.schema.json. Fields are only ever added, and
//! a reader ignores what it does not know, so files of any version of this schema keep reading.

mod build;
mod fleet;
mod result_summary;

pub(crate) use build::{accounting_without_lost, explain_accounting, is_balanced, kind_name, percentiles};
pub use build::{build_result, result_summary};
pub use fleet::{FleetEventJson, FleetJson, WorkerJson};
pub use result_summary::ResultSummary;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::RunVerdict;

/// The name and version of the format.
pub const SCHEMA: &str = "squall.result/1";

/// One run, whole. Times are in milliseconds where the name ends in `_ms`, in seconds where it ends in `_s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    pub schema: String,
    /// Of the Squall that wrote it.
    pub version: String,
    pub run: RunJson,
    pub totals: TotalsJson,
    pub accounting: AccountingJson,
    pub latency_ms: LatencyJson,
    /// Of all requests.
    pub outcomes: Vec<OutcomeJson>,
    pub metrics: Vec<MetricJson>,
    /// Failures in words, the most frequent first.
    pub errors: Vec<ErrorJson>,
    pub thresholds: Vec<ThresholdJson>,
    pub generator: GeneratorJson,
    /// Who made the load, if it was a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetJson>,
    /// One entry a second, without holes.
    pub timeline: Vec<SecondJson>,
    pub verdict: RunVerdict,
    pub exit_code: u8,
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
    /// How long load was being made.
    pub active_s: f64,
    /// Until the last answer was in.
    pub elapsed_s: f64,
    pub warm_up_s: f64,
    /// `active_s` less `warm_up_s`: what rates are per.
    pub measured_s: f64,
    /// `completed`, `interrupted`, `aborted` or `threshold`.
    pub stop: String,
    pub strict: bool,
    pub load: LoadJson,
}

/// The load that was asked for.
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

/// Sent = recorded = reported, or `explanation` says why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountingJson {
    pub sent: u64,
    pub recorded: u64,
    pub reported: u64,
    /// Part of all three, and of nothing else in this file.
    pub warm_up: u64,
    /// Recorded and reported, but never sent: there was nothing to send, or no descriptor or port here to send it by.
    #[serde(default)]
    pub unsent: u64,
    /// Requests that lost workers may have sent and that are not reported, at the very most; 0 unless a worker was lost.
    #[serde(default)]
    pub lost_at_most: u64,
    /// `sent` and `unsent` together are what was recorded, but for what lost workers took with them, and that is what is reported.
    pub balanced: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatencyJson {
    /// From the actual start.
    pub service: Percentiles,
    /// From the intended start.
    pub response: Percentiles,
    /// From the intended start to the actual one.
    pub wait: Percentiles,
}

/// A distribution in milliseconds; all zero if there was nothing.
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
    /// By phase (`dns`, `connect`, `tls`, `first_byte`, `body`), if phases were recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases_ms: BTreeMap<String, Percentiles>,
    /// Seconds that saw a sample; what `squall compare` works on.
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
    /// As people write it: `browse:p95<300ms`.
    pub threshold: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    pub statistic: String,
    /// Of `limit` and `value`: `ms`, `fraction`, `per_s` or `count`.
    pub unit: String,
    pub limit: f64,
    /// The final value or the worst window's; null if there was nothing to judge, which is a breach.
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
    /// How much later than due the engine got round to each start.
    pub schedule_lag_ms: Percentiles,
    pub saturated: bool,
    pub saturated_because: Vec<String>,
}

/// One second of the whole run; times are response times unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondJson {
    /// Seconds from the start of the run to the end of this one.
    pub t_s: u32,
    /// Requests that ended in this second, per second: of a part of one, as many as a whole one would have had.
    pub rate: f64,
    /// Requests that ended in this second.
    #[serde(default)]
    pub requests: u64,
    /// 1; less for the last second of a run or the first after a warm-up, and up to 1.02 for a last one that holds the last answers.
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
    /// The level that the profile asks for in this second: starts per second, or users.
    pub target: f64,
    pub busy: u64,
    pub iterations: u64,
    pub dropped: u64,
    pub late: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// All of it was warm-up: it has no results.
    pub warm_up: bool,
}

fn whole_second() -> f64 {
    1.0
}

/// Why a text is not a result file.
#[derive(Debug, thiserror::Error)]
pub enum ReadResultError {
    #[error("not a Squall result, which `squall run … --json FILE` writes")]
    NotAResult(#[source] serde_json::Error),
    #[error("the result has the schema `{found}`, and this Squall reads `{SCHEMA}`")]
    UnsupportedSchema { found: String },
}

impl ResultFile {
    /// Reads a file written by any version of this schema.
    pub fn parse(text: &str) -> Result<ResultFile, ReadResultError> {
        #[derive(Deserialize)]
        struct SchemaHeader {
            schema: String,
        }
        let head: SchemaHeader = serde_json::from_str(text).map_err(ReadResultError::NotAResult)?;
        if head.schema != SCHEMA {
            return Err(ReadResultError::UnsupportedSchema { found: head.schema });
        }
        serde_json::from_str(text).map_err(ReadResultError::NotAResult)
    }

    /// The file as it is written: indented, ending in a line break.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("every field has a JSON form") + "\n"
    }
}
