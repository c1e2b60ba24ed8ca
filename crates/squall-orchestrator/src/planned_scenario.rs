//! One of several scenarios that run at the same time, and its conversion to an engine. It
//! validates nothing; the CLI builds it from a checked plan.

use squall_engine::{Driver, EngineSpec};
use squall_model::{EngineLimits, Plan};

use crate::local_run::{RunOptions, engine_config};

/// One scenario among several.
pub struct PlannedScenario<D> {
    pub plan: Plan,
    pub driver: D,
    /// Most engine threads.
    pub threads: usize,
    /// Whether the scenario ends when all scenarios that are not in the background have ended.
    pub background: bool,
}

impl<D: Driver> PlannedScenario<D> {
    pub(crate) fn engine_spec(self, options: &RunOptions) -> EngineSpec<D> {
        let PlannedScenario { plan, driver, threads, background } = self;
        let threads = options.limits.threads.unwrap_or(threads).min(threads);
        let limits = EngineLimits { threads: Some(threads), ..options.limits.clone() };
        let config = engine_config(&plan, &RunOptions { limits, ..options.clone() });
        EngineSpec { driver, config, background }
    }
}
