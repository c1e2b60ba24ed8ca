//! The results of probes, read from a view. A probe is a virtual user that sends no requests. Each
//! of its calls is a sample of the group `probe/<name>`, and each value that it returns is a sample
//! of the metric `<name>`: a number is recorded as milliseconds, a text as the tag `text`. It runs no
//! probe. The compatibility view and the API call it.

use serde::Serialize;
use squall_metrics::{MetricKey, MetricKind, MetricView, RunView};

/// Prefix of the groups that hold the calls of probes, and of the requests that probes send. These
/// are no part of the load, so their metrics are custom ones.
pub(super) const PROBE_GROUP_PREFIX: &str = "probe/";

/// Tag of the metric of a text that a probe returned.
const TEXT_TAG: &str = "text";

/// The results of a probe in one second.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSecond {
    /// From the start of the run to the end of the second.
    pub t_s: u32,
    /// Calls of the probe.
    pub samples: u32,
    /// Calls that raised, timed out, or returned `False`.
    pub errors: u32,
    /// Mean duration of a call.
    pub time_ms: f64,
    /// `None` if every call failed.
    pub value: Option<ProbeValue>,
    /// Type and message of an exception, if one was raised.
    pub error: Option<(String, String)>,
}

/// What a probe returned in one second.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ProbeValue {
    /// The mean of the numbers.
    Number(f64),
    /// The most frequent text.
    Text(String),
}

impl ProbeSecond {
    /// Whether every call succeeded.
    pub fn is_ok(&self) -> bool {
        self.errors == 0
    }
}

/// The names of the probes that have run.
pub fn probe_names(view: &RunView) -> impl Iterator<Item = &str> {
    let groups = view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Group);
    groups.filter_map(|metric| metric.key.name.strip_prefix(PROBE_GROUP_PREFIX))
}

/// The results of the probe `name` after second `after`, oldest first.
pub fn probe_seconds(view: &RunView, name: &str, after: u32) -> Vec<ProbeSecond> {
    let Some(calls) = metric(view, &MetricKey::group(format!("{PROBE_GROUP_PREFIX}{name}"))) else { return Vec::new() };
    let values = metric(view, &MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) });
    let note = view.errors.iter().rev().find(|note| *note.metric == *calls.key);
    let error = note.map(|note| (note.outcome.code.to_string(), note.message.clone()));
    let seconds = calls.timeline.iter().skip(calls.timeline.partition_point(|second| second.t_s <= after));
    let seconds = seconds.map(|second| {
        let values = values.map(|values| values.timeline.as_slice()).unwrap_or_default();
        let value = values.binary_search_by_key(&second.t_s, |value| value.t_s).ok().map(|at| values[at]);
        ProbeSecond {
            t_s: second.t_s,
            samples: second.requests,
            errors: (second.errors + value.map_or(0, |value| value.errors)).min(second.requests),
            time_ms: ms(second.mean),
            value: value.map(|value| ProbeValue::Number(ms(value.mean))).or_else(|| text(view, name, second.t_s)),
            error: error.clone().filter(|_| second.errors > 0),
        }
    });
    seconds.collect()
}

/// The most frequent text that the probe `name` returned in the second `t_s`.
fn text(view: &RunView, name: &str, t_s: u32) -> Option<ProbeValue> {
    let texts = view.metrics.iter().filter_map(|metric| {
        let text = metric.key.tags.get(TEXT_TAG).filter(|_| metric.key.name == name)?;
        let at = metric.timeline.binary_search_by_key(&t_s, |second| second.t_s).ok()?;
        Some((metric.timeline[at].requests, text))
    });
    texts.max_by_key(|(requests, _)| *requests).map(|(_, text)| ProbeValue::Text(text.clone()))
}

fn metric<'a>(view: &'a RunView, key: &MetricKey) -> Option<&'a MetricView> {
    view.metrics.iter().find(|metric| *metric.key == *key)
}

/// Milliseconds with three decimals; a call is not measured more precisely.
fn ms(nanos: f32) -> f64 {
    (f64::from(nanos) / 1e3).round() / 1e3
}
