//! The live view of a run, redrawn every second. Holds what the last second needs to be compared with; everything shown comes
//! from the run's own view.

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

/// The dashboard's colours, named by meaning.
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

/// Everything one drawing shows.
struct DashboardData<'a> {
    plan: &'a Plan,
    view: &'a RunView,
    live: &'a LiveStatus,
    /// CPU of this process over the last second, 1.0 for one core.
    cpu: f64,
    /// How often a stop was asked for.
    presses: u32,
    colour: bool,
}

/// The live view; it owns the terminal until it is dropped.
pub(crate) struct Dashboard {
    screen: DashboardScreen,
    button: StopButton,
    colour: bool,
    last_cpu_sample: (Duration, f64),
    cpu: f64,
    /// The last drawing did not reach the terminal.
    needs_redraw: bool,
    /// There has been a second to show.
    has_data: bool,
    // Last: keys are read until everything else is gone.
    _keys: KeyListener,
}

impl Dashboard {
    pub(crate) fn open(button: StopButton) -> io::Result<Dashboard> {
        let screen = DashboardScreen::enter()?;
        let keys = KeyListener::start(button.clone());
        let colour = super::style(true).colour;
        let last = (Duration::ZERO, 0.0);
        Ok(Dashboard {
            screen,
            button,
            colour,
            last_cpu_sample: last,
            cpu: 0.0,
            needs_redraw: false,
            has_data: false,
            _keys: keys,
        })
    }

    fn update_cpu(&mut self, live: &LiveStatus) {
        let passed = live.elapsed.saturating_sub(self.last_cpu_sample.0).as_secs_f64();
        // Changes of phase are shown between two seconds; so short a time would say nothing about CPU.
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
        let scene = DashboardData { plan, view, live, cpu, presses, colour };
        // A terminal that cannot be drawn on must not end the run; its report is still wanted.
        // One that has missed a drawing, because it is held, is drawn on from the beginning.
        let terminal = &mut self.screen.terminal;
        if self.needs_redraw && terminal.clear().is_err() {
            return;
        }
        self.needs_redraw = terminal.draw(|frame| draw(frame, &scene)).is_err();
    }

    fn on_waiting(&mut self, why: &str) {
        // Later the numbers so far are worth more than why there are no new ones.
        if !self.has_data {
            let words = Paragraph::new(format!("{why}\n\nq stops")).wrap(Wrap { trim: true }).block(panel("waiting"));
            let colour = self.colour;
            let drawn = self.screen.terminal.draw(|frame| {
                frame.render_widget(words, frame.area());
                if !colour {
                    strip_colours(frame, frame.area());
                }
            });
            self.needs_redraw = drawn.is_err();
        }
    }
}

fn draw(frame: &mut Frame<'_>, scene: &DashboardData<'_>) {
    let area = frame.area().inner(ratatui::layout::Margin { horizontal: 1, vertical: 0 });
    let tall = area.height >= 30;
    let metrics = tables::metric_row_count(scene, if tall { 10 } else { 4 }) as u16 + 3;
    let outcomes = if tall { tables::outcome_row_count(scene) as u16 + 2 } else { 0 };
    let promises = thresholds::height(scene, tall);
    let [top, charts, table, outcome, promise, health, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(6),
        Constraint::Length(metrics),
        Constraint::Length(outcomes),
        Constraint::Length(promises),
        Constraint::Length(if tall { 4 } else { 1 }),
        Constraint::Length(1),
    ])
    .areas(area);
    header::draw(frame, top, scene);
    charts::draw(frame, charts, scene);
    tables::draw_metrics(frame, table, scene);
    if tall {
        tables::draw_outcomes(frame, outcome, scene);
    }
    thresholds::draw(frame, promise, scene, tall);
    footer::draw_health(frame, health, scene, tall);
    footer::draw_keys(frame, keys, scene);
    if !scene.colour {
        strip_colours(frame, area);
    }
}

/// Takes every colour out again, for `NO_COLOR`; bold and dim stay.
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
