//! Converts the live status of a run to the snapshot that squall-report renders. Renders nothing
//! itself. The dashboard and the outputs call it.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus};
use squall_report::{LiveSnapshot, LoadPhase, reported_time};
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
