//! Where `squall cql` prints its table and summary: standard output, or the file of `-log file=`. It
//! formats nothing.

use std::{
    fs::File,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use crate::{
    exit::CliError,
    terminal::{self, background_writer, print},
};

/// The destination of table and summary. Writing never blocks the run on a slow terminal.
pub(super) struct OutputLog {
    destination: Destination,
    /// What was printed since `hold`, while the dashboard uses the terminal.
    held: Option<String>,
}

enum Destination {
    Stdout,
    /// Standard output carries an output.
    Stderr,
    File {
        path: PathBuf,
        file: File,
    },
    /// `--quiet`.
    Nowhere,
}

/// What decides where the log goes if `-log file=` does not.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogPlace {
    pub(super) quiet: bool,
    /// Whether standard output carries an output, such as `--json -`.
    pub(super) stdout_is_taken: bool,
}

impl OutputLog {
    pub(super) fn open(path: Option<&Path>, place: LogPlace) -> Result<OutputLog, CliError> {
        let destination = match path {
            Some(path) => Destination::File { path: path.to_owned(), file: create(path)? },
            None if place.quiet => Destination::Nowhere,
            None if place.stdout_is_taken => Destination::Stderr,
            None => Destination::Stdout,
        };
        Ok(OutputLog { destination, held: None })
    }

    /// Keeps lines for the terminal back until `release`, because they would disturb the dashboard.
    pub(super) fn hold(&mut self) {
        let on_terminal = match self.destination {
            Destination::Stdout => io::stdout().is_terminal(),
            Destination::Stderr => true,
            Destination::File { .. } | Destination::Nowhere => false,
        };
        self.held = on_terminal.then(String::new);
    }

    /// Prints what was kept back.
    pub(super) fn release(&mut self) -> Result<(), CliError> {
        self.held.take().map_or(Ok(()), |text| self.text(&text))
    }

    /// Prints one line.
    pub(super) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.text(&format!("{text}\n"))
    }

    /// Prints whole lines.
    pub(super) fn text(&mut self, text: &str) -> Result<(), CliError> {
        if let Some(held) = &mut self.held {
            held.push_str(text);
            return Ok(());
        }
        match &mut self.destination {
            // `finish` reports a failure; a closed pipe is none.
            Destination::Stdout => {
                let _ = background_writer::stdout().enqueue(text);
            }
            Destination::Stderr => terminal::print_stderr(text),
            Destination::File { path, file } => {
                let written = file.write_all(text.as_bytes());
                written.map_err(|error| CliError::file_error("write", path, &error))?;
            }
            Destination::Nowhere => {}
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(super) fn finish(&mut self) -> Result<(), CliError> {
        match self.destination {
            Destination::Stdout => print::stdout(b""),
            Destination::Stderr | Destination::File { .. } | Destination::Nowhere => Ok(()),
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
