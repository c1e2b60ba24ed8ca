//! Renders a comparison of two runs as one HTML file with the look of the report. The numbers are
//! those of [`ComparisonView`], which the web UI shows too.

use super::{
    CSS,
    axis_scale::{AxisScale, time_ticks},
    charts::{clock, figure, tick_time},
    escape,
    svg::ChartCanvas,
};
use crate::{
    ChangeVerdict, ComparisonView, ResultFile, RowView, RunComparison, RunOverlay,
    format::{number, rfc3339},
};

/// Size of the drawing of an interval.
const WIDTH: f64 = 200.0;
const HEIGHT: f64 = 22.0;

/// `comparison` of `base` and `new` as a page.
pub fn comparison_html(comparison: &RunComparison, base: &ResultFile, new: &ResultFile) -> String {
    let view = comparison.view(base, new);
    let mark = match view.tone {
        "good" => "✓",
        "warn" => "?",
        _ => "✗",
    };
    let warnings: String = view.warnings.iter().map(|warning| format!("<li>{}</li>", escape(warning))).collect();
    let warnings =
        if warnings.is_empty() { warnings } else { format!("<section class=\"doubt\"><ul>{warnings}</ul></section>") };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{} and {} · Squall comparison</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n\
         <header><div><p class=\"brand\">Squall comparison</p><h1>{}</h1>{}{}</div>\n\
         <div class=\"verdict {}\"><span>{mark}</span><div><b>{}</b><p>{}</p></div></div></header>\n\
         {warnings}\n{}\n<section class=\"charts\">{}{}{}</section>\n{}\n\
         <footer><p>{}</p></footer>\n</main>\n</body>\n</html>\n",
        escape(&base.run.name),
        escape(&new.run.name),
        escape(&new.run.name),
        run_line("base", base),
        run_line("new", new),
        view.tone,
        escape(&view.headline),
        escape(&view.detail),
        rows_table(&view),
        seconds_chart(&view, "p99 response, second by second", tick_ms, |run| run.p99_ms.clone()),
        seconds_chart(&view, "Requests per second", number, |run| run.rate.iter().copied().map(Some).collect()),
        percentile_chart(&view),
        facts_table(&view),
        escape(&view.method),
    )
}

fn run_line(side: &str, file: &ResultFile) -> String {
    let started = rfc3339(file.run.started_unix_ms);
    format!(
        "<p class=\"how\"><span class=\"key {side}\">{side}</span> {} · {} · {} {} UTC</p>",
        escape(&file.run.name),
        escape(&file.run.load.text),
        &started[..10],
        &started[11..19],
    )
}

fn rows_table(view: &ComparisonView) -> String {
    let mut rows = String::new();
    let mut previous = None;
    for row in &view.rows {
        let name = if previous == Some(&row.metric) { String::new() } else { escape(&row.metric) };
        previous = Some(&row.metric);
        let (class, mark) = match row.verdict {
            ChangeVerdict::Regressed => ("bad", "✗ "),
            ChangeVerdict::Improved => ("good", "✓ "),
            _ => ("soft", ""),
        };
        rows += &format!(
            "<tr{}><td><b>{name}</b></td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n {class}\">{}</td>\
             <td class=\"interval\">{}</td><td class=\"n\">{}</td><td class=\"{class}\">{mark}{}</td></tr>",
            if name.is_empty() { "" } else { " class=\"first\"" },
            row.statistic,
            escape(&row.base),
            escape(&row.new),
            escape(&row.change),
            interval(view, row),
            escape(&row.p),
            row.verdict_text,
        );
    }
    let end = number(view.axis_end * 100.0);
    format!(
        "<section><h2>What changed</h2><div class=\"wide\"><table class=\"compared\"><thead><tr><th scope=\"col\">Metric</th>\
         <th scope=\"col\">Statistic</th><th scope=\"col\" class=\"n\">Base</th><th scope=\"col\" class=\"n\">New</th>\
         <th scope=\"col\" class=\"n\">Change</th><th scope=\"col\">95 % interval, −{end} % to +{end} %</th>\
         <th scope=\"col\" class=\"n\">p</th><th scope=\"col\">Verdict</th></tr></thead><tbody>{rows}</tbody></table></div></section>"
    )
}

/// The interval against the tolerance band; a diamond is worse, a disc better, a ring otherwise.
fn interval(view: &ComparisonView, row: &RowView) -> String {
    let Some(range) = row.range else { return format!("<small>{}</small>", escape(&row.interval)) };
    let x = |fraction: f64| (0.5 + fraction.clamp(-view.axis_end, view.axis_end) / view.axis_end / 2.0) * WIDTH;
    let [low, middle, high] = range.map(x);
    let (band_from, band_to, y) = (x(-view.tolerance), x(view.tolerance), HEIGHT / 2.0);
    let (class, shape) = match row.verdict {
        ChangeVerdict::Regressed => ("bad", format!("M{middle:.1} {}l5 5-5 5-5-5z", y - 5.0)),
        ChangeVerdict::Improved => ("good", format!("M{:.1} {y}a4 4 0 1 0 8 0a4 4 0 1 0-8 0", middle - 4.0)),
        _ => ("other", format!("M{:.1} {y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0", middle - 3.5)),
    };
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"><rect class=\"band\" x=\"{band_from:.1}\" width=\"{:.1}\" \
         height=\"{HEIGHT}\"/><path class=\"grid\" d=\"M{:.1} 0V{HEIGHT}\"/><path class=\"range {class}\" d=\"M{low:.1} {y}H{high:.1}\"/>\
         <path class=\"point {class}\" d=\"{shape}\"/></svg>",
        escape(&row.interval),
        band_to - band_from,
        x(0.0),
    )
}

fn tick_ms(ms: f64) -> String {
    tick_time(ms * 1e6)
}

const LEGEND: [(&str, &str); 2] = [("base", "base"), ("new", "new")];

fn seconds_chart(
    view: &ComparisonView,
    title: &str,
    label: fn(f64) -> String,
    values: fn(&RunOverlay) -> Vec<Option<f64>>,
) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let runs = [("base", &view.base), ("new", &view.new)];
    let last = runs.iter().filter_map(|(_, run)| run.t_s.last()).copied().max().unwrap_or(1);
    let largest = runs.iter().flat_map(|(_, run)| values(run)).flatten().fold(0.0, f64::max);
    let scale = AxisScale::linear(largest * 1.05);
    canvas.vertical_axis(scale, label);
    canvas.horizontal_axis(
        time_ticks(last).into_iter().map(|t| (f64::from(t) / f64::from(last), clock(t, f64::from(last)))),
    );
    for (class, run) in runs {
        let places = run.t_s.iter().map(|t| (f64::from(*t) - 0.5) / f64::from(last));
        let line: Vec<_> = places.zip(values(run)).map(|(x, y)| (x, y.map(|y| scale.position(y)))).collect();
        canvas.line(class, &line);
    }
    figure(title, &LEGEND, &canvas.finish(title, ""))
}

/// Each additional nine has the same width.
fn percentile_chart(view: &ComparisonView) -> String {
    let mut canvas = ChartCanvas::new(210.0);
    let runs = [("base", &view.base.percentiles), ("new", &view.new.percentiles)];
    let nines = |percentile: f64| -(1.0 - percentile / 100.0).max(1e-6).log10();
    let points = || runs.iter().flat_map(|(_, points)| points.iter());
    let widest = points().map(|(percentile, _)| nines(*percentile)).fold(1.0, f64::max);
    let smallest = points().map(|(_, ms)| *ms).filter(|ms| *ms > 0.0).fold(f64::INFINITY, f64::min);
    let largest = points().map(|(_, ms)| *ms).fold(0.0, f64::max);
    let scale = AxisScale::auto(if smallest.is_finite() { smallest } else { 0.0 }, largest);
    canvas.vertical_axis(scale, tick_ms);
    let ticks = [50.0f64, 90.0, 99.0, 99.9, 99.99, 99.999].into_iter().filter(|tick| nines(*tick) <= widest + 1e-6);
    canvas.horizontal_axis(ticks.map(|tick| (nines(tick) / widest, format!("{tick} %"))));
    for (class, points) in runs {
        let place = |(percentile, ms): &(f64, f64)| (nines(*percentile) / widest, Some(scale.position(*ms)));
        canvas.line(class, &points.iter().map(place).collect::<Vec<_>>());
    }
    let title = if scale.is_log() { "Latency by percentile (log scale)" } else { "Latency by percentile" };
    figure(title, &LEGEND, &canvas.finish(title, ""))
}

fn facts_table(view: &ComparisonView) -> String {
    let rows = view.facts.iter().map(|fact| {
        let strong = |text: &str| if fact.differs { format!("<b>{}</b>", escape(text)) } else { escape(text) };
        format!(
            "<tr><td>{}</td><td class=\"message\">{}</td><td class=\"message\">{}</td></tr>",
            fact.what,
            strong(&fact.base),
            strong(&fact.new)
        )
    });
    format!(
        "<section><h2>What else differs</h2><div class=\"wide\"><table><thead><tr><th scope=\"col\">Fact</th>\
         <th scope=\"col\">Base</th><th scope=\"col\">New</th></tr></thead><tbody>{}</tbody></table></div></section>",
        rows.collect::<String>()
    )
}
