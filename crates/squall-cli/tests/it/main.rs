//! Tests of the real program against real servers: exit codes, counts, outputs, signals, errors.
//! One binary; the tests are short, run in parallel and wait for events instead of sleeping.

mod bad_input;
mod compare;
mod coordinated_omission;
#[cfg(feature = "cql")]
mod cql;
mod dashboard_terminal;
mod deploy_files;
mod exit_codes;
mod find_max;
mod fleet;
mod fleet_faults;
mod help;
mod http_flags;
mod misbehaving_servers;
mod new_command;
mod request_counts;
mod run_outputs;
mod stop_signals;
mod support;
mod target_command;
mod up_down;
