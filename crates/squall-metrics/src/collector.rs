//! Merges every delta exactly once. A second of the run is closed, and becomes visible, when all
//! sources have reported it. It decides nothing about the run; the orchestrator does.
//!
//! A local run knows its sources from the start. In a fleet, sources join
//! ([`Collector::add_source`]) and are lost ([`Collector::mark_lost`]). A delta for a second that
//! was closed without it counts in the next second.

use crate::{
    Delta, RunView, SourceId,
    second_aligner::{ClosedSeconds, MergeError, SecondAligner, SourceProgress},
};

/// Adds deltas to a [`RunView`].
pub struct Collector {
    pub(crate) view: RunView,
    pub(crate) aligner: SecondAligner,
}

impl Collector {
    /// `window_s` is how many of the latest seconds keep full histograms, for sliding windows. When
    /// several seconds close at once, each keeps a window of its own until the next one closes.
    pub fn new(sources: impl IntoIterator<Item = SourceId>, window_s: u32) -> Collector {
        Collector { view: RunView::new(window_s), aligner: SecondAligner::new(sources) }
    }

    /// Open seconds wait for `source` from now on; closed ones stay closed. A source that is
    /// already known, or was lost, does not change.
    pub fn add_source(&mut self, source: SourceId) {
        self.aligner.add_source(source);
    }

    /// Open seconds wait for the lost `source` again; seconds closed without it stay closed.
    pub fn restore_source(&mut self, source: SourceId) {
        self.aligner.restore_source(source);
    }

    /// Seconds do not wait for `source` from now on, unless it is restored. Its later deltas are
    /// still merged. Returns how many seconds this closed.
    pub fn mark_lost(&mut self, source: SourceId) -> usize {
        let ready = self.aligner.mark_lost(source);
        self.close_seconds(ready)
    }

    /// Merges `delta`; returns how many seconds this closed.
    pub fn merge(&mut self, delta: Delta) -> Result<usize, MergeError> {
        let ready = self.aligner.add_delta(delta)?;
        Ok(self.close_seconds(ready))
    }

    /// Closes all open seconds, for a run whose sources ended without a last delta. Deltas that are
    /// too late for any second count in the last one.
    pub fn finish(mut self) -> RunView {
        let (ready, overdue) = std::mem::take(&mut self.aligner).finish();
        self.close_seconds(ready);
        if let Some(overdue) = overdue {
            self.view.amend_last(overdue);
        }
        self.view
    }

    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// Whether every source has sent its last delta, or is lost.
    pub fn is_complete(&self) -> bool {
        self.aligner.is_complete()
    }

    /// Whether `source` has sent its last delta.
    pub fn is_finished(&self, source: SourceId) -> bool {
        self.aligner.sources.get(&source).is_some_and(|progress| progress.complete_below == SourceProgress::ALL)
    }

    /// The number of the next delta of `source`, which is the number of its merged deltas.
    pub fn next_seq(&self, source: SourceId) -> u64 {
        self.aligner.sources.get(&source).map_or(0, |progress| progress.next_seq)
    }

    /// How many requests of `source` were merged as recorded, in any second, without those that were
    /// never sent.
    pub fn recorded_sent_of(&self, source: SourceId) -> u64 {
        self.aligner.sources.get(&source).map_or(0, |progress| progress.recorded_sent)
    }

    /// How many requests of `source` were merged as begun, in any second.
    pub fn begun_of(&self, source: SourceId) -> u64 {
        self.aligner.sources.get(&source).map_or(0, |progress| progress.begun)
    }

    /// All sources so far, including lost ones.
    pub fn sources(&self) -> impl Iterator<Item = SourceId> + '_ {
        self.aligner.sources.keys().copied()
    }

    fn close_seconds(&mut self, ready: ClosedSeconds) -> usize {
        let closed = ready.len();
        if closed > 0 {
            self.view.trim_recent();
        }
        ready.into_iter().for_each(|(second, pending)| self.view.close(second, pending));
        closed
    }
}

#[cfg(test)]
mod tests;
