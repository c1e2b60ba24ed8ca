//! Stops a run of `squall cql` on signals and when the driver asks for it. The first signal drains,
//! the second aborts, the third ends the process. Runs nothing itself.

use squall_cql::RunEnd;
use squall_orchestrator::RunControl;

use crate::{exit::INTERRUPTED, signals::StopSignals, terminal};

/// The stop signals of all runs of a command.
pub(super) struct StopWatcher {
    signals: StopSignals,
    presses: u32,
}

impl StopWatcher {
    /// Must be called inside a runtime.
    pub(super) fn new(signals: StopSignals) -> StopWatcher {
        StopWatcher { signals, presses: 0 }
    }

    pub(super) fn interrupted(&self) -> bool {
        self.presses > 0
    }

    /// Waits for the first signal, for work that is not a run.
    pub(super) async fn wait(&mut self) {
        self.signals.next().await;
        self.presses += 1;
    }

    /// Stops the run of `control` until the future is dropped.
    pub(super) async fn watch(&mut self, control: &RunControl, end: &RunEnd) -> std::convert::Infallible {
        loop {
            tokio::select! {
                () = self.signals.next() => self.press(control),
                () = end.requested(), if !control.is_stopping() => control.drain(),
            }
        }
    }

    fn press(&mut self, control: &RunControl) {
        self.presses += 1;
        match self.presses {
            1 => {
                terminal::print_stderr("draining: press Ctrl-C again to abort\n");
                control.drain();
            }
            2 => {
                terminal::print_stderr("aborting\n");
                control.abort();
            }
            _ => std::process::exit(i32::from(INTERRUPTED)),
        }
    }
}
