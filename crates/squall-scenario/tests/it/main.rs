//! The scenario room from outside: what is refused and how it is said, what is sent, and what is recorded.

mod allocation;
mod driver;
mod errors;
mod harness;
mod language;
mod plan;
