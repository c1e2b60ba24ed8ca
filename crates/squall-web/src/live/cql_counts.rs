//! Partitions and rows of a run of `squall cql user`. It records them as custom metrics,
//! `OPERATION:partitions` and `OPERATION:rows` (`operation_counts.rs` of squall-cql). Other runs have none.

use squall_metrics::{Histogram, MetricKey, MetricKind, RunView};

/// The metrics are times: a count of 1 is recorded as 1 ms.
const NANOS_PER_COUNT: u128 = 1_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CqlCounts {
    pub(super) partitions: u64,
    pub(super) rows: u64,
}

impl CqlCounts {
    /// Of the whole run; `None` if no worker counts partitions.
    pub(super) fn of_run(view: &RunView) -> Option<CqlCounts> {
        CqlCounts::of(view.metrics.iter().map(|metric| (&*metric.key, &metric.service)))
    }

    /// Of the latest seconds.
    pub(super) fn of_latest(view: &RunView, seconds: usize) -> Option<CqlCounts> {
        let deltas = view.latest_seconds(seconds).flatten();
        CqlCounts::of(deltas.map(|delta| (&*delta.key, &delta.service)))
    }

    fn of<'a>(metrics: impl Iterator<Item = (&'a MetricKey, &'a Histogram)>) -> Option<CqlCounts> {
        let mut counts = CqlCounts::default();
        let mut counted = false;
        for (key, histogram) in metrics.filter(|(key, _)| key.kind == MetricKind::Custom) {
            let sum = match key.name.rsplit_once(':') {
                Some((_, "partitions")) => {
                    counted = true;
                    &mut counts.partitions
                }
                Some((_, "rows")) => &mut counts.rows,
                _ => continue,
            };
            *sum += (histogram.sum() / NANOS_PER_COUNT) as u64;
        }
        counted.then_some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::{Collector, Delta, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
    use std::time::Duration;

    /// Records `count` of a custom metric once in each second.
    fn view(seconds: u32, counts: &[(&str, u64)]) -> RunView {
        let source = SourceId { instance: 1, thread: 0 };
        let mut collector = Collector::new([source], 60);
        for second in 0..seconds {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            for (name, count) in counts {
                let key = MetricKey { kind: MetricKind::Custom, ..MetricKey::request(*name) };
                let metric = recorder.metric(key);
                recorder.count_begun();
                recorder.record(&Sample {
                    metric,
                    wait: Duration::ZERO,
                    service: Duration::from_millis(*count),
                    outcome: Outcome::of_status(200),
                    bytes_in: 0,
                    bytes_out: 0,
                    due_in_warm_up: false,
                });
            }
            let (metrics, errors, engine) = recorder.harvest(1, 1);
            let last = second + 1 == seconds;
            collector.merge(Delta { source, seq: second.into(), second, metrics, errors, engine, last }).unwrap();
        }
        collector.finish()
    }

    #[test]
    fn partitions_and_rows_of_all_operations_are_added() {
        let counts = [("insert:partitions", 2), ("insert:rows", 50), ("read:partitions", 1), ("read:rows", 7)];
        let view = view(3, &counts);
        assert_eq!(CqlCounts::of_run(&view), Some(CqlCounts { partitions: 9, rows: 171 }));
        assert_eq!(CqlCounts::of_latest(&view, 2), Some(CqlCounts { partitions: 6, rows: 114 }));
    }

    #[test]
    fn run_without_partitions_has_no_counts() {
        assert_eq!(CqlCounts::of_run(&view(1, &[("report:rows", 50)])), None);
    }
}
