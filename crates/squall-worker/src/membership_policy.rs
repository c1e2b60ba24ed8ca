//! Decides when a worker joins the members that hold shares, releases its shares, or ends its
//! membership. It
//! performs nothing: the worker does.
//!
//! | need          | Absent | Joined        | Releasing | Ended  |
//! |---------------|--------|---------------|-----------|--------|
//! | LeaveFleet    | –      | ReleaseShares | –         | –      |
//! | KeepResources | –      | ReleaseShares | –         | Forget |
//! | EndMembership | –      | End           | End       | Forget |
//! | ServeUsers    | Join   | –             | –         | Forget |
//! | Serve         | Join   | –             | End       | Forget |
//! | Wait          | –      | –             | End       | Forget |
//!
//! `–` does nothing. A membership that releases its shares cannot take any again, so the worker
//! ends it and joins anew.

/// What the worker needs its membership for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MembershipNeed {
    /// The worker leaves the fleet. It stays a member until its users finish, so their leased
    /// resources are not reassigned.
    LeaveFleet,
    /// The worker ends its part of the run early, and its users still run: other workers need its
    /// shares, the users their resources.
    KeepResources,
    /// The worker cannot carry out the run. Shares that it held would be load that no worker makes.
    EndMembership,
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
    End,
    /// Drop a membership that has ended.
    Forget,
}

impl MembershipState {
    #[must_use]
    pub(crate) fn action(self, need: MembershipNeed) -> Option<MembershipAction> {
        use MembershipNeed::{EndMembership, KeepResources, LeaveFleet, Serve, ServeUsers, Wait};
        match (self, need) {
            (MembershipState::Absent, ServeUsers | Serve) => Some(MembershipAction::Join),
            (MembershipState::Joined, LeaveFleet | KeepResources) => Some(MembershipAction::ReleaseShares),
            (MembershipState::Joined, EndMembership) | (MembershipState::Releasing, EndMembership | Serve | Wait) => {
                Some(MembershipAction::End)
            }
            (MembershipState::Ended, KeepResources | EndMembership | ServeUsers | Serve | Wait) => {
                Some(MembershipAction::Forget)
            }
            (MembershipState::Absent, LeaveFleet | KeepResources | EndMembership | Wait)
            | (MembershipState::Joined, ServeUsers | Serve | Wait)
            | (MembershipState::Releasing, LeaveFleet | KeepResources | ServeUsers)
            | (MembershipState::Ended, LeaveFleet) => None,
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
        use MembershipAction::{End, Forget, Join, ReleaseShares};
        let rows = [
            (MembershipNeed::LeaveFleet, [None, Some(ReleaseShares), None, None]),
            (MembershipNeed::KeepResources, [None, Some(ReleaseShares), None, Some(Forget)]),
            (MembershipNeed::EndMembership, [None, Some(End), Some(End), Some(Forget)]),
            (MembershipNeed::ServeUsers, [Some(Join), None, None, Some(Forget)]),
            (MembershipNeed::Serve, [Some(Join), None, Some(End), Some(Forget)]),
            (MembershipNeed::Wait, [None, None, Some(End), Some(Forget)]),
        ];
        for (need, expected) in rows {
            assert_eq!([Absent, Joined, Releasing, Ended].map(|state| state.action(need)), expected, "{need:?}");
        }
    }
}
