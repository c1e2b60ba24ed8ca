//! The tables of the dashboard: one line per metric, one per outcome.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span, Text},
    widgets::{Cell, Row, Table},
};
use squall_metrics::{Histogram, MetricKind, MetricView, OutcomeCategory};

use super::{DashboardData, header::printable, palette, panel};
use crate::terminal::format::{count, rate, time};

/// Most outcomes in the table.
const MAX_OUTCOMES: usize = 5;

/// Lines of the metric table: at most `limit` metrics, and their sum if there is more than one.
pub(super) fn metric_row_count(data: &DashboardData<'_>, limit: usize) -> usize {
    match data.view.metrics.len() {
        0 | 1 => 1,
        n => n.min(limit) + 1,
    }
}

pub(super) fn outcome_row_count(data: &DashboardData<'_>) -> usize {
    data.view.all.outcomes.len().clamp(1, MAX_OUTCOMES)
}

/// The columns after the name.
const COLUMN_TITLES: [&str; 7] = ["requests", "now/s", "errors", "p50", "p95", "p99", "max"];
/// The columns to drop, in this order, if the table is too narrow. Numbers are never cut.
const COLUMN_DROP_ORDER: [usize; 4] = [6, 4, 3, 1];
/// Smallest width of the name column.
const MIN_NAME_WIDTH: usize = 10;

/// The name and the numbers of a metric, in the order of [`COLUMN_TITLES`].
struct MetricRow {
    name: String,
    cells: [(String, Style); COLUMN_TITLES.len()],
    sum: bool,
}

pub(super) fn draw_metrics(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let fit = usize::from(area.height.saturating_sub(3));
    let metrics = &data.view.metrics;
    let mut rows: Vec<_> = match metrics.len() {
        0 => vec![metric_row(data, &data.view.all, true)],
        1 => vec![metric_row(data, &metrics[0], false)],
        _ => metrics.iter().take(fit.saturating_sub(1)).map(|metric| metric_row(data, metric, false)).collect(),
    };
    if metrics.len() > 1 {
        rows.push(metric_row(data, &data.view.all, true));
    }
    let hidden = metrics.len().saturating_sub(fit.saturating_sub(1));
    let title = match hidden {
        0 | 1 => " metrics ".to_owned(),
        hidden => format!(" metrics ({hidden} more in the report) "),
    };
    let block = panel(Span::from(title).bold());
    let width = usize::from(block.inner(area).width);
    let columns = visible_columns(&rows, width);
    let name_width = width.saturating_sub(columns.iter().map(|(_, wide)| wide + COLUMN_GAP).sum());
    let head =
        columns.iter().map(|(at, _)| right_aligned(COLUMN_TITLES[*at].to_owned(), Style::new().fg(palette::DIM)));
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

const COLUMN_GAP: usize = 2;

/// The columns that fit into `width`, each with the width of its widest number.
fn visible_columns(rows: &[MetricRow], width: usize) -> Vec<(usize, usize)> {
    let wide = |at: usize| rows.iter().map(|row| row.cells[at].0.chars().count()).max().unwrap_or(0);
    let mut shown: Vec<_> = (0..COLUMN_TITLES.len()).map(|at| (at, wide(at).max(COLUMN_TITLES[at].len()))).collect();
    for dropped in COLUMN_DROP_ORDER {
        let total: usize = shown.iter().map(|(_, wide)| wide + COLUMN_GAP).sum();
        if total + MIN_NAME_WIDTH <= width {
            break;
        }
        shown.retain(|(at, _)| *at != dropped);
    }
    shown
}

fn metric_row(data: &DashboardData<'_>, metric: &MetricView, sum: bool) -> MetricRow {
    let name = match metric.key.kind {
        MetricKind::Request => printable(&metric.key.name),
        MetricKind::Group => format!("{} (group)", printable(&metric.key.name)),
        MetricKind::Custom => format!("{} (custom)", printable(&metric.key.name)),
    };
    let seconds = &data.view.timeline;
    let length = squall_report::second_length(seconds.len() as u32, data.live.elapsed);
    let now = match sum {
        true => seconds.last().map_or(0, |second| second.requests),
        false => match metric.timeline.last() {
            Some(second) if second.t_s as usize == seconds.len() => u64::from(second.requests),
            _ => 0,
        },
    };
    let errors = if metric.errors > 0 { Style::new().fg(palette::BAD).bold() } else { Style::new().fg(palette::DIM) };
    let p = |percentile: f64| format_statistic(&metric.response, |response| response.percentile(percentile));
    let plain = Style::new();
    let cells = [
        (count(metric.requests), plain),
        (rate(now as f64 / length), plain),
        (count(metric.errors), errors),
        (p(50.0), Style::new().fg(palette::FAST)),
        (p(95.0), plain),
        (p(99.0), Style::new().fg(palette::SLOW)),
        (format_statistic(&metric.response, Histogram::max), plain),
    ];
    MetricRow { name, cells, sum }
}

fn format_statistic(histogram: &Histogram, value: impl Fn(&Histogram) -> u64) -> String {
    if histogram.is_empty() { "–".to_owned() } else { time(value(histogram) as f64) }
}

fn right_aligned<'a>(text: String, style: Style) -> Cell<'a> {
    Cell::from(Text::styled(text, style).alignment(Alignment::Right))
}

pub(super) fn draw_outcomes(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let all = &data.view.all;
    let mut outcomes: Vec<_> = all.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let wide = f64::from(area.width.saturating_sub(52));
    let line = |(outcome, n): &(&squall_metrics::Outcome, &u64)| {
        let share = **n as f64 / all.requests.max(1) as f64;
        let colour = category_colour(outcome.category);
        let bar = "█".repeat((share * wide).ceil() as usize);
        Line::from(vec![
            Span::styled(format!("{:<24}", outcome.code.to_string()), Style::new().fg(colour)),
            Span::raw(format!("{:>12}", count(**n))),
            Span::styled(format!("{:>7.1} %  ", share * 100.0), Style::new().fg(palette::DIM)),
            Span::styled(bar, Style::new().fg(colour)),
        ])
    };
    let mut lines: Vec<_> = outcomes.iter().take(MAX_OUTCOMES).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::styled("nothing yet", Style::new().fg(palette::DIM)));
    }
    let hidden = outcomes.len().saturating_sub(MAX_OUTCOMES);
    let title = if hidden > 0 { format!(" outcomes ({hidden} more) ") } else { " outcomes ".to_owned() };
    frame.render_widget(ratatui::widgets::Paragraph::new(lines).block(panel(Span::from(title).bold())), area);
}

fn category_colour(category: OutcomeCategory) -> Color {
    match category {
        OutcomeCategory::Ok => palette::GOOD,
        OutcomeCategory::CheckFailed | OutcomeCategory::Timeout => palette::WARN,
        OutcomeCategory::ProtocolError | OutcomeCategory::TransportError | OutcomeCategory::Exception => palette::BAD,
    }
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
            assert!(
                total + MIN_NAME_WIDTH <= width || shown.len() == COLUMN_TITLES.len() - COLUMN_DROP_ORDER.len(),
                "{width}"
            );
        }
        assert_eq!(visible_columns(std::slice::from_ref(&row), 160).len(), COLUMN_TITLES.len());
    }
}
