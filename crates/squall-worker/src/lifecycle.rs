//! Whether a worker serves the fleet or leaves it. It reads no clock: the worker passes the time.
//!
//! | state              | Stopped          | NameTaken          |
//! |--------------------|------------------|--------------------|
//! | Serving            | Leaving(Stopped) | Leaving(NameTaken) |
//! | Leaving(Stopped)   | –                | Leaving(NameTaken) |
//! | Leaving(NameTaken) | –                | –                  |
//!
//! `–` changes nothing. The first reason sets the deadline.

use std::time::{Duration, Instant};

/// How long a leaving worker waits until the store has its last deltas.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a worker serves or leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    Serving,
    /// The worker drains, and leaves at `deadline` at the latest.
    Leaving {
        deadline: Instant,
        reason: LeaveReason,
    },
}

/// Why a worker leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveReason {
    Stopped,
    /// The store did not receive this worker for so long that another instance took its name.
    NameTaken,
}

impl Lifecycle {
    /// The state after the worker has learned at `now` that it must leave.
    #[must_use]
    pub(crate) fn step(self, reason: LeaveReason, now: Instant) -> Lifecycle {
        match (self, reason) {
            (Lifecycle::Serving, reason) => Lifecycle::Leaving { deadline: now + LEAVE_TIMEOUT, reason },
            (Lifecycle::Leaving { deadline, .. }, LeaveReason::NameTaken) => {
                Lifecycle::Leaving { deadline, reason: LeaveReason::NameTaken }
            }
            (leaving @ Lifecycle::Leaving { .. }, LeaveReason::Stopped) => leaving,
        }
    }

    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, Lifecycle::Leaving { .. })
    }

    pub(crate) fn has_lost_its_name(self) -> bool {
        matches!(self, Lifecycle::Leaving { reason: LeaveReason::NameTaken, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LeaveReason::{NameTaken, Stopped};

    /// The table above, row by row.
    #[test]
    fn every_state_and_reason() {
        let now = Instant::now();
        let (later, deadline) = (now + Duration::from_secs(1), now + LEAVE_TIMEOUT);
        let leaving = |reason| Lifecycle::Leaving { deadline, reason };
        assert_eq!(Lifecycle::Serving.step(Stopped, now), leaving(Stopped));
        assert_eq!(Lifecycle::Serving.step(NameTaken, now), leaving(NameTaken));
        assert_eq!(leaving(Stopped).step(Stopped, later), leaving(Stopped));
        assert_eq!(leaving(Stopped).step(NameTaken, later), leaving(NameTaken));
        assert_eq!(leaving(NameTaken).step(Stopped, later), leaving(NameTaken));
        assert_eq!(leaving(NameTaken).step(NameTaken, later), leaving(NameTaken));
    }
}
