//! One merged second of a metric as an event with the fields that vikhry's readers use. vikhry has
//! one event per request; Squall's workers send no single requests, so an event stands for a second.
//! It computes no statistics. The compatibility view and the API call it.

use serde_json::{Value, json};
use squall_metrics::{MetricKind, MetricSecond, MetricView, Outcome, OutcomeCategory, RunView};

use super::probes::{PROBE_GROUP_PREFIX, probe_names};

/// The hooks of a user. Their failure ends the user's start, which vikhry calls fatal.
const START_HOOKS: [&str; 2] = ["on_init", "on_start"];

/// The metrics that vikhry's readers see. A failure of a step's code is an error of the step there, and
/// no request, so the metric that counts it as one of Squall's requests is left out.
pub fn vikhry_metrics(view: &RunView) -> impl Iterator<Item = &MetricView> {
    let keys = || view.metrics.iter().map(|metric| &*metric.key);
    view.metrics.iter().filter(move |metric| !metric.key.is_code_failure(keys()))
}

/// The event of `second` of `metric`, which ended at the Unix time `end_ms`. Of several outcomes it
/// names the most frequent one, and if there were errors the most frequent error.
pub fn metric_event(view: &RunView, metric: &MetricView, second: &MetricSecond, end_ms: u64) -> Value {
    // Rounded to microseconds, which keeps the events short.
    let ms = |nanos: f32| (f64::from(nanos) / 1e3).round() / 1e3;
    let outcome = main_outcome(view, metric, second);
    let mut event = json!({
        "ts_ms": end_ms,
        "name": metric.key.name,
        "step": metric.key.group,
        "status": second.errors == 0,
        "time": ms(second.mean),
        "source": source(view, metric),
        "stage": "execute",
        "result_code": outcome.map_or_else(|| "OK".to_owned(), |outcome| outcome.code.to_string()),
        "result_category": outcome.map_or(OutcomeCategory::Ok, |outcome| outcome.category).name(),
        "fatal": second.errors > 0 && is_start_hook(metric),
        "requests": second.requests,
        "errors": second.errors,
        "latency_avg_ms": ms(second.mean),
        "latency_median_ms": ms(second.p50),
        "latency_p95_ms": ms(second.p95),
        "latency_p99_ms": ms(second.p99),
    });
    let note = view.errors.iter().rev().find(|note| second.errors > 0 && *note.metric == *metric.key);
    if let Some(note) = note {
        event["error_type"] = note.outcome.code.to_string().into();
        event["error_message"] = note.message.as_str().into();
    }
    event
}

/// Whether the metric is a hook without which a user does not start.
pub fn is_start_hook(metric: &MetricView) -> bool {
    let name = metric.key.name.rsplit('/').next().unwrap_or_default();
    metric.key.kind == MetricKind::Group && START_HOOKS.contains(&name)
}

/// vikhry's word for what made the event. Its UI counts everything but `step` as requests, so spans
/// around requests, probes and the requests of probes have that word.
fn source(view: &RunView, metric: &MetricView) -> &'static str {
    match metric.key.kind {
        MetricKind::Request => "http",
        MetricKind::Group => "step",
        MetricKind::Custom if metric.key.id().starts_with(PROBE_GROUP_PREFIX) => "step",
        MetricKind::Custom if probe_names(view).any(|probe| probe == metric.key.name) => "step",
        MetricKind::Custom => "custom",
    }
}

/// The outcome that the event names: that of the second, or of the whole run if the view does not
/// keep the second.
fn main_outcome<'a>(view: &'a RunView, metric: &'a MetricView, second: &MetricSecond) -> Option<&'a Outcome> {
    let is_wanted = |outcome: &Outcome| (outcome.category == OutcomeCategory::Ok) == (second.errors == 0);
    let since = (view.timeline.len() + 1).saturating_sub(second.t_s as usize);
    let mut kept = view.latest_seconds(since);
    let of_second = kept.next().filter(|_| kept.count() + 1 == since);
    let of_second = of_second.and_then(|deltas| deltas.iter().find(|delta| *delta.key == *metric.key));
    let most_frequent = |outcomes: Vec<(&'a Outcome, u64)>| {
        let wanted = outcomes.into_iter().filter(|(outcome, _)| is_wanted(outcome));
        wanted.max_by_key(|(_, count)| *count).map(|(outcome, _)| outcome)
    };
    let in_second = of_second.map(|delta| delta.outcomes.iter().map(|(outcome, count)| (outcome, *count)).collect());
    in_second
        .and_then(most_frequent)
        .or_else(|| most_frequent(metric.outcomes.iter().map(|(outcome, count)| (outcome, *count)).collect()))
}
