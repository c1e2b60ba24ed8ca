//! What a scenario does once for a whole run: set it up before the first user, tear it down after the last. Run by the worker that the
//! record names; how it ended is noted, so that whoever leads by then goes on from there.

use squall_coord::RunStore;
use std::{sync::Arc, time::Duration};
use tracing::{info, warn};

/// The scenario's own.
pub trait ScenarioHooks: Send + Sync + 'static {
    /// Sets a run up; what it makes, in JSON, is given to all users wherever they are. The message of a failure is for people. May block.
    fn set_up(&self) -> Result<String, String>;

    /// Gives what the set-up made to the users of this process.
    fn apply_set_up_data(&self, made: &str) -> Result<(), String>;

    /// Tears down what the set-up made. May block.
    fn tear_down(&self, made: &str) -> Result<(), String>;
}

/// Of whom it is noted how they ended.
pub(crate) const SET_UP_NOTE: &str = "set_up";
pub(crate) const TEAR_DOWN_NOTE: &str = "tear_down";

/// How often a store that is away is asked again, and for how long in all it is worth it.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
const MAX_ATTEMPTS: usize = 100;

/// Sets the run `epoch` up and notes how that ended.
pub(crate) async fn set_up<R: RunStore>(run: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "sets the run up");
    let ended = run_blocking(move || hooks.set_up()).await;
    note_hook_outcome(&run, epoch, SET_UP_NOTE, ended).await;
}

/// Tears the run `epoch` down and notes how that ended.
pub(crate) async fn tear_down<R: RunStore>(run: R, epoch: u64, hooks: Arc<dyn ScenarioHooks>) {
    info!(epoch, "tears the run down");
    let made = load_set_up_data(&run, epoch).await.unwrap_or_else(|| "null".to_owned());
    let ended = run_blocking(move || hooks.tear_down(&made)).await;
    note_hook_outcome(&run, epoch, TEAR_DOWN_NOTE, ended.map(|()| String::new())).await;
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
            return notes.get(SET_UP_NOTE)?.strip_prefix("done:").map(str::to_owned);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
    None
}

async fn note_hook_outcome<R: RunStore>(run: &R, epoch: u64, what: &str, ended: Result<String, String>) {
    let text = match ended {
        Ok(made) => format!("done:{made}"),
        Err(reason) => {
            warn!(epoch, what, reason, "a hook failed");
            format!("failed:{reason}")
        }
    };
    for _ in 0..MAX_ATTEMPTS {
        match run.set_notes(epoch, &[(what.to_owned(), text.clone())]).await {
            Ok(()) => return,
            Err(error) => warn!(%error, what, "how a hook ended could not be noted yet"),
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
