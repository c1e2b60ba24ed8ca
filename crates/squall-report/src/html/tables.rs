//! Renders the tables of the report. Cells that the page sorts by number have it in `data-v`.

use squall_metrics::{Histogram, MetricView, OutcomeCategory, PHASES};
use squall_model::{WorkerFacts, WorkerState};

use super::{
    escape,
    events::{self, ReportEvent},
    svg::sparkline,
};
use crate::{
    ReportInput,
    format::{count, metric_value, number, percent, round, time},
    metric_rows::ordered_metrics,
    wording::{describe_missed_starts, metric_label},
};

/// More rows would make the page slow; the JSON file has them all.
const MAX_ROWS: usize = 500;

fn table(title: &str, heads: &[&str], rows: Vec<String>) -> String {
    let shown = rows.len().min(MAX_ROWS);
    let more = match rows.len() - shown {
        0 => String::new(),
        more => format!("<p class=\"more\">… and {} more; the JSON result has them all</p>", count(more as u64)),
    };
    let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    format!(
        "<section><h2>{title}</h2><div class=\"wide\"><table><thead><tr>{heads}</tr></thead><tbody>{}</tbody></table></div>{more}</section>",
        rows[..shown].concat()
    )
}

fn text_cell(value: &str) -> String {
    format!("<td>{}</td>", escape(value))
}

fn number_cell(value: f64, shown: &str) -> String {
    format!("<td class=\"n\" data-v=\"{value}\">{shown}</td>")
}

/// A time since the start, rounded as in the result file.
fn seconds_cell(seconds: f64) -> String {
    number_cell(round(seconds), &time(seconds * 1e9))
}

/// Cells in the order of [`TIMES`].
fn time_cells(histogram: &Histogram, show: impl Fn(f64) -> String) -> [String; TIMES.len()] {
    let at = |percentile| histogram.percentile(percentile) as f64;
    let values = [
        histogram.min() as f64,
        histogram.mean(),
        at(50.0),
        at(90.0),
        at(95.0),
        at(99.0),
        at(99.9),
        histogram.max() as f64,
    ];
    values.map(|value| number_cell(value, &show(value)))
}

const TIMES: [&str; 8] = ["min", "mean", "p50", "p90", "p95", "p99", "p99.9", "max"];

pub(super) fn latency(run: &ReportInput<'_>) -> String {
    let all = &run.view.all;
    let rows = [
        ("Response", "from the moment it was due", &all.response),
        ("Service", "from the moment it was sent", &all.service),
        ("Wait", "between the two", &all.wait),
    ];
    let rows = rows.map(|(name, meaning, histogram)| {
        format!("<tr><td><b>{name}</b> <small>{meaning}</small></td>{}</tr>", time_cells(histogram, time).concat())
    });
    table("Latency of all requests", &[&["Time"], TIMES.as_slice()].concat(), rows.to_vec())
}

pub(super) fn metrics(run: &ReportInput<'_>) -> String {
    let heads = [["Metric", "Requests", "Rate", "Errors"].as_slice(), &TIMES[1..], &["p99 over time"]];
    let rows = ordered_metrics(&run.view.metrics).iter().map(|metric| metric_row(run, metric)).collect();
    table("Metrics (response time)", &heads.concat(), rows)
}

fn metric_row(run: &ReportInput<'_>, metric: &MetricView) -> String {
    let errors = match metric.errors {
        0 => number_cell(0.0, "0"),
        n => format!(
            "<td class=\"n bad\" data-v=\"{n}\">{} <small>({})</small></td>",
            count(n),
            percent(metric.error_rate())
        ),
    };
    let cells = [
        text_cell(&metric_label(metric)),
        number_cell(metric.requests as f64, &count(metric.requests)),
        number_cell(run.rate(metric), &format!("{}/s", number(run.rate(metric)))),
        errors,
        time_cells(&metric.response, |value| metric_value(&metric.key, value))[1..].concat(),
        format!("<td>{}</td>", sparkline(&p99_points(metric))),
    ];
    format!("<tr>{}</tr>", cells.concat())
}

/// At most sixty points: each is the highest p99 of its seconds.
fn p99_points(metric: &MetricView) -> Vec<f64> {
    let stride = metric.timeline.len().div_ceil(60).max(1);
    let highest =
        |seconds: &[squall_metrics::MetricSecond]| seconds.iter().map(|s| f64::from(s.p99)).fold(0.0, f64::max);
    metric.timeline.chunks(stride).map(highest).collect()
}

pub(super) fn outcomes(run: &ReportInput<'_>) -> String {
    let all = &run.view.all;
    if all.requests == 0 {
        return String::new();
    }
    let mut outcomes: Vec<_> = all.outcomes.iter().map(|(outcome, n)| (*outcome, *n)).collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let row = |(outcome, n): (squall_metrics::Outcome, u64)| {
        let share = n as f64 / all.requests as f64;
        let class = if outcome.category == OutcomeCategory::Ok { "good" } else { "bad" };
        format!(
            "<tr><td class=\"{class}\">{}</td>{}{}{}<td><span class=\"share {class}\"><i style=\"width:{:.2}%\"></i></span></td></tr>",
            outcome.category.name(),
            text_cell(&outcome.code.to_string()),
            number_cell(n as f64, &count(n)),
            number_cell(share, &percent(share)),
            share * 100.0,
        )
    };
    let heads = ["Outcome", "Code", "Requests", "Share", ""];
    table("Outcomes", &heads, outcomes.into_iter().map(row).collect())
}

pub(super) fn errors(run: &ReportInput<'_>) -> String {
    let mut notes: Vec<_> = run.view.errors.iter().collect();
    if notes.is_empty() {
        return String::new();
    }
    notes.sort_by_key(|note| std::cmp::Reverse(note.count));
    let row = |note: &&squall_metrics::ErrorNote| {
        format!(
            "<tr>{}{}{}<td class=\"message\">{}</td></tr>",
            number_cell(note.count as f64, &count(note.count)),
            text_cell(&note.metric.name),
            text_cell(&note.outcome.code.to_string()),
            escape(&note.message),
        )
    };
    table("What went wrong", &["Times", "Metric", "Code", "Message"], notes.iter().map(row).collect())
}

pub(super) fn phases(run: &ReportInput<'_>) -> String {
    let recorded = run.view.metrics.iter().filter_map(|metric| Some((metric, metric.phases.as_ref()?)));
    let rows = recorded.flat_map(|(metric, phases)| {
        let used = PHASES.iter().zip(phases.iter()).filter(|(_, histogram)| !histogram.is_empty());
        used.map(|(phase, histogram)| {
            let number = number_cell(histogram.count() as f64, &count(histogram.count()));
            format!(
                "<tr>{}{}{number}{}</tr>",
                text_cell(&metric_label(metric)),
                text_cell(&phase.replace('_', " ")),
                time_cells(histogram, time).concat()
            )
        })
    });
    let rows: Vec<String> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    table("Where the time goes", &[["Metric", "Phase", "Times"].as_slice(), TIMES.as_slice()].concat(), rows)
}

pub(super) fn workers(run: &ReportInput<'_>) -> String {
    let Some(fleet) = &run.facts.fleet else { return String::new() };
    let row = |worker: &WorkerFacts| {
        let class = if matches!(worker.state, WorkerState::Lost | WorkerState::Unable) { " class=\"bad\"" } else { "" };
        let ended = worker.ended_s.unwrap_or(run.facts.elapsed.as_secs_f64());
        format!(
            "<tr>{}{}<td{class}>{}</td>{}{}{}{}</tr>",
            text_cell(&worker.id),
            text_cell(&worker.instance),
            worker.state.name(),
            number_cell(worker.requests as f64, &count(worker.requests)),
            seconds_cell(worker.joined_s),
            seconds_cell(ended),
            number_cell(worker.lost_at_most as f64, &count(worker.lost_at_most)),
        )
    };
    let heads = ["Worker", "Instance", "State", "Requests", "From", "To", "Missing at most"];
    let gap = match fleet.missed_starts {
        0 => String::new(),
        n => format!("<p class=\"bad\">{}.</p>", describe_missed_starts(run, n)),
    };
    table("Workers", &heads, fleet.workers.iter().map(row).collect()) + &gap
}

pub(super) fn events(run: &ReportInput<'_>) -> String {
    let row = |event: &ReportEvent| {
        let (letter, after, text) = (event.letter, seconds_cell(event.t_s), escape(&event.text));
        format!("<tr><td><b class=\"letter\">{letter}</b></td>{after}<td class=\"message\">{text}</td></tr>")
    };
    let rows: Vec<String> = events::events(run).iter().map(row).collect();
    if rows.is_empty() { String::new() } else { table("Events", &["Flag", "After", "Event"], rows) }
}
