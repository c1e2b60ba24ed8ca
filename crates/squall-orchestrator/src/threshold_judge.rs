//! Thresholds against what was measured. Reads only merged histograms; a threshold with nothing to judge is a breach, because a
//! promise that was never tested is not kept.

use serde::{Deserialize, Serialize};
use squall_metrics::{MetricView, RunView};
use squall_model::{LoadModel, Plan, Statistic, Threshold, ThresholdResult};
use std::time::Duration;

/// Watches the thresholds of a run second by second.
#[derive(Clone)]
pub struct ThresholdJudge {
    watches: Vec<ThresholdWatch>,
    warm_up: Duration,
    /// When the load is over, as planned.
    load_end: Duration,
    judged_seconds: usize,
}

#[derive(Clone)]
struct ThresholdWatch {
    threshold: Threshold,
    state: ThresholdState,
}

/// What was seen of one threshold.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ThresholdState {
    worst: Option<f64>,
    breached_at_s: Option<u32>,
    /// Windows that ended at these seconds, with their values, and count if there was load throughout: that is known at the end.
    pending: Vec<(u32, f64)>,
}

/// What a judge has seen, for the one who goes on after it: histograms of the seconds that it has judged are gone by then.
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
        let limited = match &plan.load.model {
            LoadModel::Open { rate, .. } => plan.load.iterations.and_then(|n| rate.time_of_area(n as f64)),
            LoadModel::Closed { .. } => None,
        };
        ThresholdJudge {
            watches: plan.thresholds.iter().map(watch).collect(),
            warm_up: plan.load.warm_up,
            load_end: limited.unwrap_or(plan.duration()),
            judged_seconds: 0,
        }
    }

    /// Goes on where another judge of the same plan was, unless it is further already.
    pub(crate) fn resume(&mut self, other: &JudgeCheckpoint) {
        if other.seconds > self.judged_seconds {
            self.judged_seconds = other.seconds;
            self.watches.iter_mut().zip(&other.seen).for_each(|(watch, seen)| watch.state = seen.clone());
        }
    }

    /// What it has seen so far.
    pub(crate) fn checkpoint(&self) -> JudgeCheckpoint {
        JudgeCheckpoint {
            seconds: self.judged_seconds,
            seen: self.watches.iter().map(|watch| watch.state.clone()).collect(),
        }
    }

    /// How many of the latest seconds the thresholds need.
    pub fn longest_window(plan: &Plan) -> u32 {
        plan.thresholds.iter().filter_map(|t| t.window).map(window_seconds).max().unwrap_or(1)
    }

    /// Looks at the seconds closed since the last call, which has to come before others close; returns the first breached threshold that asks for an abort. `loading`: load is
    /// still being made; if not, what needs a whole window of it waits for [`ThresholdJudge::final_results`], which knows when it was over.
    pub fn judge_closed_seconds(&mut self, view: &RunView, loading: bool) -> Option<&Threshold> {
        let closed = view.timeline.len();
        for now in self.judged_seconds + 1..=closed {
            let elapsed = Duration::from_secs(now as u64);
            if elapsed > self.warm_up {
                let moment =
                    ClosedSecond { measured: elapsed - self.warm_up, now_s: now as u32, closed_since: closed - now };
                let certain = loading && elapsed <= self.load_end;
                self.watches.iter_mut().for_each(|watch| watch.judge_second(view, &moment, certain));
            }
        }
        self.judged_seconds = self.judged_seconds.max(closed);
        self.breached_abort_threshold()
    }

    /// The first breached threshold that asks for an abort.
    pub(crate) fn breached_abort_threshold(&self) -> Option<&Threshold> {
        self.watches.iter().find(|w| w.threshold.abort && w.state.breached_at_s.is_some()).map(|w| &w.threshold)
    }

    /// How the thresholds stand at the end of the latest second; what was breached stays breached.
    pub fn current_results(&self, view: &RunView) -> Vec<ThresholdResult> {
        let measured = Duration::from_secs(view.timeline.len() as u64).saturating_sub(self.warm_up);
        self.watches.iter().map(|watch| watch.clone().result(view, measured)).collect()
    }

    /// The final word, over `measured` time of load.
    pub fn final_results(mut self, view: &RunView, measured: Duration) -> Vec<ThresholdResult> {
        // A last second may have closed after the last look.
        let _ = self.judge_closed_seconds(view, false);
        let end = self.warm_up + measured;
        let settled = self.watches.into_iter().map(|watch| watch.judge_pending(end));
        settled.map(|watch| watch.result(view, measured)).collect()
    }
}

/// The end of a second, when it is looked at.
struct ClosedSecond {
    measured: Duration,
    now_s: u32,
    /// How many seconds have closed since.
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

    /// Judges what waited for the end of the load to be known.
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
        // A run shorter than the window is its own window.
        let value = worst.or_else(|| threshold_value(&threshold, view, measured));
        let holds = value.is_some_and(|value| threshold.comparison.holds(value, threshold.limit));
        ThresholdResult { passed: holds && breached_at_s.is_none(), threshold, value, breached_at_s }
    }
}

/// Whether it can only be judged where load was made for the whole window: there is no rate of what trickles in after the end, and a
/// part of a window has less than all of it. Too many in a part are too many in the whole.
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

/// The threshold's value over `seconds` that ended before the latest `after`; `None` if there is nothing to judge.
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

/// Whether a promise about the whole run that does not hold yet may hold at its end: what only grows may still grow enough, and a
/// rate that has begun low may rise. Such a promise is judged at the end, or over a window.
fn can_still_pass(threshold: &Threshold) -> bool {
    use Statistic::{Dropped, Errors, Late, Max, Min, Rate, Requests};
    use squall_model::ComparisonOperator::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Greater | AtLeast => matches!(threshold.statistic, Requests | Errors | Dropped | Late | Max | Rate),
        Less | AtMost => threshold.statistic == Min,
    }
}

/// Further from what the threshold wants.
fn is_worse(threshold: &Threshold, value: f64, than: f64) -> bool {
    use squall_model::ComparisonOperator::{AtLeast, AtMost, Greater, Less};
    match threshold.comparison {
        Less | AtMost => value > than,
        Greater | AtLeast => value < than,
    }
}

/// The threshold's value over the whole run; `None` if there is nothing to judge.
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

/// Whether a series is there only if something failed: that nothing is known of it is good news.
fn is_failure_only_metric(name: &str) -> bool {
    let own = name.rsplit('/').next().unwrap_or(name);
    own.ends_with(" (failed)") || matches!(own, "on_start" | "on_stop")
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
    }
}

fn window_seconds(window: Duration) -> u32 {
    window.as_secs_f64().ceil() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_metrics::{Collector, Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId};
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
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
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
        let mut judge = ThresholdJudge::new(&plan);
        let mut collector = Collector::new([SOURCE], ThresholdJudge::longest_window(&plan));
        let mut aborted = None;
        for (i, (millis, errors)) in seconds.iter().enumerate() {
            collector.merge(second(i as u32, *millis, *errors)).unwrap();
            if judge.judge_closed_seconds(collector.view(), true).is_some() {
                aborted = aborted.or(Some(i as u32 + 1));
            }
        }
        let verdict = judge.final_results(collector.view(), Duration::from_secs(seconds.len() as u64)).remove(0);
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
    fn failures_that_never_appeared_keep_their_promise() {
        for promise in ["on_start:errors<1", "Shop/on_stop:error_rate<1%", "browse (failed):errors<1"] {
            check(promise, &[(1, 0)], (true, None, None));
        }
        check("browse (failed):p99<1s", &[(1, 0)], (false, None, None));
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

    /// Feeds seconds of so many requests of a load that lasts `load`, the last of them after it is over; returns the value and whether
    /// the only threshold passed.
    fn judged(threshold: &str, requests: &[u64], load: Duration) -> (Option<f64>, bool) {
        let plan = plan(&[threshold]);
        let mut judge = ThresholdJudge::new(&plan);
        let mut collector = Collector::new([SOURCE], ThresholdJudge::longest_window(&plan));
        for (i, n) in requests.iter().enumerate() {
            let mut recorder = MetricRecorder::new(RecorderConfig::default());
            let metric = recorder.metric(MetricKey::request("browse"));
            let (wait, service, outcome) = (Duration::ZERO, Duration::from_millis(1), Outcome::of_status(200));
            for _ in 0..*n {
                recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, warm_up: false });
            }
            let (metrics, errors, engine) = recorder.harvest(1, 0);
            let delta = Delta { source: SOURCE, seq: i as u64, second: i as u32, metrics, errors, engine, last: false };
            collector.merge(delta).unwrap();
            let loading = Duration::from_secs(i as u64 + 1) < load;
            let _ = judge.judge_closed_seconds(collector.view(), loading);
        }
        let verdict = judge.final_results(collector.view(), load).remove(0);
        (verdict.value, verdict.passed)
    }

    /// A target that stopped in the last second of the load was green.
    #[test]
    fn a_rate_is_judged_up_to_the_end_of_the_load() {
        const S: fn(f64) -> Duration = Duration::from_secs_f64;
        assert_eq!(judged("rate[1s]>50", &[100, 100, 20], S(3.0)), (Some(20.0), false));
        assert_eq!(judged("rate[1s]<=120", &[50, 100, 150], S(3.0)), (Some(150.0), false));
        assert_eq!(judged("rate[2s]>80", &[100, 100, 20], S(3.0)), (Some(60.0), false));
        assert_eq!(judged("rate[1s]>50", &[100, 100, 100, 5], S(3.0)), (Some(100.0), true));
        assert_eq!(judged("rate[1.5s]>90", &[100, 100, 100], S(3.0)), (Some(100.0), true));
    }

    /// 30 requests in the last 0.3 s were too few for a second.
    #[test]
    fn a_piece_of_a_window_is_not_judged_as_a_whole_one() {
        const S: fn(f64) -> Duration = Duration::from_secs_f64;
        assert_eq!(judged("requests[1s]>=100", &[100, 100, 30], S(2.3)), (Some(100.0), true));
        assert_eq!(judged("rate[1s]>=100", &[100, 100, 30], S(2.3)), (Some(100.0), true));
        assert_eq!(judged("requests[1s]>=100", &[100, 99, 30], S(2.3)), (Some(99.0), false));
        assert_eq!(judged("requests[1s]<=100", &[100, 100, 130], S(2.3)), (Some(130.0), false), "it can only be more");
        assert_eq!(judged("requests[1s]>=30", &[30], S(0.3)), (Some(30.0), true), "the run is its own window");
    }

    /// A source that stood still closes several seconds at once.
    #[test]
    fn seconds_that_close_at_once_are_judged_one_by_one() {
        let plan = plan(&["max[1s]<1s", "rate[1s]>=10"]);
        let mut judge = ThresholdJudge::new(&plan);
        let mut collector = Collector::new([SOURCE], ThresholdJudge::longest_window(&plan));
        for (i, millis) in [10, 5000, 10].into_iter().enumerate() {
            collector.merge(Delta { second: 2 * i as u32, ..second(i as u32, millis, 0) }).unwrap();
            let _ = judge.judge_closed_seconds(collector.view(), true);
        }
        let verdicts = judge.final_results(collector.view(), Duration::from_secs(5));
        let breached: Vec<_> = verdicts.iter().map(|verdict| (verdict.passed, verdict.breached_at_s)).collect();
        assert_eq!(breached, [(false, Some(3)), (false, Some(2))]);
    }

    /// A window of starts that never happened had those of the whole run.
    #[test]
    fn dropped_and_late_starts_have_windows() {
        let plan = plan(&["dropped[1s]<=5", "late[2s]<=5"]);
        let mut judge = ThresholdJudge::new(&plan);
        let mut collector = Collector::new([SOURCE], ThresholdJudge::longest_window(&plan));
        for i in 0..4 {
            let mut delta = second(i, 1, 0);
            (delta.engine.dropped, delta.engine.late) = (3, 3);
            collector.merge(delta).unwrap();
            let _ = judge.judge_closed_seconds(collector.view(), true);
        }
        let values: Vec<_> = judge
            .final_results(collector.view(), Duration::from_secs(4))
            .into_iter()
            .map(|v| (v.value, v.passed))
            .collect();
        assert_eq!(values, [(Some(3.0), true), (Some(6.0), false)]);
    }

    #[test]
    fn a_run_shorter_than_the_window_is_its_own_window() {
        check("p99[10s]<100ms", &[(50, 0)], (true, None, None));
        check("p99[10s]<100ms", &[(150, 0)], (false, None, None));
    }
}
