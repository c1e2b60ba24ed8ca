//! Dispatches to the commands; each has a file of its own. Called by `lib.rs`.

mod compare;
mod completions;
#[cfg(feature = "cql")]
mod cql;
mod down;
mod new;
mod orchestrator;
pub(crate) mod run;
mod stream;
mod target;
mod test;
mod up;
mod worker;

use crate::{args::CliCommand, exit::CliError, script_host::ScriptHost};

/// Runs `command` and returns the exit code.
pub(crate) fn dispatch<H: ScriptHost>(command: CliCommand, host: &H) -> Result<u8, CliError> {
    match command {
        CliCommand::Run(args) => run::run(*args, host),
        CliCommand::Compare(args) => compare::compare(&args),
        CliCommand::Target(args) => target::serve(&args),
        CliCommand::New(args) => new::scaffold(&args),
        CliCommand::Worker(args) => worker::run_worker(&args, host),
        CliCommand::Orchestrator(args) => orchestrator::serve(&args, host),
        CliCommand::Test { command } => test::test(command, host),
        CliCommand::Up(args) => up::up(&args, host),
        CliCommand::Down(_) => down::down(),
        CliCommand::Stream { command } => stream::run(command, host),
        #[cfg(feature = "cql")]
        CliCommand::Cql(args) => cql::cql(&args),
        CliCommand::Completions(args) => completions::print(&args),
    }
}
