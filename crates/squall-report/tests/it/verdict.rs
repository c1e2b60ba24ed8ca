//! Tests of every verdict, its exit code and the precedence of verdicts.

use crate::sample_run::{Finished, Recipe, Target, fleet, shop, threshold_result};
use squall_metrics::{MetricKey, MetricKind, Outcome, OutcomeCategory};
use squall_model::{LoadModel, Pause, StopReason, WorkerState};
use squall_report::{
    InterruptionRule, RecordedRun, ReportInput, RunVerdict, ScheduleRule, TerminalStyle, build_result, exit_code,
    failure_text, junit, result_summary, summary, verdict,
};
use std::{sync::Arc, time::Duration};

#[track_caller]
fn check(finished: &Finished, expected: RunVerdict, exit_code: u8) {
    assert_eq!(verdict(&finished.run()), expected);
    assert_eq!(expected.exit_code(), exit_code);
}

fn unreachable_target() -> Finished {
    Recipe { seconds: 3, target: Target::Refusing, ..Recipe::default() }.make()
}

#[test]
fn complete_run_without_breaches_passes() {
    let mut finished = shop();
    check(&finished, RunVerdict::Passed, 0);
    finished.facts.thresholds = vec![threshold_result("p99<500ms", Some(4e7), true, None)];
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn one_breached_threshold_fails_the_run() {
    let mut finished = shop();
    finished.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(4e7), true, None),
        threshold_result("rate>450", Some(200.0), false, None),
    ];
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn threshold_that_stopped_the_run_fails_it() {
    let mut finished = shop();
    finished.facts.stop = StopReason::Threshold;
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn target_without_any_response_is_unreachable_regardless_of_thresholds() {
    let mut finished = unreachable_target();
    check(&finished, RunVerdict::TargetUnreachable, 3);
    finished.facts.thresholds = vec![threshold_result("error_rate<1%", Some(1.0), false, None)];
    check(&finished, RunVerdict::TargetUnreachable, 3);
    finished.facts.stop = StopReason::Threshold;
    check(&finished, RunVerdict::TargetUnreachable, 3);
}

#[test]
fn target_with_one_response_is_reachable() {
    let finished = Recipe { failing: 0..30, ..Recipe::default() }.make();
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn requests_aborted_at_the_end_do_not_make_the_target_unreachable() {
    let mut finished = unreachable_target();
    finished.view.all.outcomes = [(Outcome::ABORTED, 600)].into();
    check(&finished, RunVerdict::Passed, 0);
    finished.view.all.outcomes.insert(Outcome::new(OutcomeCategory::Timeout, "CONNECT_TIMEOUT"), 1);
    check(&finished, RunVerdict::TargetUnreachable, 3);
}

#[test]
fn target_that_accepts_and_never_responds_is_reachable() {
    let mut finished = unreachable_target();
    finished.view.all.outcomes = [(Outcome::new(OutcomeCategory::Timeout, "TIMEOUT"), 600)].into();
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn run_without_measurements_fails() {
    let mut finished = Recipe { seconds: 3, warm_up: 3, ..Recipe::default() }.make();
    check(&finished, RunVerdict::NothingMeasured, 1);
    finished.facts.thresholds = vec![threshold_result("errors<1", Some(0.0), true, None)];
    check(&finished, RunVerdict::NothingMeasured, 1);
    finished.facts.stop = StopReason::Interrupted;
    check(&finished, RunVerdict::Interrupted, 130);
}

#[test]
fn finished_tasks_and_own_metrics_are_measurements_without_requests() {
    let mut finished = shop();
    finished.view.all.requests = 0;
    let check_as = |finished: &mut Finished, key: MetricKey, (requests, errors), expected| {
        finished.view.metrics.truncate(1);
        let metric = &mut finished.view.metrics[0];
        (metric.key, metric.requests, metric.errors) = (Arc::new(key), requests, errors);
        assert_eq!(verdict(&finished.run()), expected, "{metric:?}", metric = finished.view.metrics[0].key);
    };
    let custom = MetricKey { kind: MetricKind::Custom, ..MetricKey::request("own") };
    check_as(&mut finished, MetricKey::group("browse"), (20, 0), RunVerdict::Passed);
    check_as(&mut finished, MetricKey::group("Shop/browse"), (20, 19), RunVerdict::Passed);
    check_as(&mut finished, custom, (1, 0), RunVerdict::Passed);
    check_as(&mut finished, MetricKey::group("browse"), (20, 20), RunVerdict::NothingMeasured);
    check_as(&mut finished, MetricKey::group("on_stop"), (20, 0), RunVerdict::NothingMeasured);
    check_as(&mut finished, MetricKey::group("(held thread)"), (20, 0), RunVerdict::NothingMeasured);
}

#[test]
fn run_in_which_every_on_start_failed_fails() {
    let mut finished = shop();
    let login = &mut finished.view.metrics[0];
    (login.key, login.errors) = (Arc::new(MetricKey::request("on_start/login")), 12);
    check(&finished, RunVerdict::Passed, 0);
    finished.view.engine.iterations = 0;
    finished.view.timeline.iter_mut().for_each(|second| second.busy = 0);
    check(&finished, RunVerdict::NothingMeasured, 1);
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("on_start failed 12 times, so no user could begin"), "{text}");
}

#[test]
fn missed_schedule_fails_only_strict_runs() {
    let mut finished = shop();
    finished.facts.generator.saturated = true;
    check(&finished, RunVerdict::Passed, 0);
    finished.schedule_rule = ScheduleRule::Strict;
    check(&finished, RunVerdict::ScheduleMissed, 4);
    finished.facts.thresholds = vec![threshold_result("rate>450", Some(200.0), false, None)];
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn dropped_starts_miss_the_schedule() {
    let mut finished = Finished { schedule_rule: ScheduleRule::Strict, ..shop() };
    finished.view.engine.dropped = 1;
    check(&finished, RunVerdict::ScheduleMissed, 4);
}

#[test]
fn interrupted_takes_precedence_over_other_verdicts() {
    let mut finished = unreachable_target();
    finished.facts.thresholds = vec![threshold_result("error_rate<1%", Some(1.0), false, None)];
    for stop in [StopReason::Interrupted, StopReason::Aborted] {
        finished.facts.stop = stop;
        check(&finished, RunVerdict::Interrupted, 130);
    }
}

#[test]
fn interruption_that_succeeds_has_exit_code_0_in_every_output() {
    let mut finished = shop();
    finished.facts.stop = StopReason::Interrupted;
    let run = ReportInput { interruption_rule: InterruptionRule::Succeeds, ..finished.run() };
    assert_eq!((verdict(&run), exit_code(&run)), (RunVerdict::Interrupted, 0));
    let file = build_result(&run);
    assert_eq!((file.verdict, file.exit_code, result_summary(&run).exit_code), (RunVerdict::Interrupted, 0, 0));
    let recorded = RecordedRun::restore(&file).expect("the file is complete");
    for run in [run, recorded.report_input()] {
        let text = failure_text(&run).expect("it was interrupted");
        assert!(text.contains("Interrupted after") && text.contains("(exit code 0)"), "{text}");
        assert!(!summary(&run, TerminalStyle::PLAIN).contains("exit code"));
    }
    assert_eq!(build_result(&finished.run()).exit_code, 130);
}

#[test]
fn exit_codes_are_stable_and_never_2() {
    let codes: std::collections::BTreeSet<u8> = RunVerdict::ALL.map(RunVerdict::exit_code).into();
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [0, 1, 3, 4, 130]);
}

#[test]
fn run_with_less_than_99_percent_of_its_starts_passes_only_if_missing_starts_are_allowed() {
    let mut finished = shop();
    let made = finished.view.engine.iterations;
    finished.view.engine.dropped = made / 99;
    check(&finished, RunVerdict::Passed, 0);
    finished.view.engine.dropped += 1;
    check(&finished, RunVerdict::ScheduleMissed, 4);
    finished.schedule_rule = ScheduleRule::AllowMissing;
    check(&finished, RunVerdict::Passed, 0);
    finished.facts.thresholds = vec![threshold_result("rate>450", Some(200.0), false, None)];
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

/// The results lack the requests that would have waited longest, so thresholds that hold prove nothing.
#[test]
fn starts_dropped_at_max_users_fail_the_run_with_both_remedies() {
    let mut finished = shop();
    finished.view.engine.dropped = 1_000;
    finished.facts.thresholds = vec![threshold_result("p99<500ms", Some(4e7), true, None)];
    check(&finished, RunVerdict::ScheduleMissed, 4);
    let text = failure_text(&finished.run()).expect("it failed");
    let sentence = "Failed: 1,000 of 7,000 planned starts are missing, because no user was free: raise --max-users \
                    or lower the rate; --allow-missing lets such a run pass (exit code 4)";
    assert!(text.starts_with(sentence), "{text}");
    finished.view.metrics[0].key = Arc::new(MetricKey::request("on_start/login"));
    finished.view.metrics[0].errors = 12;
    let text = failure_text(&finished.run()).expect("it failed");
    assert!(text.contains("planned starts are missing; --allow-missing"), "{text}");
}

/// Users with an on_start are added step by step, far below --max-users.
#[test]
fn starts_dropped_by_users_with_an_on_start_name_start_users_as_the_remedy() {
    let mut finished = shop();
    finished.view.engine.dropped = 1_000;
    finished.view.metrics[0].key = Arc::new(MetricKey::request("on_start/login"));
    finished.view.metrics[0].errors = 0;
    check(&finished, RunVerdict::ScheduleMissed, 4);
    let text = failure_text(&finished.run()).expect("it failed");
    assert!(
        text.contains("because no user was free: raise --start-users (and --max-users if it was reached)"),
        "{text}"
    );
}

#[test]
fn run_with_missing_starts_never_says_that_it_is_complete() {
    let mut finished = fleet();
    check(&finished, RunVerdict::ScheduleMissed, 4);
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("✗ Failed: up to 412 of 6,412 planned starts are missing; --allow-missing"), "{text}");
    finished.schedule_rule = ScheduleRule::AllowMissing;
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("✓ Passed: up to 412 of 6,412 planned starts are missing; no thresholds were set"), "{text}");
    finished.facts.thresholds = vec![threshold_result("p99<500ms", Some(4e7), true, None)];
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("1 of 1 thresholds held; up to 412 of 6,412 planned starts are missing"), "{text}");
    let xml = junit(&finished.run());
    assert!(xml.contains("<skipped message=\"up to 412 of 6,412 planned starts are missing"), "{xml}");
}

#[test]
fn closed_load_whose_workers_were_all_lost_does_not_pass() {
    let mut finished = fleet();
    let users = finished.plan.load.model.profile().clone();
    finished.plan.load.model = LoadModel::Closed { users, pause: Pause::Fixed(Duration::ZERO) };
    finished.facts.fleet.as_mut().expect("a fleet").missed_starts = 0;
    check(&finished, RunVerdict::Passed, 0);
    let workers = &mut finished.facts.fleet.as_mut().expect("a fleet").workers;
    workers.iter_mut().for_each(|worker| worker.state = WorkerState::Lost);
    check(&finished, RunVerdict::ScheduleMissed, 4);
    let text = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(text.contains("✗ Failed: no worker stayed until the end of the load"), "{text}");
}

#[test]
fn failure_text_names_the_breached_thresholds_only() {
    let mut finished = shop();
    assert_eq!(failure_text(&finished.run()), None);
    finished.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(4e7), true, None),
        threshold_result("rate>450", Some(200.0), false, None),
    ];
    let text = failure_text(&finished.run()).expect("it failed");
    assert_eq!(text, "Failed: 1 of 2 thresholds breached (exit code 1)\n  rate>450: 200/s");
}

#[test]
fn failure_text_names_the_reason_of_every_failed_verdict() {
    let text = failure_text(&unreachable_target().run()).expect("it failed");
    assert!(text.contains("could not be reached") && text.contains("600× CONNECT_REFUSED"), "{text}");
    let mut finished = fleet();
    finished.facts.stop = StopReason::Aborted;
    let text = failure_text(&finished.run()).expect("it failed");
    assert!(text.starts_with("Interrupted after 30.0 s") && text.ends_with("\n  w3 left"), "{text}");
}
