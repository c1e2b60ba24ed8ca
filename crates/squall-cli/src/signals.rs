//! The stop signals: Ctrl-C (SIGINT), SIGTERM and SIGHUP (a closed terminal or session). Decides
//! nothing: each signal presses the stop button, or ends the wait of a serving command.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::{exit::CliError, stop_button::StopButton};

/// The signals that ask the process to stop.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if the process was started to ignore it (`nohup`).
    hang_up: Option<Signal>,
}

/// Which signal arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopSignal {
    /// SIGTERM, by which another program ends this one.
    Terminate,
    Other,
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

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        self.next_signal().await;
    }

    async fn next_signal(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Other,
            _ = self.terminate.recv() => StopSignal::Terminate,
            Some(()) = async { self.hang_up.as_mut()?.recv().await } => StopSignal::Other,
        }
    }
}

fn hang_up_is_ignored() -> bool {
    static IGNORED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // Read once, before `signal` changes it.
    *IGNORED.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
    })
}

/// Presses a stop button at every signal, until dropped.
pub(crate) struct SignalListener {
    _end: oneshot::Sender<()>,
}

/// Starts to press `button` at every signal. Listens on a thread of its own, so that a blocked run
/// can still be stopped.
pub(crate) fn listen_for_signals(button: &StopButton) -> Result<SignalListener, CliError> {
    let listen_error = |error: io::Error| CliError::new(format!("cannot listen for signals: {error}"));
    let BlockingStopSignals { runtime, mut signals } = BlockingStopSignals::listen().map_err(listen_error)?;
    let (end, mut ended) = oneshot::channel();
    let button = button.clone();
    let listen = async move {
        loop {
            tokio::select! {
                signal = signals.next_signal() => { button.press_by_signal(signal); }
                _ = &mut ended => return,
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || runtime.block_on(listen))
        .map_err(listen_error)?;
    Ok(SignalListener { _end: end })
}

/// The stop signals for a command without a runtime.
pub(crate) struct BlockingStopSignals {
    runtime: tokio::runtime::Runtime,
    signals: StopSignals,
}

impl BlockingStopSignals {
    /// After this call, a signal does not end the process by itself. Call it before the process
    /// prints its address, so that a signal sent in response is not lost.
    pub(crate) fn listen() -> io::Result<BlockingStopSignals> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { StopSignals::listen() })?;
        Ok(BlockingStopSignals { runtime, signals })
    }

    /// Blocks until a signal arrives.
    pub(crate) fn wait(mut self) {
        self.runtime.block_on(self.signals.next());
    }
}
