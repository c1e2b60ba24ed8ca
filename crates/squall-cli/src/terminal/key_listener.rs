//! Reads keys on a thread of its own, so that they work while the run is busy. Decides nothing: the
//! caller's function handles each event. The dashboard and `InlineKeyListener` start it.

use crossterm::event::{self, Event};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often the key thread checks whether to end.
const KEY_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How long the end of the listener waits for its thread.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Passes the terminal's events on, until dropped.
pub(super) struct KeyListener {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeyListener {
    pub(super) fn start(on_event: impl Fn(&Event) + Send + 'static) -> KeyListener {
        let ending = Arc::new(AtomicBool::new(false));
        let ended = ending.clone();
        let listen = move || {
            // Ends when the terminal is closed; signals still work.
            while !ended.load(Ordering::SeqCst) && wait_for_keys() {
                while let Ok(true) = event::poll(Duration::ZERO) {
                    let Ok(event) = event::read() else { return };
                    on_event(&event);
                }
            }
        };
        KeyListener { ending, thread: Some(std::thread::spawn(listen)) }
    }
}

impl Drop for KeyListener {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return };
        let begin = Instant::now();
        // crossterm does not return if the terminal is closed while it reads a key. The process must
        // end nevertheless.
        while !thread.is_finished() && begin.elapsed() < END_TIMEOUT {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Waits for a key, at most [`KEY_POLL_INTERVAL`]. Returns `false` if the terminal is closed: crossterm
/// would try to read from it for ever.
fn wait_for_keys() -> bool {
    let stdin = std::io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut terminal, Some(&KEY_POLL_INTERVAL)) {
        Ok(_) => !terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
        Err(error) => error == Errno::INTR,
    }
}
