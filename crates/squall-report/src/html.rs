//! Renders the HTML report: one file with its charts inside, light or dark as the reader's system
//! prefers. The page loads no other resource. Every text is escaped, because names and messages may
//! come from servers.

mod axis_scale;
mod charts;
mod comparison;
mod events;
mod heatmap;
mod svg;
mod tables;

pub use comparison::comparison_html;
use squall_metrics::EngineView;
use squall_model::LoadModel;

use crate::{
    ReportInput, RunVerdict,
    format::{bytes, count, number, percent, rfc3339, time},
    report_input::describe_load,
    terminal_text::{TextEmphasis, sanitize},
    verdict,
    wording::{accounting_line, describe_verdict, generator_line, reliability_warning, threshold_value},
};

const CSS: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The whole page.
pub fn html(run: &ReportInput<'_>) -> String {
    let charts = charts::charts(run);
    let body = [
        page_header(run),
        reliability_section(run),
        cards(run),
        thresholds(run),
        format!("<section class=\"charts\">{}</section>", charts.figures),
        tables::latency(run),
        tables::metrics(run),
        tables::outcomes(run),
        tables::errors(run),
        tables::phases(run),
        tables::workers(run),
        tables::events(run),
        page_footer(run),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{} · Squall report</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n<main>\n{}\n</main>\n\
         <script type=\"application/json\" id=\"seconds\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        escape(&run.plan.name),
        body.join("\n"),
        charts.data,
    )
}

/// A sentence with a capital letter.
fn capitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `text` as HTML text or attribute value, without control characters.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in sanitize(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

fn page_header(run: &ReportInput<'_>) -> String {
    let model = match run.plan.load.model {
        LoadModel::Open { .. } => "open load",
        LoadModel::Closed { .. } => "closed load",
    };
    let started = rfc3339(run.facts.started_unix_ms);
    let words = describe_verdict(run);
    let (title, text) = words[words.find(' ').map_or(0, |at| at + 1)..].split_once(": ").unwrap_or((&words, ""));
    let (class, mark) = if verdict(run) == RunVerdict::Passed { ("good", "✓") } else { ("bad", "✗") };
    format!(
        "<header>\n<div>\n<p class=\"brand\">Squall load test</p>\n<h1>{}</h1>\n{}\
         <p class=\"how\">{} · {model} · started {} {} UTC</p>\n</div>\n\
         <div class=\"verdict {class}\"><span>{mark}</span><div><b>{}</b><p>{}</p></div></div>\n</header>",
        escape(&run.plan.name),
        run.plan
            .distinct_target()
            .map_or(String::new(), |target| format!("<p class=\"what\">{}</p>\n", escape(target))),
        escape(&describe_load(&run.plan.load)),
        &started[..10],
        &started[11..19],
        escape(title.trim_start_matches(['✓', '✗', ' '])),
        escape(text),
    )
}

fn reliability_section(run: &ReportInput<'_>) -> String {
    let Some(warning) = reliability_warning(run) else { return String::new() };
    let reasons: String = warning.reasons.iter().map(|reason| format!("<li>{}</li>", escape(reason))).collect();
    let reasons = if reasons.is_empty() { reasons } else { format!("<ul>{reasons}</ul>") };
    format!("<section class=\"doubt\"><b>{}</b>{reasons}</section>", capitalized(&escape(&warning.headline)))
}

fn cards(run: &ReportInput<'_>) -> String {
    let (all, engine) = (&run.view.all, &run.view.engine);
    let response = &all.response;
    let at = |percentile| time(response.percentile(percentile) as f64);
    let measured = time(run.measured_time().as_secs_f64() * 1e9);
    let error_class = if all.errors > 0 { "bad" } else { "good" };
    let cards = [
        ("Requests", count(all.requests), format!("in {measured}"), ""),
        ("Rate", format!("{}/s", number(run.rate(all))), format!("{} users at most", count(engine.peak_users)), ""),
        ("Errors", percent(all.error_rate()), format!("{} requests", count(all.errors)), error_class),
        ("Median response", at(50.0), format!("mean {}", time(response.mean())), ""),
        ("p95 response", at(95.0), format!("p90 {}", at(90.0)), ""),
        ("p99 response", at(99.0), format!("max {}", time(response.max() as f64)), ""),
        ("Iterations", count(engine.iterations), starts(engine), if engine.dropped > 0 { "bad" } else { "" }),
        ("Received", bytes(all.bytes_in as f64), format!("{} sent", bytes(all.bytes_out as f64)), ""),
    ];
    let cards = cards.map(|(title, value, detail, class)| {
        format!("<div class=\"card {class}\"><p>{title}</p><b>{value}</b><small>{detail}</small></div>")
    });
    format!("<section class=\"cards\">{}</section>", cards.concat())
}

/// The number of dropped and late starts.
fn starts(engine: &EngineView) -> String {
    match (engine.dropped, engine.late) {
        (0, 0) => "none dropped, none late".to_owned(),
        (dropped, late) => format!("{} dropped, {} late", count(dropped), count(late)),
    }
}

fn thresholds(run: &ReportInput<'_>) -> String {
    if run.facts.thresholds.is_empty() {
        return String::new();
    }
    let items = run.facts.thresholds.iter().map(|result| {
        let (class, mark) = if result.passed { ("good", "✓") } else { ("bad", "✗") };
        let when = result
            .breached_at_s
            .map_or(String::new(), |second| format!("<small>first breached after {second} s</small>"));
        let text = escape(&result.threshold.to_string());
        format!(
            "<li class=\"{class}\"><span>{mark}</span><code>{text}</code><b>{}</b>{when}</li>",
            threshold_value(result)
        )
    });
    format!("<section><h2>Thresholds</h2><ul class=\"thresholds\">{}</ul></section>", items.collect::<String>())
}

fn page_footer(run: &ReportInput<'_>) -> String {
    let (accounting, emphasis) = accounting_line(run);
    let class = if emphasis == TextEmphasis::Bad { " class=\"bad\"" } else { "" };
    let command = run
        .command
        .map_or(String::new(), |command| format!("<dt>Command</dt><dd><code>{}</code></dd>", escape(command)));
    format!(
        "<footer><h2>Reliability</h2><dl><dt>Accounting</dt><dd{class}>{}</dd><dt>Generator</dt><dd>{}</dd>\
         {command}<dt>Seed</dt><dd>{}</dd></dl><p>Made by Squall {}. Response times count from the moment a request was \
         due, so they include waiting; service times count from the moment it was sent.</p></footer>",
        escape(&accounting),
        escape(&generator_line(run)),
        run.plan.seed,
        escape(run.version),
    )
}
