//! Saves finished runs of the fleet in the history folder. Every orchestrator with a folder saves
//! every run: equal runs have equal ids, so a folder that several share has each run once. The watcher
//! calls it.

use squall_coord::FleetStores;
use squall_history::RunFolder;
use squall_model::error_chain;
use squall_report::{InterruptionRule, ReportInput, ScheduleRule, build_result};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tracing::{info, warn};

use crate::run_watcher::WatchedRun;

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

    /// Saves a finished run. A failure is logged, because the run itself is not affected.
    pub(crate) async fn save<C: FleetStores>(&self, watched: &WatchedRun<C>, version: &'static str) {
        let Some(facts) = watched.facts() else { return };
        if Duration::from_millis(facts.started_unix_ms) + facts.elapsed < self.since {
            return;
        }
        let result = build_result(&ReportInput {
            plan: &watched.bundle.plan,
            view: watched.view(),
            facts,
            schedule_rule: ScheduleRule::default(),
            interruption_rule: InterruptionRule::default(),
            command: None,
            version,
        });
        let folder = self.folder.clone();
        let bundle = serde_json::to_vec(&watched.bundle).expect("a bundle is text and numbers");
        match tokio::task::spawn_blocking(move || folder.save_with_bundle(&result, &bundle)).await {
            Ok(Ok(saved)) => {
                info!(id = %saved.id, "the run is saved");
                for id in saved.removed {
                    info!(%id, "a run left the history, because the folder is full");
                }
            }
            Ok(Err(error)) => warn!(error = error_chain(&error), "the run is not saved"),
            Err(error) => warn!(%error, "the run is not saved"),
        }
    }
}
