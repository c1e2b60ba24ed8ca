//! A run on a fleet. [`FleetClient`] changes the record of the run, [`Orchestrator`] leads the run
//! from phase to phase, and [`RunAggregator`] merges what workers ship. All state is in the store,
//! so another process can continue the work of one that dies. The workers that make the load are in
//! `squall-worker`.

mod command_payload;
mod compat;
mod counter_monitor;
mod fleet_actions;
mod fleet_client;
mod fleet_run;
mod hooks;
mod leader_run;
mod metric_event;
mod orchestrator;
mod planned_load;
mod probes;
mod run_aggregator;
mod store_contact;
mod vikhry_workers;
mod worker_info;
mod worker_roster;

pub use fleet_client::{FleetClient, FleetError, FleetStatus, StopRunCommand, StoredRunResult};
pub use fleet_run::{FleetRunError, FleetRunRequest, run_fleet};
pub use metric_event::{is_start_hook, metric_event, vikhry_metrics};
pub use orchestrator::{Orchestrator, OrchestratorConfig};
pub use probes::{ProbeSecond, ProbeValue, probe_names, probe_seconds};
pub use run_aggregator::{RunAggregator, WorkerActivity, WorkerSecond};
pub use worker_info::{WorkerInfo, WorkerKind, share_holders};

/// The unit that orchestrators lease; its holder leads.
pub(crate) const LEADER_UNIT: &str = "lead";
