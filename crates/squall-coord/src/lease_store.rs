//! The atomic steps on one space of members and units, and what they answer.
//! Refuses to decide who should hold what: it records, checks and counts. Called by [`crate::Membership`] and by operators' tools.

use std::{collections::BTreeMap, future::Future, time::Duration};

use crate::{Epoch, MemberId, Revision, UnitAssignment, UnitId};

/// A live member as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveMember {
    /// Its name.
    pub id: MemberId,
    /// How long ago it joined, by the store's clock.
    pub age: Duration,
    /// How long it lives without a further beat, by the store's clock.
    pub expires_in: Duration,
    /// Whether it is on its way out and should be given nothing more.
    pub leaving: bool,
}

/// A unit held by a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// What is held.
    pub unit: UnitId,
    /// Which grant it is.
    pub epoch: Epoch,
}

/// The member that holds a unit, and by which grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The holder.
    pub member: MemberId,
    /// The epoch of its grant.
    pub epoch: Epoch,
}

/// Everything in a space at one instant. Members are in the order they joined; expired ones are already gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// Changes so far.
    pub revision: Revision,
    /// Who is alive, oldest first.
    pub members: Vec<LiveMember>,
    /// Who should hold what.
    pub assignment: UnitAssignment,
    /// Who does hold what.
    pub leases: BTreeMap<UnitId, LeaseHolder>,
}

/// What concerns one member at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// Changes so far.
    pub revision: Revision,
    /// How many members there are.
    pub member_count: usize,
    /// How many of those that are not on their way out joined before it; `None`: it is not a member.
    pub older_members: Option<usize>,
    /// What it should hold.
    pub assigned: Vec<UnitId>,
    /// Who holds what is assigned to it, and what else it holds itself.
    pub leases: BTreeMap<UnitId, LeaseHolder>,
}

impl LeaseSnapshot {
    /// What of this concerns `member`.
    #[must_use]
    pub fn for_member(&self, member: &MemberId) -> MemberSnapshot {
        let mut snapshot =
            MemberSnapshot { revision: self.revision, member_count: self.members.len(), ..MemberSnapshot::default() };
        if let Some(index) = self.members.iter().position(|other| other.id == *member) {
            snapshot.older_members = Some(self.members[..index].iter().filter(|other| !other.leaving).count());
            snapshot.assigned = self.assignment.get(member).cloned().unwrap_or_default();
            let concerns =
                |unit: &UnitId, holder: &LeaseHolder| holder.member == *member || snapshot.assigned.contains(unit);
            let leases = self.leases.iter().filter(|(unit, holder)| concerns(unit, holder));
            snapshot.leases = leases.map(|(unit, holder)| (unit.clone(), holder.clone())).collect();
        }
        snapshot
    }
}

/// The answer to a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// Still a member.
    Alive {
        /// To compare with the one last seen.
        revision: Revision,
        /// When the assignment was last changed: all that concerns a member that neither assigns nor waits for anything.
        assignment_revision: Revision,
    },
    /// The membership had expired, and with it everything held.
    Expired,
}

/// The answer to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAcquireOutcome {
    /// One answer per unit asked for, in order: the epoch, or `None` where somebody holds the unit.
    Granted(Vec<Option<Epoch>>),
    /// The asker is not a member (any more).
    NotMember,
    /// An administrator has closed the space for a moment; nothing is granted.
    Paused,
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store did not answer, or is still coming up; whether the step was done is unknown.
    #[error("the coordination store did not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store answered with an error.
    #[error("the coordination store refused a step")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A key is in use for something else.
    #[error(
        "key `{key}` holds a {found}, but Squall keeps a {expected} there: use another `--fleet` (for streams `--namespace`), or remove the key"
    )]
    WrongType {
        /// The key's full name.
        key: String,
        /// The type it should have.
        expected: &'static str,
        /// The type it has.
        found: String,
    },
}

/// One space. Every method is one atomic step, and every step first sweeps: members whose time is over lose their place
/// and their leases before anything else is looked at. Only the store's clock counts.
pub trait LeaseStore: Clone + Send + Sync + 'static {
    /// Becomes a member for `ttl`. Joining twice is the same as joining once.
    fn join(&self, member: &MemberId, ttl: Duration) -> impl Future<Output = Result<Revision, StoreError>> + Send;

    /// Stays a member for another `ttl`.
    fn heartbeat(
        &self,
        member: &MemberId,
        ttl: Duration,
    ) -> impl Future<Output = Result<HeartbeatOutcome, StoreError>> + Send;

    /// Says that the member is on its way out; it stays a member until it leaves or expires. Never taken back.
    fn mark_leaving(&self, member: &MemberId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stops being a member and gives everything back. Leaving twice is the same as leaving once.
    fn leave(&self, member: &MemberId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes expired members and frees what they held; says who they were.
    fn sweep(&self) -> impl Future<Output = Result<Vec<MemberId>, StoreError>> + Send;

    /// Reads everything.
    fn snapshot(&self) -> impl Future<Output = Result<LeaseSnapshot, StoreError>> + Send;

    /// Reads what concerns one member; cheaper than everything where there are many.
    fn member_snapshot(&self, member: &MemberId) -> impl Future<Output = Result<MemberSnapshot, StoreError>> + Send {
        async move { Ok(self.snapshot().await?.for_member(member)) }
    }

    /// Replaces the assignment if nothing has changed since `expected`; says whether it did.
    fn assign(
        &self,
        expected: Revision,
        assignment: &UnitAssignment,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Takes those of `units` that nobody holds.
    fn acquire(
        &self,
        member: &MemberId,
        units: &[UnitId],
    ) -> impl Future<Output = Result<LeaseAcquireOutcome, StoreError>> + Send;

    /// Gives leases back; those that are not the member's any more are left alone. Says how many were given back.
    fn release(&self, member: &MemberId, leases: &[Lease]) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Waits until the revision is above `seen`, or `within` has passed; never blocks other steps.
    fn wait_for_change(&self, seen: Revision, within: Duration) -> impl Future<Output = Result<(), StoreError>> + Send;
}
