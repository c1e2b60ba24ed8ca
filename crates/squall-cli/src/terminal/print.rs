//! Writes to standard output and waits until everything is written. A closed pipe (`| head`) is not
//! an error.

use std::{io::ErrorKind, time::Duration};

use super::background_writer;
use crate::exit::CliError;

/// Writes all of `bytes`, without a time limit.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), CliError> {
    stdout_within(bytes, None)
}

/// Writes all of `bytes` within `timeout`.
pub(crate) fn stdout_within(bytes: &[u8], timeout: Option<Duration>) -> Result<(), CliError> {
    let writer = background_writer::stdout();
    match writer.enqueue(bytes).and_then(|()| writer.flush(timeout)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
