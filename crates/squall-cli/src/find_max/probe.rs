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
/// A probe whose starts are late by a larger share of its length did not make its rate.
const MAX_LAG_SHARE: f64 = 0.02;
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

/// Judges a probe. What the generator adds to the measured times cannot make a threshold hold, so a probe
/// that held counts if the generator made its rate, and a busy generator excuses only a probe that failed.
pub(super) fn probe_outcome(finished: &RunResult) -> ProbeOutcome {
    let (generator, dropped) = (&finished.facts.generator, finished.view.engine.dropped);
    // A start is dropped when all users wait for responses, so one reason is the target's slowness.
    // The other reasons are the generator's own.
    let own_reasons =
        generator.saturated_because.len() - usize::from(dropped > 0).min(generator.saturated_because.len());
    match finished.facts.thresholds.iter().all(|threshold| threshold.passed) && dropped == 0 {
        true if fell_behind(finished) => ProbeOutcome::GeneratorTooSlow,
        true => ProbeOutcome::Passed,
        false if own_reasons > 0 => ProbeOutcome::GeneratorTooSlow,
        false => ProbeOutcome::Failed,
    }
}

/// Whether starts were so late that the generator made a lower rate than the probe's. A threshold on
/// errors does not notice that.
fn fell_behind(finished: &RunResult) -> bool {
    schedule_lag(finished) > finished.facts.active.mul_f64(MAX_LAG_SHARE)
}

fn schedule_lag(finished: &RunResult) -> Duration {
    Duration::from_nanos(finished.view.engine.schedule_lag.percentile(99.0))
}

/// Why a probe failed; empty if it passed.
pub(super) fn failure_reason(outcome: ProbeOutcome, finished: &RunResult) -> String {
    match outcome {
        ProbeOutcome::Passed => String::new(),
        ProbeOutcome::Failed => breach_reason(&finished.facts.thresholds, finished.view.engine.dropped),
        ProbeOutcome::GeneratorTooSlow if finished.facts.generator.saturated_because.is_empty() => {
            let lag = format::time(schedule_lag(finished).as_nanos() as f64);
            format!("starts were up to {lag} late (p99): stop other programs on this machine, or use more threads")
        }
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
    match threshold.unit() {
        StatisticUnit::Time => format::time(value),
        StatisticUnit::Fraction => percent(value),
        StatisticUnit::PerSecond => format!("{}/s", format::rate(value)),
        StatisticUnit::Count => format::count(value as u64),
        StatisticUnit::LayoutShift => format!("{:.3}", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::Collector;
    use squall_model::{GeneratorStats, Load, RunFacts, StopReason};

    #[test]
    fn probe_at_a_low_rate_is_long_enough_for_ten_starts() {
        assert_eq!(probe_length(1000.0, Duration::from_secs(10)), Duration::from_secs(10));
        assert_eq!(probe_length(2.0, Duration::from_millis(500)), Duration::from_secs(5));
    }

    /// A probe of 10 s whose starts were `lag_ms` late, with the generator's reasons.
    fn probe(threshold_held: bool, lag_ms: u64, because: &[&str]) -> RunResult {
        let mut view = Collector::new([], 1).finish();
        view.engine.schedule_lag.record(lag_ms * 1_000_000);
        let threshold = "p99<100ms".parse().expect("a threshold");
        let result = ThresholdResult { threshold, value: Some(0.0), passed: threshold_held, breached_at_s: None };
        let saturated_because = because.iter().map(|reason| (*reason).to_owned()).collect();
        let generator = GeneratorStats { saturated: !because.is_empty(), saturated_because, ..Default::default() };
        let (active, elapsed) = (Duration::from_secs(10), Duration::from_secs(10));
        let (stop, thresholds) = (StopReason::Completed, vec![result]);
        let (started_unix_ms, lost_at_most, fleet, events) = (0, 0, None, Vec::new());
        let facts =
            RunFacts { started_unix_ms, active, elapsed, stop, thresholds, generator, lost_at_most, fleet, events };
        let rate = Profile::constant(10.0, active).expect("a profile");
        let model = LoadModel::Open { rate, arrivals: Arrivals::Even };
        let load = Load { model, iterations: None, warm_up: Duration::ZERO };
        let (name, target) = (String::new(), String::new());
        let plan = Plan { name, target, load, tasks: vec![], thresholds: vec![], seed: 0 };
        RunResult { plan, view, facts }
    }

    #[test]
    fn busy_generator_excuses_only_a_probe_that_failed() {
        assert_eq!(probe_outcome(&probe(true, 20, &["late starts"])), ProbeOutcome::Passed);
        assert_eq!(probe_outcome(&probe(false, 20, &["late starts"])), ProbeOutcome::GeneratorTooSlow);
        assert_eq!(probe_outcome(&probe(false, 20, &[])), ProbeOutcome::Failed);
    }

    #[test]
    fn dropped_starts_are_the_fault_of_the_target() {
        let mut dropped = probe(true, 0, &["no user was free"]);
        dropped.view.engine.dropped = 1;
        assert_eq!(probe_outcome(&dropped), ProbeOutcome::Failed);
    }

    #[test]
    fn generator_that_fell_behind_did_not_make_the_rate() {
        let behind = probe(true, 300, &[]);
        assert_eq!(probe_outcome(&behind), ProbeOutcome::GeneratorTooSlow);
        let reason = failure_reason(ProbeOutcome::GeneratorTooSlow, &behind);
        assert!(reason.starts_with("starts were up to 300 ms late"), "{reason}");
    }
}
