//! The stop button of a run: once to drain, twice to abort. Holds the wish; the run obeys it.

use std::sync::Arc;
use tokio::sync::watch;

/// What a person has asked for, in rising order; it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wish {
    Run,
    Drain,
    Abort,
}

/// Handle on a run's stop button. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Control {
    wish: Arc<watch::Sender<Wish>>,
}

impl Default for Control {
    fn default() -> Self {
        Control { wish: Arc::new(watch::channel(Wish::Run).0) }
    }
}

impl Control {
    pub fn new() -> Control {
        Control::default()
    }

    /// Ask for a drain: no further starts, what is under way is finished.
    pub fn drain(&self) {
        self.raise(Wish::Drain);
    }

    /// Ask for an abort: what is under way is cut off, recorded and reported.
    pub fn abort(&self) {
        self.raise(Wish::Abort);
    }

    /// Whether anybody asked for the run to end.
    pub fn is_stopping(&self) -> bool {
        *self.wish.borrow() > Wish::Run
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    fn raise(&self, to: Wish) {
        self.wish.send_if_modified(|wish| {
            let higher = to > *wish;
            *wish = to.max(*wish);
            higher
        });
    }
}
