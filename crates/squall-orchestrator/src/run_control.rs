//! The stop button of a run: once to drain, twice to abort. Holds the wish; the run obeys it.

use std::sync::Arc;
use tokio::sync::watch;

/// What a person has asked for, in rising order; it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopRequest {
    None,
    Drain,
    Abort,
}

/// Handle on a run's stop button. Cloning shares it.
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

    /// Ask for a drain: no further starts, what is under way is finished.
    pub fn drain(&self) {
        self.escalate(StopRequest::Drain);
    }

    /// Ask for an abort: what is under way is cut off, recorded and reported.
    pub fn abort(&self) {
        self.escalate(StopRequest::Abort);
    }

    /// Whether anybody asked for the run to end.
    pub fn is_stopping(&self) -> bool {
        *self.request.borrow() > StopRequest::None
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<StopRequest> {
        self.request.subscribe()
    }

    fn escalate(&self, to: StopRequest) {
        self.request.send_if_modified(|wish| {
            let higher = to > *wish;
            *wish = to.max(*wish);
            higher
        });
    }
}
