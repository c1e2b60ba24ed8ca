//! The plan of one run of `squall cql`: a thread of cassandra-stress is a virtual user, `n=` is the
//! exact number of iterations, and a rate is an open load. It runs nothing.

use squall_cql::{Pacing, StopRule, StressSettings, Workload};
use squall_model::{Arrivals, EngineLimits, Load, LoadModel, Pause, Plan, Profile, TaskSpec, Threshold};
use squall_orchestrator::RunOptions;
use std::time::Duration;

use super::fleet_target::sequence_limit;
use crate::exit::CliError;

/// The length of a load that something else ends. Longer than a year, so that reports leave it out, and
/// within the limits of a profile.
const ENDLESS: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Which processes make the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPlace {
    ThisProcess,
    Fleet,
}

/// What one run does: the command itself, or one part of its warm-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunShape {
    pub(super) threads: u32,
    pub(super) pacing: Pacing,
    pub(super) stop: StopRule,
    pub(super) place: RunPlace,
}

/// What reports say about a run, and how it is judged.
#[derive(Debug, Clone, Default)]
pub(super) struct RunIdentity {
    pub(super) name: String,
    pub(super) target: String,
    pub(super) thresholds: Vec<Threshold>,
}

pub(super) fn plan(
    settings: &StressSettings,
    workload: &Workload,
    shape: RunShape,
    identity: RunIdentity,
) -> Result<Plan, CliError> {
    let (length, iterations) = match shape.stop {
        StopRule::Partitions(count) => (ENDLESS, Some(count)),
        StopRule::Time(length) => (length, None),
        StopRule::StandardError { .. } => (ENDLESS, None),
    };
    // A driver cannot end the run of a fleet when all seeds are used.
    let sequence_limit = sequence_limit(settings).filter(|_| shape.place == RunPlace::Fleet);
    // A user that waits for a token range makes empty iterations; the driver counts those of `n=` itself.
    let counted_by_driver = workload.token_range_queries().next().is_some();
    let iterations = iterations.into_iter().chain(sequence_limit).min().filter(|_| !counted_by_driver);
    let profile = |level: f64| {
        Profile::constant(level, length).map_err(|error| CliError::new(format!("the load is not possible: {error}")))
    };
    let model = match shape.pacing {
        Pacing::Unlimited => LoadModel::Closed { users: profile(f64::from(shape.threads))?, pause: Pause::NONE },
        Pacing::Throttle(rate) | Pacing::Fixed(rate) => {
            LoadModel::Open { rate: profile(rate as f64)?, arrivals: Arrivals::Even }
        }
    };
    Ok(Plan {
        name: identity.name,
        target: identity.target,
        load: Load { model, iterations, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new(settings.command.operation.name())],
        thresholds: identity.thresholds,
        seed: 0,
    })
}

/// The engine's limits: `processes=` are its threads. After a load of a length the driver cuts operations off much
/// earlier, unless the database was very slow before.
pub(super) fn run_options(settings: &StressSettings, shape: RunShape, histogram_window_s: u32) -> RunOptions {
    let grace = match shape.stop {
        // Every operation of `n=` is made, however long the database takes.
        StopRule::Partitions(_) if shape.place == RunPlace::ThisProcess => ENDLESS,
        StopRule::Partitions(_) => longest_operation(settings),
        StopRule::Time(_) | StopRule::StandardError { .. } => settings.mode.request_timeout,
    };
    let limits = EngineLimits {
        threads: Some(engine_threads(settings, shape.threads)),
        max_users: shape.threads as usize,
        grace,
        ..EngineLimits::default()
    };
    RunOptions { limits, histogram_window_s, ..RunOptions::default() }
}

/// How long an operation with all of its tries may take.
pub(super) fn longest_operation(settings: &StressSettings) -> Duration {
    settings.mode.request_timeout.saturating_mul(settings.errors.retries.saturating_add(1)).min(ENDLESS)
}

/// No engine thread is without a user.
pub(super) fn engine_threads(settings: &StressSettings, threads: u32) -> usize {
    settings.rate.processes.min(threads).max(1) as usize
}
