//! Access to the files and environment variables that a scenario names, while it is read. Nothing is read
//! through it once the run has started. The command line chooses the implementation, and reads the files
//! that its arguments name by the same rules.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// The largest file that a scenario reads. A body is sent from memory, and data is kept in memory.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
enum RefusedFileError {
    #[error("it is not a regular file but a folder, a pipe or a device")]
    NotRegular,
    #[error("it has more than {} MiB", MAX_FILE_BYTES >> 20)]
    TooLarge,
}

impl From<RefusedFileError> for io::Error {
    fn from(refused: RefusedFileError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, refused)
    }
}

/// Checks that `path` is a file that ends: a device may never end, and a pipe may never begin.
pub(crate) fn check_regular_file(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    match (metadata.is_file(), metadata.len() <= MAX_FILE_BYTES) {
        (true, true) => Ok(()),
        (false, _) => Err(RefusedFileError::NotRegular.into()),
        (true, false) => Err(RefusedFileError::TooLarge.into()),
    }
}

/// Opens a file that the user names: a regular file, or an open pipe of the process as in `<(command)`. A
/// named pipe is refused, because opening it waits for a writer.
pub fn open_input_file(path: &Path) -> io::Result<File> {
    let is_open = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|prefix| path.starts_with(prefix));
    if !is_open {
        check_regular_file(path)?;
    }
    File::open(path)
}

/// Reads the text of a file that the user names, of at most 256 MiB. [`open_input_file`] says which files
/// are refused.
pub fn read_input_text(path: &Path) -> io::Result<String> {
    let bytes = read_bounded(open_input_file(path)?)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads a regular file of at most [`MAX_FILE_BYTES`].
fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    check_regular_file(path)?;
    // The length is checked again, because a file can grow and files of /proc have no length.
    read_bounded(File::open(path)?)
}

/// Reads at most [`MAX_FILE_BYTES`].
fn read_bounded(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= MAX_FILE_BYTES {
        true => Ok(bytes),
        false => Err(RefusedFileError::TooLarge.into()),
    }
}

/// Where referenced files and environment variables come from.
pub trait ScenarioFiles {
    /// The content of the file that the scenario calls `path`.
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>>;

    /// Where that file is, for code that opens it itself.
    fn locate(&self, path: &str) -> PathBuf {
        PathBuf::from(path)
    }

    /// An environment variable.
    fn env(&mut self, name: &str) -> Option<String>;
}

/// Files on disk and the process's environment. Relative paths start at a folder.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    folder: PathBuf,
    /// Whether `-` and `/dev/stdin` are standard input. Only a flag can mean the input of the process that
    /// the user started.
    reads_stdin: bool,
}

impl DiskFiles {
    /// Relative to the folder that holds `scenario`.
    pub fn relative_to_scenario(scenario: &Path) -> DiskFiles {
        DiskFiles { folder: scenario.parent().unwrap_or(Path::new("")).to_owned(), reads_stdin: false }
    }

    /// Relative to the working directory, and standard input for `-` and `/dev/stdin`.
    pub fn relative_to_working_dir() -> DiskFiles {
        DiskFiles { folder: PathBuf::new(), reads_stdin: true }
    }
}

impl ScenarioFiles for DiskFiles {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        match self.reads_stdin && matches!(path, "-" | "/dev/stdin") {
            true => read_bounded(io::stdin().lock()),
            false => read_regular_file(&self.locate(path)),
        }
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

/// Records every file and variable that is read, so that they can be bundled with the scenario.
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

    /// The files and variables that were found, by the names under which they were requested.
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
        let location = self.files.locate(path);
        // A socket or a missing file is not recorded; the code that opens it reports the error.
        if let Ok(bytes) = read_regular_file(&location) {
            self.recorded_files.borrow_mut().insert(path.to_owned(), bytes);
        }
        location
    }

    fn env(&mut self, name: &str) -> Option<String> {
        let value = self.files.env(name)?;
        self.recorded_env.insert(name.to_owned(), value.clone());
        Some(value)
    }
}

/// The unpacked files and variables of a bundle. Nothing else can be read, so that a scenario is the same
/// on every machine.
#[derive(Debug, Clone, Default)]
pub struct BundledFiles {
    /// Where each file is unpacked.
    pub files: BTreeMap<String, PathBuf>,
    pub env: BTreeMap<String, String>,
}

impl ScenarioFiles for BundledFiles {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        read_regular_file(self.files.get(path).ok_or(io::ErrorKind::NotFound)?)
    }

    fn locate(&self, path: &str) -> PathBuf {
        self.files.get(path).cloned().unwrap_or_else(|| PathBuf::from(path))
    }

    fn env(&mut self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refuse(path: &Path, reason: &str) {
        let error = read_regular_file(path).expect_err(reason);
        assert!(error.to_string().contains(reason), "{}: {error}", path.display());
    }

    #[test]
    fn devices_pipes_and_folders_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let link = folder.path().join("zero");
        std::os::unix::fs::symlink("/dev/zero", &link).expect("a writable folder");
        for path in [folder.path(), Path::new("/dev/zero"), &link] {
            refuse(path, "not a regular file");
        }
    }

    #[test]
    fn input_that_does_not_end_is_refused_after_256_mib() {
        let error = read_bounded(io::repeat(0)).expect_err("it has no end");
        assert!(error.to_string().contains("more than 256 MiB"), "{error}");
    }

    #[test]
    fn file_above_256_mib_is_refused_unread() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("large");
        // Sparse, so it takes no space.
        File::create(&path).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("a writable folder");
        refuse(&path, "more than 256 MiB");
    }
}
