//! Ctrl-C and SIGTERM: once drains, twice aborts, a third time ends the process at once.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a run to stop.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Must be called inside a runtime.
    pub(crate) fn listen() -> io::Result<StopSignals> {
        Ok(StopSignals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next of them.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The same for a command without a runtime of its own.
pub(crate) struct BlockingStop {
    runtime: tokio::runtime::Runtime,
    signals: StopSignals,
}

impl BlockingStop {
    /// From here on a signal no longer ends the process by itself: listen before anybody can know that it is there.
    pub(crate) fn listen() -> io::Result<BlockingStop> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { StopSignals::listen() })?;
        Ok(BlockingStop { runtime, signals })
    }

    /// Blocks until someone asks the process to stop.
    pub(crate) fn wait(mut self) {
        self.runtime.block_on(self.signals.next());
    }
}
