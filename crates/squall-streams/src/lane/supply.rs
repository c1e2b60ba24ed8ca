//! The fetcher's side of a lane: what to fetch, what came, what to watch. Refuses to fetch for a lane that has enough.

use super::{Lane, Source};
use crate::{
    entry::{Entry, EntryId},
    metrics::add,
};

impl Lane {
    /// How many events to fetch, and from where; marks the lane as being fetched.
    pub(crate) fn claim_fetch(&self) -> Option<(usize, Option<EntryId>)> {
        let mut state = self.state();
        let wanted = self.hub.settings.prefetch;
        let held = state.queue.len();
        let busy = state.fetching || state.quarantined || self.abort.is_cancelled() || self.drain.is_cancelled();
        if busy || held * 2 > wanted {
            return None;
        }
        let from = match state.source {
            Some(Source::Pending(after)) => Some(after),
            Some(Source::New) => None,
            Some(Source::Idle(_)) | None => return None,
        };
        state.fetching = true;
        Some((wanted - held, from))
    }

    /// Takes what was fetched. `drained`: nothing new after that id.
    pub(crate) fn fetched(&self, entries: Vec<Entry>, replay: bool, drained: Option<EntryId>) {
        let mut state = self.state();
        state.fetching = false;
        if state.quarantined {
            return; // read again from the pending ones when the quarantine ends
        }
        state.source = match (replay, entries.last(), drained) {
            (true, Some(last), _) => Some(Source::Pending(last.id)),
            (true, None, _) | (false, _, None) => Some(Source::New),
            (false, _, Some(id)) => Some(Source::Idle(id)),
        };
        add(&self.hub.metrics.fetched, entries.len());
        add(&self.hub.metrics.buffered, entries.len());
        if replay {
            add(&self.hub.metrics.replayed, entries.len());
        }
        state.queue.extend(entries);
        drop(state);
        self.ready.notify_one();
    }

    pub(crate) fn fetch_failed(&self) {
        self.state().fetching = false;
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
