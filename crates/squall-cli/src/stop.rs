//! The stop button: Ctrl-C, SIGTERM and the `q` key press it. Once drains, twice aborts, a third time ends the process without a
//! report, for the case that even aborting hangs.

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use squall_metrics::RunView;
use squall_model::Plan;
use squall_orchestrator::{Control, Live, LivePhase, Observer};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    exit,
    terminal::{self, speech::PATIENCE},
};

/// Counts how often a stop was asked for and tells the run. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct StopButton {
    control: Control,
    presses: Arc<AtomicU32>,
    over: Arc<AtomicBool>,
}

impl StopButton {
    pub(crate) fn new(control: Control) -> StopButton {
        StopButton { control, presses: Arc::default(), over: Arc::default() }
    }

    /// Nothing is left to stop but the process: from here on it ends at the next press, wherever it hangs.
    pub(crate) fn over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// There is something again that the next press ends, and not the process.
    pub(crate) fn not_over(&self) {
        self.over.store(false, Ordering::SeqCst);
    }

    /// Asks for the next stronger stop; gives how often that has been done.
    pub(crate) fn press(&self) -> u32 {
        let presses = self.presses.fetch_add(1, Ordering::SeqCst) + 1;
        match presses {
            1 | 2 if self.over.load(Ordering::SeqCst) => end_process(),
            1 => self.control.drain(),
            2 => self.control.abort(),
            _ => end_process(),
        }
        presses
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// How long the reader of what is left to say is waited for: as long as it takes, but not by somebody who wants to go.
    pub(crate) fn patience(&self) -> Option<Duration> {
        (self.presses() > 0).then_some(PATIENCE)
    }

    pub(crate) fn presses(&self) -> u32 {
        self.presses.load(Ordering::SeqCst)
    }
}

fn end_process() -> ! {
    terminal::give_back();
    std::process::exit(i32::from(exit::INTERRUPTED))
}

/// Says on standard error what a press has led to, once the run has noticed it: only then is it known what is in flight.
pub(crate) struct Announcer {
    button: StopButton,
    said: u32,
}

impl Announcer {
    pub(crate) fn new(button: StopButton) -> Announcer {
        // A search presses on with the next run; what was said before is not said again.
        let said = button.presses();
        Announcer { button, said }
    }
}

impl Observer for Announcer {
    fn second(&mut self, _: &Plan, _: &RunView, live: &Live) {
        let presses = self.button.presses();
        if presses == self.said || live.phase != LivePhase::Draining {
            return;
        }
        self.said = presses;
        match presses {
            1 => terminal::say(format!("draining: {} in flight, press Ctrl-C again to abort\n", live.in_flight)),
            _ => terminal::say("aborting\n"),
        }
    }
}

/// How often the key thread looks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// Presses the button when a key asks for it, until dropped.
pub(crate) struct KeyWatch {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeyWatch {
    pub(crate) fn start(button: StopButton) -> KeyWatch {
        let ending = Arc::new(AtomicBool::new(false));
        let ended = ending.clone();
        let watch = move || {
            // A terminal that gives no events any more (closed) is left alone; signals still work.
            while let (false, Ok(ready)) = (ended.load(Ordering::SeqCst), event::poll(POLL)) {
                if ready && event::read().is_ok_and(|event| asks_to_stop(&event)) {
                    button.press();
                }
            }
        };
        KeyWatch { ending, thread: Some(std::thread::spawn(watch)) }
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn asks_to_stop(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (control_c || matches!(key.code, KeyCode::Char('q' | 'Q')))
}
