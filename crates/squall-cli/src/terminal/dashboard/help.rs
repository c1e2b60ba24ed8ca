//! The page that explains the keys.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};

use super::{DashboardData, QuitKey, palette, panel, state::DashboardState};

/// The keys and what they do.
fn keys(quit: QuitKey) -> Vec<(&'static str, &'static str)> {
    let quit = match quit {
        QuitKey::StopsRun { .. } => vec![
            ("q, Ctrl-C", "stop: finish the iterations in progress, then report"),
            ("q q", "abort them, then report"),
        ],
        QuitKey::Leaves => vec![("q, Ctrl-C", "leave; the test continues"), ("", "`squall test stop` stops the test")],
    };
    let rest = [
        ("p", "pause the load, or resume it; a pause does not shorten the run"),
        ("+ -", "about a tenth more or less load, until the planned end"),
        ("↑ ↓ j k", "scroll by a row"),
        ("PgUp PgDn", "scroll by a page; Home and End jump"),
        ("s", "sort the metrics by the next column; S turns the order around"),
        ("/", "filter by text; Enter keeps the filter, Esc removes it"),
        ("e", "error messages, and back"),
        ("?", "this page, and back"),
    ];
    quit.into_iter().chain(rest).collect()
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, state: &mut DashboardState) {
    let block = panel(Span::from(" keys ").bold());
    let inner = block.inner(area);
    let keys = keys(data.quit);
    let first = state.scroll.fit(keys.len(), usize::from(inner.height));
    let lines: Vec<_> = keys
        .into_iter()
        .skip(first)
        .map(|(key, effect)| {
            let key = Span::styled(format!("{key:<12}"), Style::new().fg(palette::ACCENT).bold());
            Line::from(vec![key, Span::raw(effect)])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
