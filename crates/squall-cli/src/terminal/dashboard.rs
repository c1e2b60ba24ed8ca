//! The dashboard: draws the live view of a run every second. Computes only the CPU use since the
//! last second; all other numbers come from the run. `execute_run` opens it.

mod charts;
mod footer;
mod header;
mod tables;
mod thresholds;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    widgets::{Block, BorderType, Padding, Paragraph, Wrap},
};
use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LiveStatus, RunObserver};
use std::{io, time::Duration};

use super::screen::DashboardScreen;
use crate::stop_button::{KeyListener, StopButton};

/// The colours of the dashboard, by meaning.
mod palette {
    use super::Color;

    pub(super) const ACCENT: Color = Color::Cyan;
    pub(super) const FAST: Color = Color::Green;
    pub(super) const SLOW: Color = Color::Magenta;
    pub(super) const PLAN: Color = Color::DarkGray;
    pub(super) const GOOD: Color = Color::Green;
    pub(super) const WARN: Color = Color::Yellow;
    pub(super) const BAD: Color = Color::Red;
    pub(super) const DIM: Color = Color::DarkGray;
}

/// The data of one drawing.
struct DashboardData<'a> {
    plan: &'a Plan,
    view: &'a RunView,
    live: &'a LiveStatus,
    /// CPU use of this process in the last second; 1.0 is one core.
    cpu: f64,
    /// Presses of the stop button.
    presses: u32,
    colour: bool,
}

/// The dashboard. It uses the terminal until it is dropped.
pub(crate) struct Dashboard {
    screen: DashboardScreen,
    button: StopButton,
    colour: bool,
    last_cpu_sample: (Duration, f64),
    cpu: f64,
    /// Whether the last drawing failed.
    needs_redraw: bool,
    /// Whether a second of data was shown.
    has_data: bool,
    // Last, so that keys work until everything else is dropped.
    _keys: KeyListener,
}

impl Dashboard {
    pub(crate) fn open(button: StopButton) -> io::Result<Dashboard> {
        let screen = DashboardScreen::enter()?;
        let keys = KeyListener::start(button.clone());
        let colour = super::style(true).colour;
        Ok(Dashboard {
            screen,
            button,
            colour,
            last_cpu_sample: (Duration::ZERO, 0.0),
            cpu: 0.0,
            needs_redraw: false,
            has_data: false,
            _keys: keys,
        })
    }

    fn update_cpu(&mut self, live: &LiveStatus) {
        let passed = live.elapsed.saturating_sub(self.last_cpu_sample.0).as_secs_f64();
        // A change of phase updates between two seconds; that is too short to measure CPU use.
        if passed > 0.5 {
            self.cpu = (live.cpu_s - self.last_cpu_sample.1) / passed;
            self.last_cpu_sample = (live.elapsed, live.cpu_s);
        }
    }
}

impl RunObserver for Dashboard {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        self.update_cpu(live);
        self.has_data = true;
        let (cpu, presses, colour) = (self.cpu, self.button.presses(), self.colour);
        let data = DashboardData { plan, view, live, cpu, presses, colour };
        // A failed drawing must not end the run. After one, the whole screen is drawn again,
        // because a stopped terminal has missed the changes.
        let terminal = &mut self.screen.terminal;
        if self.needs_redraw && terminal.clear().is_err() {
            return;
        }
        self.needs_redraw = terminal.draw(|frame| draw(frame, &data)).is_err();
    }

    fn on_waiting(&mut self, reason: &str) {
        // During a run, its data is worth more than the reason of a wait.
        if !self.has_data {
            let text = Paragraph::new(format!("{reason}\n\nq stops")).wrap(Wrap { trim: true }).block(panel("waiting"));
            let colour = self.colour;
            let drawn = self.screen.terminal.draw(|frame| {
                frame.render_widget(text, frame.area());
                if !colour {
                    strip_colours(frame, frame.area());
                }
            });
            self.needs_redraw = drawn.is_err();
        }
    }
}

fn draw(frame: &mut Frame<'_>, data: &DashboardData<'_>) {
    let area = frame.area().inner(ratatui::layout::Margin { horizontal: 1, vertical: 0 });
    let tall = area.height >= 30;
    let metrics = tables::metric_row_count(data, if tall { 10 } else { 4 }) as u16 + 3;
    let outcomes = if tall { tables::outcome_row_count(data) as u16 + 2 } else { 0 };
    let threshold_height = thresholds::height(data, tall);
    let [top, charts, table, outcome, threshold_area, health, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(6),
        Constraint::Length(metrics),
        Constraint::Length(outcomes),
        Constraint::Length(threshold_height),
        Constraint::Length(if tall { 4 } else { 1 }),
        Constraint::Length(1),
    ])
    .areas(area);
    header::draw(frame, top, data);
    charts::draw(frame, charts, data);
    tables::draw_metrics(frame, table, data);
    if tall {
        tables::draw_outcomes(frame, outcome, data);
    }
    thresholds::draw(frame, threshold_area, data, tall);
    footer::draw_health(frame, health, data, tall);
    footer::draw_keys(frame, keys, data);
    if !data.colour {
        strip_colours(frame, area);
    }
}

/// Removes the colours, for `NO_COLOR`. Bold and dim stay.
fn strip_colours(frame: &mut Frame<'_>, area: Rect) {
    for position in area.positions() {
        let cell = &mut frame.buffer_mut()[position];
        (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
    }
}

/// A titled box.
fn panel<'a>(title: impl Into<ratatui::text::Line<'a>>) -> Block<'a> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(ratatui::style::Style::new().fg(palette::DIM))
        .title_style(ratatui::style::Style::new().fg(Color::Reset))
        .padding(Padding::horizontal(1))
        .title(title)
}

#[cfg(test)]
mod tests;
