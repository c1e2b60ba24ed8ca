//! What a scenario does once for a whole run: set it up before the first user, tear it down after the last. Run by the worker that the
//! record names; how it ended is noted, so that whoever leads by then goes on from there.

use squall_coord::RunStore;
use squall_model::protocol::{HookOutcome, RunNote, RunNotes};
use std::{sync::Arc, time::Duration};
use tracing::{info, warn};

/// Which hook of a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HookKind {
    SetUp,
    TearDown,
}

/// The scenario's own.
pub trait ScenarioHooks: Send + Sync + 'static {
    /// Sets a run up; what it makes, in JSON, is given to all users wherever they are. The message of a failure is for people. May block.
    fn set_up(&self) -> Result<String, String>;

    /// Gives what the set-up made to the users of this process.
    fn apply_set_up_data(&self, made: &str) -> Result<(), String>;

    /// Tears down what the set-up made. May block.
    fn tear_down(&self, made: &str) -> Result<(), String>;
}

/// How often a store that is away is asked again, and for how long in all it is worth it.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_ATTEMPTS: usize = 100;

/// Sets the run `epoch` up and notes how that ended.
pub(crate) async fn set_up<R: RunStore>(run: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "sets the run up");
    let ended = run_blocking(move || hooks.set_up()).await;
    note_hook_outcome(&run, epoch, RunNote::SetUp, ended).await;
}

/// Tears the run `epoch` down and notes how that ended.
pub(crate) async fn tear_down<R: RunStore>(run: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "tears the run down");
    let made = load_set_up_data(&run, epoch).await.unwrap_or_else(|| "null".to_owned());
    let ended = run_blocking(move || hooks.tear_down(&made)).await;
    note_hook_outcome(&run, epoch, RunNote::TearDown, ended.map(|()| String::new())).await;
}

/// Gives what the set-up of the run `epoch` made to the users here.
pub(crate) async fn apply_set_up_data<R: RunStore>(run: &R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    let Some(made) = load_set_up_data(run, epoch).await else {
        return warn!(epoch, "what the set-up made is not known here");
    };
    if let Err(error) = run_blocking(move || hooks.apply_set_up_data(&made)).await {
        warn!(epoch, error, "what the set-up made cannot be used here");
    }
}

/// What the set-up made.
async fn load_set_up_data<R: RunStore>(run: &R, epoch: u64) -> Option<String> {
    for _ in 0..MAX_ATTEMPTS {
        if let Ok(notes) = run.notes(epoch).await {
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
    run: &R,
    epoch: u64,
    hook: fn(HookOutcome) -> RunNote,
    result: Result<String, String>,
) {
    let outcome = result.map_or_else(HookOutcome::Failed, HookOutcome::Done);
    let (hook_name, text) = hook(outcome.clone()).encode();
    if let HookOutcome::Failed(reason) = outcome {
        warn!(epoch, hook = hook_name, reason, "the hook failed");
    }
    for _ in 0..MAX_ATTEMPTS {
        match run.set_notes(epoch, &[(hook_name.clone(), text.clone())]).await {
            Ok(()) => return,
            Err(error) => {
                warn!(%error, hook = hook_name, "the worker could not note the hook's outcome; it tries again")
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn run_blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let ended = tokio::task::spawn_blocking(act).await;
    ended.unwrap_or_else(|error| Err(format!("it ended badly: {error}")))
}
