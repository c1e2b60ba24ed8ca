//! What a list of runs shows of each: a few fields of its result file, read without its measurements.

use serde::{Deserialize, Serialize};
use squall_report::{LatencyJson, RunJson, RunVerdict, SCHEMA, ThresholdJson, TotalsJson};

use crate::RunId;

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunEntry {
    pub id: RunId,
    pub name: String,
    pub target: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub started_unix_ms: u64,
    /// The load in words.
    pub load: String,
    /// How long the generator made load.
    pub active_s: f64,
    pub verdict: RunVerdict,
    pub exit_code: u8,
    pub requests: u64,
    /// Requests per measured second.
    pub rate: f64,
    pub errors: u64,
    /// A fraction, 0 to 1.
    pub error_rate: f64,
    /// Response times.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub breached_thresholds: usize,
    /// Workers of the fleet that made the load; `None` for a run on one machine.
    pub workers: Option<usize>,
    /// Version of Squall.
    pub version: String,
    /// Size of the result file.
    pub bytes: u64,
    /// What a person wrote about the run.
    pub note: String,
    /// Whether the folder has what a fleet needs to start the run again.
    pub can_start: bool,
}

/// The fields of a result file that an entry shows. Everything else is skipped, which is much faster
/// than reading it.
#[derive(Deserialize)]
struct ResultHead {
    schema: String,
    version: String,
    run: RunJson,
    totals: TotalsJson,
    latency_ms: LatencyJson,
    thresholds: Vec<ThresholdJson>,
    #[serde(default)]
    fleet: Option<FleetHead>,
    verdict: RunVerdict,
    exit_code: u8,
}

#[derive(Deserialize)]
struct FleetHead {
    workers: Vec<serde::de::IgnoredAny>,
}

impl RunEntry {
    /// The error is why the text is not a result, in a few words.
    pub(crate) fn read(id: RunId, text: &[u8]) -> Result<RunEntry, String> {
        let head: ResultHead = match serde_json::from_slice(text) {
            Ok(head) => head,
            Err(error) => return Err(format!("not a result file: {error}")),
        };
        if head.schema != SCHEMA {
            return Err(format!("the schema is `{}`, and this version reads `{SCHEMA}`", head.schema));
        }
        let ResultHead { run, totals, latency_ms, .. } = head;
        Ok(RunEntry {
            id,
            name: run.name,
            target: run.target,
            started: run.started,
            started_unix_ms: run.started_unix_ms,
            load: run.load.text,
            active_s: run.active_s,
            verdict: head.verdict,
            exit_code: head.exit_code,
            requests: totals.requests,
            rate: totals.rate,
            errors: totals.errors,
            error_rate: totals.error_rate,
            p50_ms: latency_ms.response.p50,
            p99_ms: latency_ms.response.p99,
            breached_thresholds: head.thresholds.iter().filter(|threshold| !threshold.passed).count(),
            workers: head.fleet.map(|fleet| fleet.workers.len()),
            version: head.version,
            bytes: text.len() as u64,
            note: String::new(),
            can_start: false,
        })
    }
}

/// The runs of a folder, the latest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunList {
    pub runs: Vec<RunEntry>,
    /// Files with the ending `.json` that are not results.
    pub skipped: Vec<SkippedFile>,
}

/// A file that is not a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedFile {
    pub file: String,
    pub reason: String,
}

/// Which runs a person wants to see.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Words that must all be in the id, the name, the target, the load or the note, in any case.
    pub search: String,
    pub verdict: Option<RunVerdict>,
}

impl RunFilter {
    pub fn matches(&self, run: &RunEntry) -> bool {
        let fields = [run.id.as_str(), &run.name, &run.target, &run.load, &run.note];
        let text = fields.join("\n").to_lowercase();
        let has_words = self.search.to_lowercase().split_whitespace().all(|word| text.contains(word));
        has_words && self.verdict.is_none_or(|verdict| verdict == run.verdict)
    }
}
