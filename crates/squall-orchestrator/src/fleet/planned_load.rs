//! What is due when in a run, and when it is over: pure sums over its plan and its order. Knows no present time.

use squall_engine::Schedule;
use squall_model::{Arrivals, Bundle, Load, LoadModel, Profile, RunSpec};
use std::time::Duration;

/// Starts of an open load that are due before `at`.
pub(super) fn starts_due_before(load: &Load, profile: &Profile, seed: u64, at: Duration) -> u64 {
    let arrivals = match load.model {
        LoadModel::Open { arrivals, .. } => arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    Schedule::due_before(profile, arrivals, load.iterations, seed, at)
}

/// The time of the run at which its load is over.
pub(super) fn planned_load_end(bundle: &Bundle, order: &RunSpec) -> Duration {
    let end = |(load, profile): (&Load, &Profile)| {
        // The users of a closed model take their iterations as they can; the clock of an open one knows when the last is due.
        let of_clock = load.iterations.filter(|_| matches!(load.model, LoadModel::Open { .. }));
        of_clock.and_then(|n| profile.time_of_area(n as f64)).unwrap_or(profile.duration())
    };
    planned_loads(bundle, order).into_iter().map(end).max().unwrap_or_default()
}

/// The time of the run at which nothing waits for a user any more: of an open load of so many iterations, which makes them all.
pub(super) fn queued_starts_end(bundle: &Bundle, order: &RunSpec) -> Duration {
    let waits = |load: &Load| load.iterations.is_some() && matches!(load.model, LoadModel::Open { .. });
    let waiting = planned_loads(bundle, order).into_iter().filter(|(load, _)| waits(load));
    waiting.map(|(_, profile)| profile.duration()).max().unwrap_or_default()
}

/// The loads of a run and how they go on: that of one scenario may have been changed.
pub(super) fn planned_loads<'a>(bundle: &'a Bundle, order: &'a RunSpec) -> Vec<(&'a Load, &'a Profile)> {
    match bundle.has_multiple_scenarios() {
        true => bundle.together.iter().map(|load| (load, load.model.profile())).collect(),
        false => vec![(&bundle.plan.load, &order.profile)],
    }
}
