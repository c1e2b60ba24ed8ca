//! Renders the eight charts: rate, response times, their heatmap, errors, users and lag over time,
//! the distribution of the response times, and latency by percentile. `svg.rs` draws the shapes.

use serde_json::json;
use squall_metrics::{Histogram, RunSecond};
use squall_model::LoadModel;
use std::time::Duration;

use super::{
    axis_scale::{AxisScale, time_ticks},
    escape,
    events::events,
    heatmap::HeatCells,
    svg::ChartCanvas,
};
use crate::{
    ReportInput,
    format::{count, number, percent, time},
    report_input::second_length,
};

/// More points than this would not be visible.
const MAX_POINTS: usize = 900;

/// More flags than letters would not tell events apart.
const MAX_FLAGS: usize = 26;

/// A shorter last second is not drawn.
const MIN_LAST_SECOND_S: f64 = 0.1;

pub(super) struct RenderedCharts {
    pub(super) figures: String,
    /// Values that the page's script shows under the pointer, as JSON that is safe in a script
    /// element.
    pub(super) data: String,
}

/// One or more seconds: rates and errors are per second, times are the highest of the seconds.
struct ChartPoint {
    t_s: u32,
    ends_at_s: f64,
    length_s: f64,
    second: RunSecond,
    target: f64,
}

pub(super) fn charts(run: &ReportInput<'_>) -> RenderedCharts {
    let points = points(run);
    let figures = [
        rate(run, &points),
        response(run, &points),
        heatmap(run, &points),
        errors(run, &points),
        users(run, &points),
        lag(run, &points),
    ];
    let figures = figures.concat() + &distribution(&run.view.all.response) + &percentiles(run);
    RenderedCharts { figures, data: pointer_data_json(&points).to_string().replace('<', "\\u003c") }
}

/// The seconds that the charts show.
fn shown_seconds<'a>(run: &'a ReportInput<'_>) -> &'a [RunSecond] {
    let active = run.facts.active.as_secs_f64().ceil() as u32;
    // Idle seconds at the end of a run would look like a collapse of the target.
    let idle = |second: &RunSecond| second.t_s > active && second.requests == 0;
    let end = run.view.timeline.iter().rposition(|second| !idle(second)).map_or(0, |at| at + 1);
    let length = |t_s: u32| second_length(t_s, run.facts.elapsed);
    let mut timeline = &run.view.timeline[..end];
    // The rate of a fraction of a second is noise, so it is not drawn; the result file has it.
    if let [before @ .., last] = timeline
        && length(last.t_s) < MIN_LAST_SECOND_S
        && !before.is_empty()
    {
        timeline = before;
    }
    timeline
}

fn points(run: &ReportInput<'_>) -> Vec<ChartPoint> {
    let active = run.facts.active.as_secs_f64().ceil() as u32;
    let length = |t_s: u32| second_length(t_s, run.facts.elapsed);
    let timeline = shown_seconds(run);
    let stride = timeline.len().div_ceil(MAX_POINTS).max(1);
    let level = |t_s: u32| run.plan.load.model.profile().level(Duration::from_millis(u64::from(t_s) * 1000 - 500));
    let point = |chunk: &[RunSecond]| {
        let last = chunk.last()?;
        let mut second = last.clone();
        for other in &chunk[..chunk.len() - 1] {
            second.requests += other.requests;
            second.errors += other.errors;
            second.warm_up_requests += other.warm_up_requests;
            second.users = second.users.max(other.users);
            for (highest, value) in [
                (&mut second.p50, other.p50),
                (&mut second.p95, other.p95),
                (&mut second.p99, other.p99),
                (&mut second.max, other.max),
                (&mut second.lag_p99, other.lag_p99),
            ] {
                *highest = (*highest).max(value);
            }
        }
        let target = if last.t_s <= active { level(last.t_s) } else { 0.0 };
        let ends_at_s = f64::from(last.t_s) - 1.0 + length(last.t_s);
        let length_s = chunk.iter().map(|second| length(second.t_s)).sum();
        Some(ChartPoint { t_s: last.t_s, ends_at_s, length_s, second, target })
    };
    timeline.chunks(stride).filter_map(point).collect()
}

impl ChartPoint {
    fn per_second(&self, value: u64) -> f64 {
        value as f64 / self.length_s
    }

    /// Warm-up requests count here: they are not in the results, but they are load.
    fn requests_per_second(&self) -> f64 {
        self.per_second(self.second.requests + self.second.warm_up_requests)
    }
}

fn pointer_data_json(points: &[ChartPoint]) -> serde_json::Value {
    let list = |of: &dyn Fn(&ChartPoint) -> Option<f64>| points.iter().map(of).collect::<Vec<_>>();
    let times = |of: fn(&RunSecond) -> u64| list(&|p| (p.second.requests > 0).then(|| of(&p.second) as f64 / 1e6));
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    json!({
        "t": points.iter().map(|p| p.t_s).collect::<Vec<_>>(),
        "rate": list(&|p| Some(rounded(p.requests_per_second()))),
        "target": list(&|p| Some(rounded(p.target))),
        "users": list(&|p| Some(p.second.users as f64)),
        "errors": list(&|p| Some(rounded(p.per_second(p.second.errors)))),
        "p50": times(|s| s.p50),
        "p95": times(|s| s.p95),
        "p99": times(|s| s.p99),
        "max": times(|s| s.max),
    })
}

pub(super) fn figure(title: &str, legend: &[(&str, &str)], drawing: &str) -> String {
    let legend: String =
        legend.iter().map(|(class, name)| format!("<span class=\"key {class}\">{}</span>", escape(name))).collect();
    format!("<figure><figcaption><b>{}</b><span>{legend}</span></figcaption>{drawing}</figure>", escape(title))
}

/// Draws the time axis and shades the warm-up.
fn time_axis(canvas: &mut ChartCanvas, run: &ReportInput<'_>, points: &[ChartPoint]) {
    let last = last_second(points);
    let warm_up = run.plan.load.warm_up.as_secs_f64();
    if warm_up > 0.0 {
        canvas.shade(0.0, (warm_up / last).min(1.0), "warm-up");
    }
    canvas.horizontal_axis(time_ticks(last as u32).into_iter().map(|t| (f64::from(t) / last, clock(t, last))));
    let shown = events(run).into_iter().take(MAX_FLAGS).filter(|event| event.t_s <= last);
    canvas.flags(shown.map(|event| (event.t_s / last, event.letter)));
}

/// A second as a label of a time axis that ends at `last`.
pub(super) fn clock(t_s: u32, last: f64) -> String {
    match last >= 3600.0 {
        true => format!("{}:{:02}:{:02}", t_s / 3600, t_s / 60 % 60, t_s % 60),
        false => format!("{}:{:02}", t_s / 60, t_s % 60),
    }
}

/// The end of the time axis in seconds.
fn last_second(points: &[ChartPoint]) -> f64 {
    f64::from(points.last().map_or(1, |point| point.t_s))
}

/// A line with each point at the middle of its seconds. Where the line begins or ends, it is
/// extended horizontally to the edge of the second, so that it covers the whole time and a single
/// second is visible.
fn line_of(points: &[ChartPoint], y: impl Fn(&ChartPoint) -> Option<f64>) -> Vec<(f64, Option<f64>)> {
    let last = last_second(points);
    let values: Vec<Option<f64>> = points.iter().map(y).collect();
    let known = |at: Option<usize>| at.and_then(|at| values.get(at)).is_some_and(Option::is_some);
    let mut line = Vec::with_capacity(points.len() + 2);
    for (at, point) in points.iter().enumerate() {
        let value = values[at];
        if value.is_some() && !known(at.checked_sub(1)) {
            line.push(((point.ends_at_s - point.length_s) / last, value));
        }
        line.push(((point.ends_at_s - point.length_s / 2.0) / last, value));
        if value.is_some() && !known(at.checked_add(1)) {
            line.push((point.ends_at_s / last, value));
        }
    }
    line
}

fn rate(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    // The target counts iterations, so it is comparable with requests only if each iteration makes
    // one.
    let open = matches!(run.plan.load.model, LoadModel::Open { .. });
    let comparable = open && run.view.engine.iterations == run.view.all.requests;
    let rates = points.iter().map(ChartPoint::requests_per_second).fold(0.0, f64::max);
    let targets = if comparable { points.iter().map(|p| p.target).fold(0.0, f64::max) } else { 0.0 };
    // Leave 5 % above the line, which is often level with the target.
    let scale = AxisScale::linear(rates.max(targets) * 1.05);
    canvas.vertical_axis(scale, number);
    time_axis(&mut canvas, run, points);
    let line = line_of(points, |p| Some(scale.position(p.requests_per_second())));
    canvas.area("rate", &line);
    canvas.line("rate", &line);
    if !comparable {
        return figure("Requests per second", &[], &canvas.finish("Requests per second over time", "rate:Requests/s"));
    }
    canvas.line("target", &line_of(points, |p| (p.target > 0.0).then(|| scale.position(p.target))));
    let drawing = canvas.finish("Requests per second over time", "rate:Requests/s,target:Asked for");
    figure("Requests per second", &[("rate", "answered"), ("target", "asked for")], &drawing)
}

fn users(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let scale = AxisScale::whole_numbers(points.iter().map(|p| p.second.users as f64).fold(0.0, f64::max) * 1.05);
    canvas.vertical_axis(scale, number);
    time_axis(&mut canvas, run, points);
    let line = line_of(points, |p| Some(scale.position(p.second.users as f64)));
    canvas.area("users", &line);
    canvas.line("users", &line);
    figure("Virtual users", &[], &canvas.finish("Virtual users over time", "users:Users"))
}

/// How late the generator itself was, which bounds what the other charts can say.
fn lag(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let scale = AxisScale::linear(points.iter().map(|p| p.second.lag_p99 as f64).fold(0.0, f64::max));
    canvas.vertical_axis(scale, tick_time);
    time_axis(&mut canvas, run, points);
    canvas.line("service", &line_of(points, |p| Some(scale.position(p.second.lag_p99 as f64))));
    let title = "Generator: lag of starts, p99";
    figure(title, &[], &canvas.finish(title, ""))
}

fn response(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let busy = || points.iter().filter(|point| point.second.requests > 0);
    let least = busy().map(|p| p.second.p50 as f64).fold(f64::INFINITY, f64::min);
    let most = busy().map(|p| p.second.p99 as f64).fold(0.0, f64::max);
    if most == 0.0 {
        canvas.placeholder("No request was measured");
        return figure("Response time", &[], &canvas.finish("Response time over time", ""));
    }
    let scale = AxisScale::auto(least, most);
    canvas.vertical_axis(scale, tick_time);
    time_axis(&mut canvas, run, points);
    let mut draw = |class, of: fn(&RunSecond) -> u64| {
        let position = |p: &ChartPoint| (p.second.requests > 0).then(|| scale.position(of(&p.second) as f64));
        canvas.line(class, &line_of(points, position));
    };
    draw("p99", |second| second.p99);
    draw("p95", |second| second.p95);
    draw("p50", |second| second.p50);
    let title = if scale.is_log() { "Response time (log scale)" } else { "Response time" };
    let drawing = canvas.finish("Response time percentiles over time", "p50:p50,p95:p95,p99:p99,max:max");
    figure(title, &[("p50", "p50"), ("p95", "p95"), ("p99", "p99")], &drawing)
}

fn heatmap(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let Some(cells) = HeatCells::of(shown_seconds(run)) else {
        canvas.placeholder("No request was measured");
        return figure("Where the times fell", &[], &canvas.finish("Response times over time", ""));
    };
    cells.draw(&mut canvas, last_second(points));
    canvas.labels(cells.ticks());
    time_axis(&mut canvas, run, points);
    let mut draw = |class, of: fn(&RunSecond) -> u64| {
        let position = |p: &ChartPoint| (p.second.requests > 0).then(|| cells.position(of(&p.second)));
        canvas.line(class, &line_of(points, position));
    };
    draw("heat-line", |second| second.p50);
    draw("heat-line high", |second| second.p99);
    cells.figure(canvas)
}

fn errors(run: &ReportInput<'_>, points: &[ChartPoint]) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let most = points.iter().map(|p| p.per_second(p.second.errors)).fold(0.0, f64::max);
    if most == 0.0 {
        time_axis(&mut canvas, run, points);
        canvas.placeholder("No errors");
        return figure("Errors per second", &[], &canvas.finish("No errors", ""));
    }
    let scale = AxisScale::linear(most);
    canvas.vertical_axis(scale, number);
    time_axis(&mut canvas, run, points);
    let last = last_second(points);
    for point in points {
        let from = (point.ends_at_s - point.length_s) / last;
        let errors = point.per_second(point.second.errors);
        canvas.bar("errors", from, f64::from(point.t_s) / last, scale.position(errors), "");
    }
    figure("Errors per second", &[], &canvas.finish("Errors per second over time", "errors:Errors/s,rate:Requests/s"))
}

/// A tick of a time axis: round values need no trailing zeros.
pub(super) fn tick_time(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n <= 0.0 => return "0".to_owned(),
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "µs"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", (value * 1e3).round() / 1e3)
}

/// Bars of equal width on a logarithmic axis: each covers a 9 % wider time range than the previous
/// one.
fn distribution(histogram: &Histogram) -> String {
    const PER_DOUBLING: f64 = 8.0;
    const SHOWN: [f64; 3] = [50.0, 95.0, 99.0];
    let mut canvas = ChartCanvas::new(230.0);
    let title = "Response time distribution";
    if histogram.is_empty() {
        canvas.placeholder("No request was measured");
        return figure(title, &[], &canvas.finish(title, ""));
    }
    let index = |nanos: f64| (nanos.max(1.0).log2() * PER_DOUBLING).floor() as i64;
    let mut bars: std::collections::BTreeMap<i64, u64> = std::collections::BTreeMap::new();
    for (lowest, highest, n) in histogram.ranges() {
        *bars.entry(index((lowest + highest) as f64 / 2.0)).or_default() += n;
    }
    let across = AxisScale::log(histogram.min().max(1) as f64, histogram.max().max(2) as f64);
    // The bars end below the labels of the percentiles.
    let bar_height = 1.0 - canvas.mark_labels_height(SHOWN.len());
    let up = AxisScale::linear(bars.values().copied().max().unwrap_or(1) as f64 / bar_height);
    canvas.vertical_axis(up, number);
    canvas.horizontal_axis(across.ticks().into_iter().map(|tick| (across.position(tick), tick_time(tick))));
    for (index, n) in bars {
        let bound = |index: i64| 2f64.powf(index as f64 / PER_DOUBLING);
        let (from, to) = (bound(index), bound(index + 1));
        let share = percent(n as f64 / histogram.count() as f64);
        let title = format!("{} to {}: {} requests ({share})", time(from), time(to), count(n));
        canvas.bar("rate", across.position(from), across.position(to), up.position(n as f64), &title);
    }
    for (row, percentile) in SHOWN.into_iter().enumerate() {
        let value = histogram.percentile(percentile) as f64;
        canvas.mark(across.position(value.max(1.0)), &format!("p{percentile} {}", time(value)), row);
    }
    figure(title, &[], &canvas.finish(title, ""))
}

/// Latency by percentile with a stretched tail: each additional nine has the same width.
fn percentiles(run: &ReportInput<'_>) -> String {
    let mut canvas = ChartCanvas::new(230.0);
    let all = &run.view.all;
    let title = "Latency by percentile";
    if all.requests == 0 {
        canvas.placeholder("No request was measured");
        return figure(title, &[], &canvas.finish(title, ""));
    }
    // Beyond one in `requests` the curve has no data.
    let nines = (all.requests as f64).log10().clamp(1.0, 6.0);
    let place = |percentile: f64| (-(1.0 - percentile / 100.0).log10() / nines).clamp(0.0, 1.0);
    let scale = AxisScale::auto(all.service.percentile(0.0).max(1) as f64, all.response.max() as f64);
    canvas.vertical_axis(scale, tick_time);
    let ticks = [50.0f64, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];
    let shown = ticks.into_iter().filter(|p| -(1.0 - p / 100.0).log10() <= nines + 1e-6);
    canvas.horizontal_axis(shown.map(|p| (place(p), format!("{p} %"))));
    for (class, histogram) in [("p99", &all.response), ("service", &all.service)] {
        let points = (0..=160).map(|i| {
            let along = f64::from(i) / 160.0;
            let percentile = 100.0 * (1.0 - 10f64.powf(-along * nines));
            (along, Some(scale.position(histogram.percentile(percentile) as f64)))
        });
        canvas.line(class, &points.collect::<Vec<_>>());
    }
    let title = if scale.is_log() { "Latency by percentile (log scale)" } else { title };
    figure(title, &[("p99", "response"), ("service", "service")], &canvas.finish(title, ""))
}
