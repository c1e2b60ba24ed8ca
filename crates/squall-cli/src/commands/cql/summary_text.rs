//! The figures of the table and the summary from what the engine measured. It prints nothing and
//! computes no percentile: the merged histograms do.

use squall_cql::{Latencies, OperationCounts, OperationRates, OperationSummary, Pacing, RunCounts, summary};
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

/// The summary of a run, as cassandra-stress prints it.
pub(super) fn summary_text(view: &RunView, counts: &RunCounts, pacing: Pacing, elapsed: Duration) -> String {
    let of = |metric, name| operation_summary(metric, (counts, name), pacing, elapsed);
    let parts: Vec<OperationSummary<'_>> =
        operations(view).into_iter().map(|metric| of(metric, Some(&metric.key.name))).collect();
    summary(&of(&view.all, None), &parts, elapsed)
}

/// `counts` are those of the run, with the name of the operation or `None` for all of them.
fn operation_summary<'m>(
    metric: &'m MetricView,
    (counts, name): (&RunCounts, Option<&str>),
    pacing: Pacing,
    elapsed: Duration,
) -> OperationSummary<'m> {
    let counts = counts.sum(name, metric.requests - metric.errors);
    OperationSummary {
        name: &metric.key.name,
        rates: rates(metric, counts, elapsed),
        latencies: latencies(shown_latency(metric, pacing)),
        partitions: counts.partitions,
        errors: metric.errors,
    }
}

/// The failed tries and operations, one line for each message; empty without any.
pub(super) fn error_lines(view: &RunView) -> String {
    let line = |note: &squall_metrics::ErrorNote| {
        format!("{} {}: {} times: {}\n", note.metric.name, note.outcome.code, note.count, note.message)
    };
    view.errors.iter().map(line).collect()
}
