//! Messages about the measurements of a run: `snapshot`, `second`, `table` and `event`. They are
//! functions of what the watcher has aggregated.

use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_metrics::{MetricKind, MetricSecond, MetricView, RunSecond, RunView};
use squall_model::{FleetEvent, WorkerFacts, protocol::parse_instance};
use squall_report::ThresholdJson;
use std::collections::{BTreeSet, HashMap};

use super::{
    columns::{by_column, mean_per_second, micros, row, step_for},
    figures::{TABLE_WINDOW_S, TablePart, key_figures, table},
};
use crate::run_watcher::WatchedRun;

/// Heatmap columns and metrics in one `history` message.
const HISTORY_COLUMNS: usize = 600;
const HISTORY_METRICS: usize = 125;
/// The most workers that are named beside a failure.
const NAMED_WORKERS: usize = 3;

/// The run so far: a `snapshot`, and `history` messages that follow it. With `since`, seconds up to it are
/// left out, because the reader has them.
pub(crate) fn snapshot_messages<C: FleetStores>(watched: Option<&WatchedRun<C>>, since: u32) -> Vec<String> {
    let Some(watched) = watched else {
        return vec![json!({"type": "snapshot", "run": null}).to_string()];
    };
    let view = watched.view();
    // A reader that has more seconds than the run has those of another one.
    let since = if since as usize > view.timeline.len() { 0 } else { since };
    let seconds = &view.timeline[since as usize..];
    let step = step_for(seconds.len());
    let snapshot = json!({
        "type": "snapshot",
        "run": watched.run_id(),
        "finished": watched.finished,
        "started_ms": watched.started_ms,
        "elapsed_s": watched.elapsed.as_secs_f64(),
        "since": since,
        "step_s": step,
        "metrics": metric_names(view, 0),
        "seconds": by_column(seconds, step),
        "cpu": seconds.chunks(step).map(|part| cpu_of(watched, part)).collect::<Vec<_>>(),
        "failures": seconds.chunks(step).filter_map(failures_point).collect::<Vec<_>>(),
        "latest": view.timeline.last().map_or_else(Vec::new, |last| metric_figures(view, last.t_s)),
        "figures": figures_of(watched),
        "thresholds": thresholds(watched),
        "events": events(watched).iter().map(event_json).collect::<Vec<_>>(),
        "table": table_json(watched, TablePart::WHOLE),
    });
    let heat: Vec<Value> = seconds.chunks(step).filter_map(heat_point).collect();
    // In parts, because a browser that reads all of it at once does nothing else meanwhile.
    let history = |name: &str, part: &[Value]| json!({"type": "history", "run": watched.run_id(), name: part});
    let heat = heat.chunks(HISTORY_COLUMNS).map(|part| history("heat", part));
    let trends = trends(view);
    let trends = trends.chunks(HISTORY_METRICS).map(|part| history("trends", part));
    std::iter::once(snapshot).chain(heat).chain(trends).map(|message| message.to_string()).collect()
}

/// The closed second `t_s`. `known_metrics` is how many metrics the readers know.
pub(super) fn second_message<C: FleetStores>(
    watched: &WatchedRun<C>,
    second: &RunSecond,
    known_metrics: usize,
) -> String {
    let view = watched.view();
    json!({
        "type": "second",
        "run": watched.run_id(),
        "elapsed_s": watched.elapsed.as_secs_f64(),
        "row": row(second),
        "cpu": cpu_of(watched, std::slice::from_ref(second)),
        "failures": failures(second),
        "heat": heat_column(second),
        "new_metrics": metric_names(view, known_metrics),
        "metrics": metric_figures(view, second.t_s),
        "figures": figures_of(watched),
        "thresholds": thresholds(watched),
    })
    .to_string()
}

fn figures_of<C: FleetStores>(watched: &WatchedRun<C>) -> Value {
    let mut figures = key_figures(watched.view(), watched.measured_duration());
    figures["saturated_because"] = watched.saturated_because().into();
    figures
}

/// The CPU use of the busiest worker in seconds joined to one point, in percent.
fn cpu_of<C: FleetStores>(watched: &WatchedRun<C>, part: &[RunSecond]) -> Option<u16> {
    watched.cpu.highest(part.first()?.t_s, part.last()?.t_s)
}

pub(super) fn table_message<C: FleetStores>(watched: &WatchedRun<C>, part: TablePart) -> String {
    let mut message = table_json(watched, part);
    message["type"] = "table".into();
    message["run"] = watched.run_id().into();
    message.to_string()
}

pub(super) fn event_message(run: &str, event: &FleetEvent) -> String {
    json!({"type": "event", "run": run, "event": event_json(event)}).to_string()
}

pub(super) fn events<C: FleetStores>(watched: &WatchedRun<C>) -> Vec<FleetEvent> {
    match (watched.aggregator(), watched.facts()) {
        (Some(aggregator), _) => aggregator.events(),
        (None, Some(facts)) => facts.fleet.as_ref().map_or_else(Vec::new, |fleet| fleet.events.clone()),
        (None, None) => Vec::new(),
    }
}

fn event_json(event: &FleetEvent) -> Value {
    json!([(event.t_s * 10.0).round() / 10.0, event.text, event.kind, event.subject])
}

fn thresholds<C: FleetStores>(watched: &WatchedRun<C>) -> Vec<ThresholdJson> {
    watched.thresholds().iter().map(ThresholdJson::of).collect()
}

/// `[id, name, kind]` of every metric from `first` on.
fn metric_names(view: &RunView, first: usize) -> Vec<Value> {
    let kind = |metric: &MetricView| match metric.key.kind {
        MetricKind::Request => "request",
        MetricKind::Group => "group",
        MetricKind::Custom => "custom",
    };
    view.metrics.iter().enumerate().skip(first).map(|(id, m)| json!([id, m.key.id(), kind(m)])).collect()
}

/// Id, requests, p99, id, requests, p99, … of every metric with a sample in second `t_s`: browsers read
/// one flat list several times as fast as a list for each metric.
fn metric_figures(view: &RunView, t_s: u32) -> Vec<u64> {
    let row_of = |metric: &MetricView| -> Option<MetricSecond> {
        // The second is among the latest ones.
        metric.timeline.iter().rev().take_while(|row| row.t_s >= t_s).find(|row| row.t_s == t_s).copied()
    };
    let rows = view.metrics.iter().enumerate().filter_map(|(id, metric)| Some((id, row_of(metric)?)));
    rows.flat_map(|(id, row)| [id as u64, row.requests.into(), micros(row.p99 as u64)]).collect()
}

/// `[id, [t, …], [p99, …]]` of the latest minute of every metric.
fn trends(view: &RunView) -> Vec<Value> {
    let from = view.timeline.len().saturating_sub(TABLE_WINDOW_S) as u32;
    let trend = |(id, metric): (usize, &MetricView)| {
        let skip = metric.timeline.partition_point(|row| row.t_s <= from);
        let rows = &metric.timeline[skip..];
        let times: Vec<u32> = rows.iter().map(|row| row.t_s).collect();
        let p99: Vec<u64> = rows.iter().map(|row| micros(row.p99 as u64)).collect();
        (!rows.is_empty()).then(|| json!([id, times, p99]))
    };
    view.metrics.iter().enumerate().filter_map(trend).collect()
}

/// `[code, count]` of the failed requests of a second.
fn failures(second: &RunSecond) -> Vec<Value> {
    second.failures.iter().map(|(outcome, n)| json!([outcome.code.to_string(), n])).collect()
}

/// `[t, failures]` of seconds joined to one point, with the counts per second; `None` without any.
fn failures_point(part: &[RunSecond]) -> Option<Value> {
    let last = part.last()?;
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let failed = part.iter().flat_map(|second| &second.failures);
    failed.for_each(|(outcome, n)| *counts.entry(outcome.code.to_string()).or_default() += n);
    let codes: Vec<Value> = counts.iter().map(|(code, n)| json!([code, mean_per_second(*n, part.len())])).collect();
    (!codes.is_empty()).then(|| json!([last.t_s, codes]))
}

/// The heatmap column of a second: bucket, count, bucket, count, …
fn heat_column(second: &RunSecond) -> Vec<u64> {
    second.buckets.iter().flat_map(|(bucket, n)| [u64::from(*bucket), *n]).collect()
}

/// `[t, column]` of seconds joined to one point, with the counts per second; `None` without samples.
fn heat_point(part: &[RunSecond]) -> Option<Value> {
    let last = part.last()?;
    let mut counts = std::collections::BTreeMap::<u16, u64>::new();
    part.iter().flat_map(|second| &second.buckets).for_each(|(bucket, n)| *counts.entry(*bucket).or_default() += n);
    let pair = |(bucket, n): (&u16, &u64)| [u64::from(*bucket), mean_per_second(*n, part.len())];
    let column: Vec<u64> = counts.iter().flat_map(pair).collect();
    (!column.is_empty()).then(|| json!([last.t_s, column]))
}

/// The workers of the run by instance, with those that have left it.
fn worker_names<C: FleetStores>(watched: &WatchedRun<C>) -> HashMap<u64, String> {
    match (watched.aggregator(), watched.facts().and_then(|facts| facts.fleet.as_ref())) {
        (Some(aggregator), _) => {
            aggregator.worker_activity().into_iter().map(|part| (part.instance, part.id)).collect()
        }
        (None, Some(fleet)) => {
            let part = |facts: &WorkerFacts| Some((parse_instance(&facts.instance)?, facts.id.clone()));
            fleet.workers.iter().filter_map(part).collect()
        }
        (None, None) => HashMap::new(),
    }
}

/// Figures of the metrics of a part, their failures by outcome, and their failure messages.
fn table_json<C: FleetStores>(watched: &WatchedRun<C>, part: TablePart) -> Value {
    let view = watched.view();
    let mut table = table(view, watched.measured_duration(), part);
    let workers = worker_names(watched);
    let outcomes = |(id, metric): (usize, &MetricView)| -> Vec<Value> {
        let failed = metric.outcomes.iter().filter(|(outcome, _)| outcome.is_error());
        let failed = failed.map(|(outcome, n)| {
            let span = metric.failures.get(outcome);
            let (first_s, last_s) = (span.map(|span| span.first_s), span.map(|span| span.last_s));
            let named = span.into_iter().flat_map(|span| &span.instances).filter_map(|instance| workers.get(instance));
            let named: BTreeSet<&String> = named.collect();
            let some: Vec<&String> = named.iter().take(NAMED_WORKERS).copied().collect();
            json!([id, outcome.category.name(), outcome.code.to_string(), n, first_s, last_s, some, named.len()])
        });
        failed.collect()
    };
    let noted = view.errors.iter().map(|note| (view.metrics.iter().position(|metric| metric.key == note.metric), note));
    // Messages of no known metric are with all requests.
    let noted = noted.filter(|(id, _)| id.map_or(part.place == 0, |id| part.has_metric(id)));
    let messages = noted.map(|(id, note)| {
        json!([id, note.outcome.category.name(), note.outcome.code.to_string(), note.message, note.count])
    });
    table["messages"] = messages.collect();
    table["outcomes"] = part.metrics(view).flat_map(outcomes).collect();
    table
}
