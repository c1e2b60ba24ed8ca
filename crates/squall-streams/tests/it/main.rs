//! Tests of streams against a real server: order, exactly-once processing, hand-over, failures,
//! faults and commands.

mod bad_input;
#[cfg(feature = "cli")]
mod cli;
mod cluster;
mod exactly_once;
mod failures;
mod faulty_network;
mod handover;
mod killed_processes;
mod leader_tasks;
mod observability;
mod order_checker;
mod runnel_keys;
mod sending;
mod support;
