//! An output file: checked at the start of a run, replaced in one step at its end. `-` is standard
//! output; devices and pipes are written in place. Renders nothing. The outputs of `squall run` and
//! `--find-max` call it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    exit::CliError,
    terminal::{self, WAIT_NOTICE_DELAY, background_writer::BackgroundWriter, print},
};

/// An output that can be written.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    destination: OutputDestination,
}

#[derive(Debug)]
enum OutputDestination {
    Stdout,
    /// A device.
    InPlace(File),
    Fifo,
    /// A temporary file in the same folder, renamed to the final one. It exists only during the
    /// write, so a killed run leaves nothing behind.
    AtomicReplace {
        temporary: PathBuf,
        final_path: PathBuf,
    },
}

/// A named pipe. It is opened at the first write, because opening waits for a reader.
#[derive(Debug)]
pub(crate) struct FifoWriter {
    path: PathBuf,
    file: Option<File>,
}

impl FifoWriter {
    pub(crate) fn new(path: &Path) -> FifoWriter {
        FifoWriter { path: path.to_owned(), file: None }
    }

    /// Whether `path` is a named pipe.
    pub(crate) fn is_fifo(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
    }
}

impl Write for FifoWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            file => file.insert(OpenOptions::new().write(true).open(&self.path)?).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl OutputFile {
    /// Checks that `path` can be written.
    pub(crate) fn open(path: &Path) -> Result<OutputFile, CliError> {
        let destination =
            if path == Path::new("-") { Ok(OutputDestination::Stdout) } else { OutputDestination::resolve(path) };
        let destination = destination.map_err(|error| CliError::file_error("write", path, &error))?;
        Ok(OutputFile { path: path.to_owned(), destination })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.destination, OutputDestination::Stdout)
    }

    /// Whether writing cannot block on a reader, as a pipe would.
    pub(crate) fn is_regular_file(&self) -> bool {
        matches!(self.destination, OutputDestination::AtomicReplace { .. })
    }

    /// Writes the whole content. An existing file is replaced only after that. The reader of a pipe or of
    /// standard output is awaited for `timeout`, or without a limit.
    pub(crate) fn replace_with(&mut self, bytes: &[u8], timeout: Option<Duration>) -> Result<(), CliError> {
        let written = match &mut self.destination {
            OutputDestination::Stdout => return print::stdout_within(bytes, timeout),
            OutputDestination::InPlace(file) => file.write_all(bytes),
            OutputDestination::Fifo => write_to_fifo(&self.path, bytes, timeout),
            OutputDestination::AtomicReplace { temporary, final_path } => {
                let replaced = fs::write(&*temporary, bytes).and_then(|()| fs::rename(&*temporary, &*final_path));
                if replaced.is_err() {
                    let _ = fs::remove_file(temporary);
                }
                replaced
            }
        };
        written.map_err(|error| CliError::file_error("write", &self.path, &error))
    }
}

impl OutputDestination {
    fn resolve(path: &Path) -> io::Result<OutputDestination> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if found.file_type().is_fifo() => {
                return Ok(OutputDestination::Fifo);
            }
            Ok(found) if !found.is_file() => {
                return Ok(OutputDestination::InPlace(OpenOptions::new().write(true).open(path)?));
            }
            Ok(found) if found.permissions().readonly() => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => {}
        }
        let final_path = resolve_links(path)?;
        let name = final_path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let temporary = final_path.with_file_name(format!(".{name}.{}", std::process::id()));
        // Tests that the folder is writable.
        File::create(&temporary)?;
        fs::remove_file(&temporary)?;
        Ok(OutputDestination::AtomicReplace { temporary, final_path })
    }
}

/// Writes on another thread, because neither opening a pipe without a reader nor writing to a full one has
/// a time limit. Names the pipe if its reader is late.
fn write_to_fifo(path: &Path, bytes: &[u8], timeout: Option<Duration>) -> io::Result<()> {
    let writer = BackgroundWriter::spawn(FifoWriter::new(path));
    writer.enqueue(bytes)?;
    match writer.flush(Some(WAIT_NOTICE_DELAY)) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            let limit = timeout.map_or_else(String::new, |limit| format!(" up to {} s", limit.as_secs()));
            let path = path.display();
            terminal::print_stderr(format!(
                "waiting{limit} for a reader of {path}; Ctrl-C ends the wait, and {path} gets nothing\n"
            ));
            writer.flush(timeout)
        }
        flushed => flushed,
    }
}

/// Follows links, also to a file that does not exist yet, so that the link itself is kept.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    // Linux follows 40 links.
    for _ in 0..40 {
        match fs::read_link(&place) {
            Ok(next) => place = place.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("too many links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_file_stays_until_the_new_content_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let mut file = OutputFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file exists before the write");
        file.replace_with(b"new", None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file is left");
    }

    #[test]
    fn link_is_kept_and_its_target_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("kept")).unwrap();
        for (link, file) in [("link", "kept/real.json"), ("dangling", "kept/new.json"), ("twice", "link")] {
            std::os::unix::fs::symlink(file, at(link)).unwrap();
        }
        for (link, file) in [("link", "kept/real.json"), ("dangling", "kept/new.json"), ("twice", "kept/real.json")] {
            OutputFile::open(&at(link)).unwrap().replace_with(link.as_bytes(), None).unwrap();
            assert_eq!(fs::read_to_string(at(file)).unwrap(), link);
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
        }
        assert_eq!(fs::read_dir(at("kept")).unwrap().count(), 2, "a temporary file is left");
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        assert!(OutputFile::open(&at("round")).is_err());
    }

    #[test]
    fn path_that_cannot_be_written_is_refused_when_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert!(OutputFile::open(folder.path()).is_err());
        assert!(OutputFile::open(&folder.path().join("missing/result.json")).is_err());
    }

    #[test]
    fn devices_are_written_in_place() {
        OutputFile::open(Path::new("/dev/null")).unwrap().replace_with(b"x", None).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().permissions().mode() & 0o666 == 0o666);
    }

    use std::os::unix::fs::PermissionsExt;
}
