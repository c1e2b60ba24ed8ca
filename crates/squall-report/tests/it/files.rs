//! CSV and JUnit as other programs read them.

use crate::sample::{Finished, Recipe, Target, judged, shop};
use quick_junit::{Report, TestCaseStatus};
use squall_report::{csv, junit};

fn judged_shop() -> Finished {
    let mut finished = shop();
    finished.facts.thresholds =
        vec![judged("p99<500ms", Some(48.2e6), true, None), judged("error_rate<1%", Some(0.0158), false, Some(15))];
    finished
}

#[test]
fn csv_has_a_row_for_each_metric() {
    insta::assert_snapshot!(csv(&shop().run()).replace("\r\n", "\n"));
}

#[test]
fn csv_quotes_what_would_break_a_row() {
    let mut finished = shop();
    let key = std::sync::Arc::make_mut(&mut finished.view.metrics[0].key);
    key.name = "a,\"b\"\nc".to_owned();
    assert!(csv(&finished.run()).contains("\r\n\"a,\"\"b\"\"\nc\",request,"));
}

#[test]
fn junit_shows_thresholds_as_tests() {
    insta::assert_snapshot!(junit(&judged_shop().run()));
}

#[test]
fn junit_reads_back_and_only_thresholds_fail() {
    let report = Report::deserialize_from_str(&junit(&judged_shop().run())).expect("valid JUnit");
    assert_eq!((report.tests, report.failures, report.errors), (7, 1, 0));
    let failed = report
        .test_suites
        .iter()
        .flat_map(|s| &s.test_cases)
        .filter(|c| !matches!(c.status, TestCaseStatus::Success { .. }));
    assert_eq!(failed.map(|case| case.name.to_string()).collect::<Vec<_>>(), ["error_rate<1%"]);
}

#[test]
fn junit_is_not_green_when_nothing_was_tested() {
    let finished = Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make();
    let report = Report::deserialize_from_str(&junit(&finished.run())).expect("valid JUnit");
    assert_eq!((report.failures, report.errors), (0, 1));
}

#[test]
fn junit_survives_names_that_xml_cannot_hold() {
    let mut finished = judged_shop();
    finished.plan.name = "a<b>&\"c\"\x1b[31m\u{0}".to_owned();
    assert!(Report::deserialize_from_str(&junit(&finished.run())).is_ok());
}
