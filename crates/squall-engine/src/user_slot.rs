//! Where a waiting virtual user is reached: its conductor leaves a start or rings its sleep, and the user's task is woken.
//! One small allocation per user for its whole life; handing over a start allocates nothing.

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
    /// How long after that the conductor saw it: the engine's own lag, whoever takes the start.
    pub(crate) scheduler_lag: Duration,
    /// When a user was free for it: what passed between this and the actual start is the engine's own lag too.
    pub(crate) free_since: Instant,
}

impl DueStart {
    /// Start `number`, due at `intended` and seen at `now`.
    pub(crate) fn observed(number: u64, intended: Instant, now: Instant) -> DueStart {
        DueStart { number, intended, scheduler_lag: now.saturating_duration_since(intended), free_since: now }
    }

    /// How much of its delay was the engine's own, if it starts at `started`. Waiting for a free user is not.
    pub(crate) fn lag(&self, started: Instant) -> Duration {
        self.scheduler_lag + started.saturating_duration_since(self.free_since)
    }
}

/// What a waiting user is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserSignal {
    Start(DueStart),
    /// The sleep is over.
    Wake,
    /// The run is being drained.
    Leave,
}

#[derive(Default)]
pub(crate) struct UserSlot {
    signal: Cell<Option<UserSignal>>,
    waker: RefCell<Option<Waker>>,
    /// Tells the present sleep from one that was given up.
    pub(crate) sleep_id: Cell<u64>,
}

impl UserSlot {
    /// Leaves `signal` for the user; a `Leave` is never overwritten.
    pub(crate) fn send(&self, signal: UserSignal) {
        if self.signal.get() != Some(UserSignal::Leave) {
            self.signal.set(Some(signal));
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Whether the user was told to leave and has not noticed yet.
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
