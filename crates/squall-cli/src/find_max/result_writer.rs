//! Writes the result of a search: every probe and the outcome, as `squall.search/1`. Judges no
//! probe. `find_max` opens the file before the first probe, so that a path that cannot be written
//! is refused before anything is sent.

use squall_model::Plan;
use squall_report::{ReportInput, SEARCH_SCHEMA, SearchFile, SearchOutcome, SearchProbeJson, build_result};
use std::time::Duration;

use super::{
    SearchSettings,
    rate_search::{FindMaxOutcome, ProbeOutcome, RateSearch},
};
use crate::{exit::CliError, output_file::OutputFile, terminal::background_writer::FLUSH_TIMEOUT};

/// Collects the probes of a search and writes its result.
pub(super) struct SearchResultWriter {
    file: Option<OutputFile>,
    probes: Vec<SearchProbeJson>,
}

impl SearchResultWriter {
    pub(super) fn open(settings: &SearchSettings) -> Result<SearchResultWriter, CliError> {
        let file = settings.json.as_deref().map(OutputFile::open).transpose()?;
        Ok(SearchResultWriter { file, probes: Vec::new() })
    }

    /// Whether standard output carries the result, so nothing else may be printed there.
    pub(super) fn uses_stdout(&self) -> bool {
        self.file.as_ref().is_some_and(OutputFile::is_stdout)
    }

    pub(super) fn record_probe(&mut self, rate: f64, outcome: ProbeOutcome, reason: &str, report: &ReportInput<'_>) {
        let result = build_result(report);
        let threshold = result.thresholds.first();
        self.probes.push(SearchProbeJson {
            rate,
            verdict: match outcome {
                ProbeOutcome::Passed => "yes",
                ProbeOutcome::Failed => "no",
                ProbeOutcome::GeneratorTooSlow => "generator_too_slow",
            }
            .to_owned(),
            value: threshold.and_then(|threshold| threshold.value),
            unit: threshold.map(|threshold| threshold.unit.clone()).unwrap_or_default(),
            requests: result.totals.requests,
            error_rate: result.totals.error_rate,
            dropped: result.totals.dropped,
            p50_ms: result.latency_ms.response.p50,
            p99_ms: result.latency_ms.response.p99,
            failure_reason: reason.to_owned(),
        });
    }

    /// Writes the file, if `--json` is given, and returns a notice for the user.
    pub(super) fn write(self, end: &FinishedSearch<'_>) -> Result<Option<String>, CliError> {
        let Some(mut file) = self.file else { return Ok(None) };
        let FinishedSearch { plan, settings, search, warm_up, interrupted, exit_code } = *end;
        let document = SearchFile {
            schema: SEARCH_SCHEMA.to_owned(),
            version: env!("SQUALL_VERSION").to_owned(),
            name: plan.name.clone(),
            target: plan.target.clone(),
            threshold: settings.threshold.to_string(),
            precision: settings.precision,
            probe_s: settings.probe.as_secs_f64(),
            warm_up_s: warm_up.as_secs_f64(),
            outcome: outcome_fields(search, interrupted),
            probes: self.probes,
            exit_code,
        };
        file.replace_with(document.to_json().as_bytes(), interrupted.then_some(FLUSH_TIMEOUT))?;
        Ok((!file.is_stdout()).then(|| format!("wrote {}", file.path().display())))
    }
}

/// How a search ended.
#[derive(Clone, Copy)]
pub(super) struct FinishedSearch<'a> {
    pub(super) plan: &'a Plan,
    pub(super) settings: &'a SearchSettings,
    pub(super) search: &'a RateSearch,
    pub(super) warm_up: Duration,
    pub(super) interrupted: bool,
    pub(super) exit_code: u8,
}

fn outcome_fields(search: &RateSearch, interrupted: bool) -> SearchOutcome {
    let (kind, rate, above) = match search.outcome() {
        None => ("unknown", None, None),
        Some(FindMaxOutcome::Found { rate, above }) => ("found", Some(rate), Some(above)),
        Some(FindMaxOutcome::GeneratorLimit { rate, above }) => ("generator_limit", Some(rate), Some(above)),
        Some(FindMaxOutcome::NothingHolds { lowest }) => ("nothing_holds", None, Some(lowest)),
        Some(FindMaxOutcome::NothingMade { lowest }) => ("nothing_made", None, Some(lowest)),
        Some(FindMaxOutcome::NoLimit { rate }) => ("no_limit", Some(rate), None),
    };
    SearchOutcome { kind: kind.to_owned(), rate, above, interrupted }
}
