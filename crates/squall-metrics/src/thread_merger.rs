//! Merges the deltas of a worker's engine threads into one delta a second. It has no clock and no
//! I/O; squall-worker sends the result.

use crate::{
    Delta, SourceId,
    second_aligner::{ClosedSeconds, MergeError, SecondAligner, SourceProgress},
};

/// Adds the deltas of several threads to deltas of one source.
///
/// A second is released when all threads have reported it, even if it is empty, because the
/// collector waits for it. Seconds that every thread skipped (a suspended machine) are skipped here
/// too; the numbers of the deltas have no gaps.
pub struct ThreadMerger {
    source: SourceId,
    next_seq: u64,
    aligner: SecondAligner,
}

impl ThreadMerger {
    /// `source` is the source of the merged deltas; `threads` are all threads that must report a
    /// second.
    pub fn new(source: SourceId, threads: impl IntoIterator<Item = SourceId>) -> ThreadMerger {
        ThreadMerger { source, next_seq: 0, aligner: SecondAligner::new(threads) }
    }

    /// Merges a thread's `delta`; returns the seconds that this completes, in order. The last delta
    /// of all is marked as the last.
    pub fn merge(&mut self, delta: Delta) -> Result<Vec<Delta>, MergeError> {
        let ready = self.aligner.add_delta(delta)?;
        Ok(self.number_deltas(ready))
    }

    /// Releases the seconds that wait for threads that will send no more. None is marked as the
    /// last, because deltas are missing.
    pub fn flush_incomplete(&mut self) -> Vec<Delta> {
        let silent = self.aligner.sources.iter().filter(|(_, progress)| progress.complete_below != SourceProgress::ALL);
        let silent: Vec<SourceId> = silent.map(|(thread, _)| *thread).collect();
        let ready = silent.into_iter().flat_map(|thread| self.aligner.mark_lost(thread)).collect();
        let mut deltas = self.number_deltas(ready);
        deltas.iter_mut().for_each(|delta| delta.last = false);
        deltas
    }

    /// Whether every thread has sent its last delta.
    pub fn is_complete(&self) -> bool {
        self.aligner.is_complete()
    }

    fn number_deltas(&mut self, ready: ClosedSeconds) -> Vec<Delta> {
        let (source, seq) = (self.source, self.next_seq);
        let (complete, seconds) = (self.is_complete(), ready.len());
        self.next_seq += seconds as u64;
        let delta = |(i, (second, pending)): (usize, (u32, crate::pending_second::PendingSecond))| Delta {
            source,
            seq: seq + i as u64,
            second,
            metrics: pending.metrics,
            errors: pending.errors,
            engine: pending.engine,
            last: complete && i + 1 == seconds,
        };
        ready.into_iter().enumerate().map(delta).collect()
    }
}
