//! When starts of a run are due and when its load ends, computed from its plan and its spec. It
//! knows no current time. The leader calls it.

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

/// The time of the run at which the planned load ends.
pub(super) fn planned_load_end(bundle: &Bundle, spec: &RunSpec) -> Duration {
    let end = |(load, profile): (&Load, &Profile)| {
        // Users of a closed load take iterations when they are free. The schedule of an open load
        // gives the last start.
        let scheduled = load.iterations.filter(|_| matches!(load.model, LoadModel::Open { .. }));
        scheduled.and_then(|n| profile.time_of_area(n as f64)).unwrap_or(profile.duration())
    };
    planned_loads(bundle, spec).into_iter().map(end).max().unwrap_or_default()
}

/// The time of the run until which starts may wait for a free user. An open load with an iteration
/// limit makes every iteration, so its queued starts are made after the last one was due.
pub(super) fn queued_starts_end(bundle: &Bundle, spec: &RunSpec) -> Duration {
    let has_queue = |load: &Load| load.iterations.is_some() && matches!(load.model, LoadModel::Open { .. });
    let queued = planned_loads(bundle, spec).into_iter().filter(|(load, _)| has_queue(load));
    queued.map(|(_, profile)| profile.duration()).max().unwrap_or_default()
}

/// The loads of a run with their profiles. Only the profile of a single scenario can change during
/// a run.
pub(super) fn planned_loads<'a>(bundle: &'a Bundle, spec: &'a RunSpec) -> Vec<(&'a Load, &'a Profile)> {
    match bundle.has_multiple_scenarios() {
        true => bundle.together.iter().map(|load| (load, load.model.profile())).collect(),
        false => vec![(&bundle.plan.load, &spec.profile)],
    }
}
