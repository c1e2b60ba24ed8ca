//! One scenario of a run with its driver, before an engine is configured for it. It validates
//! nothing. The command line and the script hosts build it; the local run, the processes of a run
//! and the workers of a fleet turn it into an [`EngineSpec`](crate::EngineSpec).

use squall_model::Plan;

/// One scenario of a run. Several of them run at the same time, each with its own load and users.
#[derive(Debug, Clone)]
pub struct PlannedScenario<D> {
    pub plan: Plan,
    /// The driver, or what makes one.
    pub driver: D,
    /// Engine threads that suit the driver; `None` leaves the number to the engine.
    pub threads: Option<usize>,
    /// Whether it makes no load of its own, as probes do. It ends when all scenarios that are not
    /// in the background have ended.
    pub background: bool,
}

impl<D> PlannedScenario<D> {
    /// The same scenario with the driver that `convert` returns.
    pub fn map_driver<E>(self, convert: impl FnOnce(D) -> E) -> PlannedScenario<E> {
        let PlannedScenario { plan, driver, threads, background } = self;
        PlannedScenario { plan, driver: convert(driver), threads, background }
    }
}
