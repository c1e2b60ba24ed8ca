//! Streams against a real server: order, exactly-once, hand-over, failures, faults, tools.

mod bad_input;
mod checker;
#[cfg(feature = "cli")]
mod cli;
mod cluster;
mod failures;
mod handover;
mod matrix;
mod processes;
mod proxy;
mod sending;
mod support;
mod tasks;
mod telling;
