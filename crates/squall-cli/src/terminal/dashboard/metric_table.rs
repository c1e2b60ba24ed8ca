//! The table of metrics on the dashboard: one row each, filtered, sorted and scrolled, and the sum.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Rect},
    style::{Style, Stylize},
    text::{Span, Text},
    widgets::{Cell, Row, Table},
};
use squall_model::is_layout_shift;
use squall_report::{LiveMetric, LiveTimes, is_count};
use std::cmp::Ordering;

use super::{
    DashboardData,
    header::printable,
    palette, panel,
    state::{DashboardState, SortColumn, SortOrder},
};
use crate::terminal::format::{count, rate, time};

/// Rows of the table: at most `limit` metrics, and their sum if there is more than one.
pub(super) fn row_count(data: &DashboardData<'_>, limit: usize) -> usize {
    match data.run.metrics.len() {
        0 | 1 => 1,
        n => n.min(limit) + 1,
    }
}

/// The columns after the name.
const COLUMNS: [SortColumn; 7] = [
    SortColumn::Requests,
    SortColumn::Rate,
    SortColumn::Errors,
    SortColumn::P50,
    SortColumn::P95,
    SortColumn::P99,
    SortColumn::Max,
];
/// The columns to drop, in this order, if the table is too narrow. Numbers are never cut.
const DROP_ORDER: [SortColumn; 4] = [SortColumn::Max, SortColumn::P95, SortColumn::P50, SortColumn::Rate];
/// Smallest width of the name column.
const MIN_NAME_WIDTH: usize = 10;
const COLUMN_GAP: usize = 2;

/// The name and the numbers of a metric, in the order of [`COLUMNS`].
struct MetricRow {
    name: String,
    cells: [(String, Style); COLUMNS.len()],
    sum: bool,
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, state: &mut DashboardState) {
    let metrics = chosen_metrics(data, state);
    let has_sum = data.run.metrics.len() != 1;
    let fit = usize::from(area.height.saturating_sub(3 + u16::from(has_sum)));
    let first = state.scroll.fit(metrics.len(), fit);
    let visible = metrics.iter().skip(first).take(fit);
    let mut rows: Vec<_> = visible.map(|metric| metric_row(metric, false)).collect();
    let title = title(data, state, (first, rows.len(), metrics.len()));
    if has_sum {
        rows.push(metric_row(&data.run.all, true));
    }
    let block = panel(Span::from(title).bold());
    let width = usize::from(block.inner(area).width);
    let columns = visible_columns(&rows, width);
    let name_width = width.saturating_sub(columns.iter().map(|(_, wide)| wide + COLUMN_GAP).sum());
    let head = columns.iter().map(|(at, _)| head_cell(COLUMNS[*at], state.sort));
    let head = Row::new([Cell::default()].into_iter().chain(head));
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    let widths = [Constraint::Fill(1)].into_iter().chain(widths);
    let rows = rows.into_iter().map(|row| {
        let cells = columns.iter().map(|(at, _)| right_aligned(row.cells[*at].0.clone(), row.cells[*at].1));
        let drawn =
            Row::new([Cell::from(squall_report::truncate_to_width(&row.name, name_width))].into_iter().chain(cells));
        if row.sum { drawn.bold() } else { drawn }
    });
    frame.render_widget(Table::new(rows, widths).column_spacing(COLUMN_GAP as u16).header(head).block(block), area);
}

/// The metrics that pass the filter, in the chosen order.
fn chosen_metrics<'a>(data: &DashboardData<'a>, state: &DashboardState) -> Vec<&'a LiveMetric> {
    let mut metrics: Vec<_> = data.run.metrics.iter().filter(|metric| state.matches(&[&metric.name])).collect();
    if let Some(SortOrder { column, descending }) = state.sort {
        // Stable, so that equal metrics keep their place from second to second.
        metrics.sort_by(|a, b| {
            let order = compare(a, b, column);
            if descending { order.reverse() } else { order }
        });
    }
    metrics
}

fn compare(a: &LiveMetric, b: &LiveMetric, column: SortColumn) -> Ordering {
    // A metric without a response is below all others.
    let by_time = |value: fn(&LiveTimes) -> f64| {
        let of = |metric: &LiveMetric| metric.response.as_ref().map_or(-1.0, value);
        of(a).total_cmp(&of(b))
    };
    match column {
        SortColumn::Requests => a.requests.cmp(&b.requests),
        SortColumn::Rate => a.rate_now.total_cmp(&b.rate_now),
        SortColumn::Errors => a.errors.cmp(&b.errors),
        SortColumn::P50 => by_time(|times| times.p50_ms),
        SortColumn::P95 => by_time(|times| times.p95_ms),
        SortColumn::P99 => by_time(|times| times.p99_ms),
        SortColumn::Max => by_time(|times| times.max_ms),
        SortColumn::Name => a.name.cmp(&b.name),
    }
}

/// `metrics 1–10 of 57 by p99 ↓ with "buy"`.
fn title(data: &DashboardData<'_>, state: &DashboardState, (first, shown, total): (usize, usize, usize)) -> String {
    let mut title = " metrics".to_owned();
    match (shown < total, state.filter.is_empty()) {
        (true, _) => title += &format!(" {}–{} of {total}", first + 1, first + shown),
        (false, false) => title += &format!(" {total} of {}", data.run.metrics.len()),
        (false, true) => {}
    }
    if let Some(SortOrder { column, descending }) = state.sort {
        title += &format!(" by {} {}", column.title(), if descending { '↓' } else { '↑' });
    }
    if !state.filter.is_empty() {
        title += &format!(" with “{}”", printable(&state.filter));
    }
    title + " "
}

fn head_cell<'a>(column: SortColumn, sort: Option<SortOrder>) -> Cell<'a> {
    let style = match sort {
        Some(order) if order.column == column => Style::new().fg(palette::ACCENT).bold(),
        _ => Style::new().fg(palette::DIM),
    };
    right_aligned(column.title().to_owned(), style)
}

/// The columns that fit into `width`, each with the width of its widest number.
fn visible_columns(rows: &[MetricRow], width: usize) -> Vec<(usize, usize)> {
    let wide = |at: usize| rows.iter().map(|row| row.cells[at].0.chars().count()).max().unwrap_or(0);
    let mut shown: Vec<_> = (0..COLUMNS.len()).map(|at| (at, wide(at).max(COLUMNS[at].title().len()))).collect();
    for dropped in DROP_ORDER {
        let total: usize = shown.iter().map(|(_, wide)| wide + COLUMN_GAP).sum();
        if total + MIN_NAME_WIDTH <= width {
            break;
        }
        shown.retain(|(at, _)| COLUMNS[*at] != dropped);
    }
    shown
}

fn metric_row(metric: &LiveMetric, sum: bool) -> MetricRow {
    let kind = match metric.kind.as_str() {
        "request" => String::new(),
        kind => format!(" ({})", printable(kind)),
    };
    let errors = if metric.errors > 0 { Style::new().fg(palette::BAD).bold() } else { Style::new().fg(palette::DIM) };
    let show = |ms: f64| match &*metric.name {
        // A layout shift has no unit; 1 is recorded as 1 s.
        name if metric.kind == "custom" && is_layout_shift(name) => format!("{:.3}", ms / 1e3),
        name if metric.kind == "custom" && is_count(name) => rate(ms),
        _ => time(ms * 1e6),
    };
    let p =
        |value: fn(&LiveTimes) -> f64| metric.response.as_ref().map_or("–".to_owned(), |times| show(value(times)));
    let plain = Style::new();
    let cells = [
        (count(metric.requests), plain),
        (rate(metric.rate_now), plain),
        (count(metric.errors), errors),
        (p(|times| times.p50_ms), Style::new().fg(palette::FAST)),
        (p(|times| times.p95_ms), plain),
        (p(|times| times.p99_ms), Style::new().fg(palette::SLOW)),
        (p(|times| times.max_ms), plain),
    ];
    MetricRow { name: printable(&metric.name) + &kind, cells, sum }
}

fn right_aligned<'a>(text: String, style: Style) -> Cell<'a> {
    Cell::from(Text::styled(text, style).alignment(Alignment::Right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_has_the_width_of_its_widest_number_or_is_dropped() {
        let wide = ["1,234,567,890", "123,456", "12,345", "12.3 ms", "870 µs", "1.05 s", "31.2 s"];
        let row = MetricRow {
            name: "browse".to_owned(),
            cells: wide.map(|text| (text.to_owned(), Style::new())),
            sum: false,
        };
        for width in 20..160 {
            let shown = visible_columns(std::slice::from_ref(&row), width);
            assert!(shown.iter().all(|(at, width)| *width >= wide[*at].chars().count()), "{width}: {shown:?}");
            let total: usize = shown.iter().map(|(_, width)| width + COLUMN_GAP).sum();
            assert!(total + MIN_NAME_WIDTH <= width || shown.len() == COLUMNS.len() - DROP_ORDER.len(), "{width}");
        }
        assert_eq!(visible_columns(std::slice::from_ref(&row), 160).len(), COLUMNS.len());
    }

    #[test]
    fn counts_of_cql_statements_have_no_unit() {
        let shown = |name: &str, kind: &str| {
            let response = Some(LiveTimes { p50_ms: 12.0, p95_ms: 12.0, p99_ms: 12.0, max_ms: 12.0 });
            let (name, kind) = (name.to_owned(), kind.to_owned());
            let metric = LiveMetric { name, kind, requests: 1, errors: 0, rate_now: 1.0, response };
            metric_row(&metric, false).cells[3].0.clone()
        };
        assert_eq!(shown("insert:rows", "custom"), "12");
        assert_eq!(shown("measured", "custom"), "12.0 ms");
    }
}
