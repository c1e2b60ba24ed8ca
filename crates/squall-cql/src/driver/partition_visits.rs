//! Partitions that several operations write, as `-insert visits=` says: each visit writes the next
//! rows, and a partition waits here between two visits. It generates no rows and takes no seeds.

use crate::{Distribution, InsertSettings, Sampler};
use std::sync::{Mutex, PoisonError};

/// The partitions of a run that have rows left.
#[derive(Debug)]
pub(super) struct PartitionVisits {
    has_revisits: bool,
    visits: Distribution,
    revisit: Distribution,
    waiting: Mutex<Vec<PartitionVisit>>,
}

/// The part of a partition that one operation writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PartitionVisit {
    pub(super) seed: i64,
    /// How many visits the partition gets in all, at least 1.
    visits: u64,
    /// The rows that earlier visits wrote.
    first_row: usize,
}

/// One user's choice among waiting and new partitions.
#[derive(Debug)]
pub(super) struct VisitChooser {
    visits: Sampler,
    /// Without it, every partition is written by one operation.
    revisit: Option<Sampler>,
    lowest: i64,
}

impl PartitionVisits {
    pub(super) fn new(insert: &InsertSettings) -> PartitionVisits {
        PartitionVisits {
            has_revisits: insert.has_revisits(),
            visits: insert.visits.clone(),
            revisit: insert.revisit.clone(),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn chooser(&self) -> VisitChooser {
        // The oldest partitions are the likeliest, because they have the lowest positions.
        let inverted = || match self.revisit.clone() {
            Distribution::Inverted(inner) => *inner,
            other => Distribution::Inverted(Box::new(other)),
        };
        VisitChooser {
            visits: Sampler::new(self.visits.clone()),
            revisit: self.has_revisits.then(|| Sampler::new(inverted())),
            lowest: self.revisit.min().min(self.revisit.max()),
        }
    }

    /// Notes that the rows of a visit are written; a partition with rows left waits for its next
    /// visit.
    pub(super) fn finish(&self, visit: PartitionVisit, row_count: usize) {
        let next = PartitionVisit { first_row: visit.first_row + visit.rows_per_visit(row_count), ..visit };
        if next.visits > 1 && next.first_row < row_count {
            self.lock().push(next);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PartitionVisit>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VisitChooser {
    /// A waiting partition, if the draw of `revisit=` finds one.
    pub(super) fn take_waiting(&mut self, visits: &PartitionVisits) -> Option<PartitionVisit> {
        let position = usize::try_from(self.revisit.as_mut()?.draw().checked_sub(self.lowest)?).ok()?;
        let mut waiting = visits.lock();
        (position < waiting.len()).then(|| waiting.swap_remove(position))
    }

    /// The first visit of the partition of a new seed.
    pub(super) fn first_visit(&mut self, seed: i64) -> PartitionVisit {
        let visits = if self.revisit.is_some() { self.visits.draw() } else { 1 };
        PartitionVisit { seed, visits: u64::try_from(visits).unwrap_or(1).max(1), first_row: 0 }
    }
}

impl PartitionVisit {
    /// The rows of this visit in a partition with so many rows.
    pub(super) fn rows(&self, row_count: usize) -> std::ops::Range<usize> {
        self.first_row..(self.first_row + self.rows_per_visit(row_count)).min(row_count)
    }

    fn rows_per_visit(&self, row_count: usize) -> usize {
        (row_count / usize::try_from(self.visits).unwrap_or(usize::MAX)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CqlCommand, parse_command_line};

    fn visits(insert: &[&str]) -> PartitionVisits {
        let words = [&["write", "n=1", "-insert"], insert].concat();
        let Ok(CqlCommand::Stress(settings)) = parse_command_line(&words) else { panic!("{words:?}") };
        PartitionVisits::new(&settings.insert)
    }

    #[test]
    fn visits_write_every_row_once() {
        let pool = visits(&["visits=fixed(3)", "revisit=fixed(1)"]);
        let mut chooser = pool.chooser();
        assert_eq!(chooser.take_waiting(&pool), None);
        let (mut visit, mut rows) = (chooser.first_visit(7), Vec::new());
        loop {
            rows.push(visit.rows(10));
            pool.finish(visit, 10);
            match chooser.take_waiting(&pool) {
                Some(next) => visit = next,
                None => break,
            }
        }
        assert_eq!(rows, [0..3, 3..6, 6..9, 9..10]);
    }

    #[test]
    fn one_visit_writes_the_whole_partition() {
        let pool = visits(&["visits=fixed(1)"]);
        let mut chooser = pool.chooser();
        let visit = chooser.first_visit(7);
        assert_eq!(visit.rows(10), 0..10);
        pool.finish(visit, 10);
        assert_eq!(chooser.take_waiting(&pool), None);
        assert_eq!(visits(&["visits=fixed(9)"]).chooser().first_visit(1).rows(2), 0..1);
    }
}
