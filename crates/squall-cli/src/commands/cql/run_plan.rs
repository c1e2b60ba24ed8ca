//! The plan of one run of `squall cql`: a thread of cassandra-stress is a virtual user, `n=` is the
//! exact number of iterations, and a rate is an open load. It runs nothing.

use squall_cql::{Pacing, StopRule, StressSettings};
use squall_model::{Arrivals, EngineLimits, Load, LoadModel, Pause, Plan, Profile, TaskSpec};
use squall_orchestrator::RunOptions;
use std::time::Duration;

use crate::exit::CliError;

/// The length of a load that something else ends. Longer than any run, and within the limits of a
/// profile.
const ENDLESS: Duration = Duration::from_secs(365 * 24 * 3600);

/// What one run does: the command itself, or one part of its warm-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunShape {
    pub(super) threads: u32,
    pub(super) pacing: Pacing,
    pub(super) stop: StopRule,
}

pub(super) fn plan(settings: &StressSettings, shape: RunShape, target: String) -> Result<Plan, CliError> {
    let (length, iterations) = match shape.stop {
        StopRule::Partitions(count) => (ENDLESS, Some(count)),
        StopRule::Time(length) => (length, None),
        StopRule::StandardError { .. } => (ENDLESS, None),
    };
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
        name: format!("cql {}", settings.command.operation.name()),
        target,
        load: Load { model, iterations, warm_up: Duration::ZERO },
        tasks: vec![TaskSpec::new(settings.command.operation.name())],
        thresholds: Vec::new(),
        seed: 0,
    })
}

/// The engine's limits: `processes=` are its threads, and an operation may use all of its tries after
/// the load is over.
pub(super) fn run_options(settings: &StressSettings, shape: RunShape, histogram_window_s: u32) -> RunOptions {
    let grace = match shape.stop {
        // Every operation of `n=` is made, however long the database takes.
        StopRule::Partitions(_) => ENDLESS,
        StopRule::Time(_) | StopRule::StandardError { .. } => {
            settings.mode.request_timeout.saturating_mul(settings.errors.retries.saturating_add(1)).min(ENDLESS)
        }
    };
    let limits = EngineLimits {
        threads: Some(engine_threads(settings, shape.threads)),
        max_users: shape.threads as usize,
        grace,
        ..EngineLimits::default()
    };
    RunOptions { limits, histogram_window_s, ..RunOptions::default() }
}

/// No engine thread is without a user.
pub(super) fn engine_threads(settings: &StressSettings, threads: u32) -> usize {
    settings.rate.processes.min(threads).max(1) as usize
}
