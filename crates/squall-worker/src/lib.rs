//! One process of a fleet: joins, reads what is wanted, builds its users, makes the load of the shares it holds and ships what it
//! measured. Decides nothing about the run; it obeys the record, and stops by itself when it can no longer be sure of its place.

mod counter_supplier;
mod delta_shipper;
mod hooks;
mod membership_task;
mod process_monitor;
mod rejected_message_counter;
mod resource_server;
mod send_budget_reporter;
mod share_leases;
mod store_clock;
mod worker;
mod worker_run;
mod worker_run_state;

pub use hooks::ScenarioHooks;
pub use resource_server::{PoolFillError, PoolSlice, serve_local_pools};
pub use worker::{Worker, WorkerConfig, WorkerError, WorkerStatus};
pub use worker_run::{AdditionalScenario, DriverFactory, RunnableBundle};

use squall_coord::UnitId;
use squall_model::SHARE_COUNT;

/// The shares of a load as units to hold, in the order of the users whose they are.
pub fn share_units() -> Vec<UnitId> {
    (0..SHARE_COUNT).map(UnitId::from).collect()
}
