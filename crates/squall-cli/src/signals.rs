//! Ctrl-C, SIGTERM and SIGHUP (a terminal or session that was closed): once drains, twice aborts, a third time ends the process at once.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::{exit::CliError, stop_button::StopButton};

/// The signals that ask a run to stop.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// Unless whoever started the process wants it to be ignored (`nohup`).
    hang_up: Option<Signal>,
}

impl StopSignals {
    /// Must be called inside a runtime.
    pub(crate) fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: (!hang_up_is_ignored()).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            Some(()) = async { self.hang_up.as_mut()?.recv().await } => {}
        }
    }
}

fn hang_up_is_ignored() -> bool {
    static IGNORED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // As it was before anybody listened.
    *IGNORED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
    })
}

/// Presses a button at every signal, until dropped.
pub(crate) struct SignalListener {
    _end: oneshot::Sender<()>,
}

/// Presses `button` at every signal from here on. In a thread of its own: a run that waits for something can still be stopped.
pub(crate) fn listen_for_signals(button: &StopButton) -> Result<SignalListener, CliError> {
    let cannot = |error: io::Error| CliError::new(format!("cannot listen for signals: {error}"));
    let BlockingStopSignals { runtime, mut signals } = BlockingStopSignals::listen().map_err(cannot)?;
    let (end, mut ended) = oneshot::channel();
    let button = button.clone();
    let watch = async move {
        loop {
            tokio::select! {
                () = signals.next() => { button.press(); }
                _ = &mut ended => return,
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(watch)).map_err(cannot)?;
    Ok(SignalListener { _end: end })
}

/// The same for a command without a runtime of its own.
pub(crate) struct BlockingStopSignals {
    runtime: tokio::runtime::Runtime,
    signals: StopSignals,
}

impl BlockingStopSignals {
    /// From here on a signal no longer ends the process by itself: listen before anybody can know that it is there.
    pub(crate) fn listen() -> io::Result<BlockingStopSignals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { StopSignals::listen() })?;
        Ok(BlockingStopSignals { runtime, signals })
    }

    /// Blocks until someone asks the process to stop.
    pub(crate) fn wait(mut self) {
        self.runtime.block_on(self.signals.next());
    }
}
