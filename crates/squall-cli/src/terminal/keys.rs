//! Keys as they are pressed, without a screen of our own: for what prints lines and can still be stopped by `q`. Draws nothing.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::{
    io::{self, IsTerminal},
    sync::Mutex,
};

use crate::stop::{KeyWatch, StopButton};

/// How the terminal was found, while it is changed.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);

/// Presses the button when `q` is pressed, until dropped. Signals and line ends work as ever.
pub(crate) struct Keys {
    watch: Option<KeyWatch>,
}

impl Keys {
    /// Listens, if there is somebody to press a key.
    pub(crate) fn listen(button: &StopButton) -> Keys {
        let present = io::stdin().is_terminal() && io::stderr().is_terminal();
        let watch = (present && one_by_one().is_ok()).then(|| KeyWatch::start(button.clone()));
        Keys { watch }
    }

    /// Whether keys are heard.
    pub(crate) fn heard(&self) -> bool {
        self.watch.is_some()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // First nobody reads any more, then lines are lines again.
        drop(self.watch.take());
        give_back();
    }
}

fn one_by_one() -> rustix::io::Result<()> {
    let found = tcgetattr(io::stdin())?;
    let mut changed = found.clone();
    changed.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    *FOUND.lock().expect("no holder panics") = Some(found);
    tcsetattr(io::stdin(), OptionalActions::Now, &changed)
}

/// Leaves the terminal as it was found; harmless when it was not changed.
pub(super) fn give_back() {
    if let Some(found) = FOUND.lock().expect("no holder panics").take() {
        // The terminal may be gone (a closed window); then nobody misses it.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &found);
    }
}
