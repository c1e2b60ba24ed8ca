//! Runs in the JSON format of vikhry. It selects numbers of a [`RunView`] and computes no
//! statistics: the view's merged histograms give every percentile.

use serde::Serialize;
use serde_json::{Map, Value, json};
use squall_coord::FleetStores;
use squall_metrics::{MetricKey, MetricSecond, MetricView, RunView};
use squall_orchestrator::{WorkerInfo, is_start_hook, metric_event, vikhry_metrics};
use std::{
    collections::BTreeMap,
    sync::atomic::Ordering::Relaxed,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::run_watcher::{ApiCounters, WINDOW_S, WatchedRun};

/// Maximum number of result codes listed by name; the others are summed up as `OTHER`.
const TOP_CODES: usize = 10;

/// The selection of a metrics request.
pub(crate) struct MetricsFilter {
    pub(crate) metric_id: Option<String>,
    /// Maximum number of seconds per metric.
    pub(crate) count: usize,
    pub(crate) include_events: bool,
}

impl MetricsFilter {
    /// The selection of the message that subscribers get every second.
    pub(crate) fn tick() -> MetricsFilter {
        MetricsFilter { metric_id: None, count: 0, include_events: false }
    }
}

/// A metric's id in the API: group, name and tags.
pub(crate) fn metric_api_id(key: &MetricKey) -> String {
    key.id()
}

/// `{"type", "payload"}` as text.
pub(crate) fn feed_message(kind: &str, payload: &Value) -> String {
    json!({"type": kind, "payload": payload}).to_string()
}

/// The JSON of `/metrics` and of the live feed.
pub(crate) fn metrics_json<C: FleetStores>(
    watched: Option<&WatchedRun<C>>,
    filter: &MetricsFilter,
    counters: &ApiCounters,
) -> Value {
    let metrics: Vec<Value> = watched.map_or_else(Vec::new, |watched| {
        let ids = vikhry_metrics(watched.view()).map(|metric| (metric_api_id(&metric.key), metric));
        let ids = ids.filter(|(id, _)| filter.metric_id.as_ref().is_none_or(|metric_id| metric_id == id));
        ids.map(|(id, metric)| metric_json(watched, id, metric, filter)).collect()
    });
    let late: Vec<Value> = metrics
        .iter()
        .filter(|_| watched.is_some_and(WatchedRun::is_lagging))
        .map(|metric| metric["metric_id"].clone())
        .collect();
    json!({
        "generated_at": unix_s(),
        "epoch": watched.map(|watched| watched.epoch),
        // A second is published when it is complete, for all metrics at once.
        "lag": {
            "detected": watched.is_some_and(WatchedRun::is_lagging),
            "metrics_with_backlog": late,
            "dropped_subscriber_messages": counters.dropped_messages.load(Relaxed),
        },
        "metrics": metrics,
        "count": filter.count,
        "include_events": filter.include_events,
    })
}

fn metric_json<C: FleetStores>(
    watched: &WatchedRun<C>,
    id: String,
    metric: &MetricView,
    filter: &MetricsFilter,
) -> Value {
    let (window, seconds) = watched.view().window_of(&metric.key, WINDOW_S as usize);
    let events = filter.include_events.then(|| {
        let skip = metric.timeline.len().saturating_sub(filter.count);
        metric.timeline.iter().skip(skip).map(|second| second_json(watched, metric, second)).collect::<Vec<_>>()
    });
    json!({
        "metric_id": id,
        "last_event_id": metric.timeline.last().map(|second| event_id(watched.started_ms, second.t_s)),
        "aggregate": aggregate(&window, seconds as f64, is_start_hook(metric)),
        "aggregate_total": aggregate(metric, watched.measured_duration().as_secs_f64(), is_start_hook(metric)),
        "events": events,
    })
}

/// An event: one second of the metric, merged over the fleet. Workers do not send raw samples.
fn second_json<C: FleetStores>(watched: &WatchedRun<C>, metric: &MetricView, second: &MetricSecond) -> Value {
    let end_ms = ts_ms(watched.started_ms, second.t_s);
    json!({
        "event_id": event_id(watched.started_ms, second.t_s),
        "data": metric_event(watched.view(), metric, second, end_ms),
    })
}

pub(crate) fn event_id(started_ms: u64, t_s: u32) -> String {
    format!("{}-0", ts_ms(started_ms, t_s))
}

/// Unix time of the end of a second.
pub(crate) fn ts_ms(started_ms: u64, t_s: u32) -> u64 {
    started_ms + u64::from(t_s) * 1000
}

#[derive(Serialize)]
struct MetricAggregate {
    window_s: f64,
    requests: u64,
    errors: u64,
    error_rate: f64,
    rps: f64,
    latency_avg_ms: f64,
    latency_median_ms: f64,
    latency_p95_ms: f64,
    latency_p99_ms: f64,
    result_code_counts: Map<String, Value>,
    result_category_counts: BTreeMap<&'static str, u64>,
    fatal_count: u64,
    top_result_codes: Vec<Value>,
}

/// The numbers of `metric` over `seconds`. With `fatal`, an error ends the start of a user.
fn aggregate(metric: &MetricView, seconds: f64, fatal: bool) -> MetricAggregate {
    let mut codes: Vec<(String, u64)> =
        metric.outcomes.iter().map(|(outcome, n)| (outcome.code.to_string(), *n)).collect();
    codes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let others: u64 = codes.iter().skip(TOP_CODES).map(|(_, n)| n).sum();
    codes.truncate(TOP_CODES);
    let top = codes.iter().map(|(code, count)| json!({"result_code": code, "count": count})).collect();
    if others > 0 {
        codes.push(("OTHER".to_owned(), others));
    }
    let mut categories = BTreeMap::new();
    for (outcome, n) in &metric.outcomes {
        *categories.entry(outcome.category.name()).or_default() += n;
    }
    let percentile = |p: f64| nanos_to_ms(metric.response.percentile(p) as f64);
    MetricAggregate {
        window_s: round_to_thousandths(seconds),
        requests: metric.requests,
        errors: metric.errors,
        error_rate: metric.error_rate(),
        rps: if seconds > 0.0 { round_to_thousandths(metric.requests as f64 / seconds) } else { 0.0 },
        latency_avg_ms: nanos_to_ms(metric.response.mean()),
        latency_median_ms: percentile(50.0),
        latency_p95_ms: percentile(95.0),
        latency_p99_ms: percentile(99.0),
        result_code_counts: codes.into_iter().map(|(code, n)| (code, n.into())).collect(),
        result_category_counts: categories,
        fatal_count: if fatal { metric.errors } else { 0 },
        top_result_codes: top,
    }
}

/// `/metrics/history`: one point for each second that ended after `from_s`, in seconds since 1970.
pub(crate) fn history_json<C: FleetStores>(watched: &WatchedRun<C>, from_s: u64) -> Vec<Value> {
    let from_ms = from_s.saturating_mul(1000);
    let view: &RunView = watched.view();
    let mut by_second: BTreeMap<u32, Map<String, Value>> = BTreeMap::new();
    for metric in vikhry_metrics(view) {
        let id = metric_api_id(&metric.key);
        let late = metric.timeline.iter().filter(|second| ts_ms(watched.started_ms, second.t_s) > from_ms);
        for second in late {
            let point = json!({
                "rps": second.requests,
                "latency_avg_ms": nanos_to_ms(f64::from(second.mean)),
                "latency_median_ms": nanos_to_ms(f64::from(second.p50)),
                "latency_p95_ms": nanos_to_ms(f64::from(second.p95)),
                "latency_p99_ms": nanos_to_ms(f64::from(second.p99)),
            });
            by_second.entry(second.t_s).or_default().insert(id.clone(), point);
        }
    }
    let seconds = view.timeline.iter().filter(|second| ts_ms(watched.started_ms, second.t_s) > from_ms);
    let points = seconds.map(|second| {
        let metrics = by_second.remove(&second.t_s).unwrap_or_default();
        json!({"ts": ts_ms(watched.started_ms, second.t_s) / 1000, "users": second.users, "metrics": metrics})
    });
    points.collect()
}

/// A worker as `/ready` and `/workers` show it.
pub(crate) fn worker_json(worker: &WorkerInfo, now_ms: u64) -> Value {
    // An entry that no worker wrote has no time.
    let reported_at = (worker.last_report_at > 0.0).then_some(worker.last_report_at);
    let age = reported_at.map(|at| round_to_thousandths((now_ms as f64 / 1e3 - at).max(0.0)));
    json!({
        "worker_id": worker.id,
        "status": worker.status,
        "last_heartbeat": worker.last_report_at as u64,
        "heartbeat_age_s": age,
        "cpu_percent": worker.cpu_percent,
        "process_ram_bytes": worker.rss_bytes,
        "total_ram_bytes": worker.total_ram_bytes,
    })
}

pub(crate) fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn nanos_to_ms(nanos: f64) -> f64 {
    round_to_thousandths(nanos / 1e6)
}

/// A load test has no meaningful digits beyond thousandths.
fn round_to_thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_id_includes_group_and_tags() {
        let mut key = MetricKey::request("pay");
        assert_eq!(metric_api_id(&key), "pay");
        key.group = Some("checkout".into());
        key.tags.insert("region".into(), "eu".into());
        assert_eq!(metric_api_id(&key), "checkout/pay{region=eu}");
    }
}
