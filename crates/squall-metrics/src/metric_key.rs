//! Identifies a metric: a series of samples of a request, a group or a custom metric.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the name of a metric ends that counts failures of Python code without a request to bear them. The
/// task's own metric has the same failures as spans.
pub const CODE_FAILURE_SUFFIX: &str = " (failed)";

/// Whether samples of a metric are requests or spans around requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricKind {
    /// Counts in the run's totals.
    Request,
    /// A named group or a whole task: timed, but not a request itself.
    Group,
    /// Recorded by the scenario's own code.
    Custom,
}

/// Identifies a metric within a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MetricKey {
    pub name: String,
    pub kind: MetricKind,
    pub group: Option<String>,
    pub tags: BTreeMap<String, String>,
}

impl MetricKey {
    pub fn request(name: impl Into<String>) -> MetricKey {
        MetricKey { name: name.into(), kind: MetricKind::Request, group: None, tags: BTreeMap::new() }
    }

    pub fn group(name: impl Into<String>) -> MetricKey {
        MetricKey { kind: MetricKind::Group, ..MetricKey::request(name) }
    }

    /// Whether the samples are failures of code and no requests, of which `keys` has the task's metric; see
    /// [`CODE_FAILURE_SUFFIX`].
    pub fn is_code_failure<'a>(&self, mut keys: impl Iterator<Item = &'a MetricKey>) -> bool {
        let task = self.name.strip_suffix(CODE_FAILURE_SUFFIX).filter(|_| self.kind == MetricKind::Request);
        task.is_some_and(|task| keys.any(|key| key.kind == MetricKind::Group && key.name == task))
    }

    /// The metric's name in stores and APIs: its group, its name, its tags.
    pub fn id(&self) -> String {
        let group = self.group.as_ref().map(|group| format!("{group}/")).unwrap_or_default();
        let tags: Vec<String> = self.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let tags = if tags.is_empty() { String::new() } else { format!("{{{}}}", tags.join(",")) };
        format!("{group}{}{tags}", self.name)
    }
}
