//! Thresholds as people write them: `p99<500ms`, `browse:p95[10s]<300ms !abort`, `error_rate<1%`,
//! `rate>450`. It only parses and prints them; the orchestrator judges a run by them.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

use crate::{ParseDurationError, ParseRateError, duration::MAX_DURATION, format_duration, parse_duration};

/// One condition that the run must meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Threshold {
    /// The metric's name; `None` for the whole run.
    pub metric: Option<String>,
    pub statistic: Statistic,
    /// Judge a sliding window of this length instead of the whole run.
    pub window: Option<Duration>,
    pub comparison: ComparisonOperator,
    /// In the statistic's unit: nanoseconds, a fraction, per second, or a count.
    pub limit: f64,
    /// Stop the run as soon as it is breached.
    pub abort: bool,
}

/// The statistic that is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// Percentile of the response time (from the intended start), 0..=100.
    Percentile(f64),
    /// Percentile of the service time (from the actual start).
    ServicePercentile(f64),
    Min,
    Mean,
    Max,
    /// Failed requests as a fraction of all.
    ErrorRate,
    Errors,
    Requests,
    /// Requests per second.
    Rate,
    Dropped,
    Late,
    /// Bytes received per request; of a step of a browser user, those of all requests of its pages.
    MeanBytes,
}

/// The unit that a statistic is given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticUnit {
    Time,
    Fraction,
    PerSecond,
    Count,
    /// Kept as nanoseconds: a shift of 1 is 1 s.
    LayoutShift,
}

/// The relation that must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonOperator {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// Why a text is not a threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a threshold: {problem}")]
pub struct ParseThresholdError {
    pub text: String,
    pub problem: ThresholdProblem,
}

/// What is wrong with the text of a threshold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdProblem {
    #[error("it needs a comparison: <, <=, > or >=, as in p99<500ms")]
    NoComparison,
    #[error("`!{word}` is not known; only !abort can stand at the end")]
    UnknownSuffix { word: String },
    #[error("the metric's name before `:` is empty")]
    EmptyMetric,
    #[error("the window has no closing `]`")]
    UnclosedWindow,
    #[error("a window is at least 1s long")]
    ShortWindow,
    #[error(
        "`{text}` is not a statistic; there are p50, p99, p99.9 (any percentile), service_p99, {known}",
        known = STATISTIC_NAMES.map(|(name, _)| name).join(", ")
    )]
    UnknownStatistic { text: String },
    #[error("`{text}` has no unit; write {text}ms or {text}s")]
    NoUnit { text: String },
    #[error("`{text}` is longer than a hundred years")]
    TooLong { text: String },
    #[error("`{text}` is not a share of at most 100%; write 1% or 0.01")]
    NotAFraction { text: String },
    #[error("`{text}` is not a number of 0 or more")]
    NotANumber { text: String },
    #[error(transparent)]
    Duration(#[from] ParseDurationError),
    #[error(transparent)]
    Rate(#[from] ParseRateError),
}

/// The figures of pages that browser users load. The metric `home:lcp` has the LCP of the step `home`, and a
/// threshold on it is written `home:lcp_p75<2.5s`.
const PAGE_FIGURES: [&str; 8] = ["ttfb", "fcp", "dom_ready", "load", "lcp", "cls", "inp", "requests"];
const LAYOUT_SHIFT: &str = ":cls";

/// Counts of pages that have a short name, with the figure whose errors they are.
const PAGE_COUNTS: [(&str, &str); 2] = [("failed_requests", "requests"), ("console_errors", "console_errors")];

const STATISTIC_NAMES: [(&str, Statistic); 10] = [
    ("min", Statistic::Min),
    ("mean", Statistic::Mean),
    ("max", Statistic::Max),
    ("error_rate", Statistic::ErrorRate),
    ("errors", Statistic::Errors),
    ("requests", Statistic::Requests),
    ("rate", Statistic::Rate),
    ("dropped", Statistic::Dropped),
    ("late", Statistic::Late),
    ("mean_bytes", Statistic::MeanBytes),
];

impl Statistic {
    pub fn unit(self) -> StatisticUnit {
        match self {
            Statistic::Percentile(_) | Statistic::ServicePercentile(_) => StatisticUnit::Time,
            Statistic::Min | Statistic::Mean | Statistic::Max => StatisticUnit::Time,
            Statistic::ErrorRate => StatisticUnit::Fraction,
            Statistic::Rate => StatisticUnit::PerSecond,
            Statistic::Errors | Statistic::Requests | Statistic::Dropped => StatisticUnit::Count,
            Statistic::Late | Statistic::MeanBytes => StatisticUnit::Count,
        }
    }
}

impl FromStr for Statistic {
    type Err = ThresholdProblem;

    fn from_str(text: &str) -> Result<Statistic, ThresholdProblem> {
        if let Some((_, statistic)) = STATISTIC_NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*statistic);
        }
        let percentile = |digits: &str| parse_percentile(digits).filter(|p| (0.0..=100.0).contains(p));
        if let Some(p) = text.strip_prefix("service_p").and_then(percentile) {
            return Ok(Statistic::ServicePercentile(p));
        }
        if let Some(p) = text.strip_prefix('p').and_then(percentile) {
            return Ok(Statistic::Percentile(p));
        }
        Err(ThresholdProblem::UnknownStatistic { text: text.to_owned() })
    }
}

/// `99` and `99.9` as written; `999` and `9999` are the usual short forms of 99.9 and 99.99.
fn parse_percentile(digits: &str) -> Option<f64> {
    if !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let short = digits.len() > 2 && digits.starts_with("99") && !digits.contains('.');
    if short { format!("99.{}", &digits[2..]).parse().ok() } else { digits.parse().ok() }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statistic::Percentile(p) => write!(f, "p{p}"),
            Statistic::ServicePercentile(p) => write!(f, "service_p{p}"),
            other => {
                let name = STATISTIC_NAMES.iter().find(|(_, s)| s == other).map(|(name, _)| *name);
                f.write_str(name.expect("every statistic but percentiles has a name"))
            }
        }
    }
}

impl ComparisonOperator {
    /// Whether `value` meets the threshold.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            ComparisonOperator::Less => value < limit,
            ComparisonOperator::AtMost => value <= limit,
            ComparisonOperator::Greater => value > limit,
            ComparisonOperator::AtLeast => value >= limit,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            ComparisonOperator::Less => "<",
            ComparisonOperator::AtMost => "<=",
            ComparisonOperator::Greater => ">",
            ComparisonOperator::AtLeast => ">=",
        }
    }
}

impl Threshold {
    /// The unit in which people read the limit and the value.
    pub fn unit(&self) -> StatisticUnit {
        unit_of(self.metric.as_deref(), self.statistic)
    }
}

fn unit_of(metric: Option<&str>, statistic: Statistic) -> StatisticUnit {
    match statistic.unit() {
        StatisticUnit::Time if metric.is_some_and(is_layout_shift) => StatisticUnit::LayoutShift,
        unit => unit,
    }
}

/// Whether the metric has layout shifts, which have no unit: 1 is recorded as 1 s.
pub fn is_layout_shift(metric: &str) -> bool {
    metric.ends_with(LAYOUT_SHIFT)
}

/// The step of a figure of its pages: `home` of `home:lcp`.
pub fn step_of_figure(metric: &str) -> Option<&str> {
    let (step, figure) = metric.rsplit_once(':')?;
    let is_figure = PAGE_FIGURES.contains(&figure) || PAGE_COUNTS.iter().any(|(_, of)| *of == figure);
    (is_figure && !step.is_empty()).then_some(step)
}

impl FromStr for Threshold {
    type Err = ParseThresholdError;

    fn from_str(text: &str) -> Result<Threshold, ParseThresholdError> {
        parse_threshold(text).map_err(|problem| ParseThresholdError { text: text.to_owned(), problem })
    }
}

fn parse_threshold(text: &str) -> Result<Threshold, ThresholdProblem> {
    let (body, abort) = match text.trim().strip_suffix("!abort") {
        Some(body) => (body.trim_end(), true),
        None => (text.trim(), false),
    };
    let at = body.find(['<', '>']).ok_or(ThresholdProblem::NoComparison)?;
    let (left, right) = body.split_at(at);
    let (comparison, right) = match (right.as_bytes()[0], right.as_bytes().get(1)) {
        (b'<', Some(b'=')) => (ComparisonOperator::AtMost, &right[2..]),
        (b'<', _) => (ComparisonOperator::Less, &right[1..]),
        (_, Some(b'=')) => (ComparisonOperator::AtLeast, &right[2..]),
        (_, _) => (ComparisonOperator::Greater, &right[1..]),
    };
    if let Some((_, word)) = right.split_once('!') {
        return Err(ThresholdProblem::UnknownSuffix { word: word.to_owned() });
    }
    let (metric, left) = match left.trim().rsplit_once(':') {
        Some(("", _)) => return Err(ThresholdProblem::EmptyMetric),
        Some((metric, left)) => (Some(metric.trim().to_owned()), left.trim()),
        None => (None, left.trim()),
    };
    let (left, window) = match left.split_once('[') {
        None => (left, None),
        Some((left, window)) => {
            let window = window.strip_suffix(']').ok_or(ThresholdProblem::UnclosedWindow)?;
            let window = parse_duration(window)?;
            if window < Duration::from_secs(1) {
                return Err(ThresholdProblem::ShortWindow);
            }
            (left.trim(), Some(window))
        }
    };
    let (metric, statistic) = match (left.parse::<Statistic>(), metric) {
        (Ok(statistic), metric) => (metric, statistic),
        (Err(unknown), None) => return Err(unknown),
        (Err(unknown), Some(page)) => {
            let (figure, statistic) = parse_page_figure(left).ok_or(unknown)?;
            (Some(format!("{page}:{figure}")), statistic)
        }
    };
    let right = right.trim();
    let limit = parse_limit(unit_of(metric.as_deref(), statistic), right)?;
    Ok(Threshold { metric, statistic, window, comparison, limit, abort })
}

/// `lcp_p75` as the figure `lcp` and its 75th percentile.
fn parse_page_figure(text: &str) -> Option<(&'static str, Statistic)> {
    if let Some((_, figure)) = PAGE_COUNTS.iter().find(|(name, _)| *name == text) {
        return Some((figure, Statistic::Errors));
    }
    PAGE_FIGURES.iter().find_map(|figure| {
        let statistic = text.strip_prefix(figure)?.strip_prefix('_')?;
        Some((*figure, statistic.parse().ok()?))
    })
}

/// The page and the short form of a statistic of one of its figures.
fn page_figure_text(metric: &str, statistic: Statistic) -> Option<(&str, String)> {
    let (page, figure) = metric.rsplit_once(':').filter(|(page, _)| !page.is_empty())?;
    if let Some((name, _)) = PAGE_COUNTS.iter().find(|(_, of)| *of == figure && statistic == Statistic::Errors) {
        return Some((page, (*name).to_owned()));
    }
    PAGE_FIGURES.contains(&figure).then(|| (page, format!("{figure}_{statistic}")))
}

fn parse_limit(unit: StatisticUnit, text: &str) -> Result<f64, ThresholdProblem> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    let owned = || text.to_owned();
    match unit {
        StatisticUnit::Time if number(text).is_some() => Err(ThresholdProblem::NoUnit { text: owned() }),
        StatisticUnit::Time => match parse_duration(text)? {
            limit if limit > MAX_DURATION => Err(ThresholdProblem::TooLong { text: owned() }),
            limit => Ok(limit.as_nanos() as f64),
        },
        StatisticUnit::LayoutShift => match number(text).filter(|shift| *shift <= 1e6) {
            Some(shift) => Ok(shift * 1e9),
            None => parse_limit(StatisticUnit::Time, text),
        },
        StatisticUnit::Fraction => match text.strip_suffix('%') {
            Some(percent) => number(percent).map(|v| v / 100.0),
            None => number(text),
        }
        .filter(|share| *share <= 1.0)
        .ok_or_else(|| ThresholdProblem::NotAFraction { text: owned() }),
        StatisticUnit::PerSecond if text.contains('/') => Ok(crate::parse_rate(text)?),
        StatisticUnit::PerSecond | StatisticUnit::Count => {
            number(text).ok_or_else(|| ThresholdProblem::NotANumber { text: owned() })
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.metric.as_ref().map(|metric| (metric, page_figure_text(metric, self.statistic))) {
            Some((_, Some((page, figure)))) => write!(f, "{page}:{figure}")?,
            Some((metric, None)) => write!(f, "{metric}:{}", self.statistic)?,
            None => write!(f, "{}", self.statistic)?,
        }
        if let Some(window) = self.window {
            write!(f, "[{}]", format_duration(window))?;
        }
        f.write_str(self.comparison.symbol())?;
        match self.unit() {
            StatisticUnit::LayoutShift => write!(f, "{}", self.limit / 1e9)?,
            StatisticUnit::Time => f.write_str(&format_duration(Duration::from_nanos(self.limit as u64)))?,
            StatisticUnit::Fraction => f.write_str(&format_percent(self.limit))?,
            StatisticUnit::PerSecond | StatisticUnit::Count if self.limit >= 1e16 => write!(f, "{:e}", self.limit)?,
            StatisticUnit::PerSecond | StatisticUnit::Count => write!(f, "{}", self.limit)?,
        }
        if self.abort { f.write_str(" !abort") } else { Ok(()) }
    }
}

/// The shortest percentage that parses to exactly this fraction: 0.07 is `7%`, though 0.07 * 100 is
/// a little more.
fn format_percent(share: f64) -> String {
    let written = (0..=17).map(|digits| format!("{:.digits$}", share * 100.0));
    let exact = |text: &String| text.parse::<f64>().is_ok_and(|percent| percent / 100.0 == share);
    written.into_iter().find(exact).map_or_else(|| share.to_string(), |text| format!("{text}%"))
}

impl TryFrom<String> for Threshold {
    type Error = ParseThresholdError;

    fn try_from(text: String) -> Result<Threshold, ParseThresholdError> {
        text.parse()
    }
}

impl From<Threshold> for String {
    fn from(threshold: Threshold) -> String {
        threshold.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, printed: &str) {
        let threshold: Threshold = text.parse().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(threshold.to_string(), printed);
        assert_eq!(printed.parse(), Ok(threshold), "reads back");
    }

    #[test]
    fn every_form_of_threshold_is_parsed() {
        check("p99<500ms", "p99<500ms");
        check("p999 <= 1s", "p99.9<=1s");
        check("error_rate<1%", "error_rate<1%");
        check("error_rate<0.005", "error_rate<0.5%");
        check("rate>450", "rate>450");
        check("rate>=90/m", "rate>=1.5");
        check("browse:p95<300ms", "browse:p95<300ms");
        check("p99[10s]<1s", "p99[10s]<1s");
        check("shop: buy:max[1m]<2s !abort", "shop: buy:max[1m]<2s !abort");
        check("service_p50<1ms!abort", "service_p50<1ms !abort");
        check("dropped<=0", "dropped<=0");
        check("go!:p50<1s", "go!:p50<1s");
    }

    #[test]
    fn figures_of_pages_have_thresholds() {
        check("home:lcp_p75<2.5s", "home:lcp_p75<2.5s");
        check("home:lcp:p75<2.5s", "home:lcp_p75<2.5s");
        check("buy/pay:dom_ready_max[10s]<1s !abort", "buy/pay:dom_ready_max[10s]<1s !abort");
        check("home:cls_p75<0.1", "home:cls_p75<0.1");
        check("home:failed_requests<=0", "home:failed_requests<=0");
        check("home:requests_error_rate<1%", "home:requests_error_rate<1%");
        check("home:console_errors<=0", "home:console_errors<=0");
        check("home:requests>5", "home:requests>5");
        check("home:mean_bytes<500000", "home:mean_bytes<500000");
        let threshold: Threshold = "home:lcp_p75<2.5s".parse().expect("a threshold");
        assert_eq!((threshold.metric.as_deref(), threshold.statistic), (Some("home:lcp"), Statistic::Percentile(75.0)));
        let shift: Threshold = "home:cls_p75<0.1".parse().expect("a threshold");
        assert_eq!(shift.limit, 1e8);
        for wrong in ["lcp_p75<1s", "home:lcp_p101<1s", "home:lcp_p75<2.5", "home:fid_p75<1s"] {
            assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
        }
    }

    /// Printing must not round the limit.
    #[test]
    fn limits_are_printed_without_rounding() {
        check("p50<3900us", "p50<3.9ms");
        check("p99<999ns", "p99<999ns");
        check("p99[90500ms]<1.0000005s", "p99[1m30.5s]<1.0000005s");
        check("error_rate<0.0000001%", "error_rate<0.0000001%");
        check("error_rate<7%", "error_rate<7%");
        check("error_rate<0.123456789", "error_rate<12.3456789%");
        check("rate>100/h", "rate>0.027777777777777776");
        check("requests<1e300", "requests<1e300");
    }

    proptest::proptest! {
        #[test]
        fn any_formatted_percentage_parses_back(share in 0.0..=1.0f64) {
            let printed = format_percent(share);
            proptest::prop_assert_eq!(parse_limit(StatisticUnit::Fraction, &printed), Ok(share));
        }
    }

    #[test]
    fn invalid_thresholds_are_refused_with_the_problem() {
        for (text, problem) in [
            ("p99", "comparison"),
            ("p99<500", "no unit"),
            ("p101<1s", "not a statistic"),
            ("foo<1", "not a statistic"),
            ("error_rate<5", "not a share"),
            // No run could breach it.
            ("error_rate<150%", "not a share of at most 100%"),
            ("p99[10s<1s", "closing"),
            ("p99[0s]<1s", "at least 1s"),
            (":p99<1s", "empty"),
            ("rate>x", "not a number"),
            ("", "comparison"),
            ("p99<5ms !abrot", "`!abrot` is not known"),
            ("p99<9999999h", "longer than a hundred years"),
        ] {
            let error = text.parse::<Threshold>().expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
