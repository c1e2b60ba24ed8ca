//! Dispatches to the commands; each has a file of its own. Called by `lib.rs`.

mod compare;
mod completions;
#[cfg(feature = "cql")]
mod cql;
mod down;
#[cfg(feature = "grid")]
mod grid;
mod new;
pub(crate) mod orchestrator;
mod report;
pub(crate) mod run;
mod runs;
mod stream;
mod target;
mod test;
mod ui;
mod up;
mod worker;

use crate::{args::CliCommand, exit::CliError, script_host::ScriptHost};

/// Runs `command` and returns the exit code.
pub(crate) fn dispatch<H: ScriptHost>(command: CliCommand, host: &H) -> Result<u8, CliError> {
    match command {
        CliCommand::Run(args) => run::run(*args, host),
        CliCommand::Compare(args) => compare::compare(&args),
        CliCommand::Report(args) => report::report(&args),
        CliCommand::Runs { command } => runs::runs(&command),
        CliCommand::Ui(args) => ui::ui(&args),
        CliCommand::Target(args) => target::serve(&args),
        CliCommand::New(args) => new::scaffold(&args),
        CliCommand::Worker(args) => worker::run_worker(&args, host),
        CliCommand::Orchestrator(args) => orchestrator::serve(&args, host),
        CliCommand::Test { command } => test::test(command, host),
        CliCommand::Up(args) => up::up(&args, host),
        CliCommand::Down(_) => down::down(),
        CliCommand::Stream { command } => stream::run(command, host),
        #[cfg(feature = "cql")]
        CliCommand::Cql(args) => cql::cql(*args),
        #[cfg(not(feature = "cql"))]
        CliCommand::Cql(_) => Err(left_out("cql")),
        #[cfg(feature = "grid")]
        CliCommand::Grid { command } => grid::grid(command, host.interpreter().as_deref()),
        #[cfg(not(feature = "grid"))]
        CliCommand::Grid(_) => Err(left_out("grid")),
        CliCommand::Completions(args) => completions::print(&args),
    }
}

/// `make demo` builds without these commands, because their libraries take long to compile.
#[cfg(not(all(feature = "cql", feature = "grid")))]
fn left_out(command: &str) -> CliError {
    CliError::new(format!("this squall was built without `squall {command}`; {}", squall_scenario::WHOLE_PROGRAM_HINT))
}
