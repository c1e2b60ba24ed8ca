//! Writing to standard output, to the end. A reader that has gone away (`| head`) is no error.

use std::{io::ErrorKind, time::Duration};

use super::speech;
use crate::exit::Refusal;

/// Writes all of `bytes`, however long that takes.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), Refusal> {
    stdout_within(bytes, None)
}

/// The same, for no longer than `patience`.
pub(crate) fn stdout_within(bytes: &[u8], patience: Option<Duration>) -> Result<(), Refusal> {
    let speech = speech::stdout();
    match speech.say(bytes).and_then(|()| speech.settle(patience)) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Refusal::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
