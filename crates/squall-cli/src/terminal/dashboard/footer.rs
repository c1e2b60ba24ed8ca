//! The bottom of the dashboard: the health of the generator, and the keys, the filter or the answer to
//! the last load command.

use ratatui::{
    Frame,
    layout::Rect,
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::Paragraph,
};

use squall_model::{LevelUnit, LoadChange};

use super::{
    DashboardData, QuitKey,
    header::printable,
    palette, panel,
    state::{DashboardState, KeyMode},
};
use crate::terminal::{
    format::{bytes, count, rate, time},
    pluralize,
};

/// Schedule lag from which the footer shows a warning, and an error.
const LAG_WARN_MS: f64 = 1.0;
const LAG_BAD_MS: f64 = 10.0;

pub(super) fn draw_health(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, boxed: bool) {
    let second = data.run.seconds.last();
    let (engine, lag) = (&data.run.engine, second.map_or(0.0, |second| second.lag_p99_ms));
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let traffic = second.map_or((0, 0), |second| (second.bytes_in, second.bytes_out));
    let own = [
        item("cpu", format!("{:.0} %", data.cpu * 100.0), health_colour(data.cpu / cores, 0.7, 0.95)),
        item("schedule lag p99", time(lag * 1e6), health_colour(lag, LAG_WARN_MS, LAG_BAD_MS)),
        item("late", count(engine.late), health_colour(engine.late as f64, 1.0, f64::INFINITY)),
        item("dropped", count(engine.dropped), health_colour(engine.dropped as f64, 1.0, 1.0)),
        item("memory", bytes(data.run.state.rss_bytes as f64), palette::GOOD),
    ];
    if !boxed {
        return frame.render_widget(fit_in_line(&own, area.width), area);
    }
    let users = format!("{} ({} busy)", count(engine.users), count(data.run.state.busy_users));
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

pub(super) fn draw_keys(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, state: &DashboardState) {
    let line = match (state.mode, data.quit) {
        (KeyMode::Filter, _) => filter_input(state),
        (KeyMode::Commands, QuitKey::StopsRun { presses: 1 }) => Line::from(vec![
            Span::styled(
                format!("draining: {} in flight, ", count(data.run.state.busy_users)),
                Style::new().fg(palette::WARN),
            ),
            Span::styled(" q ", Style::new().bold().reversed()),
            Span::styled(" again aborts", Style::new().fg(palette::WARN)),
        ]),
        (KeyMode::Commands, QuitKey::StopsRun { presses: 2.. }) => {
            Line::styled("aborting", Style::new().fg(palette::BAD))
        }
        (KeyMode::Commands, QuitKey::StopsRun { presses: 0 } | QuitKey::Leaves) => match data.notice {
            Some(notice) => notice.line(),
            None => key_line(data, area.width),
        },
    };
    frame.render_widget(line, area);
}

fn filter_input<'a>(state: &DashboardState) -> Line<'a> {
    Line::from(vec![
        Span::styled("filter: ", Style::new().fg(palette::ACCENT).bold()),
        Span::raw(printable(&state.filter)),
        Span::styled("▏", Style::new().fg(palette::ACCENT)),
        Span::styled("  Enter keeps it, Esc removes it", Style::new().fg(palette::DIM)),
    ])
}

/// The keys, the most important first; those that do not fit are on the help page.
fn key_line<'a>(data: &DashboardData<'_>, width: u16) -> Line<'a> {
    let quit = if data.quit == QuitKey::Leaves { "leave" } else { "stop" };
    let pause = if data.run.is_paused() { "resume" } else { "pause" };
    let keys = [
        ("q", quit),
        ("?", "help"),
        ("p", pause),
        ("+ -", "load"),
        ("e", "errors"),
        ("s", "sort"),
        ("/", "filter"),
        ("↑ ↓", "scroll"),
    ];
    let items = keys.map(|(key, effect)| {
        let key = Span::styled(format!(" {key} "), Style::new().bold().reversed());
        Line::from(vec![key, Span::styled(format!(" {effect}"), Style::new().fg(palette::DIM))])
    });
    fit_in_line(&items, width)
}

/// The answer to a load command.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Notice {
    text: String,
    refused: bool,
    /// When it was first drawn, in seconds of the run.
    since_s: Option<f64>,
}

/// How long an answer stays in place of the keys.
const NOTICE_S: f64 = 4.0;

impl Notice {
    pub(super) fn of_load_change(change: &Result<LoadChange, String>, unit: LevelUnit) -> Notice {
        let level = |level: f64| match unit {
            LevelUnit::Rate => format!("{}/s", rate(level)),
            LevelUnit::Users => pluralize(level.round() as u64, "user"),
        };
        let text = match change {
            Ok(LoadChange::Paused) => "paused: no further starts until p resumes the load".to_owned(),
            Ok(LoadChange::Resumed { level: now }) => format!("resumed at {}", level(*now)),
            Ok(LoadChange::Level { before, now }) => {
                format!("{} instead of {}, until the planned end", level(*now), level(*before))
            }
            Err(reason) => printable(reason),
        };
        Notice { text, refused: change.is_err(), since_s: None }
    }

    pub(super) fn of_problem(text: &str) -> Notice {
        Notice { text: printable(text), refused: true, since_s: None }
    }

    /// Notes when it was first drawn.
    pub(super) fn shown(&mut self, elapsed_s: f64) {
        self.since_s.get_or_insert(elapsed_s);
    }

    pub(super) fn is_current(&self, elapsed_s: f64) -> bool {
        self.since_s.is_none_or(|since_s| elapsed_s < since_s + NOTICE_S)
    }

    fn line<'a>(&self) -> Line<'a> {
        let colour = if self.refused { palette::WARN } else { palette::ACCENT };
        Line::styled(self.text.clone(), Style::new().fg(colour).bold())
    }
}
