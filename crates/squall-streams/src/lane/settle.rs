//! The acker's side of a lane: what is processed and how it was written. Refuses to forget what was not written.

use super::Lane;
use crate::{entry::EntryId, metrics::add};

impl Lane {
    /// Waits until everything processed is acknowledged.
    pub(crate) async fn settled(&self) {
        loop {
            let notified = self.flushed.notified();
            {
                let state = self.state();
                if state.done.is_empty() && state.flushing == 0 {
                    return;
                }
            }
            notified.await;
        }
    }

    pub(crate) fn claim_done(&self) -> Vec<EntryId> {
        let mut state = self.state();
        state.listed_dirty = false;
        let ids = std::mem::take(&mut state.done);
        state.flushing += ids.len();
        ids
    }

    pub(crate) fn acked(&self, count: usize) {
        add(&self.hub.metrics.acked, count);
        self.state().flushing -= count;
        self.flushed.notify_one();
    }

    /// Not written; to be tried again.
    pub(crate) fn not_acked(&self, ids: Vec<EntryId>) {
        let mut state = self.state();
        state.flushing -= ids.len();
        state.done.splice(0..0, ids);
        if !std::mem::replace(&mut state.listed_dirty, true) {
            self.hub.list_dirty(self.lease.clone());
        }
    }
}
