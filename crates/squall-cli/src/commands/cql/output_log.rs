//! Where `squall cql` prints: standard output or the file of `-log file=`. It formats nothing.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    exit::CliError,
    terminal::{background_writer, print},
};

/// The destination of table and summary. Writing never blocks the run on a slow terminal.
pub(super) enum OutputLog {
    Stdout,
    File { path: PathBuf, file: File },
}

impl OutputLog {
    pub(super) fn open(path: Option<&Path>) -> Result<OutputLog, CliError> {
        let Some(path) = path else { return Ok(OutputLog::Stdout) };
        Ok(OutputLog::File { path: path.to_owned(), file: create(path)? })
    }

    /// Prints one line.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.text(&format!("{text}\n"))
    }

    /// Prints whole lines.
    pub(super) fn text(&mut self, text: &str) -> Result<(), CliError> {
        match self {
            // `finish` reports a failure; a closed pipe is none.
            OutputLog::Stdout => {
                let _ = background_writer::stdout().enqueue(text);
                Ok(())
            }
            OutputLog::File { path, file } => {
                file.write_all(text.as_bytes()).map_err(|error| CliError::file_error("write", path, &error))
            }
        }
    }

    /// Waits until everything is written.
    pub(super) fn finish(&mut self) -> Result<(), CliError> {
        match self {
            OutputLog::Stdout => print::stdout(b""),
            OutputLog::File { .. } => Ok(()),
        }
    }
}

/// The HdrHistogram log of `-log hdrfile=`.
pub(super) struct HdrLog {
    path: PathBuf,
    file: io::BufWriter<File>,
}

impl HdrLog {
    pub(super) fn create(path: &Path) -> Result<HdrLog, CliError> {
        Ok(HdrLog { path: path.to_owned(), file: io::BufWriter::new(create(path)?) })
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), CliError> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        written.map_err(|error| CliError::file_error("write", &self.path, &error))
    }
}

fn create(path: &Path) -> Result<File, CliError> {
    File::create(path).map_err(|error| CliError::file_error("write", path, &error))
}
