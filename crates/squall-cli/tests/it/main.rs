//! Tests of the real program against real servers: exit codes, counts, outputs, signals, errors.
//! One binary; the tests are short, run in parallel and wait for events instead of sleeping.

mod bad_input;
mod compare;
mod coordinated_omission;
#[cfg(feature = "cql")]
mod cql;
#[cfg(feature = "cql")]
mod cql_errors;
#[cfg(feature = "cql")]
mod cql_fleet;
#[cfg(feature = "cql")]
mod cql_hdr_log;
#[cfg(feature = "cql")]
mod cql_options;
#[cfg(feature = "cql")]
mod cql_report;
#[cfg(feature = "cql")]
mod cql_silence;
#[cfg(feature = "cql")]
mod cql_tls;
#[cfg(feature = "cql")]
mod cql_two_nodes;
#[cfg(feature = "cql")]
mod cql_user;
mod dashboard_keys;
mod dashboard_terminal;
mod deploy_files;
mod exit_codes;
mod find_max;
mod first_hour;
mod fleet;
mod fleet_faults;
#[cfg(feature = "grid")]
mod grid;
mod grid_faults;
mod help;
mod history;
mod http_flags;
mod misbehaving_servers;
mod new_command;
mod pseudo_terminal;
mod request_counts;
mod run_outputs;
mod stop_signals;
mod support;
mod target_command;
mod up_down;
