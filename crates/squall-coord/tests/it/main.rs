//! The steps of the store against both back ends, and the rebalance protocol under simulated faults.

mod conformance;
mod lockstep;
mod seats;
mod simulation;
mod support;
