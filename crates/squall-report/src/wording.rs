//! Sentences and labels that several renderers share, so that the terminal, the HTML page and the
//! CI system show the same text. It does no layout.

use squall_metrics::{MetricKind, MetricView};
use squall_model::{StatisticUnit, StopReason, ThresholdResult, WorkerFacts, WorkerState, protocol::GroupName};

use crate::{
    ReportInput, RunVerdict, ScheduleRule,
    format::{bytes, count, number, percent, three_digits, time},
    result::{accounting_without_lost, explain_accounting, is_balanced},
    terminal_text::{TextEmphasis, sanitize},
    verdict,
    verdict::{MissingLoad, missing_load, nothing_measured_reason, planned_starts, schedule_missed, unreported_starts},
};

/// The metric's name with its group, kind and tags, which distinguish metrics of the same name.
pub(crate) fn metric_label(metric: &MetricView) -> String {
    let key = &metric.key;
    let mut label = match &key.group {
        Some(group) => format!("{group} › {}", key.name),
        None => key.name.clone(),
    };
    match key.kind {
        MetricKind::Request => {}
        MetricKind::Group => label += " (group)",
        MetricKind::Custom => label += " (custom)",
    }
    for (name, value) in &key.tags {
        label += &format!(" {name}={value}");
    }
    sanitize(&label)
}

/// A threshold's value in its own unit.
pub(crate) fn threshold_value(result: &ThresholdResult) -> String {
    match (result.value, result.threshold.unit()) {
        (None, _) => "no data".to_owned(),
        (Some(value), StatisticUnit::Time) => time(value),
        (Some(value), StatisticUnit::Fraction) => percent(value),
        (Some(value), StatisticUnit::PerSecond) => format!("{}/s", number(value)),
        (Some(value), StatisticUnit::Count) => number(value),
        (Some(value), StatisticUnit::LayoutShift) => number(value / 1e9),
    }
}

/// The cost of making the load.
pub(crate) fn generator_line(run: &ReportInput<'_>) -> String {
    let (generator, engine) = (&run.facts.generator, &run.view.engine);
    let threads = if generator.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", generator.threads) };
    let lag = &engine.schedule_lag;
    let each = match engine.begun {
        0 => String::new(),
        sent => format!(" ({}/request)", time(generator.cpu_s * 1e9 / sent as f64)),
    };
    format!(
        "{} CPU on {threads}{each} · {} memory · schedule lag p99 {}, max {}",
        time(generator.cpu_s * 1e9),
        bytes(generator.max_rss_bytes as f64),
        time(lag.percentile(99.0) as f64),
        time(lag.max() as f64),
    )
}

/// Sent, recorded and reported requests, and the reason if they differ.
pub(crate) fn accounting_line(run: &ReportInput<'_>) -> (String, TextEmphasis) {
    let (accounting, _) = accounting_without_lost(run);
    let warm_up = match accounting.warm_up {
        0 => String::new(),
        n => format!(" ({} of them warm-up)", count(n)),
    };
    match explain_accounting(run) {
        None => (format!("sent = recorded = reported {}{warm_up}", count(accounting.sent)), TextEmphasis::Plain),
        Some(reason) => {
            let [sent, recorded, reported] = [accounting.sent, accounting.recorded, accounting.reported].map(count);
            let emphasis = if is_balanced(run) { TextEmphasis::Warn } else { TextEmphasis::Bad };
            (format!("sent {sent}, recorded {recorded}, reported {reported}{warm_up}: {reason}"), emphasis)
        }
    }
}

/// Why starts that were due are not in the report. How many of them a lost worker made is unknown,
/// so the text gives the upper bound.
pub(crate) fn describe_missed_starts(run: &ReportInput<'_>, missed: u64) -> String {
    let why = match starts_by_lost_workers(run) {
        0 => "no worker held them".to_owned(),
        made => format!("no worker held them, or lost workers made up to {} of them", count(made)),
    };
    let starts = if missed == 1 { "start that was due is" } else { "starts that were due are" };
    format!("{} {starts} not reported: {why}", count(missed))
}

/// Upper bound of the unreported starts that lost workers may have made.
fn starts_by_lost_workers(run: &ReportInput<'_>) -> u64 {
    run.facts.fleet.as_ref().map_or(0, |fleet| fleet.missed_starts.min(run.facts.lost_at_most))
}

/// Maximum number of workers that are named; the result file names them all.
const MAX_LISTED_WORKERS: usize = 10;

/// The workers that made the load, the lost workers and the missed starts; empty for a local run.
pub(crate) fn fleet_lines(run: &ReportInput<'_>) -> Vec<(String, TextEmphasis)> {
    let Some(fleet) = &run.facts.fleet else { return Vec::new() };
    let in_state = |state| fleet.workers.iter().filter(move |worker| worker.state == state);
    let [lost, left, unable] =
        [WorkerState::Lost, WorkerState::Left, WorkerState::Unable].map(|state| in_state(state).count());
    let participants = fleet.workers.len() - unable;
    let mut head = if participants == 1 { "1 worker".to_owned() } else { format!("{participants} workers") };
    for (n, word) in [(lost, "lost"), (left, "left before the end")] {
        if n > 0 {
            head += &format!(", {n} {word}");
        }
    }
    let mut lines = vec![(head, if lost > 0 { TextEmphasis::Warn } else { TextEmphasis::Plain })];
    lines.extend(
        in_state(WorkerState::Lost)
            .take(MAX_LISTED_WORKERS)
            .map(|worker| (describe_lost_worker(worker), TextEmphasis::Warn)),
    );
    if lost > MAX_LISTED_WORKERS {
        lines.push((format!("… and {} more; --json has them all", lost - MAX_LISTED_WORKERS), TextEmphasis::Dim));
    }
    if unable > 0 {
        let names: Vec<&str> =
            in_state(WorkerState::Unable).take(MAX_LISTED_WORKERS).map(|worker| worker.id.as_str()).collect();
        let more = if unable > MAX_LISTED_WORKERS { ", …" } else { "" };
        let text = format!(
            "{unable} more could not run the test: {}{more}; the fleet events give the reasons",
            names.join(", ")
        );
        lines.push((text, TextEmphasis::Warn));
    }
    if fleet.missed_starts > 0 {
        lines.push((describe_missed_starts(run, fleet.missed_starts), TextEmphasis::Warn));
    }
    if let Some(last) = fleet.events.last().filter(|_| run.facts.stop == StopReason::Aborted) {
        lines.push((last.text.clone(), TextEmphasis::Warn));
    }
    lines
}

fn describe_lost_worker(worker: &WorkerFacts) -> String {
    let when = worker.ended_s.map_or(String::new(), |at| format!(" after {} s", three_digits(at)));
    let missing = match worker.lost_at_most {
        0 => "nothing that it sent is missing".to_owned(),
        n => format!("up to {} requests that it sent are missing", count(n)),
    };
    format!("{} was lost{when}: {} requests are reported, {missing}", sanitize(&worker.id), count(worker.requests))
}

/// A warning that the generator, not the target, may have limited the numbers.
pub(crate) struct ReliabilityWarning {
    pub(crate) headline: String,
    /// Empty if the headline is the only reason.
    pub(crate) reasons: Vec<String>,
}

/// `None` if the generator did not limit the numbers.
pub(crate) fn reliability_warning(run: &ReportInput<'_>) -> Option<ReliabilityWarning> {
    if !schedule_missed(run) {
        return None;
    }
    let mut reasons = reliability_reasons(run);
    let headline = match unreported_starts(run) {
        // A reason of the generator names effect and remedy.
        _ if reasons.len() == 1 && run.facts.generator.saturated => reasons.remove(0),
        0 => "The generator could not keep its schedule: latencies include its own delay, and the target may be capable of more.".to_owned(),
        n if n <= starts_by_lost_workers(run) => {
            "The generator may not have made all the load that was asked for: the target may be capable of more.".to_owned()
        }
        _ => "The generator did not make all the load that was asked for: the target may be capable of more.".to_owned(),
    };
    Some(ReliabilityWarning { headline, reasons })
}

/// Every way in which the generator limited the numbers.
pub(crate) fn reliability_reasons(run: &ReportInput<'_>) -> Vec<String> {
    let mut reasons = run.facts.generator.saturated_because.clone();
    // The generator's own reasons may already name the missing starts.
    let already_named = reasons.iter().any(|reason| reason.contains("never happened"));
    if unreported_starts(run) > 0 && !already_named {
        let n = unreported_starts(run);
        let starts = if n == 1 { "start was" } else { "starts were" };
        // Lost workers may have made some of the starts that are not reported.
        let up_to = if starts_by_lost_workers(run) > 0 { "up to " } else { "" };
        reasons.push(format!("{up_to}{} {starts} due and never happened", count(n)));
    }
    reasons
}

/// What is missing of the planned load; `None` if the run made all of it.
pub(crate) fn describe_missing_load(run: &ReportInput<'_>) -> Option<String> {
    match (missing_load(run), unreported_starts(run)) {
        (Some(MissingLoad::AllWorkers), _) => Some("no worker stayed until the end of the load".to_owned()),
        (None, 0) => None,
        (Some(MissingLoad::Starts) | None, missing) => {
            let up_to = if starts_by_lost_workers(run) > 0 { "up to " } else { "" };
            let verb = if missing == 1 { "is" } else { "are" };
            Some(format!("{up_to}{} of {} planned starts {verb} missing", count(missing), count(planned_starts(run))))
        }
    }
}

/// What to do about starts that found no free user. Other missing starts are the work of lost workers or
/// of `on_start`, of which the reasons speak.
fn missing_starts_remedy(run: &ReportInput<'_>) -> &'static str {
    let found_no_user = run.view.engine.dropped > 0 && run.view.on_start_failures() == 0;
    let all_workers_stayed = run.facts.fleet.as_ref().is_none_or(|fleet| fleet.missed_starts == 0);
    let has_group = |name| {
        let is_group = |metric: &&MetricView| metric.key.kind == MetricKind::Group;
        run.view.metrics.iter().filter(is_group).any(|metric| GroupName::of_metric(&metric.key.name) == name)
    };
    match found_no_user && all_workers_stayed {
        true if has_group(GroupName::NoThread) => {
            ", because no thread for blocking code was free: raise --threads-for-blocking or lower the rate"
        }
        true if has_group(GroupName::HeldThread) => ", because code held the generator's thread",
        // Such users are added step by step, so --max-users alone starts none earlier.
        true if run.view.has_on_start() => {
            ", because no user was free: raise --start-users (and --max-users if it was reached) or lower the rate"
        }
        true if run.command.is_some_and(|command| command.starts_with("squall cql ")) => {
            ", because no thread was free: raise -rate threads= or lower the rate"
        }
        true => ", because no user was free: raise --max-users or lower the rate",
        false => "",
    }
}

/// From this error rate on, a run that passes without thresholds suggests one.
const HIGH_ERROR_RATE: f64 = 0.5;

/// The verdict as a sentence.
pub(crate) fn describe_verdict(run: &ReportInput<'_>) -> String {
    let thresholds = &run.facts.thresholds;
    let breached = thresholds.iter().filter(|t| !t.passed).count();
    let missing = describe_missing_load(run);
    match verdict(run) {
        RunVerdict::NothingMeasured => {
            format!("✗ Failed: nothing was measured; {}", nothing_measured_reason(run).unwrap_or_default())
        }
        RunVerdict::Passed if thresholds.is_empty() && run.view.all.error_rate() >= HIGH_ERROR_RATE => format!(
            "✓ Passed: no thresholds were set; {} of the requests failed; -t 'error_rate<1%' would fail such a run{}",
            percent(run.view.all.error_rate()),
            missing.map(|text| format!("; {text}")).unwrap_or_default()
        ),
        RunVerdict::Passed if thresholds.is_empty() => {
            format!("✓ Passed: {}; no thresholds were set", missing.as_deref().unwrap_or("the run is complete"))
        }
        RunVerdict::Passed => {
            let missing = missing.map(|text| format!("; {text}")).unwrap_or_default();
            format!("✓ Passed: {} of {} thresholds held{missing}", thresholds.len(), thresholds.len())
        }
        RunVerdict::ThresholdBreached => {
            let early = if run.facts.stop == StopReason::Threshold { ", so the run was stopped early" } else { "" };
            format!("✗ Failed: {breached} of {} thresholds breached{early}", thresholds.len())
        }
        RunVerdict::TargetUnreachable => format!("✗ Failed: {} could not be reached", sanitize(&run.plan.target)),
        RunVerdict::ScheduleMissed => match missing.filter(|_| run.schedule_rule != ScheduleRule::Strict) {
            Some(missing) => {
                format!("✗ Failed: {missing}{}; --allow-missing lets such a run pass", missing_starts_remedy(run))
            }
            None => "✗ Failed: the generator could not keep its schedule (--strict)".to_owned(),
        },
        RunVerdict::Interrupted => {
            format!(
                "✗ Interrupted after {} s: the results cover only the part that ran",
                three_digits(run.facts.active.as_secs_f64())
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_of_a_threshold_has_the_unit_of_its_limit() {
        let check = |threshold: &str, value: f64, text: &str| {
            let threshold = threshold.parse().unwrap();
            let result = ThresholdResult { threshold, value: Some(value), passed: true, breached_at_s: None };
            assert_eq!(threshold_value(&result), text);
        };
        check("home:lcp_p75<2.5s", 1.8e7, "18.0 ms");
        check("home:cls_p75<0.1", 1.8e7, "0.0180");
        check("home:cls_p75<0.1", 0.0, "0");
        check("home:mean_bytes<600000", 523_411.4, "523,411");
    }
}
