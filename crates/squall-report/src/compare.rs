//! Did it get slower? Compares two results metric by metric with a test that does not mistake a slow minute for a slow
//! program. Reads result files only, so runs of any age and machine can be compared; what cannot be told is said so.

mod series;
mod table;
mod welch;

use serde::Serialize;

use crate::{MetricFile, Percentiles, ResultFile};
use series::Series;
use welch::{Estimate, Test, holm, welch};

/// Chance of calling noise a change, over all rows of one comparison together.
const SIGNIFICANCE: f64 = 0.05;

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Names of the two runs.
    pub base: String,
    pub new: String,
    /// A change for the worse of up to this fraction is accepted.
    pub tolerance: f64,
    pub rows: Vec<Row>,
    /// Why the two may not be comparable.
    pub warnings: Vec<String>,
    /// How many metrics both have.
    pub common: usize,
    /// Metrics that only one of the two has.
    pub only_in_base: Vec<String>,
    pub only_in_new: Vec<String>,
    /// Seconds at full load that could be compared, of both.
    pub seconds: (usize, usize),
}

/// One statistic of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub metric: String,
    pub statistic: Compared,
    /// Of the whole run: per second, milliseconds or a fraction.
    pub base: f64,
    pub new: f64,
    /// What can be said of the difference; absent where there is not enough data.
    pub effect: Option<Effect>,
    pub change: Change,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    Rate,
    Mean,
    P50,
    P95,
    P99,
    ErrorRate,
}

/// The difference between the average seconds of two runs, in the statistic's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    pub difference: f64,
    /// The 95 % confidence interval of the difference.
    pub low: f64,
    pub high: f64,
    /// The base that the difference is relative to: its average second.
    pub of: f64,
    /// Chance of such a difference between equal runs.
    pub p: f64,
    /// The same, corrected for the number of rows (Holm).
    pub p_adjusted: f64,
}

/// What became of a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    NotEnoughData,
    NoSignificantChange,
    WithinTolerance,
    Improved,
    Regressed,
}

impl Compared {
    pub const ALL: [Compared; 6] =
        [Compared::Rate, Compared::Mean, Compared::P50, Compared::P95, Compared::P99, Compared::ErrorRate];

    pub fn name(self) -> &'static str {
        match self {
            Compared::Rate => "rate",
            Compared::Mean => "mean",
            Compared::P50 => "p50",
            Compared::P95 => "p95",
            Compared::P99 => "p99",
            Compared::ErrorRate => "error rate",
        }
    }

    fn of_run(self, rate: f64, error_rate: f64, response: &Percentiles) -> f64 {
        match self {
            Compared::Rate => rate,
            Compared::Mean => response.mean,
            Compared::P50 => response.p50,
            Compared::P95 => response.p95,
            Compared::P99 => response.p99,
            Compared::ErrorRate => error_rate,
        }
    }

    fn is_latency(self) -> bool {
        !matches!(self, Compared::Rate | Compared::ErrorRate)
    }

    fn is_worse(self, difference: f64) -> bool {
        if self == Compared::Rate { difference < 0.0 } else { difference > 0.0 }
    }
}

impl Row {
    /// The whole run's change as a fraction of the base; infinite where there was nothing before.
    pub fn relative(&self) -> f64 {
        if self.new == self.base { 0.0 } else { (self.new - self.base) / self.base }
    }
}

impl Effect {
    /// The change as a fraction of the base; infinite where there was nothing before.
    pub fn relative(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { self.difference / self.of }
    }
}

impl Comparison {
    /// Whether anything became significantly worse by more than the tolerance.
    pub fn regressed(&self) -> bool {
        self.rows.iter().any(|row| row.change == Change::Regressed)
    }

    /// Whether what people compare runs for could not be judged: too little data for any latency, or runs that have no metric in common.
    /// A steady rate is no answer to "did it get slower?".
    pub fn says_nothing(&self) -> bool {
        let judged = |row: &Row| row.statistic.is_latency() && row.change != Change::NotEnoughData;
        self.nothing_in_common() || !(self.regressed() || self.rows.iter().any(judged))
    }

    /// Whether none of one's metrics is in the other. Runs of one metric each can be meant to be compared, whatever its name.
    pub(crate) fn nothing_in_common(&self) -> bool {
        let (base, new) = (self.only_in_base.len(), self.only_in_new.len());
        self.common == 0 && base > 0 && new > 0 && base.max(new) > 1
    }

    /// 2 if nothing could be judged, 1 if something regressed, else 0.
    pub fn exit_code(&self) -> u8 {
        if self.says_nothing() { 2 } else { u8::from(self.regressed()) }
    }
}

/// Compares `new` with `base`. `tolerance` is a fraction: 0.05 accepts changes for the worse of up to 5 %.
pub fn compare(base: &ResultFile, new: &ResultFile, tolerance: f64) -> Comparison {
    let mut comparison = Comparison {
        base: base.run.name.clone(),
        new: new.run.name.clone(),
        tolerance,
        rows: Vec::new(),
        warnings: warnings(base, new),
        common: base.metrics.iter().filter(|metric| find(new, metric).is_some()).count(),
        only_in_base: missing_from(new, base),
        only_in_new: missing_from(base, new),
        seconds: (series::full_load(base).len(), series::full_load(new).len()),
    };
    let mut tests: Vec<Option<Test>> = Vec::new();
    for (label, [ours, theirs]) in pairs(base, new) {
        for statistic in Compared::ALL {
            let [base, new] = [&ours, &theirs].map(|side| statistic.of_run(side.rate, side.error_rate, &side.response));
            let estimates = (Estimate::of(&ours.series, statistic), Estimate::of(&theirs.series, statistic));
            tests.push(estimates.0.zip(estimates.1).and_then(|(base, new)| welch(base, new)));
            let change = Change::NotEnoughData;
            comparison.rows.push(Row { metric: label.clone(), statistic, base, new, effect: None, change });
        }
    }
    let adjusted = holm(&tests.iter().map(|test| test.map(|test| test.p)).collect::<Vec<_>>());
    for ((row, test), p_adjusted) in comparison.rows.iter_mut().zip(tests).zip(adjusted) {
        row.effect = test.zip(p_adjusted).map(|(test, p_adjusted)| test.effect(p_adjusted));
        row.change = judge(row, tolerance);
    }
    comparison
}

fn judge(row: &Row, tolerance: f64) -> Change {
    let Some(effect) = row.effect else { return Change::NotEnoughData };
    let worse = row.statistic.is_worse(effect.difference);
    // A test on the average second that contradicts the whole run has found an outlier, not a change.
    let agrees = (row.new - row.base) * effect.difference > 0.0;
    match effect.p_adjusted < SIGNIFICANCE && agrees {
        false => Change::NoSignificantChange,
        true if !worse => Change::Improved,
        true if effect.relative().abs().min(row.relative().abs()) > tolerance => Change::Regressed,
        true => Change::WithinTolerance,
    }
}

/// One metric of one run.
struct Side {
    rate: f64,
    error_rate: f64,
    response: Percentiles,
    series: Series,
}

/// What both runs have, all requests first. A single metric is the same as all requests and not repeated.
fn pairs(base: &ResultFile, new: &ResultFile) -> Vec<(String, [Side; 2])> {
    let mut pairs = vec![("all requests".to_owned(), [base, new].map(whole))];
    let common = base.metrics.iter().filter_map(|ours| Some((ours, find(new, ours)?)));
    let common: Vec<_> = common.collect();
    if common.len() > 1 || base.metrics.len() > 1 || new.metrics.len() > 1 {
        pairs.extend(common.into_iter().map(|(ours, theirs)| (label(ours), [part(base, ours), part(new, theirs)])));
    }
    pairs
}

fn whole(file: &ResultFile) -> Side {
    let (rate, error_rate, response) = (file.totals.rate, file.totals.error_rate, file.latency_ms.response);
    Side { rate, error_rate, response, series: Series::of_run(file) }
}

fn part(file: &ResultFile, metric: &MetricFile) -> Side {
    let (rate, error_rate, response) = (metric.rate, metric.error_rate, metric.response_ms);
    Side { rate, error_rate, response, series: Series::of_metric(file, metric) }
}

fn find<'a>(file: &'a ResultFile, like: &MetricFile) -> Option<&'a MetricFile> {
    let key = |m: &MetricFile| (m.name.clone(), m.kind.clone(), m.group.clone(), m.tags.clone());
    file.metrics.iter().find(|metric| key(metric) == key(like))
}

fn missing_from(file: &ResultFile, other: &ResultFile) -> Vec<String> {
    other.metrics.iter().filter(|metric| find(file, metric).is_none()).map(label).collect()
}

fn label(metric: &MetricFile) -> String {
    let mut label = match &metric.group {
        Some(group) => format!("{group} › {}", metric.name),
        None => metric.name.clone(),
    };
    if metric.kind != "request" {
        label += &format!(" ({})", metric.kind);
    }
    for (name, value) in &metric.tags {
        label += &format!(" {name}={value}");
    }
    label
}

fn warnings(base: &ResultFile, new: &ResultFile) -> Vec<String> {
    let mut warnings = Vec::new();
    let (ours, theirs) = (&base.run.load, &new.run.load);
    if (&ours.model, ours.peak) != (&theirs.model, theirs.peak) {
        warnings.push(format!("the runs had different loads: {} and {}", ours.text, theirs.text));
    }
    for (name, file) in [("base", base), ("new", new)] {
        if file.generator.saturated || file.totals.dropped > 0 {
            warnings.push(format!(
                "the generator of the {name} run could not keep up, so the numbers understate the target"
            ));
        }
        if matches!(file.run.stop.as_str(), "interrupted" | "aborted") {
            warnings.push(format!("the {name} run was interrupted"));
        }
        if !file.accounting.balanced {
            warnings.push(format!("the {name} run lost track of requests: sent, recorded and reported differ"));
        }
    }
    warnings
}
