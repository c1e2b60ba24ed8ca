//! The result as CSV (RFC 4180) for spreadsheets: one row per metric and one for all requests. It
//! has no seconds and no error messages; those are in the JSON file.

use squall_metrics::MetricView;

use crate::{
    Percentiles, ReportInput,
    format::round,
    result::{kind_name, percentiles},
};

const METRIC_COLUMNS: [&str; 10] =
    ["metric", "kind", "group", "tags", "requests", "errors", "error_rate", "rate", "bytes_in", "bytes_out"];
const TIME_COLUMNS: [&str; 8] = ["min", "mean", "p50", "p90", "p95", "p99", "p999", "max"];

/// The table with a header row. Lines end in CRLF, as RFC 4180 requires.
pub fn csv(run: &ReportInput<'_>) -> String {
    let titles = METRIC_COLUMNS.into_iter().map(str::to_owned);
    let times = ["response", "service"].into_iter().flat_map(|of| TIME_COLUMNS.map(|p| format!("{of}_{p}_ms")));
    let mut out = line(titles.chain(times));
    out += &row(run, &run.view.all, "total");
    for metric in &run.view.metrics {
        out += &row(run, metric, kind_name(metric.key.kind));
    }
    out
}

fn row(run: &ReportInput<'_>, metric: &MetricView, kind: &str) -> String {
    let key = &metric.key;
    let tags: Vec<_> = key.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let head = [
        text_cell(key.name.clone()),
        kind.to_owned(),
        text_cell(key.group.clone().unwrap_or_default()),
        text_cell(tags.join(";")),
        metric.requests.to_string(),
        metric.errors.to_string(),
        round(metric.error_rate()).to_string(),
        round(run.rate(metric)).to_string(),
        metric.bytes_in.to_string(),
        metric.bytes_out.to_string(),
    ];
    let times = [&metric.response, &metric.service].into_iter().flat_map(|h| time_values(percentiles(h)));
    line(head.into_iter().chain(times.map(|value| value.to_string())))
}

fn time_values(p: Percentiles) -> [f64; 8] {
    [p.min, p.mean, p.p50, p.p90, p.p95, p.p99, p.p999, p.max]
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

/// A text that no spreadsheet takes for a formula. Names and tags can come from other people's files or
/// from responses, and a formula can send the table elsewhere. An apostrophe makes a cell text.
fn text_cell(text: String) -> String {
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']) || text.starts_with(['\t', '\r', '\n']);
    if formula { format!("'{text}") } else { text }
}

fn quoted(field: String) -> String {
    let plain = !field.contains([',', '"', '\r', '\n']);
    if plain { field } else { format!("\"{}\"", field.replace('"', "\"\"")) }
}
