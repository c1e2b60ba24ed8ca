//! A file that is written at the end of a run: reserved at the start, replaced in one step. `-` is standard output; devices and
//! pipes are written in place.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{exit::Refusal, terminal::print};

/// A place that was found to be writable.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Stdout,
    /// A device or pipe.
    InPlace(File),
    /// A file beside the final one, to be renamed. It is there only while it is written: a run that is killed leaves nothing.
    Beside(PathBuf),
}

impl OutputFile {
    /// Makes sure that `path` can be written later.
    pub(crate) fn open(path: &Path) -> Result<OutputFile, Refusal> {
        let way = if path == Path::new("-") { Ok(Way::Stdout) } else { Way::to(path) };
        let way = way.map_err(|error| Refusal::file("write", path, &error))?;
        Ok(OutputFile { path: path.to_owned(), way })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.way, Way::Stdout)
    }

    /// Writes the whole content; the older file, if there was one, is gone only after that.
    pub(crate) fn replace_with(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let written = match &mut self.way {
            Way::Stdout => return print::stdout(bytes),
            Way::InPlace(file) => file.write_all(bytes),
            Way::Beside(temporary) => {
                let moved = fs::write(&*temporary, bytes).and_then(|()| fs::rename(&*temporary, &self.path));
                if moved.is_err() {
                    let _ = fs::remove_file(temporary);
                }
                moved
            }
        };
        written.map_err(|error| Refusal::file("write", &self.path, &error))
    }
}

impl Way {
    fn to(path: &Path) -> io::Result<Way> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Ok(Way::InPlace(OpenOptions::new().write(true).open(path)?)),
            Ok(found) if found.permissions().readonly() => return Err(io::ErrorKind::PermissionDenied.into()),
            _ => {}
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
        // Only to see that it can be done.
        File::create(&temporary)?;
        fs::remove_file(&temporary)?;
        Ok(Way::Beside(temporary))
    }
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
        file.replace_with(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        assert!(OutputFile::open(folder.path()).is_err());
        assert!(OutputFile::open(&folder.path().join("missing/result.json")).is_err());
    }

    #[test]
    fn devices_are_written_in_place() {
        OutputFile::open(Path::new("/dev/null")).unwrap().replace_with(b"x").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().permissions().mode() & 0o666 == 0o666);
    }

    use std::os::unix::fs::PermissionsExt;
}
