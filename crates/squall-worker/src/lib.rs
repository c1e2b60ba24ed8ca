//! One worker process of a fleet: joins the members, follows the run record, builds users, makes
//! the load of the shares it holds, and ships deltas. It decides nothing about the run, and it
//! stops its load when it cannot be sure of its membership. `squall worker` and `squall up` start
//! it.

mod active_users;
mod counter_supplier;
mod delta_shipper;
mod desired_run;
mod event_writer;
mod hooks;
mod lifecycle;
mod membership_policy;
mod membership_task;
mod process_monitor;
mod rejected_message_counter;
mod resource_server;
mod run_builder;
mod run_engines;
mod send_budget_reporter;
mod share_leases;
mod store_clock;
mod user_ids;
mod vikhry_run;
mod worker;
mod worker_config;
mod worker_load_phase;
mod worker_run;
mod worker_run_state;

pub use hooks::{HookError, ScenarioHooks, run_hook};
pub use resource_server::{PoolFillError, PoolSlice, serve_local_pools};
pub use worker::Worker;
pub use worker_config::{WorkerConfig, WorkerError, WorkerStatus};
pub use worker_run::{DriverFactory, OpenBundleError, RunnableBundle};

use squall_coord::UnitId;
use squall_model::SHARE_COUNT;

/// The shares of a load as lease units, in share order.
pub fn share_units() -> Vec<UnitId> {
    (0..SHARE_COUNT).map(UnitId::from).collect()
}
