//! Tests of the crate from outside: which scenarios are rejected and with which message, which requests
//! are sent, and what is recorded.

mod allocation;
mod browser;
mod code_scenario;
#[cfg(feature = "cql")]
mod cql;
mod docs;
mod driver;
mod errors;
mod examples;
mod harness;
mod language;
mod plan;
mod request_runner;
mod resources;
