//! `squall completions`: a script for the user's shell.

use clap::CommandFactory;

use crate::{
    args::{Cli, CompletionsArgs},
    exit::{PASSED, Refusal},
    terminal::print,
};

pub(crate) fn print(args: &CompletionsArgs) -> Result<u8, Refusal> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "squall", &mut script);
    print::stdout(&script)?;
    Ok(PASSED)
}
