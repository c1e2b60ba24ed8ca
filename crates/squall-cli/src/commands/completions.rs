//! `squall completions`: prints a completion script for a shell.

use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs},
    exit::{CliError, PASSED},
    terminal::print,
};

pub(crate) fn print(args: &CompletionsArgs) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "squall", &mut script);
    print::stdout(&script)?;
    Ok(PASSED)
}
