//! The `squall` command: arguments → settings → run → exit code. Connects the other crates and
//! shows their results; computes no load, no statistics and no verdict of its own. Called by
//! `main.rs` and, inside Python, by squall-python.

// The futures of a fleet on a Redis cluster are deeply nested.
#![recursion_limit = "256"]

mod any_driver;
mod api_client;
mod args;
mod baseline;
mod bundle;
mod command_line;
mod commands;
mod exit;
mod find_max;
mod flag_settings;
mod fleet_store;
mod http_listener;
mod input_files;
mod installed_python;
mod loaded_scenario;
mod loadpilot_plan;
mod local_fleet_state;
mod logs;
mod offered_scenarios;
mod open_file_limit;
mod output_file;
mod preset_flags;
mod prometheus;
mod run_history;
mod run_input;
mod run_settings;
mod scenario_choice;
mod scenario_picker;
mod script_error;
mod script_host;
mod secret_value;
mod signals;
mod stop_button;
mod terminal;
mod tick;
mod worker_health;

use clap::Parser;
use std::ffi::OsString;

pub use loaded_scenario::{DriverMaker, LoadedScenario, ProcessCommands, ScriptScenario};
pub use script_error::{ScriptError, ScriptKind};
pub use script_host::{ScenarioParam, ScriptDescription, ScriptHost, ScriptOptions};
pub use squall_web::MakeResource;
pub use squall_worker::{HookError, ScenarioHooks};

/// Prints a line on standard error during a run. Does not wait for its reader.
pub fn print_notice(line: &str) {
    terminal::print_stderr(format!("{line}\n"));
}

/// Runs one command line, program name included, and returns the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    main_with(arguments.clone(), &installed_python::InstalledPython { arguments })
}

/// Runs one command line inside the interpreter of `host`, whose scripts it can run.
pub fn main_with<H: ScriptHost>(arguments: impl IntoIterator<Item = OsString>, host: &H) -> u8 {
    let expanded = match preset_flags::expand(arguments.into_iter().collect()) {
        Ok(expanded) => expanded,
        Err(error) => {
            let code = exit::report(&error);
            terminal::background_writer::flush_stderr();
            return code;
        }
    };
    let (arguments, origins) = (expanded.words, expanded.origins);
    let raw_args: Vec<String> = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    #[cfg(feature = "cql")]
    let arguments = args::move_cql_flags(arguments);
    let mut command = match args::Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command,
        Err(error) => {
            let sources = preset_flags::name_sources(&error.to_string(), &origins);
            let code = exit::report_parse_error(&args::add_suggestion(error, &raw_args));
            terminal::print_stderr(sources);
            terminal::background_writer::flush_stderr();
            return code;
        }
    };
    match &mut command {
        args::CliCommand::Run(run) => (run.raw_args, run.origins) = (raw_args, origins.clone()),
        args::CliCommand::Test { command: args::TestCommand::Start(start) } => start.run.raw_args = raw_args,
        #[cfg(feature = "cql")]
        args::CliCommand::Cql(cql) => cql.raw_args = raw_args,
        _ => {}
    }
    open_file_limit::raise_open_file_limit();
    let code = commands::dispatch(command, host).unwrap_or_else(|error| {
        let code = exit::report(&error);
        terminal::print_stderr(preset_flags::name_sources(&error.to_string(), &origins));
        code
    });
    terminal::background_writer::flush_stderr();
    code
}
