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

use super::speech::{self, Spoken};

/// A terminal that takes nothing any more is not waited for any longer than this.
const LAST_DRAWING: Duration = Duration::from_secs(1);

/// Whether the terminal is ours at the moment.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken over.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Spoken>>,
}

impl Screen {
    pub(crate) fn take() -> io::Result<Screen> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = enable_raw_mode()
            .and_then(|()| execute!(drawing(), EnterAlternateScreen, cursor::Hide))
            .and_then(|()| Terminal::new(CrosstermBackend::new(drawing())));
        match taken {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Leaves the terminal as it was found; harmless when it is not ours.
pub(crate) fn give_back() {
    super::keys::give_back();
    if TAKEN.swap(false, Ordering::SeqCst) {
        // The terminal may be gone (a closed window); then nobody misses it.
        let _ = execute!(drawing(), LeaveAlternateScreen, cursor::Show);
        let _ = speech::stderr().settle(Some(LAST_DRAWING));
        let _ = disable_raw_mode();
    }
}

fn drawing() -> Spoken {
    speech::stderr().writer()
}

fn give_back_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
    });
}
