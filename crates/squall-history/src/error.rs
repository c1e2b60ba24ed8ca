//! Why an operation on a folder of runs failed, one type per operation.

use squall_report::ReadResultError;
use std::{io, path::PathBuf};

use crate::RunId;

/// Why a run was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveRunError {
    #[error("cannot create the folder {}", folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("cannot write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Why a folder or a run in it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadRunError {
    #[error("cannot read the folder {}", folder.display())]
    Folder {
        folder: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("no run `{id}` in {}", folder.display())]
    Unknown { id: String, folder: PathBuf },
    #[error("cannot read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("{}", file.display())]
    NotAResult {
        file: PathBuf,
        #[source]
        cause: ReadResultError,
    },
    #[error("cannot remove {}", file.display())]
    Remove {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Why a note was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteNoteError {
    #[error(transparent)]
    Run(#[from] ReadRunError),
    #[error("the note has {length} bytes, and {limit} are allowed")]
    TooLong { length: usize, limit: usize },
    #[error("cannot write {}", file.display())]
    Write {
        file: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Why a word of a person names no run.
#[derive(Debug, thiserror::Error)]
pub enum FindRunError {
    #[error(transparent)]
    Read(#[from] ReadRunError),
    #[error("no run in {}", folder.display())]
    Empty { folder: PathBuf },
    #[error("no run `{word}` in {}{}", folder.display(), suggestion(nearest.as_ref()))]
    Unknown { word: String, folder: PathBuf, nearest: Option<RunId> },
    #[error("`{word}` is part of {} ids: {}", candidates.len(), list(candidates))]
    Ambiguous { word: String, candidates: Vec<RunId> },
}

fn suggestion(nearest: Option<&RunId>) -> String {
    nearest.map_or_else(String::new, |id| format!(": did you mean `{id}`?"))
}

fn list(candidates: &[RunId]) -> String {
    const SHOWN: usize = 5;
    let names: Vec<&str> = candidates.iter().take(SHOWN).map(RunId::as_str).collect();
    names.join(", ") + if candidates.len() > SHOWN { ", …" } else { "" }
}
