//! The stop button of a run: Ctrl-C, SIGTERM and the `q` key press it. The first press drains, the
//! second aborts, the third ends the process without a report, in case the abort hangs. Runs
//! nothing itself.

use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{LivePhase, LiveStatus, RunControl, RunObserver};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::{
    exit,
    signals::StopSignal,
    terminal::{self, background_writer::FLUSH_TIMEOUT},
};

/// Counts the presses and passes each on to the run. Clones share the count.
#[derive(Debug, Clone)]
pub(crate) struct StopButton {
    control: RunControl,
    presses: Arc<AtomicU32>,
    exits_on_press: Arc<AtomicBool>,
    terminated: Arc<AtomicBool>,
}

impl StopButton {
    pub(crate) fn new(control: RunControl) -> StopButton {
        StopButton { control, presses: Arc::default(), exits_on_press: Arc::default(), terminated: Arc::default() }
    }

    /// Presses the button because of a signal.
    pub(crate) fn press_by_signal(&self, signal: StopSignal) {
        if signal == StopSignal::Terminate {
            self.terminated.store(true, Ordering::SeqCst);
        }
        self.press();
    }

    /// Whether SIGTERM has pressed the button.
    pub(crate) fn terminated(&self) -> bool {
        self.terminated.load(Ordering::SeqCst)
    }

    /// Makes the next press end the process, because the run is over and only the process can be
    /// stopped.
    pub(crate) fn exit_on_next_press(&self) {
        self.exits_on_press.store(true, Ordering::SeqCst);
    }

    /// Undoes `exit_on_next_press`, because the next press has something else to end.
    pub(crate) fn keep_process_on_next_press(&self) {
        self.exits_on_press.store(false, Ordering::SeqCst);
    }

    /// Requests the next stronger stop and returns the number of presses.
    pub(crate) fn press(&self) -> u32 {
        let presses = self.presses.fetch_add(1, Ordering::SeqCst) + 1;
        match presses {
            1 | 2 if self.exits_on_press.load(Ordering::SeqCst) => end_process(),
            1 => self.control.drain(),
            2 => self.control.abort(),
            _ => end_process(),
        }
        presses
    }

    pub(crate) fn control(&self) -> &RunControl {
        &self.control
    }

    /// How long the last output waits for its reader: without a limit, unless the button was
    /// pressed.
    pub(crate) fn flush_timeout(&self) -> Option<Duration> {
        (self.presses() > 0).then_some(FLUSH_TIMEOUT)
    }

    pub(crate) fn presses(&self) -> u32 {
        self.presses.load(Ordering::SeqCst)
    }
}

fn end_process() -> ! {
    terminal::restore_terminal();
    std::process::exit(i32::from(exit::INTERRUPTED))
}

/// Prints the effect of a press on standard error once the run drains, because only then is the
/// number of requests in flight known.
pub(crate) struct StopNotifier {
    button: StopButton,
    announced_presses: u32,
}

impl StopNotifier {
    pub(crate) fn new(button: StopButton) -> StopNotifier {
        // A search has many runs; presses during earlier ones were announced then.
        let announced_presses = button.presses();
        StopNotifier { button, announced_presses }
    }
}

impl RunObserver for StopNotifier {
    fn on_update(&mut self, _: &Plan, _: &RunView, live: &LiveStatus) {
        let presses = self.button.presses();
        if presses == self.announced_presses || live.phase != LivePhase::Draining {
            return;
        }
        self.announced_presses = presses;
        match presses {
            1 => terminal::print_stderr(format!(
                "draining: {} in flight, press Ctrl-C again to abort\n",
                live.busy_users
            )),
            _ => terminal::print_stderr("aborting\n"),
        }
    }
}
