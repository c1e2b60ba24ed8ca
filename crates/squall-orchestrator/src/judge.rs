//! Thresholds against what was measured. Reads only merged histograms; a threshold with nothing to judge is a breach, because a
//! promise that was never tested is not kept.

use squall_metrics::{MetricView, RunView};
use squall_model::{Plan, Statistic, Threshold, ThresholdResult};
use std::time::Duration;

/// Watches the thresholds of a run second by second.
#[derive(Clone)]
pub struct Judge {
    watches: Vec<Watch>,
    warm_up: Duration,
    seen: usize,
}

#[derive(Clone)]
struct Watch {
    threshold: Threshold,
    worst: Option<f64>,
    breached_at_s: Option<u32>,
}

impl Judge {
    pub fn new(plan: &Plan) -> Judge {
        let watch = |threshold: &Threshold| Watch { threshold: threshold.clone(), worst: None, breached_at_s: None };
        Judge { watches: plan.thresholds.iter().map(watch).collect(), warm_up: plan.load.warm_up, seen: 0 }
    }

    /// The longest window that any threshold needs, in seconds.
    pub fn longest_window(plan: &Plan) -> u32 {
        plan.thresholds.iter().filter_map(|t| t.window).map(seconds).max().unwrap_or(1)
    }

    /// Looks at the seconds closed since the last call; returns the first breached threshold that asks for an abort. `loading`: the
    /// latest second was one of load throughout; what trickles in later has times to judge, but no rate.
    pub fn look(&mut self, view: &RunView, loading: bool) -> Option<&Threshold> {
        let elapsed = Duration::from_secs(view.timeline.len() as u64);
        if view.timeline.len() == self.seen || elapsed <= self.warm_up {
            return None;
        }
        self.seen = view.timeline.len();
        let measured = elapsed - self.warm_up;
        let now_s = self.seen as u32;
        for watch in self.watches.iter_mut().filter(|w| loading || w.threshold.statistic != Statistic::Rate) {
            watch.look(view, measured, now_s);
        }
        self.watches.iter().find(|w| w.threshold.abort && w.breached_at_s.is_some()).map(|w| &w.threshold)
    }

    /// How the thresholds stand at the end of the latest second; what was breached stays breached.
    pub fn so_far(&self, view: &RunView) -> Vec<ThresholdResult> {
        let measured = Duration::from_secs(view.timeline.len() as u64).saturating_sub(self.warm_up);
        self.watches.iter().map(|watch| watch.clone().verdict(view, measured)).collect()
    }

    /// The final word, over `measured` time of load.
    pub fn verdicts(self, view: &RunView, measured: Duration) -> Vec<ThresholdResult> {
        self.watches.into_iter().map(|watch| watch.verdict(view, measured)).collect()
    }
}

impl Watch {
    fn look(&mut self, view: &RunView, measured: Duration, now_s: u32) {
        let threshold = &self.threshold;
        let value = match threshold.window {
            Some(window) if measured >= window => {
                let latest = view.window(threshold.metric.as_deref(), seconds(window));
                latest.and_then(|latest| of_metric(threshold.statistic, &latest, window, view))
            }
            None if threshold.abort && !can_still_be_kept(threshold) => value_of(threshold, view, measured),
            _ => None,
        };
        let Some(value) = value else { return };
        if !threshold.comparison.holds(value, threshold.limit) && self.breached_at_s.is_none() {
            self.breached_at_s = Some(now_s);
        }
        if threshold.window.is_some() && self.worst.is_none_or(|worst| is_worse(threshold, value, worst)) {
            self.worst = Some(value);
        }
    }

    fn verdict(self, view: &RunView, measured: Duration) -> ThresholdResult {
        let Watch { threshold, worst, breached_at_s } = self;
        // A run shorter than the window is its own window.
        let value = worst.or_else(|| value_of(&threshold, view, measured));
        let holds = value.is_some_and(|value| threshold.comparison.holds(value, threshold.limit));
        ThresholdResult { passed: holds && breached_at_s.is_none(), threshold, value, breached_at_s }
    }
}

/// Whether a promise about the whole run that does not hold yet may hold at its end: what only grows may still grow enough, and a
/// rate that has begun low may rise. Such a promise is judged at the end, or over a window.
fn can_still_be_kept(threshold: &Threshold) -> bool {
    use Statistic::{Dropped, Errors, Late, Max, Min, Rate, Requests};
    use squall_model::Comparison::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Greater | AtLeast => matches!(threshold.statistic, Requests | Errors | Dropped | Late | Max | Rate),
        Less | AtMost => threshold.statistic == Min,
    }
}

/// Further from what the threshold wants.
fn is_worse(threshold: &Threshold, value: f64, than: f64) -> bool {
    use squall_model::Comparison::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Less | AtMost => value > than,
        Greater | AtLeast => value < than,
    }
}

/// The threshold's value over the whole run; `None` if there is nothing to judge.
pub fn value_of(threshold: &Threshold, view: &RunView, measured: Duration) -> Option<f64> {
    let metric = match &threshold.metric {
        Some(name) => view.metric(name)?,
        None => &view.all,
    };
    of_metric(threshold.statistic, metric, measured, view)
}

fn of_metric(statistic: Statistic, metric: &MetricView, over: Duration, view: &RunView) -> Option<f64> {
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
    }
}

fn seconds(window: Duration) -> u32 {
    window.as_secs_f64().ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::{Collector, Delta, MetricKey, Outcome, Recorder, RecorderConfig, Sample, SourceId};
    use squall_model::{Arrivals, Load, LoadModel, Profile};

    const SOURCE: SourceId = SourceId { instance: 0, thread: 0 };

    fn plan(thresholds: &[&str]) -> Plan {
        let rate = Profile::constant(1.0, Duration::from_secs(60)).unwrap();
        Plan {
            name: "t".into(),
            target: "t".into(),
            load: Load {
                model: LoadModel::Open { rate, arrivals: Arrivals::Even },
                iterations: None,
                warm_up: Duration::ZERO,
            },
            tasks: vec![],
            thresholds: thresholds.iter().map(|t| t.parse().unwrap()).collect(),
            seed: 0,
        }
    }

    /// One second with ten requests of `millis` each, the first `errors` of which fail.
    fn second(second: u32, millis: u64, errors: u64) -> Delta {
        let mut recorder = Recorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::request("browse"));
        for i in 0..10 {
            let outcome = Outcome::of_status(if i < errors { 500 } else { 200 });
            let (wait, service) = (Duration::ZERO, Duration::from_millis(millis));
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, warm_up: false });
        }
        let (metrics, errors, engine) = recorder.harvest(1, 0);
        Delta { source: SOURCE, seq: u64::from(second), second, metrics, errors, engine, last: false }
    }

    /// Feeds seconds of (millis, errors); returns (passed, breached at, aborted at) of the only threshold.
    #[track_caller]
    fn check(threshold: &str, seconds: &[(u64, u64)], expected: (bool, Option<u32>, Option<u32>)) {
        let plan = plan(&[threshold]);
        let mut judge = Judge::new(&plan);
        let mut collector = Collector::new([SOURCE], Judge::longest_window(&plan));
        let mut aborted = None;
        for (i, (millis, errors)) in seconds.iter().enumerate() {
            collector.merge(second(i as u32, *millis, *errors)).unwrap();
            if judge.look(collector.view(), true).is_some() {
                aborted = aborted.or(Some(i as u32 + 1));
            }
        }
        let verdict = judge.verdicts(collector.view(), Duration::from_secs(seconds.len() as u64)).remove(0);
        assert_eq!((verdict.passed, verdict.breached_at_s, aborted), expected, "{verdict:?}");
    }

    #[test]
    fn whole_run_thresholds() {
        check("p99<100ms", &[(50, 0); 5], (true, None, None));
        check("p99<100ms", &[(50, 0), (150, 0)], (false, None, None));
        check("p50<100ms", &[(50, 0), (50, 0), (150, 0)], (true, None, None));
        check("error_rate<10%", &[(1, 2), (1, 1)], (false, None, None));
        check("rate>9.9", &[(1, 0); 3], (true, None, None));
        check("browse:mean<60ms", &[(50, 0); 2], (true, None, None));
        check("errors<=3", &[(1, 2), (1, 1)], (true, None, None));
    }

    #[test]
    fn a_metric_that_never_appeared_breaks_its_promise() {
        check("checkout:p99<1s", &[(1, 0)], (false, None, None));
    }

    #[test]
    fn a_sliding_window_finds_what_the_whole_run_hides() {
        let mut seconds = [(10, 0); 30];
        seconds[10] = (5000, 0);
        check("p50[2s]<1s", &seconds, (true, None, None));
        check("max[2s]<1s", &seconds, (false, Some(11), None));
        check("p80<1s", &seconds, (true, None, None));
        check("p80[3s]<1s", &seconds, (false, Some(11), None));
    }

    #[test]
    fn abort_fires_once_it_is_breached() {
        check("p99<100ms !abort", &[(50, 0), (150, 0), (50, 0)], (false, Some(2), Some(2)));
        check("error_rate[2s]<20% !abort", &[(1, 0), (1, 2), (1, 3)], (false, Some(3), Some(3)));
    }

    /// `requests>150 !abort` ended a run after its first second.
    #[test]
    fn what_may_still_be_kept_aborts_nothing() {
        check("requests>25 !abort", &[(1, 0); 3], (true, None, None));
        check("requests>35 !abort", &[(1, 0); 3], (false, None, None));
        check("rate>11 !abort", &[(1, 0); 3], (false, None, None));
        check("max>100ms !abort", &[(1, 0), (150, 0)], (true, None, None));
        check("min<100ms !abort", &[(150, 0), (1, 0)], (true, None, None));
        check("rate[1s]>11 !abort", &[(1, 0); 2], (false, Some(1), Some(1)));
        check("requests<15 !abort", &[(1, 0); 3], (false, Some(2), Some(2)));
    }

    #[test]
    fn a_run_shorter_than_the_window_is_its_own_window() {
        check("p99[10s]<100ms", &[(50, 0)], (true, None, None));
        check("p99[10s]<100ms", &[(150, 0)], (false, None, None));
    }
}
