//! Which metrics a table shows, and in which order. The terminal and the HTML page call it. It renders no table.

use squall_metrics::{MetricKind, MetricView};
use squall_model::step_of_figure;
use std::{cmp::Reverse, collections::HashMap};

/// The metrics in the order in which they were first recorded, and the figures of pages after their step.
pub(crate) fn ordered_metrics(metrics: &[MetricView]) -> Vec<&MetricView> {
    let requests = metrics.iter().enumerate().filter(|(_, metric)| metric.key.kind == MetricKind::Request);
    let steps: HashMap<&str, usize> = requests.map(|(place, metric)| (&*metric.key.name, place)).collect();
    let step_of = |metric: &MetricView| {
        let step = step_of_figure(&metric.key.name).filter(|_| metric.key.kind == MetricKind::Custom)?;
        steps.get(step).copied()
    };
    let mut ordered: Vec<(usize, &MetricView)> = metrics.iter().enumerate().collect();
    ordered.sort_by_cached_key(|(place, metric)| match step_of(metric) {
        Some(step) => (step, true, *place),
        None => (*place, false, 0),
    });
    ordered.into_iter().map(|(_, metric)| metric).collect()
}

/// The metrics, those that matter most first if there are more than `most`: those with errors, those that are no
/// figures of pages, those with the most samples.
pub(crate) fn most_important_first(mut metrics: Vec<&MetricView>, most: usize) -> Vec<&MetricView> {
    if metrics.len() > most {
        let is_figure = |metric: &MetricView| step_of_figure(&metric.key.name).is_some();
        metrics.sort_by_key(|metric| (Reverse(metric.errors), is_figure(metric), Reverse(metric.requests)));
    }
    metrics
}
