//! Key figures and the table of metrics for the live feed: percentiles of merged histograms, for the
//! whole run and for the latest seconds.

use serde_json::{Value, json};
use squall_metrics::{Histogram, MetricDelta, MetricKey, MetricView, RunView};
use std::{collections::HashMap, time::Duration};

use super::{columns::micros, cql_counts::CqlCounts};

/// The window of the key figures, in seconds.
const KEY_WINDOW_S: usize = 10;
/// The window of the table of metrics, in seconds.
pub(super) const TABLE_WINDOW_S: usize = 60;

/// Names of the columns of a table row.
pub(super) const TABLE_COLUMNS: [&str; 19] = [
    "id",
    "requests",
    "errors",
    "rate",
    "p50",
    "p90",
    "p95",
    "p99",
    "p999",
    "max",
    "mean",
    "bytes_in",
    "bytes_out",
    "service_p50",
    "service_p95",
    "service_p99",
    "wait_p50",
    "wait_p95",
    "wait_p99",
];

/// `last`: the latest seconds; `total`: the whole run, measured over `measured`.
pub(super) fn key_figures(view: &RunView, measured: Duration) -> Value {
    let seconds = view.timeline.len().min(KEY_WINDOW_S);
    let last = view.window(None, seconds as u32).filter(|_| seconds > 0);
    json!({
        "last": last.map(|last| figures(&last, CqlCounts::of_latest(view, seconds), seconds as f64)),
        "total": figures(&view.all, CqlCounts::of_run(view), measured.as_secs_f64()),
        "peak_users": view.engine.peak_users,
        "lag_p99": micros(view.engine.schedule_lag.percentile(99.0)),
        "dropped": view.engine.dropped,
        "late": view.engine.late,
        "iterations": view.engine.iterations,
    })
}

fn figures(metric: &MetricView, cql: Option<CqlCounts>, seconds: f64) -> Value {
    let percentile = |histogram: &Histogram, p| micros(histogram.percentile(p));
    json!({
        "seconds": seconds,
        "requests": metric.requests,
        "errors": metric.errors,
        "rate": rate(metric.requests, seconds),
        "error_rate": metric.error_rate(),
        "p50": percentile(&metric.response, 50.0),
        "p95": percentile(&metric.response, 95.0),
        "p99": percentile(&metric.response, 99.0),
        "max": micros(metric.response.max()),
        "service_p50": percentile(&metric.service, 50.0),
        "service_p95": percentile(&metric.service, 95.0),
        "service_p99": percentile(&metric.service, 99.0),
        "partitions_rate": cql.map(|counts| rate(counts.partitions, seconds)),
        "rows_rate": cql.map(|counts| rate(counts.rows, seconds)),
    })
}

/// The metrics that a table message is about: those whose place, divided by `parts`, leaves `place`.
/// All requests have the place 0, and each metric that of its id plus 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TablePart {
    pub(super) place: usize,
    pub(super) parts: usize,
}

impl TablePart {
    pub(super) const WHOLE: TablePart = TablePart { place: 0, parts: 1 };

    fn contains(self, place: usize) -> bool {
        place % self.parts == self.place
    }

    pub(super) fn has_metric(self, id: usize) -> bool {
        self.contains(id + 1)
    }

    /// Metrics of the part with their ids.
    pub(super) fn metrics(self, view: &RunView) -> impl Iterator<Item = (usize, &MetricView)> {
        view.metrics.iter().enumerate().filter(move |(id, _)| self.has_metric(*id))
    }
}

/// Rows of a part of the table, for the whole run and for the latest minute. All requests have the id -1.
pub(super) fn table(view: &RunView, measured: Duration, part: TablePart) -> Value {
    let measured = measured.as_secs_f64();
    let all = part.contains(0).then_some((-1, &view.all));
    let metrics = part.metrics(view).map(|(id, metric)| (id as i64, metric));
    let rows = all.into_iter().chain(metrics);
    let total: Vec<Value> = rows.map(|(id, metric)| table_row(id, &metric.into(), measured)).collect();
    let (window, seconds) = windows(view, part);
    json!({"part": [part.place, part.parts], "window_s": seconds, "total": total, "window": window})
}

/// What a row needs of a metric.
struct RowSource<'a> {
    requests: u64,
    errors: u64,
    bytes: (u64, u64),
    response: &'a Histogram,
    service: &'a Histogram,
    wait: &'a Histogram,
}

impl<'a> From<&'a MetricView> for RowSource<'a> {
    fn from(metric: &'a MetricView) -> RowSource<'a> {
        let MetricView { requests, errors, bytes_in, bytes_out, response, service, wait, .. } = metric;
        RowSource { requests: *requests, errors: *errors, bytes: (*bytes_in, *bytes_out), response, service, wait }
    }
}

fn table_row(id: i64, metric: &RowSource<'_>, seconds: f64) -> Value {
    let RowSource { requests, errors, bytes, response, service, wait } = metric;
    let p = |histogram: &Histogram, percentile| micros(histogram.percentile(percentile));
    json!([
        id,
        requests,
        errors,
        rate(*requests, seconds),
        p(response, 50.0),
        p(response, 90.0),
        p(response, 95.0),
        p(response, 99.0),
        p(response, 99.9),
        micros(response.max()),
        micros(response.mean() as u64),
        bytes.0,
        bytes.1,
        p(service, 50.0),
        p(service, 95.0),
        p(service, 99.0),
        p(wait, 50.0),
        p(wait, 95.0),
        p(wait, 99.0),
    ])
}

/// One pass over the kept seconds, because a pass for each metric would cost their product.
fn windows(view: &RunView, part: TablePart) -> (Vec<Value>, usize) {
    let mut merged: HashMap<&MetricKey, WindowTotal> =
        part.metrics(view).map(|(_, metric)| (&*metric.key, WindowTotal::default())).collect();
    let mut seconds = 0;
    for second in view.latest_seconds(TABLE_WINDOW_S) {
        seconds += 1;
        for delta in second {
            if let Some(total) = merged.get_mut(&*delta.key) {
                total.add(delta);
            }
        }
    }
    let all = (seconds > 0 && part.contains(0)).then(|| view.window(None, seconds as u32)).flatten();
    let all = all.iter().map(|all| table_row(-1, &all.into(), seconds as f64));
    let metrics = part.metrics(view).map(|(id, metric)| (id as i64, &merged[&*metric.key]));
    let metrics = metrics.filter(|(_, total)| total.merged);
    let metrics = metrics.map(|(id, total)| table_row(id, &total.row_source(), seconds as f64));
    (all.chain(metrics).collect(), seconds)
}

#[derive(Default)]
struct WindowTotal {
    /// Whether the window has the metric.
    merged: bool,
    requests: u64,
    errors: u64,
    bytes: (u64, u64),
    response: Histogram,
    service: Histogram,
    wait: Histogram,
}

impl WindowTotal {
    fn add(&mut self, delta: &MetricDelta) {
        self.merged = true;
        self.requests += delta.requests();
        self.errors += delta.errors();
        self.bytes = (self.bytes.0 + delta.bytes_in, self.bytes.1 + delta.bytes_out);
        self.response.merge(&delta.response);
        self.service.merge(&delta.service);
        self.wait.merge(&delta.wait);
    }

    fn row_source(&self) -> RowSource<'_> {
        let WindowTotal { requests, errors, bytes, response, service, wait, .. } = self;
        RowSource { requests: *requests, errors: *errors, bytes: *bytes, response, service, wait }
    }
}

/// Per second, with three decimals; 0 without time.
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (count as f64 / seconds * 1e3).round() / 1e3 } else { 0.0 }
}
