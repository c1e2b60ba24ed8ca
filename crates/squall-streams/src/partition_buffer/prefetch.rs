//! The fetcher's side of a lane: what to fetch, what came, what to watch. Refuses to fetch for a lane that has enough.

use super::{PartitionBuffer, ReadPosition};
use crate::{
    entry::{Entry, EntryId},
    metrics::add,
};

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchRequest {
    /// How many events at most.
    pub(crate) count: usize,
    /// Pending ones after this id; new ones if `None`.
    pub(crate) pending: Option<EntryId>,
    /// Which beginning of the lane it belongs to.
    generation: u64,
}

impl PartitionBuffer {
    /// What to fetch, if anything; marks the lane as being fetched.
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

    /// Takes what was fetched. `drained`: nothing new after that id.
    pub(crate) fn store_fetched(&self, fetch: FetchRequest, entries: Vec<Entry>, caught_up_at: Option<EntryId>) {
        let mut state = self.state();
        state.fetching = false;
        if state.quarantined || state.generation != fetch.generation {
            return; // the lane has begun anew, or will, and then reads these again as pending
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

    /// The answer got lost, and with it perhaps events that Redis counts as ours: they are pending after the last one we got.
    pub(crate) fn rewind_fetch(&self, fetch: FetchRequest) {
        let mut state = self.state();
        state.fetching = false;
        if state.generation == fetch.generation {
            state.read_position = Some(ReadPosition::Pending(state.last_fetched));
        }
    }

    /// The id to watch from, if the lane waits for new events.
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
