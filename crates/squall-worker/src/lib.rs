//! One process of a fleet: joins, reads what is wanted, builds its users, makes the load of the shares it holds and ships what it
//! measured. Decides nothing about the run; it obeys the record, and stops by itself when it can no longer be sure of its place.

mod announcer;
mod clock;
mod handover;
mod hooks;
mod job;
mod lending;
mod machine;
mod place;
mod rationing;
mod refusals;
mod shipper;
mod stage;
mod worker;

pub use hooks::Hooks;
pub use job::{Beside, Host, Opened};
pub use lending::{Portion, StockError, lend_here};
pub use worker::{Worker, WorkerConfig, WorkerError, WorkerStatus};

use squall_coord::UnitId;
use squall_model::SHARE_COUNT;

/// The shares of a load as units to hold, in the order of the users whose they are.
pub fn share_units() -> Vec<UnitId> {
    (0..SHARE_COUNT).map(UnitId::from).collect()
}
