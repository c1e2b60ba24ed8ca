//! What people see in a terminal: the live dashboard, or one line a second, and the final words. Renders; computes no statistics.

pub(crate) mod background_writer;
pub(crate) mod dashboard;
pub(crate) mod format;
mod keys;
pub(crate) mod live_lines;
pub(crate) mod print;
mod screen;

pub(crate) use background_writer::print_stderr;
pub(crate) use keys::InlineKeyListener;
pub(crate) use screen::restore_terminal;

use squall_report::TerminalStyle;
use std::{io::IsTerminal, time::Duration};

/// Whoever waits longer than this wants to know for what.
pub(crate) const WAIT_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// `1 worker`, `2 workers`.
pub(crate) fn pluralize(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Colours, unless `NO_COLOR` or a dumb terminal says otherwise; the width of the terminal, or 100 columns.
pub(crate) fn style(is_terminal: bool) -> TerminalStyle {
    // crossterm asks the program `tput` where there is no terminal, so it is asked only where there is one.
    if !is_terminal {
        return TerminalStyle::PLAIN;
    }
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    // One that was never told its size says 0.
    let columns = crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
    let width = if columns == 0 { TerminalStyle::PLAIN.width } else { columns };
    TerminalStyle { colour: wanted && able, width: width.clamp(36, 140) }
}

/// The style of standard output.
pub(crate) fn stdout_style() -> TerminalStyle {
    style(std::io::stdout().is_terminal())
}

/// The style of standard error.
pub(crate) fn stderr_style() -> TerminalStyle {
    style(std::io::stderr().is_terminal())
}

/// Whether the dashboard can be shown: it draws on standard error and reads keys.
pub(crate) fn can_show_dashboard() -> bool {
    let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let big_enough = || crossterm::terminal::size().is_ok_and(|(columns, rows)| columns >= 60 && rows >= 16);
    std::io::stderr().is_terminal() && std::io::stdin().is_terminal() && able && big_enough()
}
