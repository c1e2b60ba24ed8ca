//! Decides when a worker joins the members that hold shares, releases its shares, or leaves. It
//! performs nothing: the worker does.
//!
//! | need          | Absent | Joined        | Releasing | Ended  |
//! |---------------|--------|---------------|-----------|--------|
//! | Depart        | –      | ReleaseShares | –         | –      |
//! | ReleaseShares | –      | ReleaseShares | –         | Forget |
//! | Leave         | –      | Leave         | Leave     | Forget |
//! | ServeUsers    | Join   | –             | –         | Forget |
//! | Serve         | Join   | –             | Leave     | Forget |
//! | Wait          | –      | –             | Leave     | Forget |
//!
//! `–` does nothing. A membership that releases its shares cannot take any again, so the worker
//! leaves and joins anew.

/// What the worker needs its membership for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipNeed {
    /// The worker leaves the fleet. It stays a member until its users finish, so their leased
    /// resources are not reassigned.
    Depart,
    /// The worker ends its part of the run early, and its users still run: other workers need its
    /// shares, the users their resources.
    ReleaseShares,
    /// The worker cannot carry out the run. Shares that it held would be load that no worker makes.
    Leave,
    /// Users are built.
    ServeUsers,
    /// No users are built, and none have to be before the worker can hold shares.
    Serve,
    /// The worker does not know yet whether a run is on, or builds users for one. Shares that it
    /// took now would make no load.
    Wait,
}

/// The state of the worker's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipState {
    Absent,
    Joined,
    /// The worker gives its shares back, and holds no new ones.
    Releasing,
    /// The membership's task has finished.
    Ended,
}

/// What the worker does with its membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipAction {
    Join,
    ReleaseShares,
    Leave,
    /// Drop a membership that has ended.
    Forget,
}

impl MembershipState {
    #[must_use]
    pub(crate) fn action(self, need: MembershipNeed) -> Option<MembershipAction> {
        use MembershipNeed::{Depart, Leave, ReleaseShares, Serve, ServeUsers, Wait};
        match (self, need) {
            (MembershipState::Absent, ServeUsers | Serve) => Some(MembershipAction::Join),
            (MembershipState::Joined, Depart | ReleaseShares) => Some(MembershipAction::ReleaseShares),
            (MembershipState::Joined, Leave) | (MembershipState::Releasing, Leave | Serve | Wait) => {
                Some(MembershipAction::Leave)
            }
            (MembershipState::Ended, ReleaseShares | Leave | ServeUsers | Serve | Wait) => {
                Some(MembershipAction::Forget)
            }
            (MembershipState::Absent, Depart | ReleaseShares | Leave | Wait)
            | (MembershipState::Joined, ServeUsers | Serve | Wait)
            | (MembershipState::Releasing, Depart | ReleaseShares | ServeUsers)
            | (MembershipState::Ended, Depart) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MembershipState::{Absent, Ended, Joined, Releasing};

    /// The table above, row by row.
    #[test]
    fn every_state_and_need() {
        use MembershipAction::{Forget, Join, Leave, ReleaseShares};
        let rows = [
            (MembershipNeed::Depart, [None, Some(ReleaseShares), None, None]),
            (MembershipNeed::ReleaseShares, [None, Some(ReleaseShares), None, Some(Forget)]),
            (MembershipNeed::Leave, [None, Some(Leave), Some(Leave), Some(Forget)]),
            (MembershipNeed::ServeUsers, [Some(Join), None, None, Some(Forget)]),
            (MembershipNeed::Serve, [Some(Join), None, Some(Leave), Some(Forget)]),
            (MembershipNeed::Wait, [None, None, Some(Leave), Some(Forget)]),
        ];
        for (need, expected) in rows {
            assert_eq!([Absent, Joined, Releasing, Ended].map(|state| state.action(need)), expected, "{need:?}");
        }
    }
}
