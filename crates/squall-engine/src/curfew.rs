//! When everything of a run must be over, for whoever watches an engine thread from outside: code that does not give its thread back cannot
//! be told by the engine. Ends nothing itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::engine::Order;

/// What the engine itself may take to end everything when the grace is over.
const MARGIN: Duration = Duration::from_secs(1);

/// Knows when what is under way on an engine's threads must have ended. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Curfew {
    pub(crate) orders: watch::Receiver<Order>,
    /// How long the load lasts, as far as is known now.
    pub(crate) load: Arc<Mutex<Duration>>,
    pub(crate) grace: Duration,
}

impl Curfew {
    /// Whether it has: the run was aborted or given up, or the grace was over a while ago.
    pub fn has_passed(&self) -> bool {
        if self.orders.has_changed().is_err() {
            // Nobody holds the engine any more.
            return true;
        }
        let (since, left) = match *self.orders.borrow() {
            Order::Prepare => return false,
            Order::Start(at) => (at, self.grace + *self.load.lock().unwrap_or_else(PoisonError::into_inner)),
            Order::Drain(at) => (at, self.grace),
            Order::Abort => return true,
        };
        since.elapsed() > left + MARGIN
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_passes_when_the_grace_is_over_or_nobody_wants_the_run() {
        let (orders, receiver) = watch::channel(Order::Prepare);
        let second = Duration::from_secs(1);
        let load = Arc::new(Mutex::new(60 * second));
        let curfew = Curfew { orders: receiver, load: load.clone(), grace: 10 * second };
        let ago = |seconds| Instant::now().checked_sub(seconds * second).expect("the machine has been up for a while");
        let check = |order, expected| {
            orders.send_replace(order);
            assert_eq!(curfew.has_passed(), expected, "{order:?}");
        };
        check(Order::Prepare, false);
        check(Order::Start(ago(69)), false);
        check(Order::Start(ago(72)), true);
        check(Order::Drain(ago(1)), false);
        check(Order::Drain(ago(12)), true);
        check(Order::Abort, true);
        *load.lock().expect("nobody panicked") = 600 * second;
        check(Order::Start(ago(72)), false);
        drop(orders);
        assert!(curfew.has_passed());
    }
}
