//! Exit codes, and the error that ends a command. Decides no verdict: squall-report does. Used by
//! every command; docs/exit-codes.md lists the codes for users.

use squall_engine::{DriverError, EngineError};
pub(crate) use squall_model::error_chain;
use squall_orchestrator::RunError;
use std::fmt;

use crate::{script_error::ScriptError, terminal};

/// The run passed.
pub(crate) const PASSED: u8 = 0;
/// A threshold was breached, nothing was measured, or a run is significantly slower than another.
pub(crate) const BREACHED: u8 = 1;
/// Invalid usage or scenario, or a file that cannot be read or written.
pub(crate) const USAGE: u8 = 2;
/// The target, the store or the API could not be reached.
pub(crate) const UNREACHABLE: u8 = 3;
/// The generator did not make the planned load.
pub(crate) const SCHEDULE_MISSED: u8 = 4;
/// The user stopped the run.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command ends: a message for the user and an exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    message: String,
}

impl CliError {
    pub(crate) fn new(message: impl Into<String>) -> CliError {
        CliError { code: USAGE, message: message.into() }
    }

    /// The target, the store or the API does not respond.
    pub(crate) fn unreachable(message: impl Into<String>) -> CliError {
        CliError { code: UNREACHABLE, message: message.into() }
    }

    /// The user stopped the command while it prepared its run.
    pub(crate) fn stopped_before_start() -> CliError {
        CliError { code: INTERRUPTED, message: RunError::StoppedBeforeStart.to_string() }
    }

    /// An error of a file: `cannot read shop.toml: no such file`.
    pub(crate) fn file_error(verb: &str, path: &std::path::Path, error: &std::io::Error) -> CliError {
        CliError::new(format!("cannot {verb} {}: {error}", path.display()))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ScriptError> for CliError {
    fn from(error: ScriptError) -> CliError {
        CliError::new(error_chain(&error))
    }
}

impl From<RunError> for CliError {
    fn from(error: RunError) -> CliError {
        let message = error_chain(&error);
        match error {
            RunError::Engine(EngineError::Driver(DriverError::Unreachable { .. })) => CliError::unreachable(message),
            RunError::StoppedBeforeStart => CliError::stopped_before_start(),
            _ => CliError::new(message),
        }
    }
}

/// Prints the error and returns its exit code.
pub(crate) fn report(error: &CliError) -> u8 {
    terminal::print_stderr(format!("squall: {error}\n"));
    error.code
}

/// Prints an error of clap, which may be help or a version, and returns its exit code.
pub(crate) fn report_parse_error(error: &clap::Error) -> u8 {
    // Fails only if the output is closed; then nothing can be printed.
    let _ = error.print();
    if error.use_stderr() { USAGE } else { PASSED }
}
