//! From what the run says of itself to what the renderers of a second take.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, LivePhase};
use squall_report::{Phase, Tick, moment};
use std::time::{SystemTime, UNIX_EPOCH};

/// The run as it is now.
pub(crate) fn tick<'a>(plan: &'a Plan, view: &'a RunView, live: &Live) -> Tick<'a> {
    let phase = match live.phase {
        LivePhase::Done => Phase::Done,
        // Stopped before its time.
        LivePhase::Draining if live.elapsed < plan.duration() => Phase::RampDown,
        LivePhase::Starting | LivePhase::WarmUp | LivePhase::Running | LivePhase::Draining => {
            Phase::at(plan, moment(plan, view, live.elapsed))
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Tick { view, plan, elapsed: live.elapsed, phase, unix_ms: now.as_millis() as u64 }
}
