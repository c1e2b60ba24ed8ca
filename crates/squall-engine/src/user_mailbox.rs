//! How the scheduler reaches a waiting virtual user: it leaves a signal in the user's mailbox and
//! wakes its task. A user has one mailbox, so handing over a start allocates nothing.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
    time::{Duration, Instant},
};

/// A start handed to a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueStart {
    pub(crate) number: u64,
    pub(crate) intended: Instant,
    /// How long after that the scheduler saw it. This is the engine's lag, whichever user takes the
    /// start.
    pub(crate) scheduler_lag: Duration,
    /// When a user was free for it. The time from here to the actual start is the engine's lag too.
    pub(crate) free_since: Instant,
}

impl DueStart {
    /// Start `number`, due at `intended` and seen by the scheduler at `now`.
    pub(crate) fn observed(number: u64, intended: Instant, now: Instant) -> DueStart {
        DueStart { number, intended, scheduler_lag: now.saturating_duration_since(intended), free_since: now }
    }

    /// The engine's part of the delay if the start happens at `started`. Waiting for a free user is
    /// not part of it.
    pub(crate) fn lag(&self, started: Instant) -> Duration {
        self.scheduler_lag + started.saturating_duration_since(self.free_since)
    }
}

/// A signal to a waiting user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserSignal {
    Start(DueStart),
    /// The sleep or the wait is over.
    Wake,
    /// The user must leave: the run drains, or the thread has lost its share.
    Leave,
}

#[derive(Default)]
pub(crate) struct UserMailbox {
    signal: Cell<Option<UserSignal>>,
    waker: RefCell<Option<Waker>>,
    /// Identifies the current sleep; 0 while awake.
    pub(crate) sleep_id: Cell<u64>,
}

impl UserMailbox {
    /// Leaves `signal` for the user. A `Leave` is never overwritten.
    pub(crate) fn send(&self, signal: UserSignal) {
        if self.signal.get() != Some(UserSignal::Leave) {
            self.signal.set(Some(signal));
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether a `Leave` waits for the user.
    pub(crate) fn must_leave(&self) -> bool {
        self.signal.get() == Some(UserSignal::Leave)
    }

    /// Waits for the next signal.
    pub(crate) async fn receive(&self) -> UserSignal {
        poll_fn(|cx| match self.signal.take() {
            Some(signal) => Poll::Ready(signal),
            None => {
                let mut waker = self.waker.borrow_mut();
                if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}
