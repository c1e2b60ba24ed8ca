//! Tests of the CSV and JUnit files with independent parsers.

use crate::sample_run::{Finished, Recipe, Target, shop, threshold_result};
use quick_junit::{Report, TestCaseStatus};
use squall_report::{csv, junit};

fn shop_with_thresholds() -> Finished {
    let mut finished = shop();
    finished.facts.thresholds = vec![
        threshold_result("p99<500ms", Some(48.2e6), true, None),
        threshold_result("error_rate<1%", Some(0.0158), false, Some(15)),
    ];
    finished
}

#[test]
fn csv_has_one_row_per_metric() {
    insta::assert_snapshot!(csv(&shop().run()).replace("\r\n", "\n"));
}

#[test]
fn csv_quotes_commas_quotes_and_line_breaks() {
    let mut finished = shop();
    let key = std::sync::Arc::make_mut(&mut finished.view.metrics[0].key);
    key.name = "a,\"b\"\nc".to_owned();
    assert!(csv(&finished.run()).contains("\r\n\"a,\"\"b\"\"\nc\",request,"));
}

#[test]
fn csv_cells_that_a_spreadsheet_would_execute_are_text() {
    let formulas = ["=1+2", "+1", "-2+3", "@SUM(A1)", " =1", "\t=1", "=HYPERLINK(\"http://x\")"];
    for formula in formulas {
        let mut finished = shop();
        let key = std::sync::Arc::make_mut(&mut finished.view.metrics[0].key);
        (key.name, key.group) = (formula.to_owned(), Some(formula.to_owned()));
        key.tags = [(formula.to_owned(), "1".to_owned())].into();
        let text = csv(&finished.run());
        let line = text.lines().nth(2).expect("the first metric");
        let begin = line.trim_start_matches('"');
        assert!(begin.starts_with(&format!("'{}", formula.replace('"', "\"\""))), "{line}");
        assert_eq!(line.matches(&format!("'{}", formula.replace('"', "\"\""))).count(), 3, "{line}");
    }
    assert!(!csv(&shop().run()).contains('\''), "other cells are unchanged");
}

#[test]
fn junit_has_one_test_per_threshold() {
    insta::assert_snapshot!(junit(&shop_with_thresholds().run()));
}

#[test]
fn junit_fails_only_breached_thresholds() {
    let report = Report::deserialize_from_str(&junit(&shop_with_thresholds().run())).expect("valid JUnit");
    assert_eq!((report.tests, report.failures, report.errors), (7, 1, 0));
    let failed = report
        .test_suites
        .iter()
        .flat_map(|s| &s.test_cases)
        .filter(|c| !matches!(c.status, TestCaseStatus::Success { .. }));
    assert_eq!(failed.map(|case| case.name.to_string()).collect::<Vec<_>>(), ["error_rate<1%"]);
}

#[test]
fn junit_of_an_unreachable_target_has_an_error() {
    let finished = Recipe { seconds: 2, target: Target::Refusing, ..Recipe::default() }.make();
    let report = Report::deserialize_from_str(&junit(&finished.run())).expect("valid JUnit");
    assert_eq!((report.failures, report.errors), (0, 1));
}

#[test]
fn junit_removes_characters_that_xml_does_not_allow() {
    let mut finished = shop_with_thresholds();
    finished.plan.name = "a<b>&\"c\"\x1b[31m\u{0}".to_owned();
    assert!(Report::deserialize_from_str(&junit(&finished.run())).is_ok());
}
