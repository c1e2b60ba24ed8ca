//! `squall stream`: passes the subcommand to squall-streams, and what needs a Python app to the script
//! host: `worker`, and `send` and `sendmany` to MODULE:STREAM.

use squall_streams::cli::{self, StreamCommand};
use std::process::ExitCode;

use crate::{
    exit::{BREACHED, CliError, PASSED, error_chain},
    script_host::ScriptHost,
};

pub(crate) fn run<H: ScriptHost>(command: StreamCommand, host: &H) -> Result<u8, CliError> {
    if let StreamCommand::Worker(args) = &command {
        return Ok(host.run_stream_worker(args)?);
    }
    if let Some(send) = command.app_stream_send().map_err(|error| CliError::new(error_chain(&error)))? {
        return Ok(host.send_to_stream(&send)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::new(format!("cannot start a runtime: {error}")))?;
    let stream_error = |error: cli::StreamCommandError| match error.is_unreachable() {
        true => CliError::unreachable(error_chain(&error)),
        false => CliError::new(error_chain(&error)),
    };
    let code = runtime.block_on(cli::run(command)).map_err(stream_error)?;
    Ok(if code == ExitCode::SUCCESS { PASSED } else { BREACHED })
}
