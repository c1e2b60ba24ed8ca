//! The result as JUnit XML, so that CI systems show thresholds as tests. Errors alone fail no test:
//! only thresholds define how many errors are allowed.

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use squall_metrics::{MetricKind, MetricView};
use squall_model::ThresholdResult;
use std::time::Duration;

use crate::{
    ReportInput, RunVerdict, ScheduleRule,
    format::{count, number, percent, round, time},
    verdict,
    verdict::missing_load,
    wording::{describe_missing_load, describe_verdict, metric_label, reliability_reasons, threshold_value},
};

/// The XML document.
pub fn junit(run: &ReportInput<'_>) -> String {
    let mut report = Report::new(format!("squall: {}", run.plan.name));
    report.set_time(run.facts.elapsed);
    report.add_test_suites([run_suite(run), threshold_suite(run), metric_suite(run)]);
    report.to_string().expect("quick_junit removes the characters that XML cannot contain")
}

/// Whether the run completed. Without this suite, a run that tested nothing would look successful.
fn run_suite(run: &ReportInput<'_>) -> TestSuite {
    let verdict = verdict(run);
    let status = match verdict {
        RunVerdict::Passed | RunVerdict::ThresholdBreached => completeness(run),
        RunVerdict::TargetUnreachable
        | RunVerdict::NothingMeasured
        | RunVerdict::ScheduleMissed
        | RunVerdict::Interrupted => {
            failure(NonSuccessKind::Error, verdict.name(), &describe_verdict(run), &reliability_reasons(run).join("\n"))
        }
    };
    let mut suite = TestSuite::new("run");
    let mut case = TestCase::new("the run is complete", status);
    case.set_classname(run.plan.name.as_str()).set_time(run.facts.elapsed);
    suite.add_test_case(case);
    suite.set_time(run.facts.elapsed);
    let all = &run.view.all;
    suite.add_properties([
        Property::new("target", run.plan.target.as_str()),
        Property::new("squall", run.version),
        Property::new("requests", all.requests.to_string()),
        Property::new("errors", all.errors.to_string()),
        Property::new("rate", round(run.rate(all)).to_string()),
        Property::new("verdict", verdict.name()),
    ]);
    suite
}

/// Whether the run made its load. A run without it passes only with `--allow-missing`, and its test is
/// skipped.
fn completeness(run: &ReportInput<'_>) -> TestCaseStatus {
    let missing = describe_missing_load(run).filter(|_| missing_load(run).is_some());
    match missing {
        None => TestCaseStatus::success(),
        Some(missing) if run.schedule_rule == ScheduleRule::AllowMissing => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("{missing} (--allow-missing)"));
            status
        }
        Some(missing) => failure(NonSuccessKind::Error, RunVerdict::ScheduleMissed.name(), &missing, ""),
    }
}

fn threshold_suite(run: &ReportInput<'_>) -> TestSuite {
    let mut suite = TestSuite::new("thresholds");
    suite.add_test_cases(run.facts.thresholds.iter().map(|result| threshold(run, result)));
    suite
}

fn threshold(run: &ReportInput<'_>, result: &ThresholdResult) -> TestCase {
    let text = result.threshold.to_string();
    let status = if result.passed {
        TestCaseStatus::success()
    } else {
        let when = result.breached_at_s.map_or(String::new(), |second| format!(", first breached after {second} s"));
        let message = format!("{text} does not hold: {}{when}", threshold_value(result));
        failure(NonSuccessKind::Failure, "threshold_breached", &message, "")
    };
    let mut case = TestCase::new(text, status);
    case.set_classname(format!("{}.thresholds", run.plan.name));
    case.set_system_out(format!("value: {}", threshold_value(result)));
    case
}

fn metric_suite(run: &ReportInput<'_>) -> TestSuite {
    let mut suite = TestSuite::new("metrics");
    suite.add_test_cases(run.view.metrics.iter().map(|metric| self::metric(run, metric)));
    suite
}

fn metric(run: &ReportInput<'_>, metric: &MetricView) -> TestCase {
    let mut case = TestCase::new(metric_label(metric), TestCaseStatus::success());
    let class = if metric.key.kind == MetricKind::Request { "requests" } else { "groups" };
    case.set_classname(format!("{}.{class}", run.plan.name));
    case.set_time(Duration::from_nanos(metric.response.mean() as u64));
    let response = &metric.response;
    case.set_system_out(format!(
        "{} requests, {}/s, {} errors ({}), response time mean {}, p50 {}, p95 {}, p99 {}, max {}",
        count(metric.requests),
        number(run.rate(metric)),
        count(metric.errors),
        percent(metric.error_rate()),
        time(response.mean()),
        time(response.percentile(50.0) as f64),
        time(response.percentile(95.0) as f64),
        time(response.percentile(99.0) as f64),
        time(response.max() as f64),
    ));
    case
}

fn failure(kind: NonSuccessKind, name: &str, message: &str, description: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_type(name).set_message(message);
    if !description.is_empty() {
        status.set_description(description);
    }
    status
}
