//! The engine with drivers made for the test: what is promised of starts, counts, stopping and waiting.

mod engine_group;
mod drivers;
mod share_assignment;
mod failing;
mod runs;
mod stopping;
