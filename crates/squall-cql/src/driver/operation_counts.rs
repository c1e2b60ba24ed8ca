//! Counts the partitions, rows and token ranges of a run by operation. The engine counts operations; the table of
//! cassandra-stress shows these, too. The workers of a fleet record them as metrics, which
//! `cql_counts.rs` of squall-web reads, too.

use super::{ConnectedThread, Workload, user::OK};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricId, MetricKey, MetricKind, MetricView, RunView};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Partitions and rows of one operation, or of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCounts {
    pub partitions: u64,
    pub rows: u64,
}

/// The sums of a run so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct RunCounts {
    /// Without any, every operation works on one partition of one row.
    operations: Arc<[CountedOperation]>,
    counted_by: CountedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CountedBy {
    #[default]
    Driver,
    /// `follow` reads what they recorded.
    Workers,
}

/// The metrics in which a worker of a fleet counts the partitions and rows of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountMetrics {
    partitions: MetricId,
    rows: MetricId,
    /// The ranges that a token-range query has read to their ends.
    ranges: Option<MetricId>,
}

impl CountMetrics {
    pub(super) fn new(operation: &str, reads_ranges: bool, recorder: &ThreadRecorder) -> CountMetrics {
        let metric = |counted: &str| {
            let name = metric_name(operation, counted);
            recorder.metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) })
        };
        let ranges = reads_ranges.then(|| metric(RANGES));
        CountMetrics { partitions: metric(PARTITIONS), rows: metric(ROWS), ranges }
    }
}

const PARTITIONS: &str = "partitions";
const ROWS: &str = "rows";
const RANGES: &str = "ranges";

fn metric_name(operation: &str, counted: &str) -> String {
    format!("{operation}:{counted}")
}

impl ConnectedThread {
    /// Counts one successful operation that began at `due`.
    pub(super) fn count(&self, operation: usize, due: Instant, counts: OperationCounts) {
        self.run.counts.add(operation, counts);
        if let Some(metrics) = self.count_metrics.get(operation) {
            self.record_count(metrics.partitions, due, counts.partitions);
            self.record_count(metrics.rows, due, counts.rows);
        }
    }

    /// Counts a token range that was read to its end.
    pub(super) fn count_range(&self, operation: usize, due: Instant) {
        if let Some(ranges) = self.count_metrics.get(operation).and_then(|metrics| metrics.ranges) {
            self.record_count(ranges, due, 1);
        }
    }

    fn record_count(&self, metric: MetricId, due: Instant, count: u64) {
        // Metrics are times, so 1 is recorded as 1 ms.
        self.recorder.record_span(metric, due, due + Duration::from_millis(count), OK);
    }
}

#[derive(Debug)]
struct CountedOperation {
    name: String,
    done: AtomicU64,
    partitions: AtomicU64,
    rows: AtomicU64,
    /// Token ranges read to their ends; only counted by the workers of a fleet.
    ranges: AtomicU64,
}

impl RunCounts {
    pub(super) fn new(names: &[&str]) -> RunCounts {
        let none = |name: &&str| CountedOperation {
            name: (*name).to_owned(),
            done: AtomicU64::new(0),
            partitions: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            ranges: AtomicU64::new(0),
        };
        RunCounts { operations: names.iter().map(none).collect(), counted_by: CountedBy::Driver }
    }

    /// Of a run on other machines.
    pub fn of_workers(workload: &Workload) -> RunCounts {
        match workload {
            // One partition of one row each.
            Workload::Standard(_) => RunCounts::default(),
            Workload::Profiles(_) => RunCounts { counted_by: CountedBy::Workers, ..RunCounts::new(&workload.names()) },
        }
    }

    /// Takes over what the workers of a fleet have counted so far; nothing if the driver counts here.
    pub fn follow(&self, view: &RunView) {
        if self.counted_by == CountedBy::Driver {
            return;
        }
        let metric = |name: &str| view.metrics.iter().find(|metric| metric.key.name == name);
        let sum = |metric: &MetricView| (metric.service.sum() / 1_000_000) as u64;
        for operation in self.operations.iter() {
            let counted = |what| metric(&metric_name(&operation.name, what)).map_or(0, sum);
            let done = metric(&operation.name).map_or(0, |metric| metric.requests - metric.errors);
            operation.done.store(done, Ordering::Relaxed);
            operation.partitions.store(counted(PARTITIONS), Ordering::Relaxed);
            operation.rows.store(counted(ROWS), Ordering::Relaxed);
            operation.ranges.store(counted(RANGES), Ordering::Relaxed);
        }
    }

    /// The token ranges that the workers of a fleet have read to their ends.
    pub fn ranges_of_workers(&self) -> u64 {
        self.operations.iter().map(|counted| counted.ranges.load(Ordering::Relaxed)).sum()
    }

    /// Counts one successful operation.
    fn add(&self, operation: usize, counts: OperationCounts) {
        let counted = &self.operations[operation];
        counted.done.fetch_add(1, Ordering::Relaxed);
        counted.partitions.fetch_add(counts.partitions, Ordering::Relaxed);
        counted.rows.fetch_add(counts.rows, Ordering::Relaxed);
    }

    /// The sums of the operation with this name, or of all operations, of which `done` succeeded.
    pub fn sum(&self, name: Option<&str>, done: u64) -> OperationCounts {
        if self.operations.is_empty() {
            return OperationCounts { partitions: done, rows: done };
        }
        self.with_name(name).fold(OperationCounts::default(), |sum, counted| OperationCounts {
            partitions: sum.partitions + counted.partitions.load(Ordering::Relaxed),
            rows: sum.rows + counted.rows.load(Ordering::Relaxed),
        })
    }

    /// The partitions and rows of `done` operations of an interval, by the average of the run so far:
    /// the engine decides which operations belong to an interval.
    pub fn average(&self, name: Option<&str>, done: u64) -> OperationCounts {
        if self.operations.is_empty() {
            return self.sum(name, done);
        }
        let all: u64 = self.with_name(name).map(|counted| counted.done.load(Ordering::Relaxed)).sum();
        let OperationCounts { partitions, rows } = self.sum(name, all);
        let part = |count: u64| (u128::from(count) * u128::from(done) / u128::from(all.max(1))) as u64;
        OperationCounts { partitions: part(partitions), rows: part(rows) }
    }

    fn with_name<'s>(&'s self, name: Option<&'s str>) -> impl Iterator<Item = &'s CountedOperation> {
        self.operations.iter().filter(move |counted| name.is_none_or(|name| counted.name == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_gets_the_average_of_its_operations() {
        let counts = RunCounts::new(&["a", "b"]);
        (0..3).for_each(|_| counts.add(0, OperationCounts { partitions: 2, rows: 10 }));
        counts.add(1, OperationCounts { partitions: 1, rows: 0 });
        assert_eq!(counts.sum(None, 4), OperationCounts { partitions: 7, rows: 30 });
        assert_eq!(counts.average(Some("a"), 2), OperationCounts { partitions: 4, rows: 20 });
        assert_eq!(counts.average(Some("b"), 0), OperationCounts::default());
        let standard = Workload::Standard(Vec::new());
        assert_eq!(RunCounts::of_workers(&standard).average(Some("a"), 3), OperationCounts { partitions: 3, rows: 3 });
    }
}
