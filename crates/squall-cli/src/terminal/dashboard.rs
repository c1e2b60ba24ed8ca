//! The dashboard: draws the live view of a run every second and at every key. Computes only the CPU
//! use since the last second; all other numbers come from the run. It carries no key out: its caller
//! does. `execute_run` and `commands::test` open it.

mod charts;
mod errors;
mod footer;
mod header;
mod help;
mod metric_table;
mod outcomes;
mod state;
mod thresholds;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::Color,
    widgets::{Block, BorderType, Padding, Paragraph, Wrap},
};
use squall_metrics::RunView;
use squall_model::{LevelUnit, LoadChange, Plan};
use squall_orchestrator::{LiveStatus, RunObserver};
use squall_report::LiveRun;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{key_listener::KeyListener, screen::DashboardScreen};
use crate::{stop_button::StopButton, tick::live_run};
use footer::Notice;
pub(crate) use state::DashboardAction;
use state::{DashboardState, Page};

/// Most seconds of a chart; longer runs show their latest part.
pub(crate) const MAX_SPAN_S: u32 = 180;

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
    run: &'a LiveRun,
    /// CPU use of the generator in the last second; 1.0 is one core.
    cpu: f64,
    quit: QuitKey,
    notice: Option<&'a Notice>,
    colour: bool,
}

/// What the `q` key does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuitKey {
    /// It presses the stop button, which has been pressed this many times.
    StopsRun { presses: u32 },
    /// It leaves a run that continues without this process.
    Leaves,
}

/// The dashboard. It uses the terminal until it is dropped.
pub(crate) struct Dashboard {
    screen: DashboardScreen,
    state: Arc<Mutex<DashboardState>>,
    /// `None` if the run continues without this process.
    button: Option<StopButton>,
    colour: bool,
    last_cpu_sample: (f64, f64),
    cpu: f64,
    notice: Option<Notice>,
    unit: LevelUnit,
    /// Whether the last drawing failed.
    needs_redraw: bool,
    /// Whether a second of data was shown.
    has_data: bool,
    // Last, so that keys work until everything else is dropped.
    _keys: KeyListener,
}

impl Dashboard {
    /// Opens the dashboard of a run that this process carries out. Its keys reach the run through
    /// `button`.
    pub(crate) fn open(button: StopButton) -> io::Result<Dashboard> {
        let keys = button.clone();
        let on_action = move |action| {
            match action {
                DashboardAction::Quit => {
                    keys.press();
                }
                DashboardAction::ChangeLoad(command) => keys.control().change_load(command),
                DashboardAction::Redraw => {}
            }
            keys.control().refresh();
        };
        Dashboard::with_actions(Some(button), on_action)
    }

    /// Opens the dashboard of a run that continues without this process. The key thread calls
    /// `on_action`.
    pub(crate) fn watch(on_action: impl Fn(DashboardAction) + Send + 'static) -> io::Result<Dashboard> {
        Dashboard::with_actions(None, on_action)
    }

    fn with_actions(
        button: Option<StopButton>,
        on_action: impl Fn(DashboardAction) + Send + 'static,
    ) -> io::Result<Dashboard> {
        let screen = DashboardScreen::enter()?;
        let state: Arc<Mutex<DashboardState>> = Arc::default();
        let key_state = state.clone();
        let keys = KeyListener::start(move |event| {
            let action = lock(&key_state).handle(event);
            action.into_iter().for_each(&on_action);
        });
        Ok(Dashboard {
            screen,
            state,
            button,
            colour: super::style(true).colour,
            last_cpu_sample: (0.0, 0.0),
            cpu: 0.0,
            notice: None,
            unit: LevelUnit::Rate,
            needs_redraw: false,
            has_data: false,
            _keys: keys,
        })
    }

    /// Draws the run.
    pub(crate) fn show(&mut self, run: &LiveRun) {
        self.update_cpu(run);
        self.has_data = true;
        self.unit = run.plan.load.model.unit();
        let quit = match &self.button {
            Some(button) => QuitKey::StopsRun { presses: button.presses() },
            None => QuitKey::Leaves,
        };
        if let Some(notice) = &mut self.notice {
            notice.shown(run.state.elapsed_s);
        }
        let notice = self.notice.as_ref().filter(|notice| notice.is_current(run.state.elapsed_s));
        let data = DashboardData { run, cpu: self.cpu, quit, notice, colour: self.colour };
        // A failed drawing must not end the run. After one, the whole screen is drawn again,
        // because a stopped terminal has missed the changes.
        let terminal = &mut self.screen.terminal;
        if self.needs_redraw && terminal.clear().is_err() {
            return;
        }
        let mut state = lock(&self.state);
        self.needs_redraw = terminal.draw(|frame| draw(frame, &data, &mut state)).is_err();
    }

    /// Shows what a load command has changed, or why it was refused, with the next drawing.
    pub(crate) fn show_load_change(&mut self, change: &Result<LoadChange, String>) {
        self.notice = Some(Notice::of_load_change(change, self.unit));
    }

    /// Shows a problem with the next drawing.
    pub(crate) fn show_problem(&mut self, text: &str) {
        self.notice = Some(Notice::of_problem(text));
    }

    /// Shows why there is nothing to draw.
    pub(crate) fn show_waiting(&mut self, reason: &str) {
        // During a run, its data is worth more than the reason of a wait.
        if self.has_data {
            return;
        }
        let quit = if self.button.is_some() { "q stops" } else { "q leaves; the test continues" };
        let text = Paragraph::new(format!("{reason}\n\n{quit}")).wrap(Wrap { trim: true }).block(panel("waiting"));
        let colour = self.colour;
        let drawn = self.screen.terminal.draw(|frame| {
            frame.render_widget(text, frame.area());
            if !colour {
                strip_colours(frame, frame.area());
            }
        });
        self.needs_redraw = drawn.is_err();
    }

    fn update_cpu(&mut self, run: &LiveRun) {
        let (elapsed, cpu_s) = (run.state.elapsed_s, run.state.cpu_s);
        let passed = elapsed - self.last_cpu_sample.0;
        // Keys and phases update between two seconds; that is too short to measure CPU use.
        if passed > 0.5 {
            self.cpu = (cpu_s - self.last_cpu_sample.1) / passed;
            self.last_cpu_sample = (elapsed, cpu_s);
        }
    }
}

impl RunObserver for Dashboard {
    fn on_update(&mut self, plan: &Plan, view: &RunView, live: &LiveStatus) {
        self.show(&live_run(plan, view, live, MAX_SPAN_S as usize));
    }

    fn on_waiting(&mut self, reason: &str) {
        self.show_waiting(reason);
    }

    fn on_load_change(&mut self, change: &Result<LoadChange, String>) {
        self.show_load_change(change);
    }
}

fn lock(state: &Mutex<DashboardState>) -> MutexGuard<'_, DashboardState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A time of a run that came from outside may be no time at all.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

fn draw(frame: &mut Frame<'_>, data: &DashboardData<'_>, state: &mut DashboardState) {
    state.paused = data.run.is_paused();
    let area = frame.area().inner(ratatui::layout::Margin { horizontal: 1, vertical: 0 });
    let tall = area.height >= 30;
    let [top, middle, health, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(6),
        Constraint::Length(if tall { 4 } else { 1 }),
        Constraint::Length(1),
    ])
    .areas(area);
    header::draw(frame, top, data);
    match state.page {
        Page::Overview => draw_overview(frame, middle, data, state),
        Page::Errors => errors::draw(frame, middle, data, state),
        Page::Help => help::draw(frame, middle, data, state),
    }
    footer::draw_health(frame, health, data, tall);
    footer::draw_keys(frame, keys, data, state);
    if !data.colour {
        strip_colours(frame, area);
    }
}

fn draw_overview(frame: &mut Frame<'_>, area: Rect, data: &DashboardData<'_>, state: &mut DashboardState) {
    let tall = area.height >= 22;
    let metric_limit = if tall { 10.max(usize::from(area.height) / 3) } else { 4 };
    let [charts, table, outcome, threshold_area] = Layout::vertical([
        Constraint::Min(6),
        Constraint::Length(metric_table::row_count(data, metric_limit) as u16 + 3),
        Constraint::Length(if tall { outcomes::row_count(data) as u16 + 2 } else { 0 }),
        Constraint::Length(thresholds::height(data, tall)),
    ])
    .areas(area);
    charts::draw(frame, charts, data);
    metric_table::draw(frame, table, data, state);
    if tall {
        outcomes::draw(frame, outcome, data);
    }
    thresholds::draw(frame, threshold_area, data, tall);
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
