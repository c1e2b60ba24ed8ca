//! The bottom of the dashboard: the health of the generator, and the keys.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{DashboardData, palette, panel};
use crate::terminal::format::{bytes, count, time};

/// Schedule lag from which the footer shows a warning, and an error.
const LAG_WARN_NS: u64 = 1_000_000;
const LAG_BAD_NS: u64 = 10_000_000;

pub(super) fn draw_health(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, boxed: bool) {
    let second = data.view.timeline.last();
    let (engine, lag) = (&data.view.engine, second.map_or(0, |second| second.lag_p99));
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let traffic = second.map_or((0, 0), |second| (second.bytes_in, second.bytes_out));
    let own = [
        item("cpu", format!("{:.0} %", data.cpu * 100.0), health_colour(data.cpu / cores, 0.7, 0.95)),
        item("schedule lag p99", time(lag as f64), health_colour(lag as f64, LAG_WARN_NS as f64, LAG_BAD_NS as f64)),
        item("late", count(engine.late), health_colour(engine.late as f64, 1.0, f64::INFINITY)),
        item("dropped", count(engine.dropped), health_colour(engine.dropped as f64, 1.0, 1.0)),
        item("memory", bytes(data.live.rss_bytes as f64), palette::GOOD),
    ];
    if !boxed {
        return frame.render_widget(fit_in_line(&own, area.width), area);
    }
    let users = format!("{} ({} busy)", count(engine.users), count(data.live.busy_users));
    let load = [
        item("users", users, Color::Reset),
        item("in", format!("{}/s", bytes(traffic.0 as f64)), Color::Reset),
        item("out", format!("{}/s", bytes(traffic.1 as f64)), Color::Reset),
        item("iterations", count(engine.iterations), Color::Reset),
        item("warm-up", count(engine.warm_up_requests), Color::Reset),
    ];
    let block = panel(Span::from(" generator ").bold());
    let width = block.inner(area).width;
    let lines = vec![fit_in_line(&own, width), fit_in_line(&load, width)];
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn item<'a>(name: &'static str, value: String, colour: Color) -> Line<'a> {
    let name = Span::styled(format!("{name} "), Style::new().fg(palette::DIM));
    Line::from(vec![name, Span::styled(value, Style::new().fg(colour).bold())])
}

/// The first of `items` that fit into `width`, with wide gaps if possible.
pub(super) fn fit_in_line<'a>(items: &[Line<'a>], width: u16) -> Line<'a> {
    let total_width = |items: &[Line<'_>], gap: usize| items.iter().map(|item| item.width() + gap).sum::<usize>();
    let gap = if total_width(items, 4) <= usize::from(width) + 4 { 4 } else { 2 };
    let fit = (0..=items.len()).rev().find(|n| total_width(&items[..*n], gap) <= usize::from(width) + gap).unwrap_or(0);
    let mut line = Line::default();
    for (index, item) in items[..fit].iter().enumerate() {
        if index > 0 {
            line.push_span(Span::raw(" ".repeat(gap)));
        }
        item.spans.iter().for_each(|span| line.push_span(span.clone()));
    }
    line
}

fn health_colour(value: f64, warn: f64, bad: f64) -> Color {
    match value {
        v if v >= bad => palette::BAD,
        v if v >= warn => palette::WARN,
        _ => palette::GOOD,
    }
}

pub(super) fn draw_keys(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let stop = if area.width < 64 { " stop and report   " } else { " stop, finish iterations and report   " };
    let line = match data.presses {
        0 => Line::from(vec![
            Span::styled(" q ", Style::new().bold().reversed()),
            Span::styled(stop, Style::new().fg(palette::DIM)),
            Span::styled(" q q ", Style::new().bold().reversed()),
            Span::styled(" abort", Style::new().fg(palette::DIM)),
        ]),
        1 => Line::from(vec![
            Span::styled(
                format!("draining: {} in flight, ", count(data.live.busy_users)),
                Style::new().fg(palette::WARN),
            ),
            Span::styled(" q ", Style::new().bold().reversed()),
            Span::styled(" again aborts", Style::new().fg(palette::WARN)),
        ]),
        _ => Line::styled("aborting", Style::new().fg(palette::BAD)),
    };
    frame.render_widget(line, area);
}
