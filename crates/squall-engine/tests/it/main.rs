//! The engine with drivers made for the test: what is promised of starts, counts, stopping and waiting.

mod drivers;
mod engine_group;
mod failing;
mod runs;
mod share_assignment;
mod stopping;
