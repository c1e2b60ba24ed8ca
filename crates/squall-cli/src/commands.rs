//! One file per command; here only which is called.

mod compare;
mod completions;
mod down;
mod new;
mod orchestrator;
pub(crate) mod run;
mod stream;
mod target;
mod test;
mod up;
mod worker;

use crate::{args::Command, exit::Refusal, program::Host};

/// Runs `command` and gives the exit code.
pub(crate) fn dispatch<H: Host>(command: Command, host: &H) -> Result<u8, Refusal> {
    match command {
        Command::Run(args) => run::run(*args, host),
        Command::Compare(args) => compare::compare(&args),
        Command::Target(args) => target::serve(&args),
        Command::New(args) => new::scaffold(&args),
        Command::Worker(args) => worker::work(&args, host),
        Command::Orchestrator(args) => orchestrator::serve(&args, host),
        Command::Test { command } => test::test(command, host),
        Command::Up(args) => up::up(&args, host),
        Command::Down(_) => down::down(),
        Command::Stream { command } => stream::run(command, host),
        Command::Completions(args) => completions::print(&args),
    }
}
