//! A comparison as the web UI and the HTML file show it: the texts of the terminal's table, intervals
//! as fractions for drawing, the two runs' seconds, and what else differs. It computes no statistics:
//! every number is one of [`RunComparison`] or of a result file.

use serde::Serialize;

use super::{
    ChangeVerdict, ComparedStatistic, ComparisonRow, RunComparison,
    comparison_table::{format_change, format_in_unit, format_interval, format_p_value},
};
use crate::{
    RecordedRun, ResultFile,
    format::{count, number, percent, time},
    terminal_text::TextEmphasis,
};

/// More points than this would not be visible.
const MAX_POINTS: usize = 600;
/// The curve of latency by percentile has this many points for each nine.
const POINTS_PER_NINE: usize = 12;
/// Ends of the axis of relative changes.
const AXIS_ENDS: [f64; 8] = [0.1, 0.2, 0.4, 0.6, 1.0, 2.0, 4.0, 10.0];

/// A comparison with its texts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonView {
    pub exit_code: u8,
    /// `good`, `bad` or `warn`.
    pub tone: &'static str,
    pub headline: String,
    /// How many rows got which judgement.
    pub detail: String,
    /// What may keep the runs from being comparable.
    pub warnings: Vec<String>,
    /// What the numbers refer to.
    pub method: String,
    pub tolerance: f64,
    /// The intervals are drawn from `-axis_end` to `axis_end`, as fractions of the base.
    pub axis_end: f64,
    pub rows: Vec<RowView>,
    pub facts: Vec<DifferingFact>,
    pub base: RunOverlay,
    pub new: RunOverlay,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowView {
    pub metric: String,
    pub statistic: &'static str,
    pub base: String,
    pub new: String,
    pub change: String,
    /// The 95 % interval as text.
    pub interval: String,
    pub p: String,
    /// Low end, estimate and high end as fractions of the base; `None` for error rates, which change
    /// by percentage points, and without enough data.
    pub range: Option<[f64; 3]>,
    pub verdict: ChangeVerdict,
    pub verdict_text: &'static str,
}

/// A fact about the two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DifferingFact {
    pub what: &'static str,
    pub base: String,
    pub new: String,
    pub differs: bool,
}

/// The seconds and percentiles of one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RunOverlay {
    /// Seconds since the start.
    pub t_s: Vec<u32>,
    pub rate: Vec<f64>,
    /// `None` in a second without requests. The highest value if a point stands for several seconds.
    pub p99_ms: Vec<Option<f64>>,
    /// Percentile and response time in milliseconds.
    pub percentiles: Vec<(f64, f64)>,
}

impl ChangeVerdict {
    /// The judgement in words.
    pub fn text(self) -> &'static str {
        match self {
            ChangeVerdict::NotEnoughData => "not enough data",
            ChangeVerdict::NoSignificantChange => "no significant change",
            ChangeVerdict::WithinTolerance => "within tolerance",
            ChangeVerdict::Improved => "improved",
            ChangeVerdict::Regressed => "regressed",
        }
    }
}

impl RunComparison {
    /// The comparison as a page shows it. `base` and `new` are the results that were compared.
    pub fn view(&self, base: &ResultFile, new: &ResultFile) -> ComparisonView {
        let conclusion = self.conclude();
        let rows: Vec<RowView> = self.rows.iter().map(row_view).collect();
        ComparisonView {
            exit_code: self.exit_code(),
            tone: match conclusion.emphasis {
                TextEmphasis::Good => "good",
                TextEmphasis::Warn => "warn",
                _ => "bad",
            },
            headline: conclusion.text,
            detail: self.detail(),
            warnings: self.warning_texts(),
            method: self.method_text(),
            tolerance: self.tolerance,
            axis_end: axis_end(&rows, self.tolerance),
            rows,
            facts: facts(self, base, new),
            base: overlay(base),
            new: overlay(new),
        }
    }

    fn detail(&self) -> String {
        let parts = [
            (ChangeVerdict::Improved, "improved"),
            (ChangeVerdict::WithinTolerance, "within tolerance"),
            (ChangeVerdict::NoSignificantChange, "not significant"),
            (ChangeVerdict::NotEnoughData, "without enough data"),
        ];
        let parts = parts.map(|(change, words)| (self.count(change), words));
        let shown = parts.iter().filter(|(n, _)| *n > 0).map(|(n, words)| format!("{n} {words}"));
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn row_view(row: &ComparisonRow) -> RowView {
    let relative = row.statistic != ComparedStatistic::ErrorRate;
    let range = row.effect.filter(|effect| relative && effect.of != 0.0);
    RowView {
        metric: row.metric.clone(),
        statistic: row.statistic.name(),
        base: format_in_unit(row.statistic, row.base),
        new: format_in_unit(row.statistic, row.new),
        change: format_change(row),
        interval: row.effect.map_or_else(String::new, |effect| format_interval(row.statistic, &effect)),
        p: row.effect.map_or_else(String::new, |effect| format_p_value(effect.p_adjusted)),
        range: range.map(|effect| [effect.low, effect.difference, effect.high].map(|value| value / effect.of)),
        verdict: row.change,
        verdict_text: row.change.text(),
    }
}

/// A round end that shows every judged change and the tolerance.
fn axis_end(rows: &[RowView], tolerance: f64) -> f64 {
    let judged = rows.iter().filter(|row| row.verdict != ChangeVerdict::NoSignificantChange);
    let estimates = judged.filter_map(|row| row.range).map(|[_, estimate, _]| estimate.abs() * 1.3);
    let needed = estimates.fold(tolerance * 2.0, f64::max);
    AXIS_ENDS.into_iter().find(|end| *end >= needed).unwrap_or(AXIS_ENDS[AXIS_ENDS.len() - 1])
}

fn facts(comparison: &RunComparison, base: &ResultFile, new: &ResultFile) -> Vec<DifferingFact> {
    let workers = |file: &ResultFile| {
        let Some(fleet) = &file.fleet else { return "one machine".to_owned() };
        let lost = fleet.workers.iter().filter(|worker| worker.state == "lost").count();
        let all = count(fleet.workers.len() as u64);
        if lost == 0 { all } else { format!("{all}, {lost} lost") }
    };
    let share = |part: u64, file: &ResultFile| percent(part as f64 / file.totals.iterations.max(1) as f64);
    type Fact<'a> = (&'static str, &'a dyn Fn(&ResultFile) -> String);
    let of_file: [Fact<'_>; 11] = [
        ("Name", &|file| file.run.name.clone()),
        ("Target", &|file| file.run.target.clone()),
        ("Load", &|file| file.run.load.text.clone()),
        ("Length", &|file| time(file.run.active_s * 1e9)),
        ("Requests", &|file| count(file.totals.requests)),
        ("Workers", &workers),
        ("Late starts", &|file| share(file.totals.late, file)),
        ("Dropped starts", &|file| count(file.totals.dropped)),
        ("CPU per request", &|file| format!("{} µs", number(file.generator.cpu_us_per_request.round()))),
        ("Squall", &|file| file.version.clone()),
        ("Command", &|file| file.run.command.clone().unwrap_or_default()),
    ];
    let fact = |what, base: String, new: String| DifferingFact { what, differs: base != new, base, new };
    let seconds = [comparison.seconds.0, comparison.seconds.1].map(|n| count(n as u64));
    let [base_seconds, new_seconds] = seconds;
    let mut facts: Vec<_> = of_file.into_iter().map(|(what, of)| fact(what, of(base), of(new))).collect();
    facts.push(fact("Seconds compared", base_seconds, new_seconds));
    facts.retain(|fact| !(fact.base.is_empty() && fact.new.is_empty()));
    facts
}

fn overlay(file: &ResultFile) -> RunOverlay {
    let stride = file.timeline.len().div_ceil(MAX_POINTS).max(1);
    let mut overlay = RunOverlay { percentiles: percentiles(file), ..RunOverlay::default() };
    for seconds in file.timeline.chunks(stride) {
        let Some(last) = seconds.last() else { continue };
        let (requests, length) = seconds.iter().fold((0.0, 0.0), |(requests, length), second| {
            (requests + second.rate * second.length_s, length + second.length_s)
        });
        overlay.t_s.push(last.t_s);
        overlay.rate.push(if length > 0.0 { crate::format::round(requests / length) } else { 0.0 });
        overlay.p99_ms.push(seconds.iter().map(|second| second.p99_ms).filter(|p99| *p99 > 0.0).reduce(f64::max));
    }
    overlay
}

/// Of the merged histogram, or of the file's percentiles if it has no histogram.
fn percentiles(file: &ResultFile) -> Vec<(f64, f64)> {
    if file.totals.requests == 0 {
        return Vec::new();
    }
    let Ok(run) = RecordedRun::restore(file) else {
        let times = &file.latency_ms.response;
        return vec![(50.0, times.p50), (90.0, times.p90), (95.0, times.p95), (99.0, times.p99), (99.9, times.p999)];
    };
    // Beyond one in `requests` the curve has no data.
    let nines = (file.totals.requests as f64).log10().clamp(1.0, 6.0);
    let points = (nines * POINTS_PER_NINE as f64) as usize;
    let histogram = &run.report_input().view.all.response;
    let point = |index: usize| {
        let percentile = 100.0 * (1.0 - 10f64.powf(-nines * index as f64 / points as f64));
        (crate::format::round(percentile), crate::format::ms(histogram.percentile(percentile) as f64))
    };
    (0..=points).map(point).collect()
}
