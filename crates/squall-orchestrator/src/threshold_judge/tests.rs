//! Thresholds over the whole run, over windows, and when they abort a run.

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

/// One second with ten requests of `millis` each, of which the first `errors` fail.
fn second(second: u32, millis: u64, errors: u64) -> Delta {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("browse"));
    for i in 0..10 {
        let outcome = Outcome::of_status(if i < errors { 500 } else { 200 });
        let (wait, service) = (Duration::ZERO, Duration::from_millis(millis));
        recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 100, bytes_out: 0, due_in_warm_up: false });
    }
    let (metrics, errors, engine) = recorder.harvest(1, 0);
    Delta { source: SOURCE, seq: u64::from(second), second, metrics, errors, engine, last: false }
}

/// Feeds seconds of (millis, errors); returns (passed, breached at, aborted at) of the only
/// threshold.
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
fn whole_run_thresholds_are_judged_over_all_requests() {
    check("p99<100ms", &[(50, 0); 5], (true, None, None));
    check("p99<100ms", &[(50, 0), (150, 0)], (false, None, None));
    check("p50<100ms", &[(50, 0), (50, 0), (150, 0)], (true, None, None));
    check("error_rate<10%", &[(1, 2), (1, 1)], (false, None, None));
    check("rate>9.9", &[(1, 0); 3], (true, None, None));
    check("browse:mean<60ms", &[(50, 0); 2], (true, None, None));
    check("errors<=3", &[(1, 2), (1, 1)], (true, None, None));
    check("browse:mean_bytes<101", &[(1, 0); 2], (true, None, None));
    check("browse:mean_bytes[1s]<100", &[(1, 0); 2], (false, Some(1), None));
}

#[test]
fn threshold_on_a_metric_without_samples_fails() {
    check("checkout:p99<1s", &[(1, 0)], (false, None, None));
}

#[test]
fn threshold_on_a_failure_metric_without_samples_passes() {
    for threshold in ["on_start:errors<1", "Shop/on_stop:error_rate<1%", "browse (failed):errors<1"] {
        check(threshold, &[(1, 0)], (true, None, None));
    }
    check("browse (failed):p99<1s", &[(1, 0)], (false, None, None));
}

#[test]
fn window_threshold_fails_on_a_peak_that_the_whole_run_hides() {
    let mut seconds = [(10, 0); 30];
    seconds[10] = (5000, 0);
    check("p50[2s]<1s", &seconds, (true, None, None));
    check("max[2s]<1s", &seconds, (false, Some(11), None));
    check("p80<1s", &seconds, (true, None, None));
    check("p80[3s]<1s", &seconds, (false, Some(11), None));
}

#[test]
fn abort_threshold_aborts_in_the_second_of_its_breach() {
    check("p99<100ms !abort", &[(50, 0), (150, 0), (50, 0)], (false, Some(2), Some(2)));
    check("error_rate[2s]<20% !abort", &[(1, 0), (1, 2), (1, 3)], (false, Some(3), Some(3)));
}

#[test]
fn abort_threshold_that_can_still_pass_does_not_abort() {
    check("requests>25 !abort", &[(1, 0); 3], (true, None, None));
    check("requests>35 !abort", &[(1, 0); 3], (false, None, None));
    check("rate>11 !abort", &[(1, 0); 3], (false, None, None));
    check("max>100ms !abort", &[(1, 0), (150, 0)], (true, None, None));
    check("min<100ms !abort", &[(150, 0), (1, 0)], (true, None, None));
    check("rate[1s]>11 !abort", &[(1, 0); 2], (false, Some(1), Some(1)));
    check("requests<15 !abort", &[(1, 0); 3], (false, Some(2), Some(2)));
}

/// Feeds seconds with these numbers of requests, of a load that ends after `load`. Returns the
/// value of the only threshold and whether it passed.
fn judged(threshold: &str, requests: &[u64], load: Duration) -> (Option<f64>, bool) {
    let plan = plan(&[threshold]);
    let mut judge = ThresholdJudge::new(&plan);
    let mut collector = Collector::new([SOURCE], ThresholdJudge::longest_window(&plan));
    for (i, n) in requests.iter().enumerate() {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::request("browse"));
        let (wait, service, outcome) = (Duration::ZERO, Duration::from_millis(1), Outcome::of_status(200));
        for _ in 0..*n {
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 0,
                bytes_out: 0,
                due_in_warm_up: false,
            });
        }
        let (metrics, errors, engine) = recorder.harvest(1, 0);
        let delta = Delta { source: SOURCE, seq: i as u64, second: i as u32, metrics, errors, engine, last: false };
        collector.merge(delta).unwrap();
        let load_active = Duration::from_secs(i as u64 + 1) < load;
        let _ = judge.judge_closed_seconds(collector.view(), load_active);
    }
    let verdict = judge.final_results(collector.view(), load).remove(0);
    (verdict.value, verdict.passed)
}

#[test]
fn rate_window_is_judged_up_to_the_end_of_the_load() {
    const S: fn(f64) -> Duration = Duration::from_secs_f64;
    assert_eq!(judged("rate[1s]>50", &[100, 100, 20], S(3.0)), (Some(20.0), false));
    assert_eq!(judged("rate[1s]<=120", &[50, 100, 150], S(3.0)), (Some(150.0), false));
    assert_eq!(judged("rate[2s]>80", &[100, 100, 20], S(3.0)), (Some(60.0), false));
    assert_eq!(judged("rate[1s]>50", &[100, 100, 100, 5], S(3.0)), (Some(100.0), true));
    assert_eq!(judged("rate[1.5s]>90", &[100, 100, 100], S(3.0)), (Some(100.0), true));
}

#[test]
fn lower_limit_ignores_a_window_that_the_load_covers_in_part() {
    const S: fn(f64) -> Duration = Duration::from_secs_f64;
    assert_eq!(judged("requests[1s]>=100", &[100, 100, 30], S(2.3)), (Some(100.0), true));
    assert_eq!(judged("rate[1s]>=100", &[100, 100, 30], S(2.3)), (Some(100.0), true));
    assert_eq!(judged("requests[1s]>=100", &[100, 99, 30], S(2.3)), (Some(99.0), false));
    assert_eq!(
        judged("requests[1s]<=100", &[100, 100, 130], S(2.3)),
        (Some(130.0), false),
        "a whole window can only have more"
    );
    assert_eq!(judged("requests[1s]>=30", &[30], S(0.3)), (Some(30.0), true), "the whole run is the window");
}

/// A source that stalled closes several seconds at once.
#[test]
fn seconds_that_close_together_are_judged_one_by_one() {
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

#[test]
fn windows_of_dropped_and_late_starts_count_only_their_own_seconds() {
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
fn run_shorter_than_the_window_is_judged_as_a_whole() {
    check("p99[10s]<100ms", &[(50, 0)], (true, None, None));
    check("p99[10s]<100ms", &[(150, 0)], (false, None, None));
}
