//! Parses the thresholds of the file and the command line, and checks that the run has their metrics.
//! Does not evaluate them.

use squall_model::{StatisticUnit, Threshold};

use super::{ScenarioBuilder, browser::PAGE_FIGURES};
use crate::{Sourced, error::did_you_mean, read::RawScenario};

/// The metrics that the run will have.
#[derive(Clone, Copy)]
pub(super) struct KnownMetrics<'a> {
    pub(super) names: &'a [String],
    /// The run may have other metrics too.
    pub(super) allow_unknown: bool,
}

impl KnownMetrics<'_> {
    /// Whether there will be, or may be, a metric of this name.
    fn may_have(&self, metric: &String) -> bool {
        // A failure of Python code without a request to bear it is counted under this name.
        let of = metric.strip_suffix(" (failed)").filter(|_| self.allow_unknown);
        let hook = self.allow_unknown && ["on_start", "on_stop"].contains(&of.unwrap_or(metric));
        hook || self.names.contains(metric) || of.is_some_and(|of| self.names.iter().any(|name| name == of))
    }
}

/// How limits without a percent sign are read: `error_rate<1` may be meant as 1 %.
pub(super) fn fraction_notes<'t>(given: impl Iterator<Item = &'t Sourced<String>>) -> Vec<String> {
    let note = |given: &Sourced<String>| {
        let (text, threshold) = (given.value.trim(), given.value.parse::<Threshold>().ok()?);
        let is_bare = text.rsplit(['<', '>', '=']).next().is_some_and(|limit| !limit.contains('%'));
        let is_fraction = threshold.statistic.unit() == StatisticUnit::Fraction && threshold.limit > 0.0;
        let note = || format!("threshold {text} is read as {threshold}: write the limit with % to make it clear");
        (is_bare && is_fraction).then(note)
    };
    given.filter_map(note).collect()
}

impl ScenarioBuilder<'_, '_> {
    /// The file's thresholds, then the flags'. A flag replaces the file's threshold on the same quantity.
    /// Within the file and within the flags all are kept, because two limits on one quantity are two
    /// thresholds.
    pub(super) fn thresholds(
        &mut self,
        raw: &RawScenario,
        flags: &[Sourced<String>],
        known: KnownMetrics<'_>,
    ) -> Vec<Threshold> {
        let mut thresholds = self.parse_thresholds(&raw.thresholds, known);
        let flags = self.parse_thresholds(flags, known);
        thresholds.retain(|old| !flags.iter().any(|new| replaces(new, old)));
        thresholds.extend(flags);
        thresholds
    }

    /// Every threshold of a list, each once.
    fn parse_thresholds(&mut self, list: &[Sourced<String>], known: KnownMetrics<'_>) -> Vec<Threshold> {
        let mut thresholds: Vec<Threshold> = Vec::new();
        for given in list {
            let threshold: Threshold = match given.value.parse() {
                Ok(threshold) => threshold,
                Err(error) => {
                    let hint = "write for example p99<500ms, error_rate<1%, browse:p95[10s]<300ms !abort";
                    self.problems.add_with_hint(&given.location, error.to_string(), hint);
                    continue;
                }
            };
            if let Some(metric) = threshold.metric.as_ref().filter(|metric| !known.may_have(metric)) {
                let names = || known.names.iter().map(String::as_str);
                // The name of a step begins with that of its task.
                let is_step = |name: &&str| name.strip_suffix(&**metric).is_some_and(|task| task.ends_with('/'));
                let step = names().find(is_step).filter(|_| !known.allow_unknown);
                let hint = match step.or_else(|| did_you_mean(metric, names())) {
                    // A misspelt task name is an error, not a metric that appears later.
                    Some(close) => Some(format!("did you mean `{close}`?")),
                    None if known.allow_unknown => None,
                    None => Some(format!("there are {}", list_metrics(known.names))),
                };
                if let Some(hint) = hint {
                    self.problems.add_with_hint(&given.location, format!("there is no metric `{metric}`"), hint);
                }
            }
            if !thresholds.contains(&threshold) {
                thresholds.push(threshold);
            }
        }
        thresholds
    }
}

/// The metric names without those of redirects and of figures of pages, which every request or browser
/// step has.
pub(crate) fn list_metrics(names: &[String]) -> String {
    let is_figure = |name: &str| {
        let step = name.rsplit_once(':').filter(|(_, figure)| PAGE_FIGURES.contains(figure));
        step.is_some_and(|(step, _)| names.iter().any(|known| known == step))
    };
    let is_listed = |name: &&str| !name.ends_with(" (redirect)") && !is_figure(name);
    let listed: Vec<&str> = names.iter().map(String::as_str).filter(is_listed).collect();
    listed.join(", ")
}

/// Whether both limit the same quantity in the same direction.
fn replaces(new: &Threshold, old: &Threshold) -> bool {
    use squall_model::ComparisonOperator::{AtLeast, AtMost, Greater, Less};
    let upper = |threshold: &Threshold| match threshold.comparison {
        Less | AtMost => true,
        Greater | AtLeast => false,
    };
    (&new.metric, new.statistic, new.window, upper(new)) == (&old.metric, old.statistic, old.window, upper(old))
}
