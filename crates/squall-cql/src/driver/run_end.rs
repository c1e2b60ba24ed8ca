//! How the driver asks for the end of a run: after a failed operation, or when all seeds, partitions or token
//! ranges are used.
//! It stops nothing itself; the command line waits for it and drains the run.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::watch;

/// Why the driver asks for the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEndReason {
    /// Every seed of `-pop seq= no-wrap`, every partition of `n=` or every token range was used.
    AllUsed,
    /// An operation failed; the message for the user.
    Failed(String),
}

/// Carries the request for the end to the command line, and back that failed operations are not tried
/// again. Clones share it.
#[derive(Debug, Clone)]
pub struct RunEnd {
    reason: Arc<watch::Sender<Option<RunEndReason>>>,
    /// Whether an operation that fails from now on is not tried again.
    tries_end: Arc<AtomicBool>,
}

impl Default for RunEnd {
    fn default() -> RunEnd {
        RunEnd { reason: Arc::new(watch::channel(None).0), tries_end: Arc::default() }
    }
}

impl RunEnd {
    /// Asks for the end. Of several failures the first one stays: an operation in flight may fail after all
    /// seeds are used.
    pub(super) fn request(&self, reason: RunEndReason) {
        if let RunEndReason::Failed(_) = reason {
            self.end_tries();
        }
        self.reason.send_if_modified(|current| {
            let first = match current {
                None => true,
                Some(RunEndReason::AllUsed) => reason != RunEndReason::AllUsed,
                Some(RunEndReason::Failed(_)) => false,
            };
            if first {
                *current = Some(reason);
            }
            first
        });
    }

    /// Lets operations fail that would be tried again: the load is over before all its operations are made.
    pub fn end_tries(&self) {
        self.tries_end.store(true, Ordering::Relaxed);
    }

    pub(super) fn tries_have_ended(&self) -> bool {
        self.tries_end.load(Ordering::Relaxed)
    }

    /// Waits for the first request.
    pub async fn requested(&self) {
        let mut changes = self.reason.subscribe();
        // Cannot fail: this value holds the sender.
        let _ = changes.wait_for(Option::is_some).await;
    }

    /// The request so far.
    pub fn reason(&self) -> Option<RunEndReason> {
        self.reason.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failure_takes_the_place_of_used_up_seeds() {
        let end = RunEnd::default();
        assert_eq!((end.reason(), end.tries_have_ended()), (None, false));
        end.request(RunEndReason::AllUsed);
        end.requested().await;
        assert_eq!((end.reason(), end.tries_have_ended()), (Some(RunEndReason::AllUsed), false));
        let failed = |message: &str| RunEndReason::Failed(message.to_owned());
        end.request(failed("first"));
        end.request(failed("later"));
        end.request(RunEndReason::AllUsed);
        assert_eq!((end.reason(), end.tries_have_ended()), (Some(failed("first")), true));
    }
}
