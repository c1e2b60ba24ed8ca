//! Runs a scenario's hooks: set-up before the first user, tear-down after the last one. It does not
//! choose the worker: the record names one, and that worker notes the outcome, so that any later
//! leader finds it.

use squall_coord::RunStore;
use squall_model::{
    error_chain,
    protocol::{HookOutcome, RunNote, RunNotes},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::task::JoinError;
use tracing::{info, warn};

/// The hooks of one run, and which of them this worker has started.
pub(crate) struct RunHooks {
    pub(crate) epoch: u64,
    pub(crate) hooks: Arc<dyn ScenarioHooks>,
    pub(crate) started: BTreeSet<HookKind>,
}

impl RunHooks {
    /// The hooks of a run whose users were just built. A hook that this worker started in the same
    /// run stays started.
    pub(crate) fn of_run(
        previous: Option<RunHooks>,
        epoch: u64,
        hooks: Option<Arc<dyn ScenarioHooks>>,
    ) -> Option<RunHooks> {
        let started = previous.filter(|previous| previous.epoch == epoch).map(|previous| previous.started);
        Some(RunHooks { epoch, hooks: hooks?, started: started.unwrap_or_default() })
    }
}

/// Which hook of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HookKind {
    SetUp,
    TearDown,
}

/// Code of a scenario that runs once for a whole run.
pub trait ScenarioHooks: Send + Sync + 'static {
    /// Sets a run up. All users in the fleet get the data that it returns, in JSON. May block.
    fn set_up(&self) -> Result<String, HookError>;

    /// Gives the data of the set-up to the users of this process.
    fn apply_set_up_data(&self, data: &str) -> Result<(), HookError>;

    /// Tears a run down, with the data of its set-up. May block.
    fn tear_down(&self, data: &str) -> Result<(), HookError>;
}

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The scenario's code failed. The text is for people.
    #[error("{0}")]
    Failed(String),
    #[error("it ended badly")]
    Panicked(#[source] JoinError),
}

/// Time between two attempts to reach the store, and how many attempts are made.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_ATTEMPTS: usize = 100;

/// Sets the run `epoch` up and notes the outcome.
pub(crate) async fn set_up<R: RunStore>(run_store: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "the worker sets the run up");
    let result = run_hook(move || hooks.set_up()).await;
    note_hook_outcome(&run_store, epoch, RunNote::SetUp, result).await;
}

/// Tears the run `epoch` down and notes the outcome.
pub(crate) async fn tear_down<R: RunStore>(run_store: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "the worker tears the run down");
    let data = load_set_up_data(&run_store, epoch).await.unwrap_or_else(|| "null".to_owned());
    let result = run_hook(move || hooks.tear_down(&data)).await;
    note_hook_outcome(&run_store, epoch, RunNote::TearDown, result.map(|()| String::new())).await;
}

/// Gives the data of the run's set-up to the users of this worker.
pub(crate) async fn apply_set_up_data<R: RunStore>(run_store: &R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    let Some(data) = load_set_up_data(run_store, epoch).await else {
        return warn!(epoch, "the worker found no set-up data; its users start without it");
    };
    if let Err(error) = run_hook(move || hooks.apply_set_up_data(&data)).await {
        warn!(epoch, error = error_chain(&error), "the users cannot use the set-up data");
    }
}

async fn load_set_up_data<R: RunStore>(run_store: &R, epoch: u64) -> Option<String> {
    for _ in 0..MAX_ATTEMPTS {
        if let Ok(notes) = run_store.notes(epoch).await {
            return match RunNotes::from(notes).set_up()? {
                HookOutcome::Done(data) => Some(data),
                HookOutcome::Failed(_) => None,
            };
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    None
}

async fn note_hook_outcome<R: RunStore>(
    run_store: &R,
    epoch: u64,
    hook: fn(HookOutcome) -> RunNote,
    result: Result<String, HookError>,
) {
    let outcome = result.map_or_else(|error| HookOutcome::Failed(error_chain(&error)), HookOutcome::Done);
    let (hook_name, text) = hook(outcome.clone()).encode();
    if let HookOutcome::Failed(reason) = outcome {
        warn!(epoch, hook = hook_name, reason, "the hook failed");
    }
    for _ in 0..MAX_ATTEMPTS {
        match run_store.set_notes(epoch, &[(hook_name.clone(), text.clone())]).await {
            Ok(()) => return,
            Err(error) => {
                warn!(%error, hook = hook_name, "the worker could not note the hook's outcome; it tries again")
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Runs a hook on a thread of its own, because the scenario's code may block.
pub async fn run_hook<T: Send + 'static>(
    hook: impl FnOnce() -> Result<T, HookError> + Send + 'static,
) -> Result<T, HookError> {
    tokio::task::spawn_blocking(hook).await.unwrap_or_else(|error| Err(HookError::Panicked(error)))
}
