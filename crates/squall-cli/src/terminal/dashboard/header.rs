//! The top of the dashboard: the name, the target, the phase and the progress of the run.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::LineGauge,
};
use squall_report::{LiveRun, LiveRunPhase};

use super::{DashboardData, palette, seconds};
use crate::terminal::format::clock;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>) {
    let [title, bar, _] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let (name, colour) = badge(data.run);
    let badge = format!(" {name} ");
    let [left, right] =
        Layout::horizontal([Constraint::Min(10), Constraint::Length(badge.chars().count() as u16)]).areas(title);
    let mut names = Line::from(vec![
        Span::styled("squall ", Style::new().fg(palette::ACCENT).add_modifier(Modifier::BOLD)),
        Span::raw(printable(&data.run.plan.name)).bold(),
    ]);
    if let Some(target) = data.run.plan.distinct_target() {
        names.push_span(Span::styled("  →  ", Style::new().fg(palette::DIM)));
        names.push_span(Span::raw(printable(target)));
    }
    frame.render_widget(names, left);
    frame.render_widget(Span::styled(badge, Style::new().fg(Color::Black).bg(colour).bold()), right);
    draw_progress(frame, bar, data, colour);
}

fn draw_progress(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, colour: Color) {
    let (state, made) = (&data.run.state, data.run.engine.iterations);
    let by_time = state.elapsed_s / state.planned_end_s.max(0.001);
    let by_count = data.run.plan.load.iterations.map(|n| made as f64 / n.max(1) as f64);
    let done = by_count.unwrap_or(0.0).max(by_time);
    let done = if state.phase == LiveRunPhase::Done { 1.0 } else { done.clamp(0.0, 1.0) };
    let label = match data.run.plan.load.iterations {
        Some(n) => format!("{made} of {n} iterations"),
        None => format!("{} / {}", clock(seconds(state.elapsed_s)), clock(seconds(state.planned_end_s))),
    };
    let gauge = LineGauge::default()
        .ratio(done)
        .label(Span::styled(format!("{label:<14}"), Style::new().bold()))
        .filled_symbol("━")
        .unfilled_symbol("─")
        .filled_style(Style::new().fg(colour))
        .unfilled_style(Style::new().fg(palette::DIM));
    frame.render_widget(gauge, area);
}

fn badge(run: &LiveRun) -> (&'static str, Color) {
    match run.state.phase {
        LiveRunPhase::Starting => ("STARTING", palette::ACCENT),
        LiveRunPhase::WarmUp | LiveRunPhase::Running if run.is_paused() => ("PAUSED", palette::WARN),
        LiveRunPhase::WarmUp => ("WARM-UP", palette::WARN),
        LiveRunPhase::Running => ("RUNNING", palette::GOOD),
        LiveRunPhase::Draining => ("DRAINING", palette::WARN),
        LiveRunPhase::Done => ("DONE", palette::ACCENT),
    }
}

/// Replaces control characters, because names come from files and flags and could control the
/// terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}
