//! Compares two runs metric by metric to find regressions. The test allows for autocorrelation, so
//! it does not mistake a slow minute for a slow program. It reads result files only, so runs of any
//! date and machine can be compared. Rows without enough data are marked as such.

mod comparison_table;
mod comparison_view;
mod full_load_series;
mod welch;

pub use comparison_view::{ComparisonView, DifferingFact, RowView, RunOverlay};
use serde::Serialize;

use crate::{MetricJson, Percentiles, ResultFile};
use full_load_series::FullLoadSeries;
use welch::{MeanEstimate, WelchTest, holm_correction, welch_test};

/// Probability of calling noise a change, over all rows of one comparison.
const SIGNIFICANCE: f64 = 0.05;

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    /// Names of the two runs.
    pub base: String,
    pub new: String,
    /// Changes for the worse up to this fraction are accepted.
    pub tolerance: f64,
    pub rows: Vec<ComparisonRow>,
    /// Why the two runs may not be comparable.
    pub warnings: Vec<String>,
    /// Number of metrics that both runs have.
    pub common: usize,
    /// Metrics that only one of the runs has.
    pub only_in_base: Vec<String>,
    pub only_in_new: Vec<String>,
    /// Seconds at full load that could be compared, of base and new.
    pub seconds: (usize, usize),
}

/// One statistic of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonRow {
    pub metric: String,
    pub statistic: ComparedStatistic,
    /// Value over the whole run: per second, milliseconds or a fraction.
    pub base: f64,
    pub new: f64,
    /// The estimated difference; `None` without enough data.
    pub effect: Option<DifferenceEstimate>,
    pub change: ChangeVerdict,
}

/// A statistic that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedStatistic {
    Rate,
    Mean,
    P50,
    P95,
    P99,
    ErrorRate,
}

/// The difference between the average seconds of two runs, in the statistic's own unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DifferenceEstimate {
    pub difference: f64,
    /// The 95 % confidence interval of the difference.
    pub low: f64,
    pub high: f64,
    /// The average second of the base, which the difference is relative to.
    pub of: f64,
    /// Probability of such a difference between equal runs.
    pub p: f64,
    /// `p` corrected for the number of rows (Holm).
    pub p_adjusted: f64,
}

/// The judgement of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeVerdict {
    NotEnoughData,
    NoSignificantChange,
    WithinTolerance,
    Improved,
    Regressed,
}

impl ComparedStatistic {
    pub const ALL: [ComparedStatistic; 6] = [
        ComparedStatistic::Rate,
        ComparedStatistic::Mean,
        ComparedStatistic::P50,
        ComparedStatistic::P95,
        ComparedStatistic::P99,
        ComparedStatistic::ErrorRate,
    ];

    pub fn name(self) -> &'static str {
        match self {
            ComparedStatistic::Rate => "rate",
            ComparedStatistic::Mean => "mean",
            ComparedStatistic::P50 => "p50",
            ComparedStatistic::P95 => "p95",
            ComparedStatistic::P99 => "p99",
            ComparedStatistic::ErrorRate => "error rate",
        }
    }

    fn value_in_run(self, rate: f64, error_rate: f64, response: &Percentiles) -> f64 {
        match self {
            ComparedStatistic::Rate => rate,
            ComparedStatistic::Mean => response.mean,
            ComparedStatistic::P50 => response.p50,
            ComparedStatistic::P95 => response.p95,
            ComparedStatistic::P99 => response.p99,
            ComparedStatistic::ErrorRate => error_rate,
        }
    }

    fn is_latency(self) -> bool {
        !matches!(self, ComparedStatistic::Rate | ComparedStatistic::ErrorRate)
    }

    fn is_worse(self, difference: f64) -> bool {
        if self == ComparedStatistic::Rate { difference < 0.0 } else { difference > 0.0 }
    }
}

impl ComparisonRow {
    /// The change over the whole run as a fraction of the base; infinite if the base is 0.
    pub fn relative(&self) -> f64 {
        if self.new == self.base { 0.0 } else { (self.new - self.base) / self.base }
    }
}

impl DifferenceEstimate {
    /// The change as a fraction of the base; infinite if the base is 0.
    pub fn relative(&self) -> f64 {
        if self.difference == 0.0 { 0.0 } else { self.difference / self.of }
    }
}

impl RunComparison {
    /// The number of rows with this judgement.
    fn count(&self, change: ChangeVerdict) -> usize {
        self.rows.iter().filter(|row| row.change == change).count()
    }

    /// Whether any row became significantly worse by more than the tolerance.
    pub fn regressed(&self) -> bool {
        self.rows.iter().any(|row| row.change == ChangeVerdict::Regressed)
    }

    /// Whether no latency could be judged: there was not enough data, or the runs share no metric.
    /// Rows of the rate do not count, because a steady rate does not show whether the target got
    /// slower.
    pub fn is_inconclusive(&self) -> bool {
        let judged = |row: &ComparisonRow| row.statistic.is_latency() && row.change != ChangeVerdict::NotEnoughData;
        self.shares_no_metric() || !(self.regressed() || self.rows.iter().any(judged))
    }

    /// Whether the runs share no metric. Two runs with one metric each are comparable under any
    /// names.
    pub(crate) fn shares_no_metric(&self) -> bool {
        let (base, new) = (self.only_in_base.len(), self.only_in_new.len());
        self.common == 0 && base > 0 && new > 0 && base.max(new) > 1
    }

    /// 2 if the comparison is inconclusive, 1 if a row regressed, else 0.
    pub fn exit_code(&self) -> u8 {
        if self.is_inconclusive() { 2 } else { u8::from(self.regressed()) }
    }
}

/// Compares `new` with `base`. `tolerance` is a fraction: 0.05 accepts changes for the worse of up
/// to 5 %.
pub fn compare(base: &ResultFile, new: &ResultFile, tolerance: f64) -> RunComparison {
    let mut comparison = RunComparison {
        base: base.run.name.clone(),
        new: new.run.name.clone(),
        tolerance,
        rows: Vec::new(),
        warnings: warnings(base, new),
        common: base.metrics.iter().filter(|metric| find_metric(new, metric).is_some()).count(),
        only_in_base: missing_from(new, base),
        only_in_new: missing_from(base, new),
        seconds: (full_load_series::full_load_seconds(base).len(), full_load_series::full_load_seconds(new).len()),
    };
    let mut tests: Vec<Option<WelchTest>> = Vec::new();
    for (label, [ours, theirs]) in metric_pairs(base, new) {
        for statistic in ComparedStatistic::ALL {
            let [base, new] =
                [&ours, &theirs].map(|side| statistic.value_in_run(side.rate, side.error_rate, &side.response));
            let estimates = (
                MeanEstimate::from_series(&ours.series, statistic),
                MeanEstimate::from_series(&theirs.series, statistic),
            );
            tests.push(estimates.0.zip(estimates.1).and_then(|(base, new)| welch_test(base, new)));
            let change = ChangeVerdict::NotEnoughData;
            comparison.rows.push(ComparisonRow { metric: label.clone(), statistic, base, new, effect: None, change });
        }
    }
    let adjusted = holm_correction(&tests.iter().map(|test| test.map(|test| test.p)).collect::<Vec<_>>());
    for ((row, test), p_adjusted) in comparison.rows.iter_mut().zip(tests).zip(adjusted) {
        row.effect = test.zip(p_adjusted).map(|(test, p_adjusted)| test.effect(p_adjusted));
        row.change = judge(row, tolerance);
    }
    comparison
}

fn judge(row: &ComparisonRow, tolerance: f64) -> ChangeVerdict {
    let Some(effect) = row.effect else { return ChangeVerdict::NotEnoughData };
    let worse = row.statistic.is_worse(effect.difference);
    // If the average second contradicts the whole run, the test has found an outlier, not a change.
    let agrees = (row.new - row.base) * effect.difference > 0.0;
    match effect.p_adjusted < SIGNIFICANCE && agrees {
        false => ChangeVerdict::NoSignificantChange,
        true if !worse => ChangeVerdict::Improved,
        true if effect.relative().abs().min(row.relative().abs()) > tolerance => ChangeVerdict::Regressed,
        true => ChangeVerdict::WithinTolerance,
    }
}

/// One metric of one run.
struct ComparedMetric {
    rate: f64,
    error_rate: f64,
    response: Percentiles,
    series: FullLoadSeries,
}

/// The metrics that both runs have, all requests first. A single metric equals all requests, so it
/// is not repeated.
fn metric_pairs(base: &ResultFile, new: &ResultFile) -> Vec<(String, [ComparedMetric; 2])> {
    let mut pairs = vec![("all requests".to_owned(), [base, new].map(all_requests))];
    let common = base.metrics.iter().filter_map(|ours| Some((ours, find_metric(new, ours)?)));
    let common: Vec<_> = common.collect();
    if common.len() > 1 || base.metrics.len() > 1 || new.metrics.len() > 1 {
        pairs.extend(
            common.into_iter().map(|(ours, theirs)| {
                (file_metric_label(ours), [single_metric(base, ours), single_metric(new, theirs)])
            }),
        );
    }
    pairs
}

fn all_requests(file: &ResultFile) -> ComparedMetric {
    let (rate, error_rate, response) = (file.totals.rate, file.totals.error_rate, file.latency_ms.response);
    ComparedMetric { rate, error_rate, response, series: FullLoadSeries::of_run(file) }
}

fn single_metric(file: &ResultFile, metric: &MetricJson) -> ComparedMetric {
    let (rate, error_rate, response) = (metric.rate, metric.error_rate, metric.response_ms);
    ComparedMetric { rate, error_rate, response, series: FullLoadSeries::of_metric(file, metric) }
}

fn find_metric<'a>(file: &'a ResultFile, like: &MetricJson) -> Option<&'a MetricJson> {
    let key = |m: &MetricJson| (m.name.clone(), m.kind.clone(), m.group.clone(), m.tags.clone());
    file.metrics.iter().find(|metric| key(metric) == key(like))
}

fn missing_from(file: &ResultFile, other: &ResultFile) -> Vec<String> {
    other.metrics.iter().filter(|metric| find_metric(file, metric).is_none()).map(file_metric_label).collect()
}

fn file_metric_label(metric: &MetricJson) -> String {
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
