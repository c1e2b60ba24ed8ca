//! Runs the engine with scripted drivers: starts, counts, stopping and waiting.

mod acquired_threads;
mod blocked_threads;
mod engine_group;
mod iteration_limits;
mod panics;
mod runs;
mod scripted_driver;
mod share_assignment;
mod stopping;
mod user_growth;
