//! One probe of `--find-max`: its plan, its outcome and the reason of a failure. Runs nothing.
//! `find_max` calls it.

use squall_model::{Arrivals, LoadModel, Plan, Profile, Statistic, StatisticUnit, Threshold, ThresholdResult};
use squall_orchestrator::RunResult;
use std::time::Duration;

use super::rate_search::ProbeOutcome;
use crate::{
    exit::CliError,
    terminal::format::{self, percent},
};

/// The part of a probe that is not judged: users connect and the target fills its caches.
const WARM_UP: Duration = Duration::from_secs(1);
/// A probe at a low rate lasts until this many starts: fewer say nothing about a threshold.
const MIN_PROBE_STARTS: f64 = 10.0;
/// Added to every probe without an error threshold, because a target may respond fast by failing.
const DEFAULT_ERROR_THRESHOLD: &str = "error_rate<1%";

/// How long the warm-up of a probe of this `length` is.
pub(super) fn warm_up(length: Duration) -> Duration {
    WARM_UP.min(length / 2)
}

/// `plan` at a constant rate, with the threshold to search for first.
pub(super) fn probe_plan(plan: &Plan, threshold: &Threshold, rate: f64, length: Duration) -> Result<Plan, CliError> {
    let mut probe = plan.clone();
    let warm_up = warm_up(length);
    let arrivals = match plan.load.model {
        LoadModel::Open { arrivals, .. } => arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    let profile = Profile::constant(rate, probe_length(rate, length) + warm_up);
    let rate = profile.map_err(|error| CliError::new(format!("--find-max-probe: {error}")))?;
    probe.load.model = LoadModel::Open { rate, arrivals };
    probe.load.iterations = None;
    probe.load.warm_up = warm_up;
    probe.thresholds.insert(0, threshold.clone());
    if probe.thresholds.iter().all(|t| t.statistic != Statistic::ErrorRate) {
        probe.thresholds.push(DEFAULT_ERROR_THRESHOLD.parse().expect("a valid threshold"));
    }
    Ok(probe)
}

fn probe_length(rate: f64, length: Duration) -> Duration {
    length.max(Duration::from_secs_f64(MIN_PROBE_STARTS / rate))
}

pub(super) fn probe_outcome(finished: &RunResult) -> ProbeOutcome {
    let (generator, dropped) = (&finished.facts.generator, finished.view.engine.dropped);
    // A start is dropped when all users wait for responses, so one reason is the target's slowness.
    // The other reasons are the generator's own.
    let own_reasons =
        generator.saturated_because.len() - usize::from(dropped > 0).min(generator.saturated_because.len());
    match finished.facts.thresholds.iter().all(|threshold| threshold.passed) && dropped == 0 {
        _ if own_reasons > 0 => ProbeOutcome::GeneratorTooSlow,
        true => ProbeOutcome::Passed,
        false => ProbeOutcome::Failed,
    }
}

/// Why a probe failed; empty if it passed.
pub(super) fn failure_reason(outcome: ProbeOutcome, finished: &RunResult) -> String {
    match outcome {
        ProbeOutcome::Passed => String::new(),
        ProbeOutcome::Failed => breach_reason(&finished.facts.thresholds, finished.view.engine.dropped),
        ProbeOutcome::GeneratorTooSlow => finished.facts.generator.saturated_because.join("; "),
    }
}

fn breach_reason(results: &[ThresholdResult], dropped: u64) -> String {
    match results.iter().find(|result| !result.passed) {
        Some(result) => match result.value {
            Some(value) => format!("{} was {}", result.threshold, format_value(&result.threshold, value)),
            None => format!("{} had nothing to judge", result.threshold),
        },
        None => format!("{dropped} starts found no free user"),
    }
}

/// A value of the threshold's statistic, with its unit.
pub(super) fn format_value(threshold: &Threshold, value: f64) -> String {
    match threshold.statistic.unit() {
        StatisticUnit::Time => format::time(value),
        StatisticUnit::Fraction => percent(value),
        StatisticUnit::PerSecond => format!("{}/s", format::rate(value)),
        StatisticUnit::Count => format::count(value as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_at_a_low_rate_is_long_enough_for_ten_starts() {
        assert_eq!(probe_length(1000.0, Duration::from_secs(10)), Duration::from_secs(10));
        assert_eq!(probe_length(2.0, Duration::from_millis(500)), Duration::from_secs(5));
    }
}
