//! Orchestrators with workers that only report: on the in-memory store with paused time where a
//! test depends on time, and on a real Redis otherwise.

mod bad_input;
mod compat_views;
mod fleet_fixture;
mod leaders;
mod protocol_version;
mod run_end;
mod stop_requests;
mod switched_stores;
mod vikhry_fleet;
