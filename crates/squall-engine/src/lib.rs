//! Turns a load into iterations at their intended times and drives virtual users through them, one runtime per core. Knows no
//! protocol: what an iteration does is the [`Driver`]'s. Judges nothing: it ships one delta a second and stops when told.

mod driver;
mod probe;

pub use driver::{Driver, DriverError, DriverThread, Iteration, Seat, StartFailed, VirtualUser};
pub use probe::{Flight, Probe};
