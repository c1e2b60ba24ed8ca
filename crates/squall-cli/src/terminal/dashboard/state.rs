//! What the person at the dashboard has chosen: the page, the order and the filter of the rows, the
//! scroll position. Turns a key into a change of these, or into an action on the run. It draws nothing
//! and changes no run. The key thread calls it, and the drawing reads it.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use squall_model::LevelStep;
use squall_orchestrator::LoadCommand;

/// Most characters of a filter.
const MAX_FILTER_CHARS: usize = 60;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DashboardAction {
    /// Stop the run, or leave the dashboard of a run that continues without it.
    Quit,
    ChangeLoad(LoadCommand),
    /// Only draw again.
    Redraw,
}

/// The part of the screen between header and footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Page {
    #[default]
    Overview,
    Errors,
    Help,
}

/// What keys do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum KeyMode {
    #[default]
    Commands,
    /// Keys are characters of the filter.
    Filter,
}

/// A column by which metrics can be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortColumn {
    Requests,
    Rate,
    Errors,
    P50,
    P95,
    P99,
    Max,
    Name,
}

/// The order of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SortOrder {
    pub(super) column: SortColumn,
    pub(super) descending: bool,
}

/// The choices of the person at the dashboard.
#[derive(Debug, Default)]
pub(crate) struct DashboardState {
    pub(super) page: Page,
    pub(super) mode: KeyMode,
    pub(super) filter: String,
    /// `None` is the order of the first samples.
    pub(super) sort: Option<SortOrder>,
    pub(super) scroll: ScrollPosition,
    /// Whether the load was paused at the last drawing.
    pub(super) paused: bool,
}

/// The first visible row of a list.
#[derive(Debug, Default)]
pub(super) struct ScrollPosition {
    first: usize,
    /// Rows that fit, by the last drawing.
    visible: usize,
}

impl ScrollPosition {
    /// The first row to draw, of `total` rows of which `visible` fit.
    pub(super) fn fit(&mut self, total: usize, visible: usize) -> usize {
        self.visible = visible;
        self.first = self.first.min(total.saturating_sub(visible));
        self.first
    }

    fn up(&mut self, rows: usize) {
        self.first = self.first.saturating_sub(rows);
    }

    /// The next drawing limits it.
    fn down(&mut self, rows: usize) {
        self.first = self.first.saturating_add(rows);
    }

    fn page(&self) -> usize {
        self.visible.max(1)
    }
}

impl SortColumn {
    const ALL: [SortColumn; 8] = [
        SortColumn::Requests,
        SortColumn::Rate,
        SortColumn::Errors,
        SortColumn::P50,
        SortColumn::P95,
        SortColumn::P99,
        SortColumn::Max,
        SortColumn::Name,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            SortColumn::Requests => "requests",
            SortColumn::Rate => "now/s",
            SortColumn::Errors => "errors",
            SortColumn::P50 => "p50",
            SortColumn::P95 => "p95",
            SortColumn::P99 => "p99",
            SortColumn::Max => "max",
            SortColumn::Name => "name",
        }
    }

    /// The largest numbers first, names from a to z.
    fn first_order(self) -> SortOrder {
        SortOrder { column: self, descending: self != SortColumn::Name }
    }
}

impl DashboardState {
    /// Handles an event of the terminal. `None` if it changes nothing.
    pub(crate) fn handle(&mut self, event: &Event) -> Option<DashboardAction> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.press(*key),
            Event::Resize(..) => Some(DashboardAction::Redraw),
            _ => None,
        }
    }

    fn press(&mut self, key: KeyEvent) -> Option<DashboardAction> {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Some(DashboardAction::Quit);
        }
        match self.mode {
            KeyMode::Commands => self.command(key.code),
            KeyMode::Filter => self.edit_filter(key.code),
        }
    }

    fn command(&mut self, code: KeyCode) -> Option<DashboardAction> {
        match code {
            KeyCode::Char('q' | 'Q') => return Some(DashboardAction::Quit),
            KeyCode::Char('p' | 'P') => {
                let command = if self.paused { LoadCommand::Resume } else { LoadCommand::Pause };
                return Some(DashboardAction::ChangeLoad(command));
            }
            // The key of + without Shift.
            KeyCode::Char('+' | '=') => {
                return Some(DashboardAction::ChangeLoad(LoadCommand::Step(LevelStep::Up)));
            }
            KeyCode::Char('-' | '_') => {
                return Some(DashboardAction::ChangeLoad(LoadCommand::Step(LevelStep::Down)));
            }
            KeyCode::Up | KeyCode::Char('k') => self.scroll.up(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll.down(1),
            KeyCode::PageUp => self.scroll.up(self.scroll.page()),
            KeyCode::PageDown => self.scroll.down(self.scroll.page()),
            KeyCode::Home => self.scroll.up(usize::MAX),
            KeyCode::End => self.scroll.down(usize::MAX),
            KeyCode::Char('s') => self.sort_by_next_column(),
            KeyCode::Char('S') => {
                self.sort = self.sort.map(|order| SortOrder { descending: !order.descending, ..order });
            }
            KeyCode::Char('/') => self.mode = KeyMode::Filter,
            KeyCode::Char('e' | 'E') => self.toggle(Page::Errors),
            KeyCode::Char('?' | 'h') => self.toggle(Page::Help),
            KeyCode::Esc => self.go_back(),
            _ => return None,
        }
        Some(DashboardAction::Redraw)
    }

    fn edit_filter(&mut self, code: KeyCode) -> Option<DashboardAction> {
        match code {
            KeyCode::Enter => self.mode = KeyMode::Commands,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = KeyMode::Commands;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(character) if self.filter.chars().count() < MAX_FILTER_CHARS => self.filter.push(character),
            _ => return None,
        }
        self.scroll = ScrollPosition::default();
        Some(DashboardAction::Redraw)
    }

    fn sort_by_next_column(&mut self) {
        let next = match self.sort {
            None => SortColumn::ALL.first(),
            Some(order) => SortColumn::ALL.iter().skip_while(|column| **column != order.column).nth(1),
        };
        self.sort = next.map(|column| column.first_order());
        self.scroll = ScrollPosition::default();
    }

    fn toggle(&mut self, page: Page) {
        self.page = if self.page == page { Page::Overview } else { page };
        self.scroll = ScrollPosition::default();
    }

    /// Leaves the page, or clears the filter.
    fn go_back(&mut self) {
        match self.page {
            Page::Overview => self.filter.clear(),
            Page::Errors | Page::Help => self.toggle(self.page),
        }
    }

    /// Whether a row with these texts passes the filter. Upper and lower case are equal.
    pub(super) fn matches(&self, texts: &[&str]) -> bool {
        let filter = self.filter.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&filter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(state: &mut DashboardState, code: KeyCode) -> Option<DashboardAction> {
        state.handle(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn keys_of_the_load_are_commands_to_the_run() {
        let mut state = DashboardState::default();
        let load = |command| Some(DashboardAction::ChangeLoad(command));
        assert_eq!(press(&mut state, KeyCode::Char('+')), load(LoadCommand::Step(LevelStep::Up)));
        assert_eq!(press(&mut state, KeyCode::Char('-')), load(LoadCommand::Step(LevelStep::Down)));
        assert_eq!(press(&mut state, KeyCode::Char('p')), load(LoadCommand::Pause));
        state.paused = true;
        assert_eq!(press(&mut state, KeyCode::Char('p')), load(LoadCommand::Resume));
        assert_eq!(press(&mut state, KeyCode::Char('q')), Some(DashboardAction::Quit));
        assert_eq!(press(&mut state, KeyCode::Char('x')), None);
    }

    #[test]
    fn q_in_the_filter_is_a_letter_and_ctrl_c_stops() {
        let mut state = DashboardState::default();
        press(&mut state, KeyCode::Char('/'));
        for letter in "qp+x".chars() {
            assert_eq!(press(&mut state, KeyCode::Char(letter)), Some(DashboardAction::Redraw));
        }
        press(&mut state, KeyCode::Backspace);
        assert_eq!(state.filter, "qp+");
        let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(state.handle(&control_c), Some(DashboardAction::Quit));
        press(&mut state, KeyCode::Enter);
        assert_eq!((state.mode, state.filter.as_str()), (KeyMode::Commands, "qp+"), "Enter keeps the filter");
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.filter, "", "Esc clears it");
    }

    #[test]
    fn filter_ignores_case() {
        let state = DashboardState { filter: "Buy".into(), ..DashboardState::default() };
        assert!(state.matches(&["browse", "rebuy"]) && !state.matches(&["browse"]));
        assert!(DashboardState::default().matches(&["browse"]));
    }

    #[test]
    fn s_sorts_by_each_column_and_then_in_the_first_order() {
        let mut state = DashboardState::default();
        let mut seen = Vec::new();
        loop {
            press(&mut state, KeyCode::Char('s'));
            let Some(order) = state.sort else { break };
            seen.push(order.column.title());
        }
        assert_eq!(seen, ["requests", "now/s", "errors", "p50", "p95", "p99", "max", "name"]);
        press(&mut state, KeyCode::Char('s'));
        press(&mut state, KeyCode::Char('S'));
        assert_eq!(state.sort, Some(SortOrder { column: SortColumn::Requests, descending: false }));
    }

    #[test]
    fn scroll_position_stays_within_the_rows() {
        let mut state = DashboardState::default();
        assert_eq!(state.scroll.fit(30, 10), 0);
        press(&mut state, KeyCode::PageDown);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.scroll.fit(30, 10), 11);
        press(&mut state, KeyCode::End);
        assert_eq!(state.scroll.fit(30, 10), 20);
        press(&mut state, KeyCode::Up);
        assert_eq!(state.scroll.fit(30, 10), 19);
        assert_eq!(state.scroll.fit(12, 10), 2, "fewer rows after a filter");
        press(&mut state, KeyCode::Home);
        assert_eq!(state.scroll.fit(30, 10), 0);
    }

    #[test]
    fn pages_open_and_close_with_the_same_key() {
        let mut state = DashboardState::default();
        for (key, page) in [('e', Page::Errors), ('?', Page::Help)] {
            press(&mut state, KeyCode::Char(key));
            assert_eq!(state.page, page);
            press(&mut state, KeyCode::Char(key));
            assert_eq!(state.page, Page::Overview);
        }
        press(&mut state, KeyCode::Char('?'));
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.page, Page::Overview);
    }
}
