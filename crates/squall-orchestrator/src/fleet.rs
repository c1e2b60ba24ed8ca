//! A run on a fleet: whoever serves people changes the record ([`Fleet`]), one orchestrator leads the run from phase to phase
//! ([`Orchestrator`]), and everybody who wants to see it follows what workers ship ([`Follower`]). All of it stands in the store, so
//! whoever dies, the next one goes on.

mod begin;
mod board;
mod due;
mod follow;
mod hooks;
mod lead;
mod led;
mod probes;
mod rations;
mod seconds;
mod steer;
mod worker_info;

pub use begin::{FleetRun, FleetRunError, run_fleet};
pub use follow::Follower;
pub use lead::{Orchestrator, OrchestratorConfig};
pub use probes::{ProbeSecond, probe_names, probe_seconds};
pub use steer::{Ending, FinishedRun, Fleet, FleetError, FleetStatus};
pub use worker_info::{WorkerInfo, holders};

/// The one unit that orchestrators hold.
pub(crate) const LEAD: &str = "lead";
