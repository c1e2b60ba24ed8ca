//! Writing to standard output. A reader that has gone away (`| head`) is no error.

use std::io::{ErrorKind, Write};

use crate::exit::Refusal;

/// Writes all of `bytes`.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), Refusal> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Refusal::new(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
