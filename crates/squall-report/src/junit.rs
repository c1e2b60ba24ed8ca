//! The result as JUnit XML, so that CI systems show thresholds as tests. Errors alone fail no test:
//! only thresholds define how many errors are allowed.

use squall_metrics::{MetricKind, MetricView};
use squall_model::ThresholdResult;
use std::time::Duration;

use crate::{
    ReportInput, RunVerdict, ScheduleRule,
    format::{count, metric_value, number, percent, round},
    verdict,
    verdict::missing_load,
    wording::{describe_missing_load, describe_verdict, metric_label, reliability_reasons, threshold_value},
    xml_element::XmlElement,
};

struct TestSuite {
    name: &'static str,
    time: Option<Duration>,
    properties: Vec<(&'static str, String)>,
    cases: Vec<TestCase>,
}

struct TestCase {
    name: String,
    class: String,
    time: Option<Duration>,
    outcome: Outcome,
    output: Option<String>,
}

enum Outcome {
    Passed,
    Skipped {
        message: String,
    },
    /// A threshold does not hold.
    Failure {
        message: String,
    },
    /// The run did not make its load.
    Error {
        verdict: &'static str,
        message: String,
        details: String,
    },
}

/// The XML document.
pub fn junit(run: &ReportInput<'_>) -> String {
    let suites = [run_suite(run), threshold_suite(run), metric_suite(run)];
    let cases = || suites.iter().flat_map(|suite| &suite.cases);
    XmlElement::new("testsuites")
        .attribute("name", format!("squall: {}", run.plan.name))
        .attribute("tests", cases().count())
        .attribute("skipped", cases().filter(|case| case.is_skipped()).count())
        .attribute("failures", cases().filter(|case| case.is_failure()).count())
        .attribute("errors", cases().filter(|case| case.is_error()).count())
        .attribute("time", seconds(run.facts.elapsed))
        .children(suites.iter().map(TestSuite::to_xml))
        .to_document()
}

impl TestSuite {
    fn to_xml(&self) -> XmlElement {
        let cases = &self.cases;
        let mut suite = XmlElement::new("testsuite")
            .attribute("name", self.name)
            .attribute("tests", cases.len())
            .attribute("skipped", cases.iter().filter(|case| case.is_skipped()).count())
            .attribute("errors", cases.iter().filter(|case| case.is_error()).count())
            .attribute("failures", cases.iter().filter(|case| case.is_failure()).count());
        if let Some(time) = self.time {
            suite = suite.attribute("time", seconds(time));
        }
        if !self.properties.is_empty() {
            let property = |(name, value): &(&'static str, String)| {
                XmlElement::new("property").attribute("name", name).attribute("value", value)
            };
            suite = suite.children([XmlElement::new("properties").children(self.properties.iter().map(property))]);
        }
        suite.children(cases.iter().map(TestCase::to_xml))
    }
}

impl TestCase {
    fn is_skipped(&self) -> bool {
        matches!(self.outcome, Outcome::Skipped { .. })
    }

    fn is_failure(&self) -> bool {
        matches!(self.outcome, Outcome::Failure { .. })
    }

    fn is_error(&self) -> bool {
        matches!(self.outcome, Outcome::Error { .. })
    }

    fn to_xml(&self) -> XmlElement {
        let mut case = XmlElement::new("testcase").attribute("name", &self.name).attribute("classname", &self.class);
        if let Some(time) = self.time {
            case = case.attribute("time", seconds(time));
        }
        case.children(self.outcome.to_xml())
            .children(self.output.iter().map(|output| XmlElement::new("system-out").text(output)))
    }
}

impl Outcome {
    fn to_xml(&self) -> Option<XmlElement> {
        match self {
            Outcome::Passed => None,
            Outcome::Skipped { message } => Some(XmlElement::new("skipped").attribute("message", message)),
            Outcome::Failure { message } => {
                Some(XmlElement::new("failure").attribute("message", message).attribute("type", "threshold_breached"))
            }
            Outcome::Error { verdict, message, details } => {
                Some(XmlElement::new("error").attribute("message", message).attribute("type", verdict).text(details))
            }
        }
    }
}

/// Whether the run completed. Without this suite, a run that tested nothing would look successful.
fn run_suite(run: &ReportInput<'_>) -> TestSuite {
    let verdict = verdict(run);
    let outcome = match verdict {
        RunVerdict::Passed | RunVerdict::ThresholdBreached => completeness(run),
        RunVerdict::TargetUnreachable
        | RunVerdict::NothingMeasured
        | RunVerdict::ScheduleMissed
        | RunVerdict::Interrupted => Outcome::Error {
            verdict: verdict.name(),
            message: describe_verdict(run),
            details: reliability_reasons(run).join("\n"),
        },
    };
    let case = TestCase {
        name: "the run is complete".to_owned(),
        class: run.plan.name.clone(),
        time: Some(run.facts.elapsed),
        outcome,
        output: None,
    };
    let all = &run.view.all;
    let properties = vec![
        ("target", run.plan.target.clone()),
        ("squall", run.version.to_owned()),
        ("requests", all.requests.to_string()),
        ("errors", all.errors.to_string()),
        ("rate", round(run.rate(all)).to_string()),
        ("verdict", verdict.name().to_owned()),
    ];
    TestSuite { name: "run", time: Some(run.facts.elapsed), properties, cases: vec![case] }
}

/// Whether the run made its load. A run without it passes only with `--allow-missing`, and its test is
/// skipped.
fn completeness(run: &ReportInput<'_>) -> Outcome {
    let missing = describe_missing_load(run).filter(|_| missing_load(run).is_some());
    match missing {
        None => Outcome::Passed,
        Some(missing) if run.schedule_rule == ScheduleRule::AllowMissing => {
            Outcome::Skipped { message: format!("{missing} (--allow-missing)") }
        }
        Some(message) => Outcome::Error { verdict: RunVerdict::ScheduleMissed.name(), message, details: String::new() },
    }
}

fn threshold_suite(run: &ReportInput<'_>) -> TestSuite {
    let cases = run.facts.thresholds.iter().map(|result| threshold(run, result)).collect();
    TestSuite { name: "thresholds", time: None, properties: Vec::new(), cases }
}

fn threshold(run: &ReportInput<'_>, result: &ThresholdResult) -> TestCase {
    let text = result.threshold.to_string();
    let outcome = if result.passed {
        Outcome::Passed
    } else {
        let when = result.breached_at_s.map_or(String::new(), |second| format!(", first breached after {second} s"));
        Outcome::Failure { message: format!("{text} does not hold: {}{when}", threshold_value(result)) }
    };
    TestCase {
        name: text,
        class: format!("{}.thresholds", run.plan.name),
        time: None,
        outcome,
        output: Some(format!("value: {}", threshold_value(result))),
    }
}

fn metric_suite(run: &ReportInput<'_>) -> TestSuite {
    let cases = run.view.metrics.iter().map(|metric| self::metric(run, metric)).collect();
    TestSuite { name: "metrics", time: None, properties: Vec::new(), cases }
}

fn metric(run: &ReportInput<'_>, metric: &MetricView) -> TestCase {
    let class = if metric.key.kind == MetricKind::Request { "requests" } else { "groups" };
    let response = &metric.response;
    let shown = |nanos| metric_value(&metric.key, nanos);
    let output = format!(
        "{} requests, {}/s, {} errors ({}), response time mean {}, p50 {}, p95 {}, p99 {}, max {}",
        count(metric.requests),
        number(run.rate(metric)),
        count(metric.errors),
        percent(metric.error_rate()),
        shown(response.mean()),
        shown(response.percentile(50.0) as f64),
        shown(response.percentile(95.0) as f64),
        shown(response.percentile(99.0) as f64),
        shown(response.max() as f64),
    );
    TestCase {
        name: metric_label(metric),
        class: format!("{}.{class}", run.plan.name),
        time: Some(Duration::from_nanos(response.mean() as u64)),
        outcome: Outcome::Passed,
        output: Some(output),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}
