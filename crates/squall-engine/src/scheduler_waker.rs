//! Wakes the scheduler of a thread before its timer does. User tasks call it, for example when they go
//! to sleep for less time than the scheduler.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
    time::Instant,
};

pub(crate) struct SchedulerWaker {
    waker: RefCell<Option<Waker>>,
    requested: Cell<bool>,
    /// When the scheduler wakes by itself.
    pub(crate) next_wake: Cell<Instant>,
}

impl SchedulerWaker {
    pub(crate) fn new(next_wake: Instant) -> SchedulerWaker {
        SchedulerWaker { waker: RefCell::default(), requested: Cell::new(false), next_wake: Cell::new(next_wake) }
    }

    pub(crate) fn wake(&self) {
        self.requested.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits until [`SchedulerWaker::wake`] is called, or returns at once if it already was.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if self.requested.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
