//! Sentences and labels that several renderers share, so that the terminal, the page and the CI system say the same. Lays
//! nothing out.

use squall_metrics::{Kind, MetricView};
use squall_model::{Quantity, StopReason, ThresholdResult};

use crate::{
    Run, Verdict,
    format::{bytes, count, digits, number, percent, time},
    result::explain,
    text::{Tone, clean},
    verdict,
    verdict::schedule_missed,
};

/// The name, with what tells it from others of the same name.
pub(crate) fn metric_label(metric: &MetricView) -> String {
    let key = &metric.key;
    let mut label = match &key.group {
        Some(group) => format!("{group} › {}", key.name),
        None => key.name.clone(),
    };
    match key.kind {
        Kind::Request => {}
        Kind::Group => label += " (group)",
        Kind::Custom => label += " (custom)",
    }
    for (name, value) in &key.tags {
        label += &format!(" {name}={value}");
    }
    clean(&label)
}

/// A threshold's value in its own unit.
pub(crate) fn value(result: &ThresholdResult) -> String {
    match (result.value, result.threshold.statistic.quantity()) {
        (None, _) => "no data".to_owned(),
        (Some(value), Quantity::Time) => time(value),
        (Some(value), Quantity::Fraction) => percent(value),
        (Some(value), Quantity::PerSecond) => format!("{}/s", number(value)),
        (Some(value), Quantity::Count) => number(value),
    }
}

/// The cost of making the load.
pub(crate) fn generator_line(run: &Run<'_>) -> String {
    let (generator, engine) = (&run.facts.generator, &run.view.engine);
    let threads = if generator.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", generator.threads) };
    let lag = &engine.schedule_lag;
    format!(
        "{} CPU on {threads} ({}/request) · {} memory · schedule lag p99 {}, max {}",
        time(generator.cpu_s * 1e9),
        time(generator.cpu_s * 1e9 / engine.sent.max(1) as f64),
        bytes(generator.max_rss_bytes as f64),
        time(lag.percentile(99.0) as f64),
        time(lag.max() as f64),
    )
}

/// The identity that every run must keep, or why it was not kept.
pub(crate) fn accounting_line(run: &Run<'_>) -> (String, Tone) {
    let accounting = run.view.accounting();
    let warm_up = match accounting.warm_up {
        0 => String::new(),
        n => format!(" ({} of them warm-up)", count(n)),
    };
    match explain(accounting) {
        None => (format!("sent = recorded = reported {}{warm_up}", count(accounting.sent)), Tone::Plain),
        Some(reason) => {
            let [sent, recorded, reported] = [accounting.sent, accounting.recorded, accounting.reported].map(count);
            let tone = if accounting.balances() { Tone::Warn } else { Tone::Bad };
            (format!("sent {sent}, recorded {recorded}, reported {reported}{warm_up}: {reason}"), tone)
        }
    }
}

/// Why the numbers may say more about the generator than about the target; `None` if they do not.
pub(crate) fn doubt(run: &Run<'_>) -> Option<&'static str> {
    match run.view.engine.dropped {
        _ if !schedule_missed(run) => None,
        0 => Some(
            "The generator could not keep its schedule: latencies include its own delay, and the target may be capable of more.",
        ),
        _ => Some("The generator did not make all the load that was asked for: the target may be capable of more."),
    }
}

/// What people can do about it.
pub(crate) fn reasons_for_doubt(run: &Run<'_>) -> Vec<String> {
    let mut reasons = run.facts.generator.saturated_because.clone();
    if run.view.engine.dropped > 0 {
        reasons.push(format!("{} starts were due and never happened", count(run.view.engine.dropped)));
    }
    reasons
}

/// The verdict as a sentence.
pub(crate) fn verdict_in_words(run: &Run<'_>) -> String {
    let thresholds = &run.facts.thresholds;
    let breached = thresholds.iter().filter(|t| !t.passed).count();
    match verdict(run) {
        Verdict::Passed if run.view.all.requests == 0 => "✓ Passed, but no request was measured".to_owned(),
        Verdict::Passed if thresholds.is_empty() => "✓ Passed: the run is complete; no thresholds were set".to_owned(),
        Verdict::Passed => format!("✓ Passed: {} of {} thresholds held", thresholds.len(), thresholds.len()),
        Verdict::ThresholdBreached => {
            let early = if run.facts.stop == StopReason::Threshold { ", so the run was stopped early" } else { "" };
            format!("✗ Failed: {breached} of {} thresholds breached{early}", thresholds.len())
        }
        Verdict::TargetUnreachable => format!("✗ Failed: {} could not be reached", clean(&run.plan.target)),
        Verdict::ScheduleMissed => "✗ Failed: the generator could not keep its schedule (--strict)".to_owned(),
        Verdict::Interrupted => {
            format!(
                "✗ Interrupted after {} s: the results are of the part that ran",
                digits(run.facts.active.as_secs_f64())
            )
        }
    }
}
