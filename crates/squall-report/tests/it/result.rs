//! Tests of the result file: its contents and parsing.

use crate::sample_run::{Recipe, Target, changed_by_hand, fleet, shop, threshold_result};
use squall_report::{
    ReadResultError, RecordedRun, ResultFile, SCHEMA, ScheduleRule, TerminalStyle, build_result, csv, html, junit,
    summary,
};

#[test]
fn result_file_round_trips() {
    let mut finished = Recipe { phases: true, ..Recipe::default() }.make();
    finished.facts.thresholds = vec![threshold_result("checkout:p95[5s]<30ms", Some(31.25e6), false, Some(9))];
    let written = build_result(&finished.run());
    assert_eq!(ResultFile::parse(&written.to_json()).unwrap(), written);
}

/// Every document of a run.
fn documents(run: &squall_report::ReportInput<'_>) -> [String; 5] {
    [summary(run, TerminalStyle::PLAIN), html(run), junit(run), csv(run), build_result(run).to_json()]
}

#[test]
fn reports_of_a_saved_result_equal_those_of_the_run() {
    let mut judged = Recipe { phases: true, warm_up: 3, ..Recipe::default() }.make();
    judged.facts.thresholds = vec![threshold_result("checkout:p95[5s]<30ms", Some(31.25e6 / 3.0), false, Some(9))];
    let mut lost = fleet();
    lost.schedule_rule = ScheduleRule::AllowMissing;
    lost.facts.generator.cpu_s = 1.0 / 3.0;
    lost.facts.fleet.as_mut().unwrap().workers[0].joined_s = 0.1 + 0.2;
    let refusing = Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make();
    for finished in [judged, lost, refusing, shop(), changed_by_hand()] {
        let written = documents(&finished.run());
        let saved = ResultFile::parse(&written[4]).unwrap();
        let again = RecordedRun::restore(&saved).expect("the result holds its run");
        assert_eq!(documents(&again.report_input()), written);
    }
}

#[test]
fn changes_of_a_local_load_are_in_the_file_and_in_the_report() {
    let finished = changed_by_hand();
    let file = build_result(&finished.run());
    let events: Vec<_> = file
        .events
        .iter()
        .map(|event| (event.t_s, event.kind.as_deref(), event.text.as_str(), event.revision))
        .collect();
    assert_eq!(events, [(4.1, Some("load_changed"), "rate 200 → 220/s", Some(1))]);
    assert!(file.fleet.is_none());
    assert!(html(&finished.run()).contains("rate 200 → 220/s"));
}

#[test]
fn result_without_its_run_says_why_it_cannot_be_rendered() {
    let check = |recorded: Option<&str>, message: &str| {
        let file = ResultFile { recorded: recorded.map(str::to_owned), ..build_result(&shop().run()) };
        assert_eq!(RecordedRun::restore(&file).unwrap_err().to_string(), message);
    };
    check(
        None,
        "the result has no histograms, which reports show: version 0.1.0 (abc1234) of Squall did not store them",
    );
    check(Some("e30"), "the field `recorded` was changed or cut off");
    check(
        Some("e30=."),
        "the field `recorded` is from version 0.1.0 (abc1234) of Squall, which this version cannot read",
    );
    let whole = build_result(&shop().run()).recorded.unwrap();
    check(Some(&whole[..whole.len() - 4]), "the field `recorded` has no readable histograms");
}

#[test]
fn recorded_run_is_less_than_half_of_the_file() {
    let file = build_result(&Recipe { seconds: 60, ..Recipe::default() }.make().run());
    let (all, recorded) = (file.to_json().len(), file.recorded.unwrap().len());
    assert!(recorded * 2 < all, "{recorded} of {all} bytes");
}

#[test]
fn result_of_another_schema_is_rejected_with_a_reason() {
    let text = build_result(&shop().run()).to_json().replace(SCHEMA, "squall.result/9");
    assert!(
        matches!(ResultFile::parse(&text), Err(ReadResultError::UnsupportedSchema { found }) if found == "squall.result/9")
    );
    assert!(ResultFile::parse("{\"hello\": 1}").unwrap_err().to_string().contains("--json"));
}

#[test]
fn unknown_fields_are_ignored() {
    let mut value: serde_json::Value = serde_json::from_str(&build_result(&shop().run()).to_json()).unwrap();
    value["totals"]["brand_new"] = 7.into();
    assert!(ResultFile::parse(&value.to_string()).is_ok());
}

#[test]
fn totals_count_requests_and_not_groups() {
    let file = build_result(&shop().run());
    let requests = file.metrics.iter().filter(|m| m.kind == "request");
    assert_eq!(file.totals.requests, requests.clone().map(|m| m.requests).sum::<u64>());
    assert_eq!(file.totals.errors, requests.map(|m| m.errors).sum::<u64>());
    assert_eq!(file.totals.requests, 6000);
    assert_eq!(file.totals.rate, 200.0);
    assert_eq!(file.totals.requests, file.outcomes.iter().map(|o| o.count).sum::<u64>());
    assert_eq!(file.totals.requests, file.timeline.iter().map(|s| s.requests).sum::<u64>());
    assert!((file.totals.error_rate - file.totals.errors as f64 / 6000.0).abs() < 1e-6);
    assert!(file.metrics.iter().any(|m| m.kind == "group" && m.requests > 0));
}

#[test]
fn rates_exclude_the_warm_up_time() {
    let finished = Recipe { seconds: 20, warm_up: 5, ..Recipe::default() }.make();
    let file = build_result(&finished.run());
    assert_eq!((file.totals.requests, file.totals.rate, file.run.measured_s), (3000, 200.0, 15.0));
    assert_eq!((file.accounting.sent, file.accounting.reported, file.accounting.warm_up), (4000, 4000, 1000));
    assert!(file.accounting.balanced && file.accounting.explanation.is_none());
    let warm_up: Vec<_> = file.timeline.iter().filter(|s| s.in_warm_up).map(|s| s.t_s).collect();
    assert_eq!(warm_up, [1, 2, 3, 4, 5]);
}

/// In a run of 20.25 s, the last second must not look as if the load had fallen from 200/s to 50/s.
#[test]
fn rate_of_a_partial_second_uses_its_length() {
    let mut finished = Recipe { seconds: 20, ..Recipe::default() }.make();
    finished.facts.elapsed = std::time::Duration::from_millis(19_250);
    let file = build_result(&finished.run());
    let (whole, last) = (&file.timeline[18], &file.timeline[19]);
    assert_eq!((whole.requests, whole.length_s, whole.rate), (200, 1.0, 200.0));
    assert_eq!((last.requests, last.length_s, last.rate), (200, 0.25, 800.0));
}

#[test]
fn last_second_includes_the_tail_of_late_responses() {
    let mut finished = Recipe { seconds: 20, ..Recipe::default() }.make();
    finished.facts.elapsed = std::time::Duration::from_millis(20_010);
    let file = build_result(&finished.run());
    assert_eq!(file.timeline[18].length_s, 1.0);
    assert_eq!(
        (file.timeline[19].requests, file.timeline[19].length_s, file.timeline[19].rate),
        (200, 1.01, 198.019802)
    );
}

#[test]
fn seconds_outside_the_warm_up_add_up_to_the_totals() {
    let mut finished = Recipe { seconds: 10, warm_up: 2, ..Recipe::default() }.make();
    finished.plan.load.warm_up = std::time::Duration::from_millis(1_500);
    let file = build_result(&finished.run());
    let marked: Vec<_> = file.timeline.iter().filter(|second| second.in_warm_up).map(|second| second.t_s).collect();
    assert_eq!(marked, [1]);
    let lengths: Vec<_> = file.timeline[..3].iter().map(|second| second.length_s).collect();
    assert_eq!(lengths, [1.0, 0.5, 1.0]);
    let rest = file.timeline.iter().filter(|second| !second.in_warm_up);
    assert_eq!(rest.map(|second| second.requests).sum::<u64>(), file.totals.requests);
}

#[test]
fn file_without_second_lengths_has_whole_seconds() {
    let mut value = serde_json::to_value(build_result(&shop().run())).unwrap();
    for second in value["timeline"].as_array_mut().unwrap() {
        second.as_object_mut().unwrap().remove("length_s");
    }
    assert!(ResultFile::parse(&value.to_string()).unwrap().timeline.iter().all(|second| second.length_s == 1.0));
}

#[test]
fn latencies_are_in_milliseconds_and_in_order() {
    let finished = shop();
    let file = build_result(&finished.run());
    let response = file.latency_ms.response;
    let exact = finished.view.all.response.percentile(99.0) as f64 / 1e6;
    assert!((response.p99 - exact).abs() < 1e-6, "{} is not {exact}", response.p99);
    let order = [response.min, response.p50, response.p90, response.p95, response.p99, response.p999, response.max];
    assert!(order.is_sorted() && response.min > 0.0, "{order:?}");
    assert!(response.mean > response.min && response.mean < response.max);
}

#[test]
fn unbalanced_accounting_has_an_explanation() {
    let mut finished = shop();
    finished.view.engine.begun += 3;
    let accounting = build_result(&finished.run()).accounting;
    assert!(!accounting.balanced);
    assert!(accounting.explanation.unwrap().starts_with("3 requests started"));
}

#[test]
fn accounting_with_lost_workers_is_balanced_and_gives_the_upper_bound() {
    let mut finished = fleet();
    let stated = "lost workers may have sent up to 131 requests that are not reported";
    let in_flight = |n| format!("{stated}; {n} of them were in flight when their worker last sent results");
    for (more, expected) in [(0, stated.to_owned()), (100, in_flight(100)), (31, in_flight(131))] {
        finished.view.engine.begun += more;
        let accounting = build_result(&finished.run()).accounting;
        assert_eq!((accounting.lost_at_most, accounting.balanced), (131, true));
        assert_eq!(accounting.explanation, Some(expected));
        // No request is counted twice: the target received `sent` to `sent + lost_at_most`
        // requests.
        assert_eq!(
            (accounting.sent + accounting.unsent, accounting.reported),
            (accounting.recorded, accounting.recorded)
        );
    }
    finished.view.engine.begun += 2;
    let accounting = build_result(&finished.run()).accounting;
    assert!(!accounting.balanced);
    let more =
        format!("{}; 2 requests started and their end was never recorded: a worker or thread died", in_flight(131));
    assert_eq!(accounting.explanation, Some(more));
    finished.view.engine.begun -= 134;
    assert!(
        !build_result(&finished.run()).accounting.balanced,
        "a lost worker does not explain a recorded request that was never sent"
    );
}

#[test]
fn fleet_is_in_the_file_and_files_without_a_fleet_parse() {
    let file = build_result(&fleet().run());
    let of_fleet = file.fleet.clone().expect("a fleet made the load");
    let workers: Vec<_> = of_fleet.workers.iter().map(|w| (w.id.as_str(), w.state.as_str(), w.ended_s)).collect();
    assert_eq!(workers, [("w1", "finished", None), ("w2", "lost", Some(15.25)), ("w3", "left", Some(20.0))]);
    assert_eq!((of_fleet.missed_starts, of_fleet.events.len()), (412, 2));
    assert_eq!(squall_report::ResultFile::parse(&file.to_json()).unwrap(), file);

    let local = build_result(&shop().run());
    assert_eq!((local.accounting.lost_at_most, &local.fleet), (0, &None));
    let mut older: serde_json::Value = serde_json::from_str(&local.to_json()).unwrap();
    older["accounting"].as_object_mut().unwrap().remove("lost_at_most");
    assert_eq!(squall_report::ResultFile::parse(&older.to_string()).unwrap(), local);
}

#[test]
fn threshold_values_are_in_their_named_unit() {
    let mut finished = shop();
    finished.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(40.5e6), true, None),
        threshold_result("error_rate<1%", Some(0.02), false, None),
        threshold_result("unused:rate>5", None, false, None),
        threshold_result("home:cls_p75<0.1", Some(18e6), true, None),
    ];
    let file = build_result(&finished.run());
    let values: Vec<_> = file.thresholds.iter().map(|t| (t.unit.as_str(), t.limit, t.value, t.passed)).collect();
    let expected = [
        ("ms", 500.0, Some(40.5), true),
        ("fraction", 0.01, Some(0.02), false),
        ("per_s", 5.0, None, false),
        ("layout_shift", 0.1, Some(0.018), true),
    ];
    assert_eq!(values, expected);
    assert_eq!(file.exit_code, 1);
}
