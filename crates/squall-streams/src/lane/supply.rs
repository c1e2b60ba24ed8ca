//! The fetcher's side of a lane: what to fetch, what came, what to watch. Refuses to fetch for a lane that has enough.

use super::{Lane, Source};
use crate::{
    entry::{Entry, EntryId},
    metrics::add,
};

/// A read on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    /// How many events at most.
    pub(crate) count: usize,
    /// Pending ones after this id; new ones if `None`.
    pub(crate) pending: Option<EntryId>,
    /// Which beginning of the lane it belongs to.
    generation: u64,
}

impl Lane {
    /// What to fetch, if anything; marks the lane as being fetched.
    pub(crate) fn claim_fetch(&self) -> Option<Fetch> {
        let mut state = self.state();
        let wanted = self.hub.settings.prefetch;
        let held = state.queue.len();
        let busy = state.fetching || state.quarantined || self.abort.is_cancelled() || self.drain.is_cancelled();
        if busy || held * 2 > wanted {
            return None;
        }
        let pending = match state.source {
            Some(Source::Pending(after)) => Some(after),
            Some(Source::New) => None,
            Some(Source::Idle(_)) | None => return None,
        };
        state.fetching = true;
        Some(Fetch { count: wanted - held, pending, generation: state.generation })
    }

    /// Takes what was fetched. `drained`: nothing new after that id.
    pub(crate) fn fetched(&self, fetch: Fetch, entries: Vec<Entry>, drained: Option<EntryId>) {
        let mut state = self.state();
        state.fetching = false;
        if state.quarantined || state.generation != fetch.generation {
            return; // the lane has begun anew, or will, and then reads these again as pending
        }
        let replay = fetch.pending.is_some();
        state.last = entries.last().map_or(state.last, |entry| entry.id);
        state.source = match (replay, entries.last(), drained) {
            (true, Some(last), _) => Some(Source::Pending(last.id)),
            (true, None, _) | (false, _, None) => Some(Source::New),
            (false, _, Some(id)) => Some(Source::Idle(id)),
        };
        add(&self.hub.metrics.fetched, entries.len());
        add(&self.hub.metrics.buffered, entries.len());
        if replay {
            add(&self.hub.metrics.replayed, entries.len());
            state.replayed_to = state.last;
        }
        state.queue.extend(entries);
        drop(state);
        self.ready.notify_one();
    }

    /// The answer got lost, and with it perhaps events that Redis counts as ours: they are pending after the last one we got.
    pub(crate) fn fetch_failed(&self, fetch: Fetch) {
        let mut state = self.state();
        state.fetching = false;
        if state.generation == fetch.generation {
            state.source = Some(Source::Pending(state.last));
        }
    }

    /// The id to watch from, if the lane waits for new events.
    pub(crate) fn idle(&self) -> Option<EntryId> {
        match self.state().source {
            Some(Source::Idle(id)) if !self.abort.is_cancelled() && !self.drain.is_cancelled() => Some(id),
            _ => None,
        }
    }

    pub(crate) fn wake(&self) {
        let mut state = self.state();
        if matches!(state.source, Some(Source::Idle(_))) {
            state.source = Some(Source::New);
        }
    }
}
