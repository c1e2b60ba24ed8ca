//! The folder: writes files in one step, reads each file again only if it has changed, and removes the
//! oldest runs when the folder is full.

use squall_report::ResultFile;
use std::{
    collections::{HashMap, hash_map::RandomState},
    fs::{self, File, Metadata, OpenOptions},
    hash::BuildHasher,
    io::{self, ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::{FindRunError, ReadRunError, RunEntry, RunId, RunList, SaveRunError, SkippedFile, WriteNoteError};

/// The size of all results that this crate keeps in a folder, unless the caller gives another.
pub const DEFAULT_LIMIT_BYTES: u64 = 512 << 20;
/// The longest note.
pub const MAX_NOTE_BYTES: usize = 4 << 10;

const RESULT_ENDING: &str = ".json";
const NOTE_ENDING: &str = ".note.txt";
/// What a fleet needs to start the run again. Not `.json`: it is not a result.
const BUNDLE_ENDING: &str = ".bundle";
/// A larger file is not a result. Reading it would fill the memory.
const MAX_RESULT_BYTES: u64 = 1 << 30;
const TOO_LARGE: &str = "larger than 1 GiB";
/// A bundle without a result is of a run that is just being saved, unless it is older than this.
const ORPHAN_AGE: Duration = Duration::from_secs(3600);
/// The word for the latest run, in place of an id.
const LATEST: &str = "latest";
/// Ids with a smaller similarity are not suggested.
const SUGGESTED_FROM: f64 = 0.7;

/// A folder of runs.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    limit_bytes: u64,
    cache: Mutex<HashMap<RunId, CachedEntry>>,
}

/// What a file contained when it was last read.
#[derive(Debug, Clone)]
struct CachedEntry {
    bytes: u64,
    modified: Option<SystemTime>,
    entry: Result<RunEntry, String>,
}

/// A run that was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedRun {
    pub id: RunId,
    pub file: PathBuf,
    /// Runs that were removed because the folder was full, the oldest first.
    pub removed: Vec<RunId>,
}

impl RunFolder {
    /// Reads and writes nothing yet. `limit_bytes` bounds the size of the results that [`save`](Self::save)
    /// leaves.
    pub fn new(path: impl Into<PathBuf>, limit_bytes: u64) -> RunFolder {
        RunFolder { path: path.into(), limit_bytes, cache: Mutex::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Creates the folder and checks that it can be written, so that a run is not made in vain.
    pub fn create(&self) -> Result<(), SaveRunError> {
        let folder_error = |cause| SaveRunError::Folder { folder: self.path.clone(), cause };
        fs::create_dir_all(&self.path).map_err(folder_error)?;
        let probe = temporary_path(&self.path.join("probe"));
        let written = File::create(&probe).and_then(|_| fs::remove_file(&probe));
        written.map_err(|cause| SaveRunError::Write { file: probe, cause })
    }

    /// Saves a result, then removes the oldest saved runs while all of them exceed the limit. A result
    /// that is in the folder already is left as it is.
    pub fn save(&self, result: &ResultFile) -> Result<SavedRun, SaveRunError> {
        self.save_files(result, None)
    }

    fn save_files(&self, result: &ResultFile, bundle: Option<&[u8]>) -> Result<SavedRun, SaveRunError> {
        fs::create_dir_all(&self.path).map_err(|cause| SaveRunError::Folder { folder: self.path.clone(), cause })?;
        let mut text = serde_json::to_vec(result).expect("every field has a JSON form");
        text.push(b'\n');
        let first = RunId::of(result);
        let mut id = first.clone();
        for number in 2.. {
            let file = self.result_path(&id);
            match fs::read(&file) {
                Ok(found) if found == text => break,
                Ok(_) => id = first.numbered(number),
                Err(_) => {
                    // The bundle first: the result makes the run appear.
                    if let Some(bundle) = bundle {
                        let file = self.bundle_path(&id);
                        write_private(&file, bundle).map_err(|cause| SaveRunError::Write { file, cause })?;
                    }
                    write_atomically(&file, &text).map_err(|cause| SaveRunError::Write { file, cause })?;
                    break;
                }
            }
        }
        self.remove_orphaned_bundles();
        let removed = self.remove_oldest(&id);
        Ok(SavedRun { file: self.result_path(&id), id, removed })
    }

    /// Saves a result together with the bundle of its run, by which a fleet can start it again. The
    /// bundle holds values of parameters, so only the owner can read it.
    pub fn save_with_bundle(&self, result: &ResultFile, bundle: &[u8]) -> Result<SavedRun, SaveRunError> {
        self.save_files(result, Some(bundle))
    }

    /// The bundle of a run; `None` if the run was saved without one.
    pub fn read_bundle(&self, id: &RunId) -> Result<Option<String>, ReadRunError> {
        self.get(id)?;
        let file = self.bundle_path(id);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(ReadRunError::Read { file, cause }),
        }
    }

    /// All runs, the latest first. A folder that does not exist has none.
    pub fn list(&self) -> Result<RunList, ReadRunError> {
        let mut list = RunList::default();
        let files = self.result_files()?;
        self.cache().retain(|id, _| files.iter().any(|(known, _)| known == id));
        for (id, metadata) in files {
            match self.entry(&id, &metadata) {
                Ok(mut entry) => {
                    entry.note = self.note(&id);
                    entry.can_start = self.bundle_path(&id).is_file();
                    list.runs.push(entry);
                }
                Err(reason) => list.skipped.push(SkippedFile { file: format!("{id}{RESULT_ENDING}"), reason }),
            }
        }
        list.runs.sort_by(|a, b| (b.started_unix_ms, &b.id).cmp(&(a.started_unix_ms, &a.id)));
        list.skipped.sort_by(|a, b| a.file.cmp(&b.file));
        Ok(list)
    }

    /// One run of the list.
    pub fn get(&self, id: &RunId) -> Result<RunEntry, ReadRunError> {
        let file = self.result_path(id);
        let metadata = fs::metadata(&file).ok().filter(Metadata::is_file).ok_or_else(|| self.unknown(id))?;
        match self.entry(id, &metadata) {
            Ok(entry) => Ok(RunEntry { note: self.note(id), can_start: self.bundle_path(id).is_file(), ..entry }),
            Err(_) => Err(self.read(id).err().unwrap_or_else(|| self.unknown(id))),
        }
    }

    /// The whole result of a run.
    pub fn read(&self, id: &RunId) -> Result<ResultFile, ReadRunError> {
        let file = self.result_path(id);
        let text = self.read_text(id)?;
        ResultFile::parse(&text).map_err(|cause| ReadRunError::NotAResult { file, cause })
    }

    /// The text of a result file.
    pub fn read_text(&self, id: &RunId) -> Result<String, ReadRunError> {
        let file = self.result_path(id);
        let found = fs::metadata(&file).ok().filter(Metadata::is_file).ok_or_else(|| self.unknown(id))?;
        if found.len() > MAX_RESULT_BYTES {
            return Err(ReadRunError::Read { file, cause: io::Error::other(TOO_LARGE) });
        }
        fs::read_to_string(&file).map_err(|cause| ReadRunError::Read { file, cause })
    }

    /// The run that a person means: an id, a part of one id, or `latest`.
    pub fn find(&self, word: &str) -> Result<RunId, FindRunError> {
        let runs = self.list()?.runs;
        let ids: Vec<RunId> = runs.into_iter().map(|run| run.id).collect();
        if word == LATEST {
            return ids.into_iter().next().ok_or_else(|| FindRunError::Empty { folder: self.path.clone() });
        }
        let word = word.strip_suffix(RESULT_ENDING).unwrap_or(word);
        if let Some(id) = ids.iter().find(|id| id.as_str() == word) {
            return Ok(id.clone());
        }
        let mut candidates: Vec<RunId> =
            ids.iter().filter(|id| !word.is_empty() && id.as_str().contains(word)).cloned().collect();
        match candidates.len() {
            0 => Err(FindRunError::Unknown {
                word: word.to_owned(),
                folder: self.path.clone(),
                nearest: nearest(word, &ids),
            }),
            1 => Ok(candidates.remove(0)),
            _ => Err(FindRunError::Ambiguous { word: word.to_owned(), candidates }),
        }
    }

    /// Writes a person's note on a run; an empty one removes it.
    pub fn set_note(&self, id: &RunId, note: &str) -> Result<(), WriteNoteError> {
        let note = note.trim();
        if note.len() > MAX_NOTE_BYTES {
            return Err(WriteNoteError::TooLong { length: note.len(), limit: MAX_NOTE_BYTES });
        }
        self.get(id)?;
        let file = self.note_path(id);
        let written = match note.is_empty() {
            true => remove_if_present(&file),
            false => write_atomically(&file, format!("{note}\n").as_bytes()),
        };
        written.map_err(|cause| WriteNoteError::Write { file, cause })
    }

    /// Removes a run with its note and its bundle.
    pub fn remove(&self, id: &RunId) -> Result<(), ReadRunError> {
        let file = self.result_path(id);
        match fs::remove_file(&file) {
            Ok(()) => {
                // Without its result neither is used, so one that stays does no harm.
                let _ = fs::remove_file(self.note_path(id));
                let _ = fs::remove_file(self.bundle_path(id));
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.unknown(id)),
            Err(cause) => Err(ReadRunError::Remove { file, cause }),
        }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, CachedEntry>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn result_path(&self, id: &RunId) -> PathBuf {
        self.path.join(format!("{id}{RESULT_ENDING}"))
    }

    fn note_path(&self, id: &RunId) -> PathBuf {
        self.path.join(format!("{id}{NOTE_ENDING}"))
    }

    fn bundle_path(&self, id: &RunId) -> PathBuf {
        self.path.join(format!("{id}{BUNDLE_ENDING}"))
    }

    fn unknown(&self, id: &RunId) -> ReadRunError {
        ReadRunError::Unknown { id: id.to_string(), folder: self.path.clone() }
    }

    fn note(&self, id: &RunId) -> String {
        let text = fs::read_to_string(self.note_path(id)).unwrap_or_default();
        text.trim_end().to_owned()
    }

    /// Every regular file whose name ends in `.json`, with its metadata. Hidden files are left out:
    /// results are written under such a name first.
    fn result_files(&self) -> Result<Vec<(RunId, Metadata)>, ReadRunError> {
        let folder_error = |cause| ReadRunError::Folder { folder: self.path.clone(), cause };
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(folder_error(error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(folder_error)?;
            let name = entry.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(RESULT_ENDING));
            let Some(id) = stem.and_then(RunId::new) else { continue };
            // A file may have been removed since the folder was read.
            let metadata = fs::metadata(entry.path()).ok().filter(Metadata::is_file);
            files.extend(metadata.map(|metadata| (id, metadata)));
        }
        Ok(files)
    }

    /// The entry of a file, from the cache if the file has not changed.
    fn entry(&self, id: &RunId, metadata: &Metadata) -> Result<RunEntry, String> {
        let (bytes, modified) = (metadata.len(), metadata.modified().ok());
        if let Some(known) = self.cache().get(id).filter(|known| (known.bytes, known.modified) == (bytes, modified)) {
            return known.entry.clone();
        }
        let entry = match bytes > MAX_RESULT_BYTES {
            true => Err(TOO_LARGE.to_owned()),
            false => fs::read(self.result_path(id))
                .map_err(|error| error.to_string())
                .and_then(|text| RunEntry::read(id.clone(), &text)),
        };
        self.cache().insert(id.clone(), CachedEntry { bytes, modified, entry: entry.clone() });
        entry
    }

    /// Removes old bundles that have no result, because their writer ended before it wrote the result.
    fn remove_orphaned_bundles(&self) {
        // A folder that cannot be read is not cleaned; the run is saved.
        let entries = fs::read_dir(&self.path).into_iter().flatten().filter_map(Result::ok);
        for entry in entries {
            let name = entry.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(BUNDLE_ENDING)).and_then(RunId::new);
            let Some(id) = id.filter(|id| !self.result_path(id).exists()) else { continue };
            let modified = entry.metadata().and_then(|found| found.modified());
            if modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ORPHAN_AGE)) {
                let _ = fs::remove_file(self.bundle_path(&id));
            }
        }
    }

    /// Removes saved runs other than `kept`, the oldest first, while the saved runs exceed the limit.
    fn remove_oldest(&self, kept: &RunId) -> Vec<RunId> {
        // A folder that cannot be read is not cleaned; the run is saved.
        let mut saved: Vec<(RunId, u64)> = self
            .result_files()
            .unwrap_or_default()
            .into_iter()
            .filter(|(id, _)| id.is_made_here())
            .map(|(id, metadata)| {
                let bundle = fs::metadata(self.bundle_path(&id)).map_or(0, |found| found.len());
                (id, metadata.len() + bundle)
            })
            .collect();
        // An id begins with the start of its run.
        saved.sort();
        let mut total: u64 = saved.iter().map(|(_, bytes)| bytes).sum();
        let mut removed = Vec::new();
        for (id, bytes) in saved.into_iter().filter(|(id, _)| id != kept) {
            if total <= self.limit_bytes {
                break;
            }
            total -= bytes;
            if self.remove(&id).is_ok() {
                removed.push(id);
            }
        }
        removed
    }
}

/// The id that `word` was probably meant to be.
fn nearest(word: &str, ids: &[RunId]) -> Option<RunId> {
    let similarity = |id: &RunId| strsim::jaro_winkler(word, id.as_str());
    let best = ids.iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)))?;
    (similarity(best) >= SUGGESTED_FROM).then(|| best.clone())
}

/// Writes the whole file under another name first, so that a reader or a crash never leaves a part.
fn write_atomically(file: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by_rename(file, bytes, OpenOptions::new().write(true).create_new(true))
}

/// As [`write_atomically`], readable by its owner only.
fn write_private(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    write_by_rename(file, bytes, options.write(true).create_new(true).mode(0o600))
}

fn write_by_rename(file: &Path, bytes: &[u8], options: &OpenOptions) -> io::Result<()> {
    let temporary = temporary_path(file);
    let write = || {
        let mut open = options.open(&temporary)?;
        open.write_all(bytes)?;
        open.sync_all()?;
        fs::rename(&temporary, file)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// A hidden name beside `file`. It is random, because processes in containers that share a folder may have
/// equal ids.
fn temporary_path(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.with_file_name(format!(".{name}.{:016x}.tmp", RandomState::new().hash_one(std::process::id())))
}

fn remove_if_present(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_with_equal_process_ids_use_different_temporary_files() {
        let file = Path::new("/runs/a.json");
        assert_ne!(temporary_path(file), temporary_path(file));
        assert_eq!(temporary_path(file).parent(), file.parent());
    }
}
