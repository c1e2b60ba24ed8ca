//! Judges the thresholds of a plan. After each closed second it judges thresholds with a window, and
//! thresholds with `!abort` unless a value that fails now can still pass; all others at the end of the
//! run. It reads only merged histograms and stops no run; its callers do. A threshold without any
//! measurement fails, because it was never tested.

use serde::{Deserialize, Serialize};
use squall_metrics::{CODE_FAILURE_SUFFIX, MetricView, RunView};
use squall_model::{LoadModel, Plan, Statistic, Threshold, ThresholdResult};
use std::time::Duration;

/// The thresholds of one run and what has been seen of them.
#[derive(Clone)]
pub struct ThresholdJudge {
    watches: Vec<ThresholdWatch>,
    warm_up: Duration,
    /// When the planned load ends.
    load_end: Duration,
    judged_seconds: usize,
}

#[derive(Clone)]
struct ThresholdWatch {
    threshold: Threshold,
    state: ThresholdState,
}

/// What has been seen of one threshold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ThresholdState {
    worst: Option<f64>,
    breached_at_s: Option<u32>,
    /// Values of windows by the second in which they ended. They count only if there was load for
    /// the whole window, which is known at the end of the run.
    pending: Vec<(u32, f64)>,
}

/// What a judge has seen, for its successor, which no longer has the histograms of the judged
/// seconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct JudgeCheckpoint {
    seconds: usize,
    /// By threshold, in the order of the plan.
    seen: Vec<ThresholdState>,
}

impl ThresholdJudge {
    pub fn new(plan: &Plan) -> ThresholdJudge {
        let watch =
            |threshold: &Threshold| ThresholdWatch { threshold: threshold.clone(), state: ThresholdState::default() };
        ThresholdJudge {
            watches: plan.thresholds.iter().map(watch).collect(),
            warm_up: plan.load.warm_up,
            load_end: planned_load_end(plan),
            judged_seconds: 0,
        }
    }

    /// Follows a change of the plan's load.
    pub(crate) fn set_load_end(&mut self, plan: &Plan) {
        self.load_end = planned_load_end(plan);
    }

    /// Continues from the checkpoint of another judge of the same plan, unless this one has judged
    /// more seconds.
    pub(crate) fn resume(&mut self, other: &JudgeCheckpoint) {
        if other.seconds > self.judged_seconds {
            self.judged_seconds = other.seconds;
            self.watches.iter_mut().zip(&other.seen).for_each(|(watch, seen)| watch.state = seen.clone());
        }
    }

    pub(crate) fn checkpoint(&self) -> JudgeCheckpoint {
        JudgeCheckpoint {
            seconds: self.judged_seconds,
            seen: self.watches.iter().map(|watch| watch.state.clone()).collect(),
        }
    }

    /// How many of the latest seconds the thresholds need with full histograms.
    pub fn longest_window(plan: &Plan) -> u32 {
        plan.thresholds.iter().filter_map(|t| t.window).map(window_seconds).max().unwrap_or(1)
    }

    /// Judges the seconds that have closed since the last call. Call it before further seconds
    /// close. Returns the first breached threshold with `!abort`. While `load_active` is false,
    /// values that need load for a whole window wait for [`ThresholdJudge::final_results`], which
    /// knows when the load ended.
    pub fn judge_closed_seconds(&mut self, view: &RunView, load_active: bool) -> Option<&Threshold> {
        let closed = view.timeline.len();
        for now in self.judged_seconds + 1..=closed {
            let elapsed = Duration::from_secs(now as u64);
            if elapsed > self.warm_up {
                let moment =
                    ClosedSecond { measured: elapsed - self.warm_up, now_s: now as u32, closed_since: closed - now };
                let certain = load_active && elapsed <= self.load_end;
                self.watches.iter_mut().for_each(|watch| watch.judge_second(view, &moment, certain));
            }
        }
        self.judged_seconds = self.judged_seconds.max(closed);
        self.breached_abort_threshold()
    }

    /// The first breached threshold with `!abort`.
    pub(crate) fn breached_abort_threshold(&self) -> Option<&Threshold> {
        self.watches.iter().find(|w| w.threshold.abort && w.state.breached_at_s.is_some()).map(|w| &w.threshold)
    }

    /// The results so far. A breached threshold stays breached.
    pub fn current_results(&self, view: &RunView) -> Vec<ThresholdResult> {
        let measured = Duration::from_secs(view.timeline.len() as u64).saturating_sub(self.warm_up);
        self.watches.iter().map(|watch| watch.clone().result(view, measured)).collect()
    }

    /// The final results over `measured` time of load.
    pub fn final_results(mut self, view: &RunView, measured: Duration) -> Vec<ThresholdResult> {
        // The last second may have closed after the last call.
        let _ = self.judge_closed_seconds(view, false);
        let end = self.warm_up + measured;
        let settled = self.watches.into_iter().map(|watch| watch.judge_pending(end));
        settled.map(|watch| watch.result(view, measured)).collect()
    }
}

fn planned_load_end(plan: &Plan) -> Duration {
    let limited = match &plan.load.model {
        LoadModel::Open { rate, .. } => plan.load.iterations.and_then(|n| rate.time_of_area(n as f64)),
        LoadModel::Closed { .. } => None,
    };
    limited.unwrap_or(plan.duration())
}

/// A closed second that is being judged.
struct ClosedSecond {
    measured: Duration,
    now_s: u32,
    /// How many seconds have closed after it.
    closed_since: usize,
}

impl ThresholdWatch {
    fn judge_second(&mut self, view: &RunView, moment: &ClosedSecond, certain: bool) {
        let threshold = &self.threshold;
        let value = match threshold.window {
            Some(window) if moment.measured >= window => {
                window_value(threshold, window_seconds(window), view, moment.closed_since)
            }
            None if threshold.abort && moment.closed_since == 0 && !can_still_pass(threshold) => {
                threshold_value(threshold, view, moment.measured)
            }
            _ => None,
        };
        match value {
            Some(value) if certain || !needs_load(threshold) => self.record_value(moment.now_s, value),
            Some(value) => self.state.pending.push((moment.now_s, value)),
            None => {}
        }
    }

    /// Judges the values that waited for the end of the load.
    fn judge_pending(mut self, end: Duration) -> ThresholdWatch {
        for (at_s, value) in std::mem::take(&mut self.state.pending) {
            if Duration::from_secs(u64::from(at_s)) <= end {
                self.record_value(at_s, value);
            }
        }
        self
    }

    fn record_value(&mut self, now_s: u32, value: f64) {
        let ThresholdWatch { threshold, state: seen } = self;
        if !threshold.comparison.holds(value, threshold.limit) && seen.breached_at_s.is_none() {
            seen.breached_at_s = Some(now_s);
        }
        if threshold.window.is_some() && seen.worst.is_none_or(|worst| is_worse(threshold, value, worst)) {
            seen.worst = Some(value);
        }
    }

    fn result(self, view: &RunView, measured: Duration) -> ThresholdResult {
        let ThresholdWatch { threshold, state: ThresholdState { worst, breached_at_s, .. } } = self;
        // For a run shorter than the window, the whole run is the window.
        let value = worst.or_else(|| threshold_value(&threshold, view, measured));
        let holds = value.is_some_and(|value| threshold.comparison.holds(value, threshold.limit));
        ThresholdResult { passed: holds && breached_at_s.is_none(), threshold, value, breached_at_s }
    }
}

/// Whether the threshold needs load for its whole window. A rate has no meaning after the end of
/// the load, and a part of a window has fewer requests than the whole. An upper limit needs no
/// whole window: a part that exceeds it is enough.
fn needs_load(threshold: &Threshold) -> bool {
    use Statistic::{Dropped, Errors, Late, Rate, Requests};
    use squall_model::ComparisonOperator::{AtLeast, Greater};
    let at_least = matches!(threshold.comparison, Greater | AtLeast);
    match threshold.statistic {
        Rate => true,
        Requests | Errors | Dropped | Late => at_least && threshold.window.is_some(),
        _ => false,
    }
}

/// The value over a window of `seconds` that ended `after` seconds before the latest one; `None`
/// without measurements.
fn window_value(threshold: &Threshold, seconds: u32, view: &RunView, after: usize) -> Option<f64> {
    let ended = view.timeline.len().saturating_sub(after);
    let rows = &view.timeline[ended.saturating_sub(seconds as usize)..ended];
    match threshold.statistic {
        Statistic::Dropped => Some(rows.iter().map(|row| row.dropped).sum::<u64>() as f64),
        Statistic::Late => Some(rows.iter().map(|row| row.late).sum::<u64>() as f64),
        statistic => {
            let metric = view.window_before(threshold.metric.as_deref(), seconds, after)?;
            statistic_value(statistic, &metric, Duration::from_secs(u64::from(seconds)), view)
        }
    }
}

/// Whether a threshold over the whole run that fails now can still pass at the end: a count can
/// still grow, and a rate can still rise. Such a threshold is judged at the end, or over a window.
fn can_still_pass(threshold: &Threshold) -> bool {
    use Statistic::{Dropped, Errors, Late, Max, Min, Rate, Requests};
    use squall_model::ComparisonOperator::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Greater | AtLeast => matches!(threshold.statistic, Requests | Errors | Dropped | Late | Max | Rate),
        Less | AtMost => threshold.statistic == Min,
    }
}

/// Whether `value` is further than `than` from passing the threshold.
fn is_worse(threshold: &Threshold, value: f64, than: f64) -> bool {
    use squall_model::ComparisonOperator::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Less | AtMost => value > than,
        Greater | AtLeast => value < than,
    }
}

/// The value over the whole run; `None` without measurements.
pub fn threshold_value(threshold: &Threshold, view: &RunView, measured: Duration) -> Option<f64> {
    use Statistic::{ErrorRate, Errors, Requests};
    let metric = match &threshold.metric {
        Some(name) => match view.metric(name) {
            None if is_failure_only_metric(name) && matches!(threshold.statistic, Errors | ErrorRate | Requests) => {
                return Some(0.0);
            }
            found => found?,
        },
        None => &view.all,
    };
    statistic_value(threshold.statistic, metric, measured, view)
}

/// Whether a metric exists only after a failure, so that its absence means zero failures.
fn is_failure_only_metric(name: &str) -> bool {
    let own = name.rsplit('/').next().unwrap_or(name);
    own.ends_with(CODE_FAILURE_SUFFIX) || own.ends_with(":console_errors") || matches!(own, "on_start" | "on_stop")
}

fn statistic_value(statistic: Statistic, metric: &MetricView, over: Duration, view: &RunView) -> Option<f64> {
    let any = metric.requests > 0;
    match statistic {
        Statistic::Percentile(p) => any.then(|| metric.response.percentile(p) as f64),
        Statistic::ServicePercentile(p) => any.then(|| metric.service.percentile(p) as f64),
        Statistic::Min => any.then(|| metric.response.min() as f64),
        Statistic::Mean => any.then(|| metric.response.mean()),
        Statistic::Max => any.then(|| metric.response.max() as f64),
        Statistic::ErrorRate => any.then(|| metric.error_rate()),
        Statistic::Errors => Some(metric.errors as f64),
        Statistic::Requests => Some(metric.requests as f64),
        Statistic::Rate => (!over.is_zero()).then(|| metric.requests as f64 / over.as_secs_f64()),
        Statistic::Dropped => Some(view.engine.dropped as f64),
        Statistic::Late => Some(view.engine.late as f64),
        Statistic::MeanBytes => any.then(|| metric.bytes_in as f64 / metric.requests as f64),
    }
}

fn window_seconds(window: Duration) -> u32 {
    window.as_secs_f64().ceil() as u32
}

#[cfg(test)]
mod tests;
