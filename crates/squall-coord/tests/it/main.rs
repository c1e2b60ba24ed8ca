//! The steps of the store against both back ends, and the rebalance protocol under simulated faults.

mod conformance;
mod counters;
mod links;
mod lockstep;
mod pools;
mod pools_faults;
mod pools_lockstep;
mod runs;
mod seats;
mod simulation;
mod support;
mod words;
