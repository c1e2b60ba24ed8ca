//! Output on the terminal: the dashboard, the progress lines, messages. Renders only;
//! squall-metrics computes the statistics. The commands call it.

pub(crate) mod background_writer;
pub(crate) mod dashboard;
pub(crate) mod format;
mod key_listener;
mod keys;
pub(crate) mod live_lines;
pub(crate) mod print;
mod screen;

pub(crate) use background_writer::print_stderr;
pub(crate) use keys::InlineKeyListener;
pub(crate) use screen::restore_terminal;

use squall_report::TerminalStyle;
use std::{io::IsTerminal, time::Duration};

/// A wait longer than this is explained to the user.
pub(crate) const WAIT_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// `1 worker`, `2 workers`.
pub(crate) fn pluralize(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Colours, unless `NO_COLOR` is set or the terminal is dumb; the width of the terminal, or 100
/// columns.
pub(crate) fn style(is_terminal: bool) -> TerminalStyle {
    // Without a terminal, crossterm would run `tput` to find the size.
    if !is_terminal {
        return TerminalStyle::PLAIN;
    }
    let colour_allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let not_dumb = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    // A terminal without a known size reports 0.
    let columns = crossterm::terminal::size().map_or(0, |(columns, _)| usize::from(columns));
    let width = if columns == 0 { TerminalStyle::PLAIN.width } else { columns };
    TerminalStyle { colour: colour_allowed && not_dumb, width: width.clamp(36, 140) }
}

/// The style of standard output.
pub(crate) fn stdout_style() -> TerminalStyle {
    style(std::io::stdout().is_terminal())
}

/// The style of standard error.
pub(crate) fn stderr_style() -> TerminalStyle {
    style(std::io::stderr().is_terminal())
}

/// The smallest terminal that has room for the dashboard.
const MIN_DASHBOARD_SIZE: (u16, u16) = (60, 16);

/// Whether the dashboard can be shown.
pub(crate) fn can_show_dashboard() -> bool {
    can_draw_and_read_keys() && crossterm::terminal::size().is_ok_and(fits_dashboard)
}

/// Why a terminal shows no dashboard although it could draw one; `None` if nothing has to be explained.
pub(crate) fn missing_dashboard_notice() -> Option<String> {
    // Without a terminal, crossterm would run `tput` to find the size.
    let (columns, rows) = if can_draw_and_read_keys() { crossterm::terminal::size().ok()? } else { return None };
    let (min_columns, min_rows) = MIN_DASHBOARD_SIZE;
    (!fits_dashboard((columns, rows))).then(|| {
        format!(
            "no dashboard and no keys: the terminal has {columns}x{rows} characters, the dashboard needs \
             {min_columns}x{min_rows}; Ctrl-C stops the run\n"
        )
    })
}

fn fits_dashboard((columns, rows): (u16, u16)) -> bool {
    columns >= MIN_DASHBOARD_SIZE.0 && rows >= MIN_DASHBOARD_SIZE.1
}

/// The dashboard draws on standard error and reads keys from standard input.
fn can_draw_and_read_keys() -> bool {
    let not_dumb = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    std::io::stderr().is_terminal() && std::io::stdin().is_terminal() && not_dumb
}
