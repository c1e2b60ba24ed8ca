//! The scenario room from outside: what is refused and how it is said, what is sent, and what is recorded.

mod allocation;
mod docs;
mod driver;
mod errors;
mod examples;
mod harness;
mod language;
mod plan;
mod resources;
