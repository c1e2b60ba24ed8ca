//! The fetch side of a [`PartitionBuffer`]: the next read, the fetched events, and the position to
//! watch. Does not read while the buffer is more than half full. [`crate::executor`]'s fetcher
//! calls it.

use super::{PartitionBuffer, ReadPosition};
use crate::{
    entry::{Entry, EntryId},
    metrics::add,
};

/// A read that the fetcher must do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchRequest {
    /// The largest number of events to read.
    pub(crate) count: usize,
    /// Reads pending events after this id, or new events if `None`.
    pub(crate) pending: Option<EntryId>,
    /// The generation of the buffer when the read was requested.
    generation: u64,
}

impl PartitionBuffer {
    /// The next read, if one is due. At most one read per partition is in flight.
    pub(crate) fn next_fetch(&self) -> Option<FetchRequest> {
        let mut state = self.state();
        let prefetch = self.context.settings.prefetch;
        let buffered = state.queue.len();
        let busy = state.fetching || state.quarantined || self.abort.is_cancelled() || self.drain.is_cancelled();
        if busy || buffered * 2 > prefetch {
            return None;
        }
        let pending = match state.read_position {
            Some(ReadPosition::Pending(after)) => Some(after),
            Some(ReadPosition::New) => None,
            Some(ReadPosition::Idle(_)) | None => return None,
        };
        state.fetching = true;
        Some(FetchRequest { count: prefetch - buffered, pending, generation: state.generation })
    }

    /// Adds fetched events to the queue. `caught_up_at`: there are no events after that id yet.
    pub(crate) fn store_fetched(&self, fetch: FetchRequest, entries: Vec<Entry>, caught_up_at: Option<EntryId>) {
        let mut state = self.state();
        state.fetching = false;
        if state.quarantined || state.generation != fetch.generation {
            return; // the buffer restarts, and then reads these events again as pending
        }
        let replay = fetch.pending.is_some();
        state.last_fetched = entries.last().map_or(state.last_fetched, |entry| entry.id);
        state.read_position = match (replay, entries.last(), caught_up_at) {
            (true, Some(last), _) => Some(ReadPosition::Pending(last.id)),
            (true, None, _) | (false, _, None) => Some(ReadPosition::New),
            (false, _, Some(id)) => Some(ReadPosition::Idle(id)),
        };
        add(&self.context.metrics.fetched, entries.len());
        add(&self.context.metrics.buffered, entries.len());
        if replay {
            add(&self.context.metrics.replayed, entries.len());
            state.replayed_to = state.last_fetched;
        }
        state.queue.extend(entries);
        drop(state);
        self.changed.notify_one();
    }

    /// Handles a failed read. Redis may have delivered events whose response was lost, so the next
    /// read starts with the pending events after the last fetched one.
    pub(crate) fn rewind_fetch(&self, fetch: FetchRequest) {
        let mut state = self.state();
        state.fetching = false;
        if state.generation == fetch.generation {
            state.read_position = Some(ReadPosition::Pending(state.last_fetched));
        }
    }

    /// The id after which to watch for events, if the buffer is idle.
    pub(crate) fn idle_position(&self) -> Option<EntryId> {
        match self.state().read_position {
            Some(ReadPosition::Idle(id)) if !self.abort.is_cancelled() && !self.drain.is_cancelled() => Some(id),
            _ => None,
        }
    }

    pub(crate) fn wake_idle(&self) {
        let mut state = self.state();
        if matches!(state.read_position, Some(ReadPosition::Idle(_))) {
            state.read_position = Some(ReadPosition::New);
        }
    }
}
