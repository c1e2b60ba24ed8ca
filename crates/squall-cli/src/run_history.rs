//! The history folder of the flags: opens it before a run, saves the result after it, and gives it to
//! the web UI. squall-history reads and writes the files.

use squall_history::{DEFAULT_LIMIT_BYTES, RunFolder};
use squall_report::{ReportInput, build_result};
use squall_web::RunHistory;
use std::{path::Path, sync::Arc};

use crate::{
    args::HistoryArgs,
    baseline,
    exit::{CliError, error_chain},
};

/// The folder of `--history`, created and writable.
pub(crate) fn open(args: &HistoryArgs) -> Result<Option<RunFolder>, CliError> {
    let Some(path) = &args.history else { return Ok(None) };
    let limit = args.history_limit.map_or(DEFAULT_LIMIT_BYTES, |mib| mib << 20);
    let folder = RunFolder::new(path, limit);
    folder.create().map_err(|error| CliError::new(format!("--history: {}", error_chain(&error))))?;
    Ok(Some(folder))
}

/// Whether the web server saves the runs that end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SavedBy {
    Server,
    /// This command saves its own run, with its command line.
    Command,
}

/// The folder as the web server takes it.
pub(crate) fn for_server(folder: RunFolder, saved_by: SavedBy) -> RunHistory {
    RunHistory {
        folder: Arc::new(folder),
        baseline: baseline::DEFAULT_PATH.into(),
        saves_runs: saved_by == SavedBy::Server,
    }
}

/// Saves the result and returns what to tell the user.
pub(crate) fn save(folder: &RunFolder, report: &ReportInput<'_>) -> Result<String, CliError> {
    let saved = folder.save(&build_result(report)).map_err(|error| CliError::new(error_chain(&error)))?;
    let mut text = format!("kept the run as {} in {}", saved.id, folder.path().display());
    if let Some(oldest) = saved.removed.first() {
        let limit = folder.limit_bytes() >> 20;
        text += &match saved.removed.len() {
            1 => format!("; removed the oldest run {oldest}, because the folder may have {limit} MiB"),
            n => format!("; removed the {n} oldest runs, because the folder may have {limit} MiB"),
        };
    }
    Ok(text)
}

/// A folder that is only read.
pub(crate) fn read_only(path: &Path) -> RunFolder {
    RunFolder::new(path, u64::MAX)
}
