//! `squall stream`: hands the subcommand to the streams room.

use squall_streams::cli::{self, StreamCommand};
use std::process::ExitCode;

use crate::{
    exit::{BREACHED, PASSED, Refusal, error_chain},
    program::Host,
};

pub(crate) fn run<H: Host>(command: StreamCommand, host: &H) -> Result<u8, Refusal> {
    if let StreamCommand::Worker(args) = &command {
        return host.work(args).map_err(Refusal::new);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?;
    let refuse = |error: cli::CliError| match error.unreachable() {
        true => Refusal::unreachable(error_chain(&error)),
        false => Refusal::new(error_chain(&error)),
    };
    let code = runtime.block_on(cli::run(command)).map_err(refuse)?;
    Ok(if code == ExitCode::SUCCESS { PASSED } else { BREACHED })
}
