//! The `squall` command: arguments → configuration → wiring → exit code. Wires the other rooms together and shows what they say;
//! computes no load, no statistics and no verdict of its own.

// The futures of a fleet on a Redis cluster are deeply nested.
#![recursion_limit = "256"]

mod any_driver;
mod api;
mod args;
mod baseline;
mod bundle;
mod command_line;
mod commands;
mod descriptors;
mod exit;
mod find_max;
mod fleet_store;
mod listener;
mod logs;
mod output_file;
mod picker;
mod program;
mod prometheus;
mod seed_plan;
mod settings;
mod signals;
mod stop;
mod subject;
mod terminal;
mod tick;
mod up_state;
mod worker_health;

use clap::Parser;
use std::ffi::OsString;

pub use program::{Host, Hosted, Member, Param, Processes, Program, Script};
pub use squall_worker::Hooks;

/// Runs one command line, program name included, and gives the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    main_with(arguments.clone(), &program::InstalledPython { arguments })
}

/// Runs one command line with a host for scenarios in its language: the same program inside another interpreter.
pub fn main_with<H: Host>(arguments: impl IntoIterator<Item = OsString>, host: &H) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let words = arguments.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut command = match args::Cli::try_parse_from(arguments) {
        Ok(cli) => cli.command,
        Err(error) => return exit::of_parsing(&error),
    };
    match &mut command {
        args::Command::Run(run) => run.words = words,
        args::Command::Test { command: args::TestCommand::Start(start) } => start.run.words = words,
        _ => {}
    }
    descriptors::allow_all();
    let code = commands::dispatch(command, host).unwrap_or_else(|refusal| exit::report(&refusal));
    terminal::speech::settle();
    code
}
