//! Decides which seconds are complete: takes each source's deltas once and in order, and releases a
//! second when all sources have reported it. It neither shows nor sends anything; the
//! [`Collector`](crate::Collector) and the [`ThreadMerger`](crate::ThreadMerger) do.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::{Delta, SourceId, pending_second::PendingSecond};

/// A delta further ahead of the run is refused, because each second in between would take memory.
pub(crate) const MAX_AHEAD_S: u32 = 30 * 24 * 3600;

/// Why a delta was not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("delta {seq} was merged already")]
    Duplicate { seq: u64 },
    #[error("delta {seq} came before delta {expected}")]
    Gap { seq: u64, expected: u64 },
    #[error("a delta came from an unknown source")]
    UnknownSource,
    #[error("a delta claims to be of second {second}, while the run is at {now}")]
    TooFarAhead { second: u32, now: u32 },
}

/// The sources, and the seconds that wait for them.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SecondAligner {
    pub(crate) sources: BTreeMap<SourceId, SourceProgress>,
    /// All are at or above `closed_below`.
    pub(crate) pending: BTreeMap<u32, PendingSecond>,
    /// Deltas for seconds that are already closed. They are released with the next second.
    pub(crate) overdue: Option<PendingSecond>,
    pub(crate) closed_below: u32,
}

/// The progress of one source.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SourceProgress {
    pub(crate) next_seq: u64,
    /// This source has completed all seconds below this; [`SourceProgress::ALL`] after its last
    /// delta.
    pub(crate) complete_below: u32,
    /// Whether the source is lost, so that seconds do not wait for it.
    pub(crate) lost: bool,
    pub(crate) begun: u64,
    /// Recorded requests without those that were never sent.
    pub(crate) recorded_sent: u64,
}

impl SourceProgress {
    pub(crate) const ALL: u32 = u32::MAX;

    fn awaited_from(&self) -> u32 {
        if self.lost { SourceProgress::ALL } else { self.complete_below }
    }
}

/// A released second.
pub(crate) type ClosedSeconds = Vec<(u32, PendingSecond)>;

impl SecondAligner {
    pub(crate) fn new(sources: impl IntoIterator<Item = SourceId>) -> SecondAligner {
        let sources = sources.into_iter().map(|id| (id, SourceProgress::default())).collect();
        SecondAligner { sources, ..SecondAligner::default() }
    }

    /// Open seconds wait for `source` from now on.
    pub(crate) fn add_source(&mut self, source: SourceId) {
        let complete_below = self.closed_below;
        self.sources.entry(source).or_insert(SourceProgress { complete_below, ..SourceProgress::default() });
    }

    /// Open seconds wait for the lost `source` again.
    pub(crate) fn restore_source(&mut self, source: SourceId) {
        let closed_below = self.closed_below;
        self.add_source(source);
        self.sources.entry(source).and_modify(|progress| {
            progress.lost = false;
            progress.complete_below = progress.complete_below.max(closed_below);
        });
    }

    /// Seconds do not wait for `source` from now on, unless it is restored.
    pub(crate) fn mark_lost(&mut self, source: SourceId) -> ClosedSeconds {
        self.add_source(source);
        self.sources.entry(source).and_modify(|progress| progress.lost = true);
        self.take_ready()
    }

    pub(crate) fn add_delta(&mut self, delta: Delta) -> Result<ClosedSeconds, MergeError> {
        let (second, now) = (delta.second, self.closed_below);
        let progress = self.sources.get_mut(&delta.source).ok_or(MergeError::UnknownSource)?;
        match delta.seq.cmp(&progress.next_seq) {
            Ordering::Less => return Err(MergeError::Duplicate { seq: delta.seq }),
            Ordering::Greater => return Err(MergeError::Gap { seq: delta.seq, expected: progress.next_seq }),
            Ordering::Equal => {}
        }
        if second >= now.saturating_add(MAX_AHEAD_S) {
            return Err(MergeError::TooFarAhead { second, now });
        }
        progress.next_seq += 1;
        progress.complete_below =
            if delta.last { SourceProgress::ALL } else { progress.complete_below.max(second + 1) };
        progress.begun += delta.engine.begun;
        progress.recorded_sent += delta.engine.recorded.saturating_sub(delta.engine.unsent);
        self.add_pending(second, PendingSecond::of(delta));
        Ok(self.take_ready())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete_below() == SourceProgress::ALL
    }

    /// Releases all pending seconds, in order, and the deltas that were too late for any second.
    pub(crate) fn finish(mut self) -> (ClosedSeconds, Option<PendingSecond>) {
        let ready = self.take_ready_below(SourceProgress::ALL);
        (ready, self.overdue)
    }

    fn add_pending(&mut self, second: u32, more: PendingSecond) {
        if second >= self.closed_below {
            self.pending.entry(second).or_default().merge(more);
        } else {
            self.overdue.get_or_insert_default().merge(more.without_gauges());
        }
    }

    fn take_ready(&mut self) -> ClosedSeconds {
        // Without sources no second can be pending.
        self.take_ready_below(self.complete_below())
    }

    fn take_ready_below(&mut self, below: u32) -> ClosedSeconds {
        let rest = self.pending.split_off(&below);
        let mut ready: ClosedSeconds = std::mem::replace(&mut self.pending, rest).into_iter().collect();
        if let Some((_, first)) = ready.first_mut()
            && let Some(overdue) = self.overdue.take()
        {
            first.merge(overdue);
        }
        if let Some((last, _)) = ready.last() {
            self.closed_below = last + 1;
        }
        ready
    }

    fn complete_below(&self) -> u32 {
        self.sources.values().map(SourceProgress::awaited_from).min().unwrap_or(SourceProgress::ALL)
    }
}
