//! The page of error messages: how often each occurred, under which metric and with which code.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};
use squall_report::{ErrorJson, truncate_to_width};

use super::{DashboardData, header::printable, outcomes::category_colour, palette, panel, state::DashboardState};
use crate::terminal::format::count;

/// Most lines of one message, which may be a traceback.
const MAX_MESSAGE_LINES: usize = 8;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, state: &mut DashboardState) {
    let chosen: Vec<&ErrorJson> =
        data.run.errors.iter().filter(|error| state.matches(&[&error.metric, &error.code, &error.message])).collect();
    let block = panel(Span::from(title(data, state, chosen.len())).bold());
    let inner = block.inner(area);
    let mut lines: Vec<_> = chosen.iter().flat_map(|error| error_lines(error, usize::from(inner.width))).collect();
    if lines.is_empty() {
        lines.push(Line::styled(nothing_to_show(data, state), Style::new().fg(palette::DIM)));
    }
    let first = state.scroll.fit(lines.len(), usize::from(inner.height));
    let visible: Vec<_> = lines.into_iter().skip(first).take(usize::from(inner.height)).collect();
    frame.render_widget(Paragraph::new(visible).block(block), area);
}

fn title(data: &DashboardData<'_>, state: &DashboardState, chosen: usize) -> String {
    let all = &data.run.all;
    let mut title = format!(" errors: {} of {} requests", count(all.errors), count(all.requests));
    if !state.filter.is_empty() {
        title += &format!(", {chosen} messages with “{}”", printable(&state.filter));
    }
    title + " "
}

fn nothing_to_show(data: &DashboardData<'_>, state: &DashboardState) -> String {
    match (data.run.all.errors, state.filter.is_empty()) {
        (_, false) => "no message passes the filter".to_owned(),
        (0, true) => format!("no error in {} requests", count(data.run.all.requests)),
        (_, true) => "the errors have no message; the outcomes on the first page show their codes".to_owned(),
    }
}

/// A line with count, code and metric, then the message.
fn error_lines<'a>(error: &ErrorJson, width: usize) -> Vec<Line<'a>> {
    let colour = category_colour(&error.category);
    let head = Line::from(vec![
        Span::styled(format!("{:>8}  ", count(error.count)), Style::new().bold()),
        Span::styled(printable(&error.code), Style::new().fg(colour).bold()),
        Span::styled(format!("  {}", printable(&error.metric)), Style::new()),
    ]);
    let text = |line: &str| truncate_to_width(&printable(line), width.saturating_sub(10));
    let message = error.message.lines().take(MAX_MESSAGE_LINES);
    let message = message.map(|line| Line::styled(format!("{:10}{}", "", text(line)), Style::new().fg(palette::DIM)));
    [head].into_iter().chain(message).collect()
}
