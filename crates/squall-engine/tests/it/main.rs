//! The engine with drivers made for the test: what is promised of starts, counts, stopping and waiting.

mod chorus;
mod drivers;
mod duty;
mod failing;
mod runs;
mod stopping;
