//! A leader on a real Redis, with workers that only report.

mod bad_input;
mod compat_views;
mod fleet_fixture;
mod leaders;
mod run_end;
