//! Every verdict, every exit code, and which wins.

use crate::sample::{Finished, Recipe, Target, fleet, judged, shop};
use squall_metrics::{MetricKey, Outcome, OutcomeCategory};
use squall_model::StopReason;
use squall_report::{RunVerdict, TerminalStyle, summary, verdict};
use std::sync::Arc;

#[track_caller]
fn check(finished: &Finished, expected: RunVerdict, exit_code: u8) {
    assert_eq!(verdict(&finished.run()), expected);
    assert_eq!(expected.exit_code(), exit_code);
}

fn refusing() -> Finished {
    Recipe { seconds: 3, target: Target::Refusing, ..Recipe::default() }.make()
}

#[test]
fn a_complete_run_without_breaches_has_passed() {
    let mut finished = shop();
    check(&finished, RunVerdict::Passed, 0);
    finished.facts.thresholds = vec![judged("p99<500ms", Some(4e7), true, None)];
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn one_breached_threshold_fails_the_run() {
    let mut finished = shop();
    finished.facts.thresholds =
        vec![judged("p99<500ms", Some(4e7), true, None), judged("rate>450", Some(200.0), false, None)];
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn a_threshold_that_stopped_the_run_fails_it() {
    let mut finished = shop();
    finished.facts.stop = StopReason::Threshold;
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn a_target_that_never_answers_is_unreachable_whatever_the_thresholds_say() {
    let mut finished = refusing();
    check(&finished, RunVerdict::TargetUnreachable, 3);
    finished.facts.thresholds = vec![judged("error_rate<1%", Some(1.0), false, None)];
    check(&finished, RunVerdict::TargetUnreachable, 3);
    finished.facts.stop = StopReason::Threshold;
    check(&finished, RunVerdict::TargetUnreachable, 3);
}

#[test]
fn a_target_that_answered_once_was_reachable() {
    let finished = Recipe { failing: 0..30, ..Recipe::default() }.make();
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn requests_cut_off_at_the_end_are_no_proof_of_an_unreachable_target() {
    let mut finished = refusing();
    finished.view.all.outcomes = [(Outcome::ABORTED, 600)].into();
    check(&finished, RunVerdict::Passed, 0);
    finished.view.all.outcomes.insert(Outcome::new(OutcomeCategory::Timeout, "CONNECT_TIMEOUT"), 1);
    check(&finished, RunVerdict::TargetUnreachable, 3);
}

#[test]
fn a_target_that_accepts_and_stays_silent_was_reached() {
    let mut finished = refusing();
    finished.view.all.outcomes = [(Outcome::new(OutcomeCategory::Timeout, "TIMEOUT"), 600)].into();
    check(&finished, RunVerdict::Passed, 0);
}

#[test]
fn a_run_in_which_nothing_was_measured_has_not_passed() {
    let mut finished = Recipe { seconds: 3, warm_up: 3, ..Recipe::default() }.make();
    check(&finished, RunVerdict::NothingMeasured, 1);
    finished.facts.thresholds = vec![judged("errors<1", Some(0.0), true, None)];
    check(&finished, RunVerdict::NothingMeasured, 1);
    finished.facts.stop = StopReason::Interrupted;
    check(&finished, RunVerdict::Interrupted, 130);
}

/// Found by a reader: a closed run in which nobody came through on_start was green.
#[test]
fn a_run_that_nobody_could_begin_has_not_passed() {
    let mut finished = shop();
    let login = &mut finished.view.metrics[0];
    (login.key, login.errors) = (Arc::new(MetricKey::request("on_start/login")), 12);
    check(&finished, RunVerdict::Passed, 0);
    finished.view.engine.iterations = 0;
    finished.view.timeline.iter_mut().for_each(|second| second.busy = 0);
    check(&finished, RunVerdict::NothingMeasured, 1);
    let told = summary(&finished.run(), TerminalStyle::PLAIN);
    assert!(told.contains("on_start failed 12 times, and nobody could begin"), "{told}");
}

#[test]
fn a_missed_schedule_fails_only_strict_runs() {
    let mut finished = shop();
    finished.facts.generator.saturated = true;
    check(&finished, RunVerdict::Passed, 0);
    finished.strict = true;
    check(&finished, RunVerdict::ScheduleMissed, 4);
    finished.facts.thresholds = vec![judged("rate>450", Some(200.0), false, None)];
    check(&finished, RunVerdict::ThresholdBreached, 1);
}

#[test]
fn dropped_starts_are_a_missed_schedule() {
    let mut finished = Finished { strict: true, ..shop() };
    finished.view.engine.dropped = 1;
    check(&finished, RunVerdict::ScheduleMissed, 4);
}

#[test]
fn an_interrupted_run_is_interrupted_before_all_else() {
    let mut finished = refusing();
    finished.facts.thresholds = vec![judged("error_rate<1%", Some(1.0), false, None)];
    for stop in [StopReason::Interrupted, StopReason::Aborted] {
        finished.facts.stop = stop;
        check(&finished, RunVerdict::Interrupted, 130);
    }
}

#[test]
fn exit_codes_are_distinct_and_leave_2_to_the_command_line() {
    let codes: std::collections::BTreeSet<u8> = RunVerdict::ALL.map(RunVerdict::exit_code).into();
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), [0, 1, 3, 4, 130]);
}

#[test]
fn starts_that_no_worker_held_miss_the_schedule() {
    let finished = fleet();
    check(&finished, RunVerdict::Passed, 0);
    let expected = RunVerdict::ScheduleMissed;
    check(&Finished { strict: true, ..finished }, expected, expected.exit_code());
}
