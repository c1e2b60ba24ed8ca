//! The run: starts an engine, collects what it ships, applies the stop rules and states the facts. No HTTP, no rendering; who
//! wants to see the run while it goes on observes it.

mod control;
mod crew;
mod fleet;
mod judge;
pub mod processes;
mod run;
mod together;
mod usage;

pub use control::Control;
pub use crew::{Crew, Ended, Stop};
pub use fleet::{
    Ending, FinishedRun, Fleet, FleetError, FleetRun, FleetRunError, FleetStatus, Follower, Orchestrator,
    OrchestratorConfig, ProbeSecond, WorkerInfo, holders, probe_names, probe_seconds, run_fleet,
};
pub use judge::{Judge, value_of};
pub use run::{Finished, Live, LivePhase, Observer, RunError, RunOptions, run_crew, run_local, run_together};
pub use together::Member;
