//! The scenario's view of the outside while it is read: files that it names and environment variables. Nothing is read through
//! it once a run has started.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// Where referenced files and environment variables come from.
pub trait ScenarioFiles {
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
pub struct DiskFiles {
    folder: PathBuf,
}

impl DiskFiles {
    /// Relative to the folder that holds `scenario`.
    pub fn relative_to_scenario(scenario: &Path) -> DiskFiles {
        DiskFiles { folder: scenario.parent().unwrap_or(Path::new("")).to_owned() }
    }

    /// Relative to the working directory.
    pub fn relative_to_working_dir() -> DiskFiles {
        DiskFiles { folder: PathBuf::new() }
    }
}

impl ScenarioFiles for DiskFiles {
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

impl ScenarioFiles for NoFiles {
    fn read(&mut self, _: &str) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn env(&mut self, _: &str) -> Option<String> {
        None
    }
}

/// Remembers everything that is asked for, so that it can travel with the scenario.
#[derive(Debug)]
pub struct RecordingFiles<F> {
    files: F,
    recorded_files: RefCell<BTreeMap<String, Vec<u8>>>,
    recorded_env: BTreeMap<String, String>,
}

impl<F: ScenarioFiles> RecordingFiles<F> {
    pub fn new(files: F) -> RecordingFiles<F> {
        RecordingFiles { files, recorded_files: RefCell::default(), recorded_env: BTreeMap::new() }
    }

    /// The files and the variables that were there, by the names they were asked for.
    pub fn into_parts(self) -> (BTreeMap<String, Vec<u8>>, BTreeMap<String, String>) {
        (self.recorded_files.into_inner(), self.recorded_env)
    }
}

impl<F: ScenarioFiles> ScenarioFiles for RecordingFiles<F> {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let bytes = self.files.read(path)?;
        self.recorded_files.borrow_mut().insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }

    fn locate(&self, path: &str) -> PathBuf {
        let place = self.files.locate(path);
        // A socket, or nothing: whoever opens it says so better.
        if let Ok(bytes) = std::fs::read(&place) {
            self.recorded_files.borrow_mut().insert(path.to_owned(), bytes);
        }
        place
    }

    fn env(&mut self, name: &str) -> Option<String> {
        let value = self.files.env(name)?;
        self.recorded_env.insert(name.to_owned(), value.clone());
        Some(value)
    }
}

/// What has travelled with a scenario, unpacked. Nothing else is to be had: a scenario means the same on every machine.
#[derive(Debug, Clone, Default)]
pub struct BundledFiles {
    /// Where each file lies now.
    pub files: BTreeMap<String, PathBuf>,
    pub env: BTreeMap<String, String>,
}

impl ScenarioFiles for BundledFiles {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.files.get(path).ok_or(io::ErrorKind::NotFound)?)
    }

    fn locate(&self, path: &str) -> PathBuf {
        self.files.get(path).cloned().unwrap_or_else(|| PathBuf::from(path))
    }

    fn env(&mut self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }
}
