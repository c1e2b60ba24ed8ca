//! Finished runs in a folder: saves their results, lists, finds, annotates and removes them. It makes
//! no result and renders none: squall-report does. squall-cli and squall-web call it.
//!
//! A folder holds a result file `ID.json` for each run, as `squall run --json` writes it, and a
//! person's note on it as `ID.note.txt`. So any folder of result files can be read, and a run can be
//! copied with its file. Files that are not results are named and skipped.

mod entry;
mod error;
mod folder;
mod run_id;

pub use entry::{RunEntry, RunFilter, RunList, SkippedFile};
pub use error::{FindRunError, ReadRunError, SaveRunError, WriteNoteError};
pub use folder::{DEFAULT_LIMIT_BYTES, MAX_NOTE_BYTES, RunFolder, SavedRun};
pub use run_id::RunId;
