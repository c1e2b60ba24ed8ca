//! The figures of the table and the summary from what the engine measured. It prints nothing and
//! computes no percentile: the merged histograms do.

use squall_cql::{
    Latencies, OperationCounts, OperationRates, OperationSummary, Pacing, RunCounts, TableRow, labelled_line, summary,
    table_header,
};
use squall_metrics::{Histogram, MetricKind, MetricView, RunView};
use std::time::Duration;

/// The latencies that a command shows: response time for `fixed=`, service time otherwise.
pub(super) fn shown_latency(view: &MetricView, pacing: Pacing) -> &Histogram {
    match pacing {
        Pacing::Fixed(_) => &view.response,
        Pacing::Unlimited | Pacing::Throttle(_) => &view.service,
    }
}

pub(super) fn latencies(histogram: &Histogram) -> Latencies {
    let millis = |nanos: f64| nanos / 1e6;
    let percentile = |percentile: f64| millis(histogram.percentile(percentile) as f64);
    Latencies {
        mean: millis(histogram.mean()),
        median: percentile(50.0),
        p95: percentile(95.0),
        p99: percentile(99.0),
        p999: percentile(99.9),
        max: millis(histogram.max() as f64),
    }
}

/// `counts` are the partitions and rows of the same time.
pub(super) fn rates(view: &MetricView, counts: OperationCounts, length: Duration) -> OperationRates {
    let seconds = length.as_secs_f64();
    let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    OperationRates { operations: rate(view.requests), partitions: rate(counts.partitions), rows: rate(counts.rows) }
}

/// The operations of a run in alphabetical order.
pub(super) fn operations(view: &RunView) -> Vec<&MetricView> {
    let is_operation = |metric: &&MetricView| metric.key.kind == MetricKind::Request && metric.requests > 0;
    let mut metrics: Vec<&MetricView> = view.metrics.iter().filter(is_operation).collect();
    metrics.sort_by(|a, b| a.key.name.cmp(&b.key.name));
    metrics
}

/// What a run measured, and how it is shown.
pub(super) struct ShownRun<'r> {
    pub(super) view: &'r RunView,
    pub(super) counts: &'r RunCounts,
    pub(super) pacing: Pacing,
    /// How long the run made load. A fleet notices the end of a run later than its last operation.
    pub(super) active: Duration,
    /// Until the end of the last operation.
    pub(super) elapsed: Duration,
    pub(super) standard_error: f64,
}

/// The row of all operations.
pub(super) const TOTAL: &str = "total";

impl ShownRun<'_> {
    /// The summary of a run, as cassandra-stress prints it.
    pub(super) fn summary(&self) -> String {
        let parts: Vec<OperationSummary<'_>> =
            operations(self.view).into_iter().map(|metric| self.figures(metric, Some(&metric.key.name))).collect();
        summary(&self.figures(&self.view.all, None), &parts, self.elapsed)
    }

    /// Operations per second.
    pub(super) fn operation_rate(&self) -> f64 {
        self.figures(&self.view.all, None).rates.operations
    }

    /// The lines of the whole run in the table of several runs: one for each operation, and one for all.
    pub(super) fn table_lines(&self) -> Vec<String> {
        let of_operation = |metric: &MetricView| self.table_line(metric, Some(&metric.key.name));
        let mut lines: Vec<String> = operations(self.view).into_iter().map(of_operation).collect();
        lines.push(self.table_line(&self.view.all, None));
        lines
    }

    fn table_line(&self, metric: &MetricView, name: Option<&str>) -> String {
        let OperationSummary { rates, latencies, errors, .. } = self.figures(metric, name);
        let row = TableRow {
            name: name.unwrap_or(TOTAL),
            total_operations: metric.requests,
            rates,
            latencies,
            elapsed: self.elapsed,
            standard_error: self.standard_error,
            errors,
        };
        row.line()
    }

    /// `name` is that of the operation, or `None` for all of them.
    fn figures<'m>(&self, metric: &'m MetricView, name: Option<&str>) -> OperationSummary<'m> {
        let counts = self.counts.of_run(name, metric.requests - metric.errors, self.view);
        OperationSummary {
            name: &metric.key.name,
            rates: rates(metric, counts, self.active),
            latencies: latencies(shown_latency(metric, self.pacing)),
            partitions: counts.partitions,
            errors: metric.errors,
        }
    }
}

/// The table of several runs, each with its number of threads.
pub(super) fn steps_table(steps: &[(u32, Vec<String>)]) -> String {
    let label = |threads: u32| format!("{threads} threadCount");
    let width = steps.iter().map(|(threads, _)| label(*threads).len()).max().unwrap_or_default();
    let mut text = labelled_line("id", width, &table_header()) + "\n";
    for (threads, lines) in steps {
        lines.iter().for_each(|line| text += &(labelled_line(&label(*threads), width, line) + "\n"));
    }
    text
}

/// The failed tries and operations, one line for each message; empty without any.
pub(super) fn error_lines(view: &RunView) -> String {
    let line = |note: &squall_metrics::ErrorNote| {
        format!("{} {}: {} times: {}\n", note.metric.name, note.outcome.code, note.count, note.message)
    };
    view.errors.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::interval_table::tests::view, *};
    use squall_cql::{BasicOperation, Workload};

    #[test]
    fn rates_are_those_of_the_time_with_load() {
        let view = view(&[&[("WRITE", &[1, 1, 1, 1, 1, 1])], &[("WRITE", &[1, 1])]]);
        let workload = Workload::Standard(vec![(BasicOperation::Write, 1.0)]);
        let run = ShownRun {
            view: &view,
            counts: &RunCounts::new(&workload),
            pacing: Pacing::Unlimited,
            active: Duration::from_secs(2),
            elapsed: Duration::from_millis(3200),
            standard_error: 0.0,
        };
        assert_eq!(run.operation_rate(), 4.0);
        let summary = run.summary();
        assert!(summary.contains("Op rate                   :        4 op/s  [WRITE: 4 op/s]"), "{summary}");
        assert!(summary.contains("Total operation time      : 00:00:03"), "{summary}");
    }

    #[test]
    fn the_table_of_several_runs_has_labels_of_the_longest_length() {
        let steps = [(8, vec!["READ".to_owned(), "total".to_owned()]), (16, vec!["total".to_owned()])];
        let table = steps_table(&steps);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[0].starts_with("            id, type  "), "{table}");
        assert_eq!(lines[1..], [" 8 threadCount, READ", " 8 threadCount, total", "16 threadCount, total"]);
    }
}
