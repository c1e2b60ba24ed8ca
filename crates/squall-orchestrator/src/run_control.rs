//! The stop requests of a user: the first drains the run, the second aborts it. It stops nothing
//! itself; the run subscribes to it. The CLI's stop button, the signals and the API use it.

use std::sync::Arc;
use tokio::sync::watch;

/// What the user has requested, in rising order. A request is never withdrawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopRequest {
    None,
    Drain,
    Abort,
}

/// Sends stop requests to a run. Clones share it.
#[derive(Debug, Clone)]
pub struct RunControl {
    request: Arc<watch::Sender<StopRequest>>,
}

impl Default for RunControl {
    fn default() -> Self {
        RunControl { request: Arc::new(watch::channel(StopRequest::None).0) }
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

    /// Whether a stop has been requested.
    pub fn is_stopping(&self) -> bool {
        *self.request.borrow() > StopRequest::None
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<StopRequest> {
        self.request.subscribe()
    }

    fn escalate(&self, to: StopRequest) {
        self.request.send_if_modified(|request| {
            let higher = to > *request;
            *request = to.max(*request);
            higher
        });
    }
}
