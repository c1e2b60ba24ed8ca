//! Turns a load into iterations at their intended times and drives virtual users through them, one runtime per core. Knows no
//! protocol: what an iteration does is the [`Driver`]'s. Judges nothing: it ships one delta a second and stops when told.

mod alarm;
mod chooser;
mod chorus;
mod conductor;
mod curfew;
mod deal;
mod driver;
mod engine;
mod floor;
mod leash;
mod lending;
mod life;
mod probe;
mod schedule;
mod slot;
mod tickets;

pub use chooser::Cycle;
pub use chorus::{Chorus, ChorusStop, Voice};
pub use curfew::Curfew;
pub use driver::{Driver, DriverError, DriverThread, Iteration, Requests, Seat, StartFailed, VirtualUser};
pub use engine::{Duty, Engine, EngineConfig, EngineError, EngineStop, InFlight, ThreadEnd};
pub use leash::Leash;
pub use lending::{LendAsk, LendError, Lender, Lent, Loan, TakeAnswer};
pub use probe::{FENCED, Flight, OpenSpan, Probe};
pub use schedule::{Schedule, Start};
pub use tickets::{Need, Ration, Supply, Tickets};
