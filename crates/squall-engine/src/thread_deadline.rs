//! When everything of a run must be over, for whoever watches an engine thread from outside: code that does not give its thread back cannot
//! be told by the engine. Ends nothing itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::EngineCommand;

/// What the engine itself may take to end everything when the grace is over.
const ABORT_MARGIN: Duration = Duration::from_secs(1);

/// Knows when what is under way on an engine's threads must have ended. Cloning shares it.
#[derive(Debug, Clone)]
pub struct ThreadDeadline {
    pub(crate) commands: watch::Receiver<EngineCommand>,
    /// How long the load lasts, as far as is known now.
    pub(crate) load_duration: Arc<Mutex<Duration>>,
    pub(crate) grace: Duration,
}

impl ThreadDeadline {
    /// Whether it has: the run was aborted or given up, or the grace was over a while ago.
    pub fn has_passed(&self) -> bool {
        if self.commands.has_changed().is_err() {
            // Nobody holds the engine any more.
            return true;
        }
        let (since, left) = match *self.commands.borrow() {
            EngineCommand::Prepare => return false,
            EngineCommand::Start(at) => {
                (at, self.grace + *self.load_duration.lock().unwrap_or_else(PoisonError::into_inner))
            }
            EngineCommand::Drain(at) => (at, self.grace),
            EngineCommand::Abort => return true,
        };
        since.elapsed() > left + ABORT_MARGIN
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_passes_when_the_grace_is_over_or_nobody_wants_the_run() {
        let (orders, receiver) = watch::channel(EngineCommand::Prepare);
        let second = Duration::from_secs(1);
        let load = Arc::new(Mutex::new(60 * second));
        let curfew = ThreadDeadline { commands: receiver, load_duration: load.clone(), grace: 10 * second };
        let ago = |seconds| Instant::now().checked_sub(seconds * second).expect("the machine has been up for a while");
        let check = |order, expected| {
            orders.send_replace(order);
            assert_eq!(curfew.has_passed(), expected, "{order:?}");
        };
        check(EngineCommand::Prepare, false);
        check(EngineCommand::Start(ago(69)), false);
        check(EngineCommand::Start(ago(72)), true);
        check(EngineCommand::Drain(ago(1)), false);
        check(EngineCommand::Drain(ago(12)), true);
        check(EngineCommand::Abort, true);
        *load.lock().expect("nobody panicked") = 600 * second;
        check(EngineCommand::Start(ago(72)), false);
        drop(orders);
        assert!(curfew.has_passed());
    }
}
