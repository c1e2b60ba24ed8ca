//! The live view of a run, redrawn every second. Holds what the last second needs to be compared with; everything shown comes
//! from the run's own view.

mod charts;
mod footer;
mod header;
mod promises;
mod tables;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    widgets::{Block, BorderType, Padding, Paragraph, Wrap},
};
use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Live, Observer};
use std::{io, time::Duration};

use super::screen::Screen;
use crate::stop::{KeyWatch, StopButton};

/// The dashboard's colours, named by meaning.
mod tint {
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
struct Scene<'a> {
    plan: &'a Plan,
    view: &'a RunView,
    live: &'a Live,
    /// CPU of this process over the last second, 1.0 for one core.
    cpu: f64,
    /// How often a stop was asked for.
    presses: u32,
    colour: bool,
}

/// The live view; it owns the terminal until it is dropped.
pub(crate) struct Dashboard {
    screen: Screen,
    button: StopButton,
    colour: bool,
    last: (Duration, f64),
    cpu: f64,
    /// The last drawing did not reach the terminal.
    torn: bool,
    /// There has been a second to show.
    begun: bool,
    // Last: keys are read until everything else is gone.
    _keys: KeyWatch,
}

impl Dashboard {
    pub(crate) fn open(button: StopButton) -> io::Result<Dashboard> {
        let screen = Screen::take()?;
        let keys = KeyWatch::start(button.clone());
        let colour = super::style(true).colour;
        let last = (Duration::ZERO, 0.0);
        Ok(Dashboard { screen, button, colour, last, cpu: 0.0, torn: false, begun: false, _keys: keys })
    }

    fn note_cpu(&mut self, live: &Live) {
        let passed = live.elapsed.saturating_sub(self.last.0).as_secs_f64();
        // Changes of phase are shown between two seconds; so short a time would say nothing about CPU.
        if passed > 0.5 {
            self.cpu = (live.cpu_s - self.last.1) / passed;
            self.last = (live.elapsed, live.cpu_s);
        }
    }
}

impl Observer for Dashboard {
    fn second(&mut self, plan: &Plan, view: &RunView, live: &Live) {
        self.note_cpu(live);
        self.begun = true;
        let (cpu, presses, colour) = (self.cpu, self.button.presses(), self.colour);
        let scene = Scene { plan, view, live, cpu, presses, colour };
        // A terminal that cannot be drawn on must not end the run; its report is still wanted.
        // One that has missed a drawing, because it is held, is drawn on from the beginning.
        let terminal = &mut self.screen.terminal;
        if self.torn && terminal.clear().is_err() {
            return;
        }
        self.torn = terminal.draw(|frame| draw(frame, &scene)).is_err();
    }

    fn waiting(&mut self, why: &str) {
        // Later the numbers so far are worth more than why there are no new ones.
        if !self.begun {
            let words = Paragraph::new(format!("{why}\n\nq stops")).wrap(Wrap { trim: true }).block(panel("waiting"));
            let colour = self.colour;
            let drawn = self.screen.terminal.draw(|frame| {
                frame.render_widget(words, frame.area());
                if !colour {
                    bleach(frame, frame.area());
                }
            });
            self.torn = drawn.is_err();
        }
    }
}

fn draw(frame: &mut Frame<'_>, scene: &Scene<'_>) {
    let area = frame.area().inner(ratatui::layout::Margin { horizontal: 1, vertical: 0 });
    let tall = area.height >= 30;
    let metrics = tables::metric_rows(scene, if tall { 10 } else { 4 }) as u16 + 3;
    let outcomes = if tall { tables::outcome_rows(scene) as u16 + 2 } else { 0 };
    let promises = promises::height(scene, tall);
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
    promises::draw(frame, promise, scene, tall);
    footer::draw_health(frame, health, scene, tall);
    footer::draw_keys(frame, keys, scene);
    if !scene.colour {
        bleach(frame, area);
    }
}

/// Takes every colour out again, for `NO_COLOR`; bold and dim stay.
fn bleach(frame: &mut Frame<'_>, area: Rect) {
    for position in area.positions() {
        let cell = &mut frame.buffer_mut()[position];
        (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
    }
}

/// A titled box.
fn panel<'a>(title: impl Into<ratatui::text::Line<'a>>) -> Block<'a> {
    Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(ratatui::style::Style::new().fg(tint::DIM))
        .title_style(ratatui::style::Style::new().fg(Color::Reset))
        .padding(Padding::horizontal(1))
        .title(title)
}

#[cfg(test)]
mod tests;
