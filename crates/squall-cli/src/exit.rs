//! Exit codes, and how a command that cannot go on says so. docs/exit-codes.md is the list for people.

pub(crate) use squall_model::error_chain;
use std::fmt;

use crate::terminal;

/// Everything was as promised.
pub(crate) const PASSED: u8 = 0;
/// A significant regression, or a promise that was not kept.
pub(crate) const BREACHED: u8 = 1;
/// Usage, an invalid scenario, or a file that cannot be read or written.
pub(crate) const USAGE: u8 = 2;
/// The target could not be reached at all.
pub(crate) const UNREACHABLE: u8 = 3;
/// The generator could not make the load.
pub(crate) const GENERATOR_TOO_SLOW: u8 = 4;
/// A person stopped it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command stops: one message for people, and a code.
#[derive(Debug)]
pub(crate) struct CliError {
    code: u8,
    message: String,
}

impl CliError {
    pub(crate) fn new(message: impl Into<String>) -> CliError {
        CliError { code: USAGE, message: message.into() }
    }

    /// There was nobody to talk to.
    pub(crate) fn unreachable(message: impl Into<String>) -> CliError {
        CliError { code: UNREACHABLE, message: message.into() }
    }

    /// A file that cannot be used: `cannot read shop.toml: no such file`.
    pub(crate) fn file_error(verb: &str, path: &std::path::Path, error: &std::io::Error) -> CliError {
        CliError::new(format!("cannot {verb} {}: {error}", path.display()))
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints why and gives the code for it.
pub(crate) fn report(refusal: &CliError) -> u8 {
    terminal::print_stderr(format!("squall: {refusal}\n"));
    refusal.code
}

/// Prints what clap has to say (help and versions too) and gives the code for it.
pub(crate) fn report_parse_error(error: &clap::Error) -> u8 {
    // The reader of a pipe may be gone; then there is nobody to tell.
    let _ = error.print();
    if error.use_stderr() { USAGE } else { PASSED }
}
