//! The time at which an engine thread must have ended, for a driver that watches the thread from
//! outside: the engine cannot stop code that blocks its thread. It does not stop anything itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::EngineCommand;

/// The time that the engine itself may take to abort users after the grace period.
const ABORT_MARGIN: Duration = Duration::from_secs(1);

/// Knows when an engine's threads must have ended. Clones share it.
#[derive(Debug, Clone)]
pub struct ThreadDeadline {
    pub(crate) commands: watch::Receiver<EngineCommand>,
    /// How long the load lasts, by the latest assignment.
    pub(crate) load_duration: Arc<Mutex<Duration>>,
    pub(crate) grace: Duration,
}

impl ThreadDeadline {
    /// Whether the deadline has passed: the run was aborted or dropped, or the grace period is
    /// over.
    pub fn has_passed(&self) -> bool {
        if self.commands.has_changed().is_err() {
            // The engine was dropped.
            return true;
        }
        let (since, allowed) = match *self.commands.borrow() {
            EngineCommand::Prepare => return false,
            EngineCommand::Start(at) => {
                (at, self.grace + *self.load_duration.lock().unwrap_or_else(PoisonError::into_inner))
            }
            EngineCommand::Drain(at) => (at, self.grace),
            EngineCommand::Abort => return true,
        };
        since.elapsed() > allowed + ABORT_MARGIN
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn deadline_passes_after_grace_abort_or_drop_of_the_engine() {
        let (commands, receiver) = watch::channel(EngineCommand::Prepare);
        let second = Duration::from_secs(1);
        let load = Arc::new(Mutex::new(60 * second));
        let deadline = ThreadDeadline { commands: receiver, load_duration: load.clone(), grace: 10 * second };
        let ago = |seconds| Instant::now().checked_sub(seconds * second).expect("the machine has been up for a while");
        let check = |command, expected| {
            commands.send_replace(command);
            assert_eq!(deadline.has_passed(), expected, "{command:?}");
        };
        check(EngineCommand::Prepare, false);
        check(EngineCommand::Start(ago(69)), false);
        check(EngineCommand::Start(ago(72)), true);
        check(EngineCommand::Drain(ago(1)), false);
        check(EngineCommand::Drain(ago(12)), true);
        check(EngineCommand::Abort, true);
        *load.lock().expect("no thread panicked") = 600 * second;
        check(EngineCommand::Start(ago(72)), false);
        drop(commands);
        assert!(deadline.has_passed());
    }
}
