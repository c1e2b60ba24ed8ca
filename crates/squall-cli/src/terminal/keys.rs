//! Reads the `q` key for commands that print lines and have no dashboard. Draws nothing. `find_max`
//! calls it.

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::{
    io::{self, IsTerminal},
    sync::Mutex,
};

use super::key_listener::KeyListener;
use crate::stop_button::StopButton;

/// The terminal mode to restore, while it is changed.
static ORIGINAL_MODE: Mutex<Option<Termios>> = Mutex::new(None);

/// Presses the button at `q`, until dropped. Signals and line ends work as usual.
pub(crate) struct InlineKeyListener {
    listener: Option<KeyListener>,
}

impl InlineKeyListener {
    /// Listens, if standard input and standard error are terminals.
    pub(crate) fn listen(button: &StopButton) -> InlineKeyListener {
        let interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
        let button = button.clone();
        let on_event = move |event: &Event| {
            if asks_to_stop(event) {
                button.press();
            }
        };
        let listener = (interactive && enter_cbreak_mode().is_ok()).then(|| KeyListener::start(on_event));
        InlineKeyListener { listener }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listener.is_some()
    }
}

impl Drop for InlineKeyListener {
    fn drop(&mut self) {
        // The listener ends before the mode is restored.
        drop(self.listener.take());
        restore_line_mode();
    }
}

fn asks_to_stop(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q' | 'Q')))
}

fn enter_cbreak_mode() -> rustix::io::Result<()> {
    let original = tcgetattr(io::stdin())?;
    let mut changed = original.clone();
    changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    *ORIGINAL_MODE.lock().expect("no holder panics") = Some(original);
    tcsetattr(io::stdin(), OptionalActions::Now, &changed)
}

/// Restores the terminal mode, if it was changed.
pub(super) fn restore_line_mode() {
    if let Some(original) = ORIGINAL_MODE.lock().expect("no holder panics").take() {
        // Fails if the terminal has been closed.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &original);
    }
}
