//! Thresholds of file and command line, checked against the metrics that the run will have.

use squall_model::Threshold;

use super::Builder;
use crate::{Given, error::did_you_mean, program::Flow};

impl Builder<'_, '_> {
    /// The file's thresholds and then the flags'; a flag replaces what the file says of the same quantity.
    pub(super) fn thresholds(
        &mut self,
        file: &[Given<String>],
        flags: &[Given<String>],
        tasks: &[Flow],
        on_start: &Flow,
    ) -> Vec<Threshold> {
        let names = metric_names(tasks, on_start);
        let mut thresholds: Vec<Threshold> = Vec::new();
        for given in file.iter().chain(flags) {
            let threshold: Threshold = match given.value.parse() {
                Ok(threshold) => threshold,
                Err(error) => {
                    let hint = "write for example p99<500ms, error_rate<1%, browse:p95[10s]<300ms !abort";
                    self.problems.hint(&given.place, error.to_string(), hint);
                    continue;
                }
            };
            if let Some(metric) = threshold.metric.as_ref().filter(|metric| !names.contains(metric)) {
                let hint = match did_you_mean(metric, names.iter().map(String::as_str)) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => format!("there are {}", names.join(", ")),
                };
                self.problems.hint(&given.place, format!("there is no metric `{metric}`"), hint);
            }
            if let Some(at) = thresholds.iter().position(|other| replaces(&threshold, other)) {
                thresholds.remove(at);
            }
            thresholds.push(threshold);
        }
        thresholds
    }
}

/// Whether both promise something about the same quantity in the same direction.
fn replaces(new: &Threshold, old: &Threshold) -> bool {
    use squall_model::Comparison::{AtLeast, AtMost, Greater, Less};
    let upper = |threshold: &Threshold| match threshold.comparison {
        Less | AtMost => true,
        Greater | AtLeast => false,
    };
    (&new.metric, new.statistic, new.window, upper(new)) == (&old.metric, old.statistic, old.window, upper(old))
}

fn metric_names(tasks: &[Flow], on_start: &Flow) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for flow in tasks.iter().chain([on_start]) {
        flow.spans.iter().for_each(|span| add(span));
        for step in &flow.steps {
            add(&step.metric.name);
            add(&format!("{} (redirect)", step.metric.name));
            step.group.iter().for_each(|group| add(group));
        }
    }
    names
}
