//! `squall stream`: hands the subcommand to the streams room.

use squall_streams::cli::{self, StreamCommand};
use std::process::ExitCode;

use crate::exit::{BREACHED, PASSED, Refusal, chain};

pub(crate) fn run(command: StreamCommand) -> Result<u8, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::new(format!("cannot start a runtime: {error}")))?;
    let code = runtime.block_on(cli::run(command)).map_err(|error| Refusal::new(chain(&error)))?;
    Ok(if code == ExitCode::SUCCESS { PASSED } else { BREACHED })
}
