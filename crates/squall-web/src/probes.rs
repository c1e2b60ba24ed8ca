//! Probes in the seed's shapes. A probe is a user of the fleet who sends nothing: each of its looks is a sample of the group `probe/<name>`,
//! and what it saw is a sample of the metric `<name>` (a number as milliseconds). Picks both out of a view; runs none.

use serde_json::{Value, json};
use squall_coord::Cell;
use squall_metrics::{Kind, MetricKey, MetricSecond, MetricView, RunView};

use crate::{
    live::{Shown, WINDOW_S},
    shapes::{event_id, ms, ts_ms, unix_s},
};

/// What the looks of a probe are named with.
const PREFIX: &str = "probe/";

/// What of the probes is wanted.
pub(crate) struct ProbesWanted {
    pub(crate) name: Option<String>,
    /// Most events of each.
    pub(crate) count: usize,
    pub(crate) events: bool,
}

/// `/probes`.
pub(crate) fn all<C: Cell>(shown: Option<&Shown<C>>, wanted: &ProbesWanted) -> Value {
    let mut names: Vec<&str> = match &wanted.name {
        Some(name) => vec![name.trim()],
        None => shown.map_or_else(Vec::new, |shown| shown.view().metrics.iter().filter_map(name_of).collect()),
    };
    names.sort_unstable();
    let probes: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let seconds = shown.map_or_else(Vec::new, |shown| seconds_of(shown, name));
            let events =
                wanted.events.then(|| last(&seconds, wanted.count).iter().map(Look::event).collect::<Vec<_>>());
            json!({
                "probe_name": name,
                "last_event_id": seconds.last().map(|look| look.id.as_str()),
                "aggregate": aggregate(shown, &seconds),
                "latest": seconds.last().map(Look::latest),
                "events": events,
            })
        })
        .collect();
    let lags = shown.is_some_and(Shown::lags);
    json!({
        "generated_at": unix_s(),
        "lag": {
            "detected": lags && !probes.is_empty(),
            "probes_with_backlog": probes.iter().filter(|_| lags).map(|probe| &probe["probe_name"]).collect::<Vec<_>>(),
        },
        "probes": probes,
        "count": wanted.count,
        "include_events": wanted.events,
    })
}

/// `/probes/history`.
pub(crate) fn history<C: Cell>(shown: Option<&Shown<C>>, name: &str, count: usize) -> Value {
    let seconds = shown.map_or_else(Vec::new, |shown| seconds_of(shown, name.trim()));
    let events: Vec<Value> = last(&seconds, count).iter().map(Look::event).collect();
    json!({
        "generated_at": unix_s(),
        "probe_name": name,
        "count": events.len(),
        "last_event_id": seconds.last().map(|look| look.id.as_str()),
        "events": events,
    })
}

/// What a probe saw in one second.
struct Look<'a> {
    id: String,
    name: &'a str,
    t_s: u32,
    ts_ms: u64,
    looks: u32,
    /// Looks that raised, took too long, or saw `False`.
    errors: u32,
    /// How long a look took.
    time_ms: f64,
    value: Option<f64>,
    /// Of the failure, if there was one.
    error: Option<(String, String)>,
}

impl Look<'_> {
    fn event(&self) -> Value {
        let mut data = self.latest();
        data["name"] = self.name.into();
        data["looks"] = self.looks.into();
        data["errors"] = self.errors.into();
        json!({"event_id": self.id, "data": data})
    }

    fn latest(&self) -> Value {
        json!({
            "ts_ms": self.ts_ms,
            "status": self.errors == 0,
            "value": self.value,
            "time": self.time_ms,
            "error_type": self.error.as_ref().map(|(kind, _)| kind),
            "error_message": self.error.as_ref().map(|(_, message)| message),
        })
    }
}

fn aggregate<C: Cell>(shown: Option<&Shown<C>>, seconds: &[Look<'_>]) -> Value {
    let now = shown.map_or(0, |shown| shown.view().timeline.len() as u32);
    let recent = seconds.iter().filter(|look| look.t_s + WINDOW_S > now);
    let (looks, errors) = recent.fold((0, 0), |(looks, errors), look| (looks + look.looks, errors + look.errors));
    let last = seconds.last();
    json!({
        "window_s": WINDOW_S,
        "successes": looks.saturating_sub(errors),
        "errors": errors,
        "last_ts_ms": last.map(|look| look.ts_ms),
        "last_status": last.map(|look| look.errors == 0),
        "last_value": last.and_then(|look| look.value),
    })
}

fn name_of(metric: &MetricView) -> Option<&str> {
    metric.key.name.strip_prefix(PREFIX).filter(|_| metric.key.kind == Kind::Group)
}

fn seconds_of<'a, C: Cell>(shown: &Shown<C>, name: &'a str) -> Vec<Look<'a>> {
    let view = shown.view();
    let Some(looks) = metric(view, &MetricKey::group(format!("{PREFIX}{name}"))) else { return Vec::new() };
    let saw = metric(view, &MetricKey { kind: Kind::Custom, ..MetricKey::request(name) });
    let note = view.errors.iter().rev().find(|note| *note.metric == *looks.key);
    let error = note.map(|note| (note.outcome.code.to_string(), note.message.clone()));
    let saw_at = |second: &MetricSecond| {
        let seconds = &saw?.timeline;
        let at = seconds.binary_search_by_key(&second.t_s, |second| second.t_s).ok()?;
        Some(seconds[at])
    };
    looks
        .timeline
        .iter()
        .map(|second| {
            let value = saw_at(second);
            Look {
                id: event_id(shown.started_ms, second.t_s),
                name,
                t_s: second.t_s,
                ts_ms: ts_ms(shown.started_ms, second.t_s),
                looks: second.requests,
                errors: (second.errors + value.map_or(0, |value| value.errors)).min(second.requests),
                time_ms: ms(f64::from(second.mean)),
                // A look that failed saw nothing; one that saw something other than a number has none.
                value: value.map(|value| ms(f64::from(value.mean))),
                error: error.clone().filter(|_| second.errors > 0),
            }
        })
        .collect()
}

fn metric<'a>(view: &'a RunView, key: &MetricKey) -> Option<&'a MetricView> {
    view.metrics.iter().find(|metric| *metric.key == *key)
}

fn last<T>(all: &[T], count: usize) -> &[T] {
    &all[all.len().saturating_sub(count)..]
}
