//! What people read in the terminal when a run is over. Says everything once, in the order in which it is asked: how much,
//! how fast, what went wrong, was that allowed, can the numbers be trusted. Computes nothing.

use squall_metrics::{OutcomeCategory, Histogram, MetricView, Outcome, PHASES};
use squall_model::{LoadModel, StopReason, ThresholdResult};

use crate::{
    Run, Style, Verdict,
    format::{bytes, count, number, percent, rfc3339, time},
    run::load_in_words,
    text::{Cell, Table, Tone, cell, clean, fit, toned, wrap},
    verdict,
    words::{
        accounting_line, doubt, fleet_lines, generator_line, metric_label, reasons_for_doubt, value, verdict_in_words,
    },
};

/// Most failure messages and outcomes shown; the files have them all.
const MOST_LINES: usize = 10;
/// Lines of one failure that are shown, the first and the last.
const MOST_OF_ONE: (usize, usize) = (8, 4);
/// Most series shown; likewise.
const MOST_SERIES: usize = 30;

/// The summary, ending in a line break.
pub fn summary(run: &Run<'_>, style: Style) -> String {
    let parts = [
        head(run, style),
        totals(run, style),
        latency(run, style),
        phases(run, style),
        metrics(run, style),
        outcomes(run, style),
        errors(run, style),
        thresholds(run, style),
        trust(run, style),
        ending(run, style),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("\n{}", parts.join("\n"))
}

fn title(style: Style, text: &str) -> String {
    format!("  {}\n", style.paint(Tone::Dim, text))
}

fn head(run: &Run<'_>, style: Style) -> String {
    let model = match run.plan.load.model {
        LoadModel::Open { .. } => "open model",
        LoadModel::Closed { .. } => "closed model",
    };
    let started = rfc3339(run.facts.started_unix_ms);
    let started = format!("{} {} UTC", &started[..10], &started[11..19]);
    let target = run.plan.distinct_target().map_or(String::new(), |target| format!(" · {}", clean(target)));
    let what = fit(&format!("{}{target}", clean(&run.plan.name)), style.width.saturating_sub(2));
    let how = format!("{} · {model} · started {started}", load_in_words(&run.plan.load));
    let how = wrap(&how, style.width.saturating_sub(2));
    let how: String = how.iter().map(|line| format!("  {}\n", style.paint(Tone::Dim, line))).collect();
    format!("  {}\n{how}", style.paint(Tone::Bold, &what))
}

fn totals(run: &Run<'_>, style: Style) -> String {
    let (all, engine) = (&run.view.all, &run.view.engine);
    let measured = run.measured().as_secs_f64();
    let per_second = |value: u64| if measured > 0.0 { value as f64 / measured } else { 0.0 };
    let errors = if all.errors > 0 { Tone::Bad } else { Tone::Good };
    let unmet = |n: u64| if n > 0 { Tone::Warn } else { Tone::Plain };
    let label = |text: &str| toned(Tone::Dim, text);
    let left = [
        [
            label("requests"),
            toned(Tone::Bold, count(all.requests)),
            toned(Tone::Bold, format!("{}/s", number(run.rate(all)))),
        ],
        [label("received"), cell(bytes(all.bytes_in as f64)), cell(format!("{}/s", bytes(per_second(all.bytes_in))))],
        [label("sent"), cell(bytes(all.bytes_out as f64)), cell(format!("{}/s", bytes(per_second(all.bytes_out))))],
        [label("measured"), cell(time(measured * 1e9)), cell("")],
    ];
    let right = [
        [label("errors"), toned(errors, count(all.errors)), toned(errors, percent(all.error_rate()))],
        [label("dropped starts"), toned(unmet(engine.dropped), count(engine.dropped)), cell("")],
        [label("late starts"), toned(unmet(engine.late), count(engine.late)), cell("")],
        [label("most users"), cell(count(engine.peak_users)), cell("")],
    ];
    side_by_side(left, right, style)
}

/// Two blocks of three columns beside each other, or below where there is no room.
fn side_by_side(left: [[Cell; 3]; 4], right: [[Cell; 3]; 4], style: Style) -> String {
    let columns = |table: Table| table.left("").right("", 0).right("", 0);
    let mut beside = columns(columns(Table::new()).left(""));
    for (left, right) in left.iter().zip(&right) {
        beside.row(left.iter().cloned().chain([cell("  ")]).chain(right.iter().cloned()).collect());
    }
    if beside.fits(style.width) {
        return beside.render(style);
    }
    let mut below = columns(Table::new());
    left.into_iter().chain(right).for_each(|row| below.row(row.to_vec()));
    below.render(style)
}

fn latency(run: &Run<'_>, style: Style) -> String {
    let all = &run.view.all;
    if all.requests == 0 {
        return String::new();
    }
    let mut table = Table::new()
        .left("latency")
        .right("min", 3)
        .right("mean", 2)
        .right("p50", 0)
        .right("p90", 4)
        .right("p95", 1)
        .right("p99", 0)
        .right("p99.9", 5)
        .right("max", 0);
    let rows = [
        ("response", &all.response, Tone::Bold),
        ("service", &all.service, Tone::Plain),
        ("wait", &all.wait, Tone::Plain),
    ];
    for (name, histogram, tone) in rows {
        let at = |percentile| toned(tone, time(histogram.percentile(percentile) as f64));
        table.row(vec![
            toned(tone, name),
            toned(tone, time(histogram.min() as f64)),
            toned(tone, time(histogram.mean())),
            at(50.0),
            at(90.0),
            at(95.0),
            at(99.0),
            at(99.9),
            toned(tone, time(histogram.max() as f64)),
        ]);
    }
    table.render(style)
}

/// Where the time of a request went, if that was recorded. A phase counts only the requests in which it happened.
fn phases(run: &Run<'_>, style: Style) -> String {
    let Some(phases) = &run.view.all.phases else { return String::new() };
    let mut table = Table::new()
        .left("phase")
        .right("requests", 1)
        .right("mean", 0)
        .right("p50", 0)
        .right("p95", 2)
        .right("p99", 0)
        .right("max", 3);
    for (name, histogram) in PHASES.iter().zip(phases.iter()).filter(|(_, histogram)| !histogram.is_empty()) {
        let at = |percentile| toned(Tone::Plain, time(histogram.percentile(percentile) as f64));
        table.row(vec![
            toned(Tone::Plain, name.replace('_', " ")),
            toned(Tone::Plain, count(histogram.count())),
            toned(Tone::Plain, time(histogram.mean())),
            at(50.0),
            at(95.0),
            at(99.0),
            toned(Tone::Plain, time(histogram.max() as f64)),
        ]);
    }
    table.render(style)
}

fn metrics(run: &Run<'_>, style: Style) -> String {
    if run.view.metrics.is_empty() {
        return String::new();
    }
    let mut table = Table::new()
        .left("metric (response time)")
        .right("requests", 0)
        .right("rate", 4)
        .right("errors", 2)
        .right("mean", 5)
        .right("p50", 1)
        .right("p95", 3)
        .right("p99", 0)
        .right("max", 6);
    let mut series: Vec<&MetricView> = run.view.metrics.iter().collect();
    if series.len() > MOST_SERIES {
        // What is left out is what matters least: first come those that fail, then those that are used most.
        series.sort_by_key(|metric| std::cmp::Reverse((metric.errors, metric.requests)));
    }
    series.iter().take(MOST_SERIES).for_each(|metric| table.row(metric_row(run, metric)));
    table.render(style) + &and_more(series.len(), MOST_SERIES, style) + &too_many(run, style)
}

/// Names that were too many to be kept apart.
fn too_many(run: &Run<'_>, style: Style) -> String {
    if run.view.engine.metrics_refused == 0 {
        return String::new();
    }
    let text = "There were more names than are kept apart: the rest is counted as (other). Give URLs that carry an id one name.";
    let lines = wrap(text, style.width.saturating_sub(2));
    lines.iter().map(|line| format!("  {}\n", style.paint(Tone::Warn, line))).collect()
}

fn metric_row(run: &Run<'_>, metric: &MetricView) -> Vec<Cell> {
    let response: &Histogram = &metric.response;
    let at = |percentile| cell(time(response.percentile(percentile) as f64));
    vec![
        cell(metric_label(metric)),
        cell(count(metric.requests)),
        cell(format!("{}/s", number(run.rate(metric)))),
        toned(if metric.errors > 0 { Tone::Bad } else { Tone::Dim }, count(metric.errors)),
        cell(time(response.mean())),
        at(50.0),
        at(95.0),
        at(99.0),
        cell(time(response.max() as f64)),
    ]
}

fn outcomes(run: &Run<'_>, style: Style) -> String {
    let all = &run.view.all;
    if all.requests == 0 {
        return String::new();
    }
    let mut outcomes: Vec<(&Outcome, &u64)> = all.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let mut table = Table::new().left("outcome").left("code").right("requests", 0).right("share", 1);
    for &(outcome, &n) in outcomes.iter().take(MOST_LINES) {
        let tone = if outcome.category == OutcomeCategory::Ok { Tone::Good } else { Tone::Bad };
        let share = percent(n as f64 / all.requests as f64);
        table.row(vec![
            toned(tone, outcome.category.name()),
            cell(outcome.code.to_string()),
            cell(count(n)),
            cell(share),
        ]);
    }
    table.render(style) + &and_more(outcomes.len(), MOST_LINES, style)
}

fn and_more(lines: usize, most: usize, style: Style) -> String {
    match lines.saturating_sub(most) {
        0 => String::new(),
        more => format!("  {}\n", style.paint(Tone::Dim, &format!("… and {more} more; --json has them all"))),
    }
}

fn errors(run: &Run<'_>, style: Style) -> String {
    let mut notes: Vec<_> = run.view.errors.iter().collect();
    if notes.is_empty() {
        return String::new();
    }
    notes.sort_by_key(|note| std::cmp::Reverse(note.count));
    let mut out = title(style, "what went wrong");
    let width = notes.iter().take(MOST_LINES).map(|note| count(note.count).len()).max().unwrap_or(0);
    for note in notes.iter().take(MOST_LINES) {
        let times = format!("{:>width$}", count(note.count));
        let text = format!("× {} in {}: {}", note.outcome.code, clean(&note.metric.name), clean(&note.message));
        // The end of a message is where a failure says what it was about.
        let lines = shortened(wrap(&text, style.width.saturating_sub(width + 5)));
        for (i, line) in lines.iter().enumerate() {
            let times = if i == 0 { style.paint(Tone::Bad, &times) } else { " ".repeat(width + 2) };
            out += &format!("  {times} {line}\n");
        }
    }
    out + &and_more(notes.len(), MOST_LINES, style)
}

/// Some failures say all they know, down to the body of an answer.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let (first, last) = MOST_OF_ONE;
    if lines.len() > first + last + 1 {
        let left_out = first..lines.len() - last;
        let words = format!("… {} more lines; --json has them …", left_out.len());
        lines.splice(left_out, [words]);
    }
    lines
}

fn thresholds(run: &Run<'_>, style: Style) -> String {
    if run.facts.thresholds.is_empty() {
        return String::new();
    }
    let mut table = Table::new().left("").left("threshold").right("value", 0).left("");
    for result in &run.facts.thresholds {
        let (mark, tone) = if result.passed { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
        let text = clean(&result.threshold.to_string());
        table.row(vec![
            toned(tone, mark),
            toned(tone, text),
            toned(tone, value(result)),
            toned(Tone::Dim, remark(run, result)),
        ]);
    }
    table.render(style)
}

fn remark(run: &Run<'_>, result: &ThresholdResult) -> String {
    match (result.value, result.breached_at_s) {
        (None, _) => "nothing was measured for it".to_owned(),
        (_, Some(second)) if result.threshold.abort && run.facts.stop == StopReason::Threshold => {
            format!("breached after {second} s, which stopped the run")
        }
        (_, Some(second)) => format!("first breached after {second} s"),
        (_, None) if result.threshold.window.is_some() => "worst window".to_owned(),
        (_, None) => String::new(),
    }
}

fn trust(run: &Run<'_>, style: Style) -> String {
    let engine = &run.view.engine;
    let mut out = labelled(style, "generator", &generator_line(run), Tone::Plain);
    for (i, (line, tone)) in fleet_lines(run).into_iter().enumerate() {
        out += &labelled(style, if i == 0 { "fleet" } else { "" }, &line, tone);
    }
    let (accounting, tone) = accounting_line(run);
    out += &labelled(style, "accounting", &accounting, tone);
    if engine.metrics_refused > 0 {
        let text = format!("{} metric names were too many and are counted as `(other)`", count(engine.metrics_refused));
        out += &labelled(style, "", &text, Tone::Warn);
    }
    out + &doubts(run, style)
}

/// A dim label and a text that is wrapped beside it.
fn labelled(style: Style, label: &str, text: &str, tone: Tone) -> String {
    const LABEL: usize = 12;
    let lines = wrap(text, style.width.saturating_sub(LABEL + 2));
    let lines = lines.iter().enumerate().map(|(i, line)| {
        let label = format!("{:<LABEL$}", if i == 0 { label } else { "" });
        format!("  {}{}\n", style.paint(Tone::Dim, &label), style.paint(tone, line))
    });
    lines.collect()
}

/// Why the numbers may say more about the generator than about the target.
fn doubts(run: &Run<'_>, style: Style) -> String {
    let Some(doubt) = doubt(run) else { return String::new() };
    let mut out = "\n".to_owned();
    for line in wrap(&format!("! {doubt}"), style.width.saturating_sub(4)) {
        out += &format!("  {}\n", style.paint(Tone::Warn, &line));
    }
    for reason in reasons_for_doubt(run) {
        for (i, line) in wrap(&clean(&reason), style.width.saturating_sub(6)).iter().enumerate() {
            out += &format!("  {} {}\n", if i == 0 { "·" } else { " " }, style.paint(Tone::Warn, line));
        }
    }
    out
}

fn ending(run: &Run<'_>, style: Style) -> String {
    let verdict = verdict(run);
    let tone = if verdict == Verdict::Passed { Tone::Good } else { Tone::Bad };
    let code = match verdict.exit_code() {
        0 => String::new(),
        code => format!("  (exit code {code})"),
    };
    let mut lines = wrap(&verdict_in_words(run), style.width.saturating_sub(2));
    let last = lines.pop().unwrap_or_default();
    let mut out: String = lines.iter().map(|line| format!("  {}\n", style.paint(tone, line))).collect();
    let room = last.chars().count() + code.len() + 2 <= style.width;
    let (last, code) = (style.paint(tone, &last), style.paint(Tone::Dim, &code));
    out += &if room { format!("  {last}{code}\n") } else { format!("  {last}\n{code}\n") };
    out
}
