//! The starts of an open model that are due and wait for a free user, oldest first. It does not choose
//! users; [`ThreadState`](crate::thread_state::ThreadState) hands the starts out.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Instant,
};

use crate::user_mailbox::DueStart;

/// The most queued starts. Further ones of a run with an iteration limit stay in the schedule; the engine
/// drops and counts those of other runs. Each takes 56 bytes.
const MAX_QUEUED_STARTS: usize = 1_000_000;

#[derive(Default)]
pub(crate) struct StartQueue {
    starts: RefCell<VecDeque<DueStart>>,
    /// Whether the scheduler waits for the queue to become empty.
    pub(crate) wake_when_empty: Cell<bool>,
}

impl StartQueue {
    pub(crate) fn len(&self) -> usize {
        self.starts.borrow().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MAX_QUEUED_STARTS
    }

    /// Appends a start; `false` if the queue is full.
    #[must_use]
    pub(crate) fn push(&self, start: DueStart) -> bool {
        let fits = !self.is_full();
        if fits {
            self.starts.borrow_mut().push_back(start);
        }
        fits
    }

    /// When the scheduler queued the oldest start.
    pub(crate) fn oldest_since(&self) -> Option<Instant> {
        self.starts.borrow().front().map(|start| start.free_since)
    }

    pub(crate) fn pop(&self) -> Option<DueStart> {
        self.starts.borrow_mut().pop_front()
    }

    /// Removes all starts but the oldest `kept`.
    pub(crate) fn remove_after(&self, kept: usize) -> VecDeque<DueStart> {
        let mut starts = self.starts.borrow_mut();
        let kept = kept.min(starts.len());
        starts.split_off(kept)
    }
}
