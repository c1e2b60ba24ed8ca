//! Counts the partitions, rows and token ranges of a run's operations in custom metrics, because the engine
//! counts operations only. `cql_counts.rs` of squall-web reads these metrics, too.

use super::{ConnectedThread, Workload, user::OK};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricId, MetricKey, MetricKind, MetricView, RunView};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Partitions and rows of one operation, or of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OperationCounts {
    pub partitions: u64,
    pub rows: u64,
}

/// What a successful operation has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OperationAnswer {
    pub(super) counts: OperationCounts,
    /// Bytes of the rows that the database sent.
    pub(super) bytes: u64,
}

/// Reads what the operations of a run have counted.
#[derive(Debug, Clone, Default)]
pub struct RunCounts {
    /// The names of the operations. Without any, every operation works on one partition of one row.
    operations: Arc<[String]>,
}

/// The metrics in which a thread counts the partitions and rows of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountMetrics {
    partitions: MetricId,
    rows: MetricId,
    /// The ranges that a token-range query has read to their ends.
    ranges: Option<MetricId>,
}

impl CountMetrics {
    pub(super) fn new(operation: &str, reads_ranges: bool, recorder: &ThreadRecorder) -> CountMetrics {
        let metric = |counted: &str| custom_metric(metric_name(operation, counted), recorder);
        let ranges = reads_ranges.then(|| metric(RANGES));
        CountMetrics { partitions: metric(PARTITIONS), rows: metric(ROWS), ranges }
    }
}

/// The iterations of a worker of a fleet that made no operation, because all seeds or partitions were used.
const UNUSED_ITERATIONS: &str = "iterations:unused";

/// The metric of [`RunCounts::all_used`].
pub(super) fn unused_iterations(recorder: &ThreadRecorder) -> MetricId {
    custom_metric(UNUSED_ITERATIONS.to_owned(), recorder)
}

fn custom_metric(name: String, recorder: &ThreadRecorder) -> MetricId {
    recorder.metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) })
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

    /// Counts an iteration, due at `due`, that found all seeds or partitions used.
    pub(super) fn count_unused_iteration(&self, due: Instant) {
        if let Some(metric) = self.unused_iterations {
            self.record_count(metric, due, 1);
        }
    }

    fn record_count(&self, metric: MetricId, due: Instant, count: u64) {
        // Metrics are times, so 1 is recorded as 1 ms.
        self.recorder.record_span(metric, due, due + Duration::from_millis(count), OK);
    }
}

impl RunCounts {
    pub fn new(workload: &Workload) -> RunCounts {
        match workload {
            // One partition of one row each.
            Workload::Standard(_) => RunCounts::default(),
            Workload::Profiles(_) => {
                RunCounts { operations: workload.names().into_iter().map(str::to_owned).collect() }
            }
        }
    }

    /// Whether a metric with this name counts something.
    pub(super) fn has_metric(&self, name: &str) -> bool {
        let counts = |operation: &String| [PARTITIONS, ROWS, RANGES].map(|counted| metric_name(operation, counted));
        self.operations.iter().flat_map(counts).any(|metric| metric == name)
    }

    /// The sums of the run so far for the operation with this name, or for all operations, of which `done`
    /// succeeded.
    pub fn of_run(&self, name: Option<&str>, done: u64, view: &RunView) -> OperationCounts {
        self.sum(name, done, |metric| view.metric(metric).map_or(0, counted))
    }

    /// As `of_run`, for the time that `window` returns metrics of.
    pub fn of_window(
        &self,
        name: Option<&str>,
        done: u64,
        window: impl Fn(&str) -> Option<MetricView>,
    ) -> OperationCounts {
        self.sum(name, done, |metric| window(metric).as_ref().map_or(0, counted))
    }

    /// The token ranges that were read to their ends.
    pub fn ranges(&self, view: &RunView) -> u64 {
        let ranges = |name: &String| view.metric(&metric_name(name, RANGES)).map_or(0, counted);
        self.operations.iter().map(ranges).sum()
    }

    /// Whether the workers of a fleet have used all seeds or partitions: the counter that they share gives a
    /// worker nothing only after every number was used.
    pub fn all_used(view: &RunView) -> bool {
        view.metric(UNUSED_ITERATIONS).is_some_and(|metric| metric.requests > 0)
    }

    fn sum(&self, name: Option<&str>, done: u64, count: impl Fn(&str) -> u64) -> OperationCounts {
        if self.operations.is_empty() {
            return OperationCounts { partitions: done, rows: done };
        }
        let named = self.operations.iter().filter(|operation| name.is_none_or(|name| **operation == name));
        named.fold(OperationCounts::default(), |sum, operation| OperationCounts {
            partitions: sum.partitions + count(&metric_name(operation, PARTITIONS)),
            rows: sum.rows + count(&metric_name(operation, ROWS)),
        })
    }
}

fn counted(metric: &MetricView) -> u64 {
    (metric.service.sum() / 1_000_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_partitions_and_rows_of_its_own_time() {
        let counts = RunCounts { operations: ["a", "b"].map(str::to_owned).into() };
        let of = |name| {
            counts.sum(name, 9, |metric| {
                ["a:partitions", "a:rows", "b:partitions", "b:rows"]
                    .iter()
                    .position(|known| *known == metric)
                    .map_or(0, |position| [6, 30, 1, 0][position])
            })
        };
        assert_eq!(of(Some("a")), OperationCounts { partitions: 6, rows: 30 });
        assert_eq!(of(Some("b")), OperationCounts { partitions: 1, rows: 0 });
        assert_eq!(of(None), OperationCounts { partitions: 7, rows: 30 });
        let standard = RunCounts::new(&Workload::Standard(Vec::new()));
        assert_eq!(standard.of_window(Some("a"), 3, |_| None), OperationCounts { partitions: 3, rows: 3 });
    }
}
