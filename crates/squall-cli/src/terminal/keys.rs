//! Keys as they are pressed, without a screen of our own: for what prints lines and can still be stopped by `q`. Draws nothing.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::{
    io::{self, IsTerminal},
    sync::Mutex,
};

use crate::stop_button::{KeyListener, StopButton};

/// How the terminal was found, while it is changed.
static ORIGINAL_MODE: Mutex<Option<Termios>> = Mutex::new(None);

/// Presses the button when `q` is pressed, until dropped. Signals and line ends work as ever.
pub(crate) struct InlineKeyListener {
    listener: Option<KeyListener>,
}

impl InlineKeyListener {
    /// Listens, if there is somebody to press a key.
    pub(crate) fn listen(button: &StopButton) -> InlineKeyListener {
        let present = io::stdin().is_terminal() && io::stderr().is_terminal();
        let watch = (present && enter_cbreak_mode().is_ok()).then(|| KeyListener::start(button.clone()));
        InlineKeyListener { listener: watch }
    }

    /// Whether keys are heard.
    pub(crate) fn is_listening(&self) -> bool {
        self.listener.is_some()
    }
}

impl Drop for InlineKeyListener {
    fn drop(&mut self) {
        // First nobody reads any more, then lines are lines again.
        drop(self.listener.take());
        restore_line_mode();
    }
}

fn enter_cbreak_mode() -> rustix::io::Result<()> {
    let found = tcgetattr(io::stdin())?;
    let mut changed = found.clone();
    changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    *ORIGINAL_MODE.lock().expect("no holder panics") = Some(found);
    tcsetattr(io::stdin(), OptionalActions::Now, &changed)
}

/// Leaves the terminal as it was found; harmless when it was not changed.
pub(super) fn restore_line_mode() {
    if let Some(found) = ORIGINAL_MODE.lock().expect("no holder panics").take() {
        // The terminal may be gone (a closed window); then nobody misses it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &found);
    }
}
