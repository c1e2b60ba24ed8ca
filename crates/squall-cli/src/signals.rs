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

/// Blocks until someone asks the process to stop.
pub(crate) fn wait_for_one() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        StopSignals::listen()?.next().await;
        Ok(())
    })
}
