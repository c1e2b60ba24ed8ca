//! Why a run did not pass, in a few lines for standard error. It holds only what a reader needs to find
//! the cause; the summary and the documents hold the rest. `squall run --quiet` prints it.

use squall_model::StopReason;
use std::collections::BTreeMap;

use crate::{
    ReportInput, RunVerdict, exit_code,
    format::count,
    terminal_text::sanitize,
    verdict,
    wording::{describe_verdict, reliability_reasons, threshold_value},
};

/// Maximum number of error messages; the result file has them all.
const MAX_MESSAGES: usize = 3;

/// The verdict and its reasons, one per line and without a final line break; `None` if the run passed.
pub fn failure_text(run: &ReportInput<'_>) -> Option<String> {
    let verdict = verdict(run);
    let reasons = match verdict {
        RunVerdict::Passed => return None,
        RunVerdict::ThresholdBreached => breaches(run),
        RunVerdict::TargetUnreachable | RunVerdict::NothingMeasured => messages(run),
        RunVerdict::ScheduleMissed => reliability_reasons(run),
        RunVerdict::Interrupted => last_fleet_event(run).into_iter().collect(),
    };
    let sentence = describe_verdict(run);
    let sentence = format!("{} (exit code {})", sentence.trim_start_matches("✗ "), exit_code(run));
    let lines = std::iter::once(sentence).chain(reasons.iter().map(|reason| format!("  {}", sanitize(reason))));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn breaches(run: &ReportInput<'_>) -> Vec<String> {
    let breached = run.facts.thresholds.iter().filter(|result| !result.passed);
    breached.map(|result| format!("{}: {}", result.threshold, threshold_value(result))).collect()
}

/// The most frequent error messages, counted over all metrics.
fn messages(run: &ReportInput<'_>) -> Vec<String> {
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for note in &run.view.errors {
        *times.entry(format!("{}: {}", note.outcome.code, note.message)).or_default() += note.count;
    }
    let mut texts: Vec<(String, u64)> = times.into_iter().collect();
    texts.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    texts.iter().take(MAX_MESSAGES).map(|(text, times)| format!("{}× {text}", count(*times))).collect()
}

/// Why a fleet ended the run.
fn last_fleet_event(run: &ReportInput<'_>) -> Option<String> {
    let fleet = run.facts.fleet.as_ref().filter(|_| run.facts.stop == StopReason::Aborted)?;
    fleet.events.last().map(|event| event.text.clone())
}
