//! The verdict of a run and its exit code. It judges the measurements; the orchestrator has already
//! judged the thresholds. Exit code 2 (usage) is absent here, because it means that no run took
//! place.

use serde::{Deserialize, Serialize};
use squall_metrics::{MetricKind, Outcome, OutcomeCategory, OutcomeCode, RunView};
use squall_model::{LoadModel, StopReason, WorkerState, protocol::GroupName};

use crate::{InterruptionRule, ReportInput, ScheduleRule, format::count};

/// How a run ended, for people and for CI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunVerdict {
    Passed,
    ThresholdBreached,
    TargetUnreachable,
    NothingMeasured,
    ScheduleMissed,
    Interrupted,
}

impl RunVerdict {
    pub const ALL: [RunVerdict; 6] = [
        RunVerdict::Passed,
        RunVerdict::ThresholdBreached,
        RunVerdict::TargetUnreachable,
        RunVerdict::NothingMeasured,
        RunVerdict::ScheduleMissed,
        RunVerdict::Interrupted,
    ];

    /// The exit code that docs/exit-codes.md documents; stable. [`exit_code`] knows its exception.
    pub fn exit_code(self) -> u8 {
        match self {
            RunVerdict::Passed => 0,
            RunVerdict::ThresholdBreached | RunVerdict::NothingMeasured => 1,
            RunVerdict::TargetUnreachable => 3,
            RunVerdict::ScheduleMissed => 4,
            RunVerdict::Interrupted => 130,
        }
    }

    /// The name in result files.
    pub fn name(self) -> &'static str {
        match self {
            RunVerdict::Passed => "passed",
            RunVerdict::ThresholdBreached => "threshold_breached",
            RunVerdict::TargetUnreachable => "target_unreachable",
            RunVerdict::NothingMeasured => "nothing_measured",
            RunVerdict::ScheduleMissed => "schedule_missed",
            RunVerdict::Interrupted => "interrupted",
        }
    }
}

/// The exit code of the command whose run this is.
pub fn exit_code(run: &ReportInput<'_>) -> u8 {
    match (verdict(run), run.interruption_rule) {
        (RunVerdict::Interrupted, InterruptionRule::Succeeds) => 0,
        (verdict, _) => verdict.exit_code(),
    }
}

/// Judges a run. If several verdicts apply, the first of these wins, because it makes the later
/// ones meaningless: interrupted (the run is incomplete) → unreachable (nothing was tested) →
/// nothing measured → threshold breached → schedule missed (see [`ScheduleRule`]) → passed.
pub fn verdict(run: &ReportInput<'_>) -> RunVerdict {
    match run.facts.stop {
        StopReason::Interrupted | StopReason::Aborted => RunVerdict::Interrupted,
        _ if target_unreachable(run) => RunVerdict::TargetUnreachable,
        _ if nothing_measured_reason(run).is_some() => RunVerdict::NothingMeasured,
        StopReason::Threshold => RunVerdict::ThresholdBreached,
        StopReason::Completed if run.facts.thresholds.iter().any(|t| !t.passed) => RunVerdict::ThresholdBreached,
        StopReason::Completed if fails_schedule_rule(run) => RunVerdict::ScheduleMissed,
        StopReason::Completed => RunVerdict::Passed,
    }
}

/// Why the run says nothing about the target; `None` if it does.
pub(crate) fn nothing_measured_reason(run: &ReportInput<'_>) -> Option<String> {
    let (view, unsent) = (run.view, run.view.engine.unsent);
    let began = view.engine.iterations > 0 || view.timeline.iter().any(|second| second.busy > 0);
    match () {
        () if !began && view.on_start_failures() > 0 => {
            Some(format!("on_start failed {} times, so no user could begin", count(view.on_start_failures())))
        }
        () if view.all.requests == 0 && view.engine.warm_up_requests > 0 => {
            Some(format!("all {} requests were warm-up", count(view.engine.warm_up_requests)))
        }
        () if view.all.requests == 0 && !measured_without_requests(view) => {
            Some("not one request was made, and no task ended without an error".to_owned())
        }
        () if view.engine.recorded == unsent && unsent > 0 => {
            Some(format!("all {} requests failed before they were sent", count(unsent)))
        }
        () if view.engine.iterations == 0 && view.engine.dropped > 0 => {
            Some(format!("not one of {} starts was made", count(view.engine.dropped)))
        }
        () => None,
    }
}

/// Whether a task ended without an error or a metric of the scenario has a sample. Code that uses
/// another HTTP library or measures by itself makes no requests of its own.
fn measured_without_requests(view: &RunView) -> bool {
    let is_hook = |name| matches!(name, "on_start" | "on_stop");
    view.metrics.iter().any(|metric| match (metric.key.kind, GroupName::of_metric(&metric.key.name)) {
        (MetricKind::Custom, _) => metric.requests > 0,
        (MetricKind::Group, GroupName::Named(name)) => !is_hook(name) && metric.requests > metric.errors,
        (MetricKind::Group | MetricKind::Request, _) => false,
    })
}

fn fails_schedule_rule(run: &ReportInput<'_>) -> bool {
    match run.schedule_rule {
        ScheduleRule::Strict => schedule_missed(run),
        ScheduleRule::MostStarts => missing_load(run).is_some(),
        ScheduleRule::AllowMissing => false,
    }
}

/// What is missing of the load of a run that made too little of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingLoad {
    /// More than 1 % of the planned starts.
    Starts,
    /// The fleet had no worker at the end of a closed load. How many starts are missing is unknown,
    /// because each user decides when it starts.
    AllWorkers,
}

/// `None` if the run made at least 99 % of its planned starts.
pub(crate) fn missing_load(run: &ReportInput<'_>) -> Option<MissingLoad> {
    match () {
        () if unreported_starts(run) * 100 > planned_starts(run) => Some(MissingLoad::Starts),
        () if lost_all_users(run) => Some(MissingLoad::AllWorkers),
        () => None,
    }
}

/// Starts that were due after the warm-up.
pub(crate) fn planned_starts(run: &ReportInput<'_>) -> u64 {
    run.view.engine.iterations + unreported_starts(run)
}

/// Whether a fleet had no worker left to run the users of a closed load. With an iteration limit, the
/// leader counts the missing starts.
fn lost_all_users(run: &ReportInput<'_>) -> bool {
    let Some(fleet) = &run.facts.fleet else { return false };
    let is_closed = matches!(run.plan.load.model, LoadModel::Closed { .. });
    let took_part = |state| !matches!(state, WorkerState::Unable);
    is_closed
        && run.plan.load.iterations.is_none()
        && fleet.workers.iter().any(|worker| took_part(worker.state))
        && !fleet.workers.iter().any(|worker| worker.state == WorkerState::Finished)
}

/// Whether the generator did not make the requested load.
pub(crate) fn schedule_missed(run: &ReportInput<'_>) -> bool {
    run.facts.generator.saturated || unreported_starts(run) > 0
}

/// Starts that were due and are not reported: no user was free, no worker held them, or a lost
/// worker made them and could not report them.
pub(crate) fn unreported_starts(run: &ReportInput<'_>) -> u64 {
    run.view.engine.dropped + run.facts.fleet.as_ref().map_or(0, |fleet| fleet.missed_starts)
}

/// Whether requests were sent and not one byte of a response came back.
fn target_unreachable(run: &ReportInput<'_>) -> bool {
    let all = &run.view.all;
    // A request that was cut off at the end of the run might still have got a response.
    let mut conclusive = all.outcomes.keys().filter(|outcome| **outcome != Outcome::ABORTED).peekable();
    conclusive.peek().is_some() && all.bytes_in == 0 && conclusive.all(|outcome| is_no_response(*outcome))
}

/// Whether the outcome shows that no server was reached. A request that timed out on an open
/// connection reached one; a request that timed out while connecting did not.
fn is_no_response(outcome: Outcome) -> bool {
    match outcome.category {
        OutcomeCategory::TransportError => true,
        OutcomeCategory::Timeout => {
            ["CONNECT_TIMEOUT", "DNS_TIMEOUT"].iter().any(|code| outcome.code == OutcomeCode::Named(code))
        }
        OutcomeCategory::Ok
        | OutcomeCategory::ProtocolError
        | OutcomeCategory::CheckFailed
        | OutcomeCategory::Exception => false,
    }
}
