//! The terminal while the dashboard owns it: alternate screen, raw keys, no cursor. Gives it back when dropped, on a panic and
//! before the process is ended by a third Ctrl-C.

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

/// A terminal that takes nothing any more is not waited for any longer than this.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the terminal is ours at the moment.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over.
pub(crate) struct DashboardScreen {
    pub(crate) terminal: Terminal<CrosstermBackend<BufferedWriterHandle>>,
}

impl DashboardScreen {
    pub(crate) fn enter() -> io::Result<DashboardScreen> {
        restore_on_panic();
        ACTIVE.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(stderr_writer(), EnterAlternateScreen, cursor::Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stderr_writer())));
        match taken {
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

/// Leaves the terminal as it was found; harmless when it is not ours.
pub(crate) fn restore_terminal() {
    super::keys::restore_line_mode();
    if ACTIVE.swap(false, Ordering::SeqCst) {
        // The terminal may be gone (a closed window); then nobody misses it.
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
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            before(panic);
        }));
    });
}
