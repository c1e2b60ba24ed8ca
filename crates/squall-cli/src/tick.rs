//! Converts the live status of a run to the snapshots of squall-report. Renders nothing itself. The
//! dashboard and the outputs call it.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus};
use squall_report::{LiveRun, LiveRunPhase, LiveRunState, LiveSnapshot, LoadPhase, reported_time};
use std::time::{SystemTime, UNIX_EPOCH};

/// The current state of the run.
pub(crate) fn tick<'a>(plan: &'a Plan, view: &'a RunView, live: &LiveStatus) -> LiveSnapshot<'a> {
    let phase = match live.phase {
        LivePhase::Done => LoadPhase::Done,
        // Stopped before its planned end.
        LivePhase::Draining if live.elapsed < plan.duration() => LoadPhase::RampDown,
        LivePhase::Starting | LivePhase::WarmUp | LivePhase::Running | LivePhase::Draining => {
            LoadPhase::at(plan, reported_time(plan, view, live.elapsed))
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    LiveSnapshot { view, plan, elapsed: live.elapsed, phase, unix_ms: now.as_millis() as u64 }
}

/// What a live view shows of the run, with at most `seconds` of its latest seconds.
pub(crate) fn live_run(plan: &Plan, view: &RunView, live: &LiveStatus, seconds: usize) -> LiveRun {
    let phase = match live.phase {
        LivePhase::Starting => LiveRunPhase::Starting,
        LivePhase::WarmUp => LiveRunPhase::WarmUp,
        LivePhase::Running => LiveRunPhase::Running,
        LivePhase::Draining => LiveRunPhase::Draining,
        LivePhase::Done => LiveRunPhase::Done,
    };
    let state = LiveRunState {
        phase,
        elapsed_s: live.elapsed.as_secs_f64(),
        planned_end_s: live.planned_end.as_secs_f64(),
        level: live.level_now,
        resumes_at: live.resumes_at,
        busy_users: live.busy_users,
        cpu_s: live.cpu_s,
        rss_bytes: live.rss_bytes,
        thresholds: live.thresholds.clone(),
    };
    LiveRun::new(plan, view, state, seconds)
}
