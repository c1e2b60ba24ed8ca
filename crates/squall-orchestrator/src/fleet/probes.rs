//! What probes saw, read from a view. A probe is a user who sends nothing: each of its looks is a sample of the group `probe/<name>`, and what
//! it saw is a sample of the metric `<name>`, a number as milliseconds. Runs no probe.

use squall_metrics::{MetricKey, MetricKind, MetricView, RunView};

/// What the looks of a probe are named with.
const PROBE_GROUP_PREFIX: &str = "probe/";

/// What a probe saw in one second.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeSecond {
    /// From the start of the run to the end of the second.
    pub t_s: u32,
    pub samples: u32,
    /// Looks that raised, took too long, or saw `False`.
    pub errors: u32,
    /// How long a look took, on average.
    pub time_ms: f64,
    /// What it saw, on average; nothing if every look failed.
    pub value: Option<f64>,
    /// Kind and words of a failure, if one was raised.
    pub error: Option<(String, String)>,
}

impl ProbeSecond {
    /// Whether all was well.
    pub fn is_ok(&self) -> bool {
        self.errors == 0
    }
}

/// The probes that have looked.
pub fn probe_names(view: &RunView) -> impl Iterator<Item = &str> {
    let looks = view.metrics.iter().filter(|metric| metric.key.kind == MetricKind::Group);
    looks.filter_map(|metric| metric.key.name.strip_prefix(PROBE_GROUP_PREFIX))
}

/// What the probe `name` saw after second `after`, oldest first.
pub fn probe_seconds(view: &RunView, name: &str, after: u32) -> Vec<ProbeSecond> {
    let Some(looks) = metric(view, &MetricKey::group(format!("{PROBE_GROUP_PREFIX}{name}"))) else { return Vec::new() };
    let saw = metric(view, &MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) });
    let note = view.errors.iter().rev().find(|note| *note.metric == *looks.key);
    let error = note.map(|note| (note.outcome.code.to_string(), note.message.clone()));
    let seconds = looks.timeline.iter().skip(looks.timeline.partition_point(|second| second.t_s <= after));
    let seconds = seconds.map(|second| {
        let saw = saw.map(|saw| saw.timeline.as_slice()).unwrap_or_default();
        let saw = saw.binary_search_by_key(&second.t_s, |saw| saw.t_s).ok().map(|at| saw[at]);
        ProbeSecond {
            t_s: second.t_s,
            samples: second.requests,
            errors: (second.errors + saw.map_or(0, |saw| saw.errors)).min(second.requests),
            time_ms: ms(second.mean),
            value: saw.map(|saw| ms(saw.mean)),
            error: error.clone().filter(|_| second.errors > 0),
        }
    });
    seconds.collect()
}

fn metric<'a>(view: &'a RunView, key: &MetricKey) -> Option<&'a MetricView> {
    view.metrics.iter().find(|metric| *metric.key == *key)
}

/// Three digits after the point are more than a look knows.
fn ms(nanos: f32) -> f64 {
    (f64::from(nanos) / 1e3).round() / 1e3
}
