//! The tables: one line per metric, one per outcome.

use ratatui::{
    Frame,
    layout::{Alignment, Constraint, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span, Text},
    widgets::{Cell, Row, Table},
};
use squall_metrics::{Category, Histogram, Kind, MetricView};

use super::{Scene, header::printable, panel, tint};
use crate::terminal::format::{count, rate, time};

/// Most outcomes shown.
const MOST_OUTCOMES: usize = 5;

/// Lines of the metric table: the metrics, at most `most`, and their sum if there is more than one.
pub(super) fn metric_rows(scene: &Scene<'_>, most: usize) -> usize {
    match scene.view.metrics.len() {
        0 | 1 => 1,
        n => n.min(most) + 1,
    }
}

pub(super) fn outcome_rows(scene: &Scene<'_>) -> usize {
    scene.view.all.outcomes.len().clamp(1, MOST_OUTCOMES)
}

pub(super) fn draw_metrics(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let fit = usize::from(area.height.saturating_sub(3));
    let metrics = &scene.view.metrics;
    let mut rows: Vec<_> = match metrics.len() {
        0 => vec![metric_row(scene, &scene.view.all, true)],
        1 => vec![metric_row(scene, &metrics[0], false)],
        _ => metrics.iter().take(fit.saturating_sub(1)).map(|metric| metric_row(scene, metric, false)).collect(),
    };
    if metrics.len() > 1 {
        rows.push(metric_row(scene, &scene.view.all, true));
    }
    let hidden = metrics.len().saturating_sub(fit.saturating_sub(1));
    let title = match hidden {
        0 | 1 => " metrics ".to_owned(),
        hidden => format!(" metrics ({hidden} more in the report) "),
    };
    let names = ["", "requests", "now/s", "errors", "p50", "p95", "p99", "max"];
    let head = names.map(|name| right(name.to_owned(), Style::new().fg(tint::DIM)));
    let widths = [Constraint::Min(16)].into_iter().chain([Constraint::Length(11); 7]);
    let table = Table::new(rows, widths).header(Row::new(head)).block(panel(Span::from(title).bold()));
    frame.render_widget(table, area);
}

fn metric_row<'a>(scene: &Scene<'_>, metric: &MetricView, sum: bool) -> Row<'a> {
    let name = match metric.key.kind {
        Kind::Request => printable(&metric.key.name),
        Kind::Group => format!("{} (group)", printable(&metric.key.name)),
        Kind::Custom => format!("{} (custom)", printable(&metric.key.name)),
    };
    let now = match sum {
        true => scene.view.timeline.last().map_or(0, |second| second.requests),
        false => match metric.timeline.last() {
            Some(second) if second.t_s as usize == scene.view.timeline.len() => u64::from(second.requests),
            _ => 0,
        },
    };
    let errors = if metric.errors > 0 { Style::new().fg(tint::BAD).bold() } else { Style::new().fg(tint::DIM) };
    let p = |percentile: f64| shown(&metric.response, |response| response.percentile(percentile));
    let plain = Style::new();
    let row = Row::new([
        Cell::from(name),
        right(count(metric.requests), plain),
        right(rate(now as f64), plain),
        right(count(metric.errors), errors),
        right(p(50.0), Style::new().fg(tint::FAST)),
        right(p(95.0), plain),
        right(p(99.0), Style::new().fg(tint::SLOW)),
        right(shown(&metric.response, Histogram::max), plain),
    ]);
    if sum { row.bold() } else { row }
}

fn shown(histogram: &Histogram, value: impl Fn(&Histogram) -> u64) -> String {
    if histogram.is_empty() { "–".to_owned() } else { time(value(histogram) as f64) }
}

fn right<'a>(text: String, style: Style) -> Cell<'a> {
    Cell::from(Text::styled(text, style).alignment(Alignment::Right))
}

pub(super) fn draw_outcomes(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let all = &scene.view.all;
    let mut outcomes: Vec<_> = all.outcomes.iter().collect();
    outcomes.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let wide = area.width.saturating_sub(54).max(8) as f64;
    let line = |(outcome, n): &(&squall_metrics::Outcome, &u64)| {
        let share = **n as f64 / all.requests.max(1) as f64;
        let colour = tone(outcome.category);
        let bar = "█".repeat((share * wide).ceil() as usize);
        Line::from(vec![
            Span::styled(format!("{:<24}", outcome.code.to_string()), Style::new().fg(colour)),
            Span::raw(format!("{:>12}", count(**n))),
            Span::styled(format!("{:>7.1} %  ", share * 100.0), Style::new().fg(tint::DIM)),
            Span::styled(bar, Style::new().fg(colour)),
        ])
    };
    let mut lines: Vec<_> = outcomes.iter().take(MOST_OUTCOMES).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::styled("nothing yet", Style::new().fg(tint::DIM)));
    }
    let hidden = outcomes.len().saturating_sub(MOST_OUTCOMES);
    let title = if hidden > 0 { format!(" outcomes ({hidden} more) ") } else { " outcomes ".to_owned() };
    frame.render_widget(ratatui::widgets::Paragraph::new(lines).block(panel(Span::from(title).bold())), area);
}

fn tone(category: Category) -> Color {
    match category {
        Category::Ok => tint::GOOD,
        Category::CheckFailed | Category::Timeout => tint::WARN,
        Category::ProtocolError | Category::TransportError | Category::Exception => tint::BAD,
    }
}
