//! Several scenarios on one timeline, from their plans to the engines that carry them out. Decides nothing about them.

use squall_engine::{Driver, EngineSpec};
use squall_model::{EngineLimits, Plan};

use crate::local_run::{RunOptions, engine_config};

/// One scenario among several.
pub struct PlannedScenario<D> {
    pub plan: Plan,
    pub driver: D,
    /// Engine threads at most.
    pub threads: usize,
    /// It ends when those that do not follow have.
    pub background: bool,
}

impl<D: Driver> PlannedScenario<D> {
    pub(crate) fn engine_spec(self, options: &RunOptions) -> EngineSpec<D> {
        let PlannedScenario { plan, driver, threads, background: follows } = self;
        let threads = options.limits.threads.unwrap_or(threads).min(threads);
        let limits = EngineLimits { threads: Some(threads), ..options.limits.clone() };
        let config = engine_config(&plan, &RunOptions { limits, ..options.clone() });
        EngineSpec { driver, config, background: follows }
    }
}
