//! Writing to standard output, to the end. A reader that has gone away (`| head`) is no error.

use std::{io::ErrorKind, time::Duration};

use super::background_writer;
use crate::exit::CliError;

/// Writes all of `bytes`, however long that takes.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), CliError> {
    stdout_within(bytes, None)
}

/// The same, for no longer than `patience`.
pub(crate) fn stdout_within(bytes: &[u8], patience: Option<Duration>) -> Result<(), CliError> {
    let speech = background_writer::stdout();
    match speech.enqueue(bytes).and_then(|()| speech.flush(patience)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
