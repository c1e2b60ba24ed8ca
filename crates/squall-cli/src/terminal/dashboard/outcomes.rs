//! The outcomes of all requests on the dashboard: one line per code, with its share.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};
use squall_report::OutcomeJson;

use super::{DashboardData, palette, panel};
use crate::terminal::format::count;

/// Most outcomes in the panel.
const MAX_OUTCOMES: usize = 5;

pub(super) fn row_count(data: &DashboardData<'_>) -> usize {
    data.run.outcomes.len().clamp(1, MAX_OUTCOMES)
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let outcomes = &data.run.outcomes;
    let wide = f64::from(area.width.saturating_sub(52));
    let line = |outcome: &OutcomeJson| {
        let share = outcome.count as f64 / data.run.all.requests.max(1) as f64;
        let colour = category_colour(&outcome.category);
        let bar = "█".repeat((share * wide).ceil() as usize);
        Line::from(vec![
            Span::styled(format!("{:<24}", outcome.code), Style::new().fg(colour)),
            Span::raw(format!("{:>12}", count(outcome.count))),
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
    frame.render_widget(Paragraph::new(lines).block(panel(Span::from(title).bold())), area);
}

/// The colour of an outcome category of the result file.
pub(super) fn category_colour(category: &str) -> Color {
    match category {
        "ok" => palette::GOOD,
        "check_failed" | "timeout" => palette::WARN,
        _ => palette::BAD,
    }
}
