//! From what the run says of itself to what the renderers of a second take.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus};
use squall_report::{LiveSnapshot, LoadPhase, reported_time};
use std::time::{SystemTime, UNIX_EPOCH};

/// The run as it is now.
pub(crate) fn tick<'a>(plan: &'a Plan, view: &'a RunView, live: &LiveStatus) -> LiveSnapshot<'a> {
    let phase = match live.phase {
        LivePhase::Done => LoadPhase::Done,
        // Stopped before its time.
        LivePhase::Draining if live.elapsed < plan.duration() => LoadPhase::RampDown,
        LivePhase::Starting | LivePhase::WarmUp | LivePhase::Running | LivePhase::Draining => {
            LoadPhase::at(plan, reported_time(plan, view, live.elapsed))
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    LiveSnapshot { view, plan, elapsed: live.elapsed, phase, unix_ms: now.as_millis() as u64 }
}
