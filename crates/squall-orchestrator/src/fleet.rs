//! A run on a fleet: whoever serves people changes the record ([`FleetClient`]), one orchestrator leads the run from phase to phase
//! ([`Orchestrator`]), and everybody who wants to see it follows what workers ship ([`RunAggregator`]). All of it stands in the store, so
//! whoever dies, the next one goes on.

mod counter_monitor;
mod fleet_client;
mod fleet_run;
mod hooks;
mod leader_run;
mod orchestrator;
mod planned_load;
mod probes;
mod redis_metric_view;
mod redis_user_view;
mod run_aggregator;
mod worker_info;

pub use fleet_client::{FleetClient, FleetError, FleetStatus, StopRunCommand, StoredRunResult};
pub use fleet_run::{FleetRunError, FleetRunRequest, run_fleet};
pub use orchestrator::{Orchestrator, OrchestratorConfig};
pub use probes::{ProbeSecond, probe_names, probe_seconds};
pub use run_aggregator::RunAggregator;
pub use worker_info::{WorkerInfo, share_holders};

/// The one unit that orchestrators hold.
pub(crate) const LEADER_UNIT: &str = "lead";
