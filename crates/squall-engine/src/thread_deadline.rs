//! The time at which an engine thread must have ended, for a driver that watches the thread from
//! outside: the engine cannot stop code that blocks its thread. It does not stop anything itself; the
//! driver interrupts the code, or gives the thread up.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

use crate::{
    engine::{EngineCommand, ThreadMessage},
    load_end::LoadEnd,
};

/// The time that the engine itself may take to abort users after the grace period.
const ABORT_MARGIN: Duration = Duration::from_millis(200);

/// Knows when an engine thread must have ended. Clones are of the same thread.
#[derive(Debug, Clone)]
pub struct ThreadDeadline {
    pub(crate) thread: u32,
    pub(crate) commands: watch::Receiver<EngineCommand>,
    pub(crate) load_end: Arc<LoadEnd>,
    pub(crate) grace: Duration,
    /// Weak, because the engine takes a closed channel for the end of all threads.
    pub(crate) messages: mpsc::WeakUnboundedSender<ThreadMessage>,
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
            EngineCommand::Start(at) => (at, self.grace + self.load_end.duration()),
            EngineCommand::Drain(at) => (at, self.grace),
            EngineCommand::Abort => return true,
        };
        since.elapsed() > allowed + ABORT_MARGIN
    }

    /// Whether the load is over, so that no iteration may begin.
    pub fn load_is_over(&self) -> bool {
        match *self.commands.borrow() {
            EngineCommand::Prepare => false,
            EngineCommand::Start(at) => at.elapsed() >= self.load_end.duration(),
            EngineCommand::Drain(_) | EngineCommand::Abort => true,
        }
    }

    /// Gives the thread up, because its code cannot be interrupted: the engine ends without it.
    /// `blocking_code` names the code for the report. The process must exit without waiting for the
    /// thread.
    pub fn give_up(&self, blocking_code: &str) {
        if let Some(messages) = self.messages.upgrade() {
            // Fails only if the engine was dropped, which then does not wait for the thread either.
            let _ =
                messages.send(ThreadMessage::GivenUp { thread: self.thread, blocking_code: blocking_code.to_owned() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::load_end::LateStarts;

    #[test]
    fn deadline_passes_after_grace_abort_or_drop_of_the_engine() {
        let (commands, receiver) = watch::channel(EngineCommand::Prepare);
        let second = Duration::from_secs(1);
        let load_end = Arc::new(LoadEnd::new(60 * second, LateStarts::default()));
        let messages = mpsc::unbounded_channel().0.downgrade();
        let deadline =
            ThreadDeadline { thread: 0, commands: receiver, load_end: load_end.clone(), grace: 10 * second, messages };
        let ago = |seconds| Instant::now().checked_sub(seconds * second).expect("the machine has been up for a while");
        let check = |command, expected: bool| {
            commands.send_replace(command);
            assert_eq!(deadline.has_passed(), expected, "{command:?}");
            assert!(deadline.load_is_over() || !expected, "{command:?}");
        };
        check(EngineCommand::Prepare, false);
        check(EngineCommand::Start(ago(59)), false);
        assert!(!deadline.load_is_over());
        check(EngineCommand::Start(ago(69)), false);
        assert!(deadline.load_is_over());
        check(EngineCommand::Start(ago(72)), true);
        check(EngineCommand::Drain(ago(1)), false);
        check(EngineCommand::Drain(ago(12)), true);
        check(EngineCommand::Abort, true);
        load_end.set_duration(600 * second);
        check(EngineCommand::Start(ago(72)), false);
        drop(commands);
        assert!(deadline.has_passed());
    }
}
