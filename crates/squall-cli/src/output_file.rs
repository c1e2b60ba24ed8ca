//! A file that is written at the end of a run: reserved at the start, replaced in one step. `-` is standard output; devices and
//! pipes are written in place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{exit::CliError, terminal::print};

/// A place that was found to be writable.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    destination: OutputDestination,
}

#[derive(Debug)]
enum OutputDestination {
    Stdout,
    /// A device or pipe.
    InPlace(File),
    /// A file beside the final one, to be renamed. It is there only while it is written: a run that is killed leaves nothing.
    AtomicReplace {
        temporary: PathBuf,
        final_path: PathBuf,
    },
}

impl OutputFile {
    /// Makes sure that `path` can be written later.
    pub(crate) fn open(path: &Path) -> Result<OutputFile, CliError> {
        let way = if path == Path::new("-") { Ok(OutputDestination::Stdout) } else { OutputDestination::resolve(path) };
        let way = way.map_err(|error| CliError::file_error("write", path, &error))?;
        Ok(OutputFile { path: path.to_owned(), destination: way })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.destination, OutputDestination::Stdout)
    }

    /// Whether it can be written without anybody reading it.
    pub(crate) fn is_regular_file(&self) -> bool {
        matches!(self.destination, OutputDestination::AtomicReplace { .. })
    }

    /// Writes the whole content; the older file, if there was one, is gone only after that.
    pub(crate) fn replace_with(&mut self, bytes: &[u8], patience: Option<Duration>) -> Result<(), CliError> {
        let written = match &mut self.destination {
            OutputDestination::Stdout => return print::stdout_within(bytes, patience),
            OutputDestination::InPlace(file) => file.write_all(bytes),
            OutputDestination::AtomicReplace { temporary, final_path: place } => {
                let moved = fs::write(&*temporary, bytes).and_then(|()| fs::rename(&*temporary, &*place));
                if moved.is_err() {
                    let _ = fs::remove_file(temporary);
                }
                moved
            }
        };
        written.map_err(|error| CliError::file_error("write", &self.path, &error))
    }
}

impl OutputDestination {
    fn resolve(path: &Path) -> io::Result<OutputDestination> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => {
                return Ok(OutputDestination::InPlace(OpenOptions::new().write(true).open(path)?));
            }
            Ok(found) if found.permissions().readonly() => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => {}
        }
        let place = resolve_links(path)?;
        let name = place.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let temporary = place.with_file_name(format!(".{name}.{}", std::process::id()));
        // Only to see that it can be done.
        File::create(&temporary)?;
        fs::remove_file(&temporary)?;
        Ok(OutputDestination::AtomicReplace { temporary, final_path: place })
    }
}

/// Where a path leads: a link is written through, also one to a file that is not there yet.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    // As many as Linux follows.
    let mut place = path.to_owned();
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
    fn an_older_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let mut file = OutputFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a run that is killed here leaves nothing behind");
        file.replace_with(b"new", None).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_link_is_written_through() {
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
        assert_eq!(fs::read_dir(at("kept")).unwrap().count(), 2, "nothing is left over");
        std::os::unix::fs::symlink("round", at("round")).unwrap();
        assert!(OutputFile::open(&at("round")).is_err());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
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
