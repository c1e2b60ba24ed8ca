//! The terminal while the dashboard uses it: alternate screen, raw keys, no cursor. Restores it
//! when dropped, on a panic and before the third press of the stop button ends the process. Draws
//! nothing.

use crossterm::{
    cursor, execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, backend::CrosstermBackend};
use std::{
    io,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::background_writer::{self, BufferedWriterHandle};

/// How long the restore waits for a terminal that does not respond.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the dashboard uses the terminal.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The terminal in the mode of the dashboard.
pub(crate) struct DashboardScreen {
    pub(crate) terminal: Terminal<CrosstermBackend<BufferedWriterHandle>>,
}

impl DashboardScreen {
    pub(crate) fn enter() -> io::Result<DashboardScreen> {
        restore_on_panic();
        ACTIVE.store(true, Ordering::SeqCst);
        let entered = enable_raw_mode()
            .and_then(|()| execute!(stderr_writer(), EnterAlternateScreen, cursor::Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr_writer())));
        match entered {
            Ok(terminal) => Ok(DashboardScreen { terminal }),
            Err(error) => {
                restore_terminal();
                Err(error)
            }
        }
    }
}

impl Drop for DashboardScreen {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Restores the terminal, if the dashboard uses it.
pub(crate) fn restore_terminal() {
    super::keys::restore_line_mode();
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // Fails if the terminal has been closed.
        let _ = execute!(stderr_writer(), LeaveAlternateScreen, cursor::Show);
        let _ = background_writer::stderr().flush(Some(RESTORE_TIMEOUT));
        let _ = disable_raw_mode();
    }
}

fn stderr_writer() -> BufferedWriterHandle {
    background_writer::stderr().writer()
}

fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            previous_hook(panic);
        }));
    });
}
