//! The requests of a user to a run: stop it, change its load, show it again. The first stop request
//! drains the run, the second aborts it. It carries nothing out; the run subscribes to it. The CLI's
//! stop button and dashboard, the signals and the API use it.

use squall_model::LevelStep;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What the user has requested, in rising order. A request is never withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopRequest {
    None,
    Drain,
    Abort,
}

/// A change of the load during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadCommand {
    /// No load until a resume.
    Pause,
    /// Continues with the load that was left at the pause.
    Resume,
    /// Raises or lowers the rate or the number of users, until the planned end.
    Step(LevelStep),
}

/// Sends requests to a run. Clones share it.
#[derive(Debug, Clone)]
pub struct RunControl {
    request: Arc<watch::Sender<StopRequest>>,
    /// Load commands that the run has not taken yet. Only keys of a person add to it.
    load_commands: Arc<Mutex<Vec<LoadCommand>>>,
    /// Changes when the observers need an update: at a load command or a refresh.
    wake: Arc<watch::Sender<()>>,
    /// Changes when the load has served its purpose. An event, so that a later run with the same
    /// control does not see it.
    complete: Arc<watch::Sender<()>>,
}

impl Default for RunControl {
    fn default() -> Self {
        RunControl {
            request: Arc::new(watch::channel(StopRequest::None).0),
            load_commands: Arc::default(),
            wake: Arc::new(watch::channel(()).0),
            complete: Arc::new(watch::channel(()).0),
        }
    }
}

impl RunControl {
    pub fn new() -> RunControl {
        RunControl::default()
    }

    /// Requests a drain: no further starts, and iterations in progress finish.
    pub fn drain(&self) {
        self.escalate(StopRequest::Drain);
    }

    /// Requests an abort: iterations in progress are cut off, recorded and reported.
    pub fn abort(&self) {
        self.escalate(StopRequest::Abort);
    }

    /// Ends the load of the current run as its plan would: iterations in progress finish, and the run
    /// counts as completed.
    pub fn complete(&self) {
        self.complete.send_replace(());
    }

    /// Waits until a stop is requested.
    pub async fn stop_requested(&self) {
        let mut requests = self.request.subscribe();
        // Cannot fail: this value holds the sender.
        let _ = requests.wait_for(|request| *request > StopRequest::None).await;
    }

    /// Requests a change of the load. Observers get the outcome.
    pub fn change_load(&self, command: LoadCommand) {
        self.load_commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        self.refresh();
    }

    /// Requests an update of the observers, because what they show has changed.
    pub fn refresh(&self) {
        self.wake.send_replace(());
    }

    /// Whether a stop has been requested.
    pub fn is_stopping(&self) -> bool {
        *self.request.borrow() > StopRequest::None
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<StopRequest> {
        self.request.subscribe()
    }

    pub(crate) fn subscribe_to_completion(&self) -> watch::Receiver<()> {
        self.complete.subscribe()
    }

    /// Changes at every load command and at every refresh.
    pub(crate) fn subscribe_to_wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    pub(crate) fn take_load_commands(&self) -> Vec<LoadCommand> {
        std::mem::take(&mut self.load_commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn escalate(&self, to: StopRequest) {
        self.request.send_if_modified(|request| {
            let higher = to > *request;
            *request = to.max(*request);
            higher
        });
    }
}
