//! The terminal summary of a finished run. It shows each fact once, in the order of the reader's
//! questions: how much, how fast, which errors, which thresholds, how reliable. It computes
//! nothing.

use squall_metrics::{Histogram, MetricView, Outcome, OutcomeCategory, PHASES};
use squall_model::{LoadModel, StopReason, ThresholdResult};

use crate::{
    ReportInput, RunVerdict, ScheduleRule, TerminalStyle, exit_code,
    format::{bytes, count, metric_value, number, percent, rfc3339, time},
    metric_rows::{most_important_first, ordered_metrics},
    report_input::describe_load,
    terminal_text::{TableCell, TextEmphasis, TextTable, plain_cell, sanitize, styled_cell, truncate_to_width, wrap},
    verdict,
    wording::{
        accounting_line, describe_verdict, fleet_lines, generator_line, metric_label, reliability_warning,
        threshold_value,
    },
};

/// Maximum number of error messages and of outcomes shown; the result file has them all.
const MAX_LINES: usize = 10;
/// Lines of one error message that are shown: the first 8 and the last 4.
const MAX_MESSAGE_LINES: (usize, usize) = (8, 4);
/// Maximum number of metrics shown; the result file has them all.
const MAX_METRICS: usize = 30;

/// The summary, ending in a line break.
pub fn summary(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let parts = [
        header_lines(run, style),
        totals(run, style),
        latency(run, style),
        phases(run, style),
        metrics(run, style),
        outcomes(run, style),
        errors(run, style),
        threshold_lines(run, style),
        reliability(run, style),
        verdict_lines(run, style),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("\n{}", parts.join("\n"))
}

fn title(style: TerminalStyle, text: &str) -> String {
    format!("  {}\n", style.paint(TextEmphasis::Dim, text))
}

fn header_lines(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let model = match run.plan.load.model {
        LoadModel::Open { .. } => "open load",
        LoadModel::Closed { .. } => "closed load",
    };
    let started = rfc3339(run.facts.started_unix_ms);
    let started = format!("{} {} UTC", &started[..10], &started[11..19]);
    let target = run.plan.distinct_target().map_or(String::new(), |target| format!(" · {}", sanitize(target)));
    let what = truncate_to_width(&format!("{}{target}", sanitize(&run.plan.name)), style.width.saturating_sub(2));
    let how = format!("{} · {model} · started {started}", describe_load(&run.plan.load));
    let how = wrap(&how, style.width.saturating_sub(2));
    let how: String = how.iter().map(|line| format!("  {}\n", style.paint(TextEmphasis::Dim, line))).collect();
    format!("  {}\n{how}", style.paint(TextEmphasis::Bold, &what))
}

fn totals(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let (all, engine) = (&run.view.all, &run.view.engine);
    let measured = run.measured_time().as_secs_f64();
    let per_second = |value: u64| if measured > 0.0 { value as f64 / measured } else { 0.0 };
    let errors = if all.errors > 0 { TextEmphasis::Bad } else { TextEmphasis::Good };
    let unmet = |n: u64| if n > 0 { TextEmphasis::Warn } else { TextEmphasis::Plain };
    let label = |text: &str| styled_cell(TextEmphasis::Dim, text);
    let left = [
        [
            label("requests"),
            styled_cell(TextEmphasis::Bold, count(all.requests)),
            styled_cell(TextEmphasis::Bold, format!("{}/s", number(run.rate(all)))),
        ],
        [
            label("received"),
            plain_cell(bytes(all.bytes_in as f64)),
            plain_cell(format!("{}/s", bytes(per_second(all.bytes_in)))),
        ],
        [
            label("sent"),
            plain_cell(bytes(all.bytes_out as f64)),
            plain_cell(format!("{}/s", bytes(per_second(all.bytes_out)))),
        ],
        [label("measured"), plain_cell(time(measured * 1e9)), plain_cell("")],
    ];
    let right = [
        [label("errors"), styled_cell(errors, count(all.errors)), styled_cell(errors, percent(all.error_rate()))],
        [label("dropped starts"), styled_cell(unmet(engine.dropped), count(engine.dropped)), plain_cell("")],
        [label("late starts"), styled_cell(unmet(engine.late), count(engine.late)), plain_cell("")],
        [label("most users"), plain_cell(count(engine.peak_users)), plain_cell("")],
    ];
    side_by_side(left, right, style)
}

/// Two blocks of three columns side by side, or one below the other if the width is too small.
fn side_by_side(left: [[TableCell; 3]; 4], right: [[TableCell; 3]; 4], style: TerminalStyle) -> String {
    let columns = |table: TextTable| table.left_column("").right_column("", 0).right_column("", 0);
    let mut beside = columns(columns(TextTable::new()).left_column(""));
    for (left, right) in left.iter().zip(&right) {
        beside.push_row(left.iter().cloned().chain([plain_cell("  ")]).chain(right.iter().cloned()).collect());
    }
    if beside.fits(style.width) {
        return beside.render(style);
    }
    let mut below = columns(TextTable::new());
    left.into_iter().chain(right).for_each(|row| below.push_row(row.to_vec()));
    below.render(style)
}

fn latency(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let all = &run.view.all;
    if all.requests == 0 {
        return String::new();
    }
    let mut table = TextTable::new()
        .left_column("latency")
        .right_column("min", 3)
        .right_column("mean", 2)
        .right_column("p50", 0)
        .right_column("p90", 4)
        .right_column("p95", 1)
        .right_column("p99", 0)
        .right_column("p99.9", 5)
        .right_column("max", 0);
    let rows = [
        ("response", &all.response, TextEmphasis::Bold),
        ("service", &all.service, TextEmphasis::Plain),
        ("wait", &all.wait, TextEmphasis::Plain),
    ];
    for (name, histogram, emphasis) in rows {
        let at = |percentile| styled_cell(emphasis, time(histogram.percentile(percentile) as f64));
        table.push_row(vec![
            styled_cell(emphasis, name),
            styled_cell(emphasis, time(histogram.min() as f64)),
            styled_cell(emphasis, time(histogram.mean())),
            at(50.0),
            at(90.0),
            at(95.0),
            at(99.0),
            at(99.9),
            styled_cell(emphasis, time(histogram.max() as f64)),
        ]);
    }
    table.render(style)
}

/// The phases of the requests, if they were recorded. A phase counts only the requests that had it.
fn phases(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let Some(phases) = &run.view.all.phases else { return String::new() };
    let mut table = TextTable::new()
        .left_column("phase")
        .right_column("requests", 1)
        .right_column("mean", 0)
        .right_column("p50", 0)
        .right_column("p95", 2)
        .right_column("p99", 0)
        .right_column("max", 3);
    for (name, histogram) in PHASES.iter().zip(phases.iter()).filter(|(_, histogram)| !histogram.is_empty()) {
        let at = |percentile| styled_cell(TextEmphasis::Plain, time(histogram.percentile(percentile) as f64));
        table.push_row(vec![
            styled_cell(TextEmphasis::Plain, name.replace('_', " ")),
            styled_cell(TextEmphasis::Plain, count(histogram.count())),
            styled_cell(TextEmphasis::Plain, time(histogram.mean())),
            at(50.0),
            at(95.0),
            at(99.0),
            styled_cell(TextEmphasis::Plain, time(histogram.max() as f64)),
        ]);
    }
    table.render(style)
}

fn metrics(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    if run.view.metrics.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new()
        .left_column("metric (response time)")
        .right_column("requests", 0)
        .right_column("rate", 4)
        .right_column("errors", 2)
        .right_column("mean", 5)
        .right_column("p50", 1)
        .right_column("p95", 3)
        .right_column("p99", 0)
        .right_column("max", 6);
    let series = most_important_first(ordered_metrics(&run.view.metrics), MAX_METRICS);
    series.iter().take(MAX_METRICS).for_each(|metric| table.push_row(metric_row(run, metric)));
    table.render(style) + &and_more(series.len(), MAX_METRICS, style) + &metric_limit_note(run, style)
}

/// A warning that the metric limit was exceeded.
fn metric_limit_note(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    if run.view.engine.metrics_refused == 0 {
        return String::new();
    }
    let text =
        "There were too many metric names: the rest are counted as (other). Give URLs that contain an id one name.";
    let lines = wrap(text, style.width.saturating_sub(2));
    lines.iter().map(|line| format!("  {}\n", style.paint(TextEmphasis::Warn, line))).collect()
}

fn metric_row(run: &ReportInput<'_>, metric: &MetricView) -> Vec<TableCell> {
    let response: &Histogram = &metric.response;
    let cell = |nanos| plain_cell(metric_value(&metric.key, nanos));
    let at = |percentile| cell(response.percentile(percentile) as f64);
    vec![
        plain_cell(metric_label(metric)),
        plain_cell(count(metric.requests)),
        plain_cell(format!("{}/s", number(run.rate(metric)))),
        styled_cell(if metric.errors > 0 { TextEmphasis::Bad } else { TextEmphasis::Dim }, count(metric.errors)),
        cell(response.mean()),
        at(50.0),
        at(95.0),
        at(99.0),
        cell(response.max() as f64),
    ]
}

fn outcomes(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let all = &run.view.all;
    if all.requests == 0 {
        return String::new();
    }
    let mut outcomes: Vec<(&Outcome, &u64)> = all.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let mut table = TextTable::new()
        .left_column("outcome")
        .left_column("code")
        .right_column("requests", 0)
        .right_column("share", 1);
    for &(outcome, &n) in outcomes.iter().take(MAX_LINES) {
        let emphasis = if outcome.category == OutcomeCategory::Ok { TextEmphasis::Good } else { TextEmphasis::Bad };
        let share = percent(n as f64 / all.requests as f64);
        table.push_row(vec![
            styled_cell(emphasis, outcome.category.name()),
            plain_cell(outcome.code.to_string()),
            plain_cell(count(n)),
            plain_cell(share),
        ]);
    }
    table.render(style) + &and_more(outcomes.len(), MAX_LINES, style)
}

fn and_more(lines: usize, most: usize, style: TerminalStyle) -> String {
    match lines.saturating_sub(most) {
        0 => String::new(),
        more => format!("  {}\n", style.paint(TextEmphasis::Dim, &format!("… and {more} more; --json has them all"))),
    }
}

fn errors(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let mut notes: Vec<_> = run.view.errors.iter().collect();
    if notes.is_empty() {
        return String::new();
    }
    notes.sort_by_key(|note| std::cmp::Reverse(note.count));
    let mut out = title(style, "what went wrong");
    let width = notes.iter().take(MAX_LINES).map(|note| count(note.count).len()).max().unwrap_or(0);
    for note in notes.iter().take(MAX_LINES) {
        let times = format!("{:>width$}", count(note.count));
        let text = format!("× {} in {}: {}", note.outcome.code, sanitize(&note.metric.name), sanitize(&note.message));
        // Keep the end of a message, because it often names the cause.
        let lines = shorten_message(wrap(&text, style.width.saturating_sub(width + 5)));
        for (i, line) in lines.iter().enumerate() {
            let times = if i == 0 { style.paint(TextEmphasis::Bad, &times) } else { " ".repeat(width + 2) };
            out += &format!("  {times} {line}\n");
        }
    }
    out + &and_more(notes.len(), MAX_LINES, style)
}

/// Cuts the middle out of a long message; some messages contain a whole response body.
fn shorten_message(mut lines: Vec<String>) -> Vec<String> {
    let (first, last) = MAX_MESSAGE_LINES;
    if lines.len() > first + last + 1 {
        let left_out = first..lines.len() - last;
        let note = format!("… {} more lines; --json has them …", left_out.len());
        lines.splice(left_out, [note]);
    }
    lines
}

/// The thresholds with their values, one line each; empty without thresholds.
pub fn threshold_lines(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    if run.facts.thresholds.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new().left_column("").left_column("threshold").right_column("value", 0).left_column("");
    for result in &run.facts.thresholds {
        let (mark, emphasis) = if result.passed { ("✓", TextEmphasis::Good) } else { ("✗", TextEmphasis::Bad) };
        let text = sanitize(&result.threshold.to_string());
        table.push_row(vec![
            styled_cell(emphasis, mark),
            styled_cell(emphasis, text),
            styled_cell(emphasis, threshold_value(result)),
            styled_cell(TextEmphasis::Dim, threshold_remark(run, result)),
        ]);
    }
    table.render(style)
}

fn threshold_remark(run: &ReportInput<'_>, result: &ThresholdResult) -> String {
    match (result.value, result.breached_at_s) {
        (None, _) => "no data was measured".to_owned(),
        (_, Some(second)) if result.threshold.abort && run.facts.stop == StopReason::Threshold => {
            format!("breached after {second} s, which stopped the run")
        }
        (_, Some(second)) => format!("first breached after {second} s"),
        (_, None) if result.threshold.window.is_some() => "worst window".to_owned(),
        (_, None) => String::new(),
    }
}

fn reliability(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let engine = &run.view.engine;
    let mut out = labelled_lines(style, "generator", &generator_line(run), TextEmphasis::Plain);
    for (i, (line, emphasis)) in fleet_lines(run).into_iter().enumerate() {
        out += &labelled_lines(style, if i == 0 { "fleet" } else { "" }, &line, emphasis);
    }
    let (accounting, emphasis) = accounting_line(run);
    out += &labelled_lines(style, "accounting", &accounting, emphasis);
    if engine.metrics_refused > 0 {
        let text =
            format!("{} metric names exceeded the limit and are counted as `(other)`", count(engine.metrics_refused));
        out += &labelled_lines(style, "", &text, TextEmphasis::Warn);
    }
    out + &reliability_warnings(run, style)
}

/// What may make the figures wrong: workers that were lost, and a generator that was the limit. Without the generator
/// if the run may miss starts, or if it failed because of them.
pub fn warning_lines(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let of_fleet = fleet_lines(run).into_iter().filter(|(_, emphasis)| *emphasis == TextEmphasis::Warn);
    let of_fleet: String = of_fleet.map(|(line, _)| warning_text(&line, style)).collect();
    match (run.schedule_rule, verdict(run)) {
        (ScheduleRule::AllowMissing, _) | (_, RunVerdict::ScheduleMissed) => of_fleet,
        (ScheduleRule::MostStarts | ScheduleRule::Strict, _) => of_fleet + &reliability_warnings(run, style),
    }
}

/// A wrapped line with a mark.
fn warning_text(text: &str, style: TerminalStyle) -> String {
    let lines = wrap(&sanitize(text), style.width.saturating_sub(6));
    let lines = lines
        .iter()
        .enumerate()
        .map(|(i, line)| format!("  {} {}\n", if i == 0 { "!" } else { " " }, style.paint(TextEmphasis::Warn, line)));
    lines.collect()
}

/// A dim label with wrapped text to its right.
fn labelled_lines(style: TerminalStyle, label: &str, text: &str, emphasis: TextEmphasis) -> String {
    const LABEL: usize = 12;
    let lines = wrap(text, style.width.saturating_sub(LABEL + 2));
    let lines = lines.iter().enumerate().map(|(i, line)| {
        let label = format!("{:<LABEL$}", if i == 0 { label } else { "" });
        format!("  {}{}\n", style.paint(TextEmphasis::Dim, &label), style.paint(emphasis, line))
    });
    lines.collect()
}

/// The warning that the generator may have limited the numbers, with its reasons.
fn reliability_warnings(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let Some(warning) = reliability_warning(run) else { return String::new() };
    let mut out = "\n".to_owned() + &warning_text(&warning.headline, style);
    for reason in warning.reasons {
        for (i, line) in wrap(&sanitize(&reason), style.width.saturating_sub(6)).iter().enumerate() {
            out += &format!("  {} {}\n", if i == 0 { "·" } else { " " }, style.paint(TextEmphasis::Warn, line));
        }
    }
    out
}

fn verdict_lines(run: &ReportInput<'_>, style: TerminalStyle) -> String {
    let verdict = verdict(run);
    let emphasis = if verdict == RunVerdict::Passed { TextEmphasis::Good } else { TextEmphasis::Bad };
    let code = match exit_code(run) {
        0 => String::new(),
        code => format!("  (exit code {code})"),
    };
    let mut lines = wrap(&describe_verdict(run), style.width.saturating_sub(2));
    let last = lines.pop().unwrap_or_default();
    let mut out: String = lines.iter().map(|line| format!("  {}\n", style.paint(emphasis, line))).collect();
    let fits = last.chars().count() + code.len() + 2 <= style.width;
    let (last, code) = (style.paint(emphasis, &last), style.paint(TextEmphasis::Dim, &code));
    out += &if fits { format!("  {last}{code}\n") } else { format!("  {last}\n{code}\n") };
    out
}
