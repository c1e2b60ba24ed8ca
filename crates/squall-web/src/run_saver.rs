//! Saves finished runs of the fleet in the history folder. Every orchestrator with a folder saves
//! every run: equal runs have equal ids, so a folder that several share has each run once. The watcher
//! calls it.

use squall_history::{RunFolder, RunId};
use squall_model::{Bundle, error_chain};
use squall_report::{ReportInput, build_result};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tracing::{info, warn};

/// Clocks of the store and of this machine may differ by this much.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

pub(crate) struct RunSaver {
    folder: Arc<RunFolder>,
    /// Runs that ended earlier are not saved: a person may have deleted them.
    since: Duration,
}

impl RunSaver {
    pub(crate) fn new(folder: Arc<RunFolder>) -> RunSaver {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        RunSaver { folder, since: now.saturating_sub(CLOCK_TOLERANCE) }
    }

    /// Saves a finished run with the bundle that started it, and returns its id. A failure is logged, because the run
    /// itself is not affected.
    pub(crate) async fn save(&self, report: &ReportInput<'_>, bundle: &Bundle) -> Option<RunId> {
        let facts = report.facts;
        if Duration::from_millis(facts.started_unix_ms) + facts.elapsed < self.since {
            return None;
        }
        let result = build_result(report);
        let folder = self.folder.clone();
        let bundle = serde_json::to_vec(bundle).expect("a bundle is text and numbers");
        match tokio::task::spawn_blocking(move || folder.save_with_bundle(&result, &bundle)).await {
            Ok(Ok(saved)) => {
                info!(id = %saved.id, "the run is saved");
                for id in saved.removed {
                    info!(%id, "a run left the history, because the folder is full");
                }
                Some(saved.id)
            }
            Ok(Err(error)) => {
                warn!(error = error_chain(&error), "the run is not saved");
                None
            }
            Err(error) => {
                warn!(%error, "the run is not saved");
                None
            }
        }
    }
}
