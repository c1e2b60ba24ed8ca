//! How the driver asks for the end of a run: after a failed operation, or when all seeds, partitions or token
//! ranges are used.
//! It stops nothing itself; the command line waits for it and drains the run.

use std::sync::Arc;
use tokio::sync::watch;

/// Why the driver asks for the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEndReason {
    /// Every seed of `-pop seq= no-wrap`, every partition of `n=` or every token range was used.
    AllUsed,
    /// An operation failed; the message for the user.
    Failed(String),
}

/// Carries the first request for the end to the command line. Clones share it.
#[derive(Debug, Clone)]
pub struct RunEnd {
    reason: Arc<watch::Sender<Option<RunEndReason>>>,
}

impl Default for RunEnd {
    fn default() -> RunEnd {
        RunEnd { reason: Arc::new(watch::channel(None).0) }
    }
}

impl RunEnd {
    /// Asks for the end. A later request changes nothing.
    pub(super) fn request(&self, reason: RunEndReason) {
        self.reason.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason);
            }
            first
        });
    }

    /// Waits for the first request.
    pub async fn requested(&self) {
        let mut changes = self.reason.subscribe();
        // Cannot fail: this value holds the sender.
        let _ = changes.wait_for(Option::is_some).await;
    }

    /// The first request so far.
    pub fn reason(&self) -> Option<RunEndReason> {
        self.reason.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_request_wins() {
        let end = RunEnd::default();
        assert_eq!(end.reason(), None);
        end.request(RunEndReason::AllUsed);
        end.request(RunEndReason::Failed("later".to_owned()));
        end.requested().await;
        assert_eq!(end.reason(), Some(RunEndReason::AllUsed));
    }
}
