//! The scenario's view of the outside while it is read: files that it names and environment variables. Nothing is read through
//! it once a run has started.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Where referenced files and environment variables come from.
pub trait Files {
    /// The whole of the file that the scenario calls `path`.
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>>;

    /// Where that file is, for those who must open it themselves.
    fn locate(&self, path: &str) -> PathBuf {
        PathBuf::from(path)
    }

    /// An environment variable.
    fn env(&mut self, name: &str) -> Option<String>;
}

/// The real ones; relative paths start at a folder.
#[derive(Debug, Clone)]
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// Relative to the folder that holds `scenario`.
    pub fn beside(scenario: &Path) -> Disk {
        Disk { folder: scenario.parent().unwrap_or(Path::new("")).to_owned() }
    }

    /// Relative to the working directory.
    pub fn here() -> Disk {
        Disk { folder: PathBuf::new() }
    }
}

impl Files for Disk {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.locate(path))
    }

    fn locate(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    fn env(&mut self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// No files and no environment, for tests and fuzzing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&mut self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn env(&mut self, _: &str) -> Option<String> {
        None
    }
}
