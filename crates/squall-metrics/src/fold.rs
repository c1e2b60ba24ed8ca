//! The deltas of one worker's engine threads as one delta a second, to be shipped. It only adds up: no clock, no I/O.

use crate::{
    Delta, SourceId,
    align::{Alignment, Progress, Ready, Refused},
};

/// Adds the deltas of several threads up to deltas of one source.
///
/// A second leaves when all threads have reported it, even if nothing happened in it: whoever collects waits for it. Seconds
/// that every thread skipped (a machine that stood still) are skipped here too; the numbers of the deltas have no gaps.
pub struct Fold {
    source: SourceId,
    next_seq: u64,
    threads: Alignment,
}

impl Fold {
    /// `source`: who the folded deltas come from; `threads`: everybody who has to report a second.
    pub fn new(source: SourceId, threads: impl IntoIterator<Item = SourceId>) -> Fold {
        Fold { source, next_seq: 0, threads: Alignment::new(threads) }
    }

    /// Merges a thread's `delta`; returns the seconds that are whole by it, in order. The very last is marked as such.
    pub fn merge(&mut self, delta: Delta) -> Result<Vec<Delta>, Refused> {
        let ready = self.threads.take(delta)?;
        Ok(self.number(ready))
    }

    /// The seconds that wait for threads of which nothing more will come. None is marked as the last, because something is missing.
    pub fn give_up(&mut self) -> Vec<Delta> {
        let silent = self.threads.sources.iter().filter(|(_, progress)| progress.complete_below != Progress::ALL);
        let silent: Vec<SourceId> = silent.map(|(thread, _)| *thread).collect();
        let ready = silent.into_iter().flat_map(|thread| self.threads.lose(thread)).collect();
        let mut deltas = self.number(ready);
        deltas.iter_mut().for_each(|delta| delta.last = false);
        deltas
    }

    /// Whether every thread has said its last.
    pub fn is_complete(&self) -> bool {
        self.threads.is_complete()
    }

    fn number(&mut self, ready: Ready) -> Vec<Delta> {
        let (source, seq) = (self.source, self.next_seq);
        let (complete, seconds) = (self.is_complete(), ready.len());
        self.next_seq += seconds as u64;
        let delta = |(i, (second, pending)): (usize, (u32, crate::pending::PendingSecond))| Delta {
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
