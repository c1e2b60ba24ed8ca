//! The thresholds on the dashboard, with their current values. Judges nothing: the orchestrator
//! does.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};
use squall_model::{StatisticUnit, ThresholdResult};

use super::{DashboardData, footer::fit_in_line, header::printable, palette, panel};
use crate::terminal::format::{count, percent, rate, time};

/// Most thresholds in the panel.
const MAX_THRESHOLDS: usize = 5;

/// The height of the thresholds: a panel on a tall terminal, otherwise one line; 0 without
/// thresholds.
pub(super) fn height(data: &DashboardData<'_>, tall: bool) -> u16 {
    match data.run.state.thresholds.len() {
        0 => 0,
        n if tall => n.min(MAX_THRESHOLDS) as u16 + 2,
        _ => 1,
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, tall: bool) {
    let results = &data.run.state.thresholds;
    // Breached ones first, so that they are visible if not all fit.
    let mut order: Vec<_> = results.iter().collect();
    order.sort_by_key(|result| result.passed || result.value.is_none());
    let lines: Vec<_> = order.iter().map(|result| line(result)).collect();
    if area.height == 0 {
        return;
    }
    if !tall {
        return frame.render_widget(fit_in_line(&lines, area.width), area);
    }
    let hidden = results.len().saturating_sub(MAX_THRESHOLDS);
    let title = if hidden > 0 { format!(" thresholds ({hidden} more) ") } else { " thresholds ".to_owned() };
    let shown: Vec<_> = lines.into_iter().take(MAX_THRESHOLDS).collect();
    frame.render_widget(Paragraph::new(shown).block(panel(Span::from(title).bold())), area);
}

fn line<'a>(result: &ThresholdResult) -> Line<'a> {
    let (mark, colour) = match result.value {
        None => ("·", palette::DIM),
        Some(_) if result.passed => ("✓", palette::GOOD),
        Some(_) => ("✗", palette::BAD),
    };
    let since = result.breached_at_s.map_or(String::new(), |at| format!(", since {at} s"));
    Line::from(vec![
        Span::styled(format!("{mark} "), Style::new().fg(colour).bold()),
        Span::raw(printable(&result.threshold.to_string())),
        Span::styled(format!(" {}{since}", value(result)), Style::new().fg(colour)),
    ])
}

fn value(result: &ThresholdResult) -> String {
    match (result.value, result.threshold.unit()) {
        (None, _) => "nothing yet".to_owned(),
        (Some(value), StatisticUnit::Time) => time(value),
        (Some(value), StatisticUnit::Fraction) => percent(value),
        (Some(value), StatisticUnit::PerSecond) => format!("{}/s", rate(value)),
        (Some(value), StatisticUnit::Count) => count(value as u64),
        (Some(value), StatisticUnit::LayoutShift) => format!("{:.3}", value / 1e9),
    }
}
