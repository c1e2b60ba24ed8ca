//! The operations of a lease store and their outcomes: members join it, and hold leases on units.
//! The store does not decide which member should hold a unit; it records, checks and counts.
//! [`crate::Membership`] calls it, and so do the admin commands of squall-streams.

use std::{collections::BTreeMap, future::Future, time::Duration};

use crate::{LeaseEpoch, MemberId, Revision, UnitAssignment, UnitId};

/// A live member as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveMember {
    /// Its name.
    pub id: MemberId,
    /// How long ago it joined, by the store's clock.
    pub age: Duration,
    /// Time until it expires without another heartbeat, by the store's clock.
    pub expires_in: Duration,
    /// Whether it is leaving; a leaving member gets no more units.
    pub leaving: bool,
}

/// A unit held by a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease {
    /// The held unit.
    pub unit: UnitId,
    /// The epoch of its grant.
    pub epoch: LeaseEpoch,
}

/// The member that holds a unit, and by which grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHolder {
    /// The holder.
    pub member: MemberId,
    /// The epoch of its grant.
    pub epoch: LeaseEpoch,
}

/// The whole store at one instant. Members are in join order, without expired ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSnapshot {
    /// Changes so far.
    pub revision: Revision,
    /// Live members, oldest first.
    pub members: Vec<LiveMember>,
    /// The units that each member should hold.
    pub assignment: UnitAssignment,
    /// The member that holds each unit.
    pub leases: BTreeMap<UnitId, LeaseHolder>,
}

/// The part of a [`LeaseSnapshot`] that concerns one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberSnapshot {
    /// Changes so far.
    pub revision: Revision,
    /// Number of members.
    pub member_count: usize,
    /// How many members joined earlier and are not leaving. `None` means that it is not a member.
    pub older_members: Option<usize>,
    /// The units that it should hold.
    pub assigned: Vec<UnitId>,
    /// Holders of the units assigned to it, and the other units that it holds.
    pub leases: BTreeMap<UnitId, LeaseHolder>,
}

impl LeaseSnapshot {
    /// The part that concerns `member`.
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

/// The outcome of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// Still a member.
    Alive {
        /// The revision of the store. The member compares it with the last one it has seen.
        revision: Revision,
        /// The revision of the last assignment. Only this concerns a member that neither makes
        /// assignments nor waits for units.
        assignment_revision: Revision,
    },
    /// The membership has expired, and its leases with it.
    Expired,
}

/// The outcome of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseAcquireOutcome {
    /// One entry per requested unit, in order: the epoch of the grant, or `None` if another member
    /// holds the unit.
    Granted(Vec<Option<LeaseEpoch>>),
    /// The caller is not a member.
    NotMember,
    /// An administrator has paused grants.
    GrantsPaused,
}

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store did not respond, or is still starting. The operation may or may not have been
    /// performed.
    #[error("the coordination store did not answer")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store responded with an error.
    #[error("the coordination store rejected an operation")]
    Rejected(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A key holds data of another kind.
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

/// Members and their leases. Every method except [`LeaseStore::wait_for_change`] is atomic, and
/// before anything else it sweeps: it removes expired members and their leases. Only the store's
/// clock decides what has expired.
pub trait LeaseStore: Clone + Send + Sync + 'static {
    /// Becomes a member for `ttl`. A second join only renews the first.
    fn join(&self, member: &MemberId, ttl: Duration) -> impl Future<Output = Result<Revision, StoreError>> + Send;

    /// Stays a member for another `ttl`.
    fn heartbeat(
        &self,
        member: &MemberId,
        ttl: Duration,
    ) -> impl Future<Output = Result<HeartbeatOutcome, StoreError>> + Send;

    /// Marks the member as leaving. It stays a member until it leaves or expires. The mark cannot
    /// be removed.
    fn mark_leaving(&self, member: &MemberId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Ends the membership and releases its leases. A second leave changes nothing.
    fn leave(&self, member: &MemberId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Removes expired members and their leases, and returns the removed members.
    fn sweep(&self) -> impl Future<Output = Result<Vec<MemberId>, StoreError>> + Send;

    /// Reads the whole store.
    fn snapshot(&self) -> impl Future<Output = Result<LeaseSnapshot, StoreError>> + Send;

    /// Reads the part that concerns one member, which is cheaper than a full snapshot of many
    /// members.
    fn member_snapshot(&self, member: &MemberId) -> impl Future<Output = Result<MemberSnapshot, StoreError>> + Send {
        async move { Ok(self.snapshot().await?.for_member(member)) }
    }

    /// Replaces the assignment if the revision is still `expected`, and returns whether it did.
    fn assign(
        &self,
        expected: Revision,
        assignment: &UnitAssignment,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Acquires those of `units` that are free.
    fn acquire(
        &self,
        member: &MemberId,
        units: &[UnitId],
    ) -> impl Future<Output = Result<LeaseAcquireOutcome, StoreError>> + Send;

    /// Releases leases and returns how many. Leases that are not the member's stay untouched.
    fn release(&self, member: &MemberId, leases: &[Lease]) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Waits until the revision is above `seen`, or for `within` at most. It never blocks other
    /// operations.
    fn wait_for_change(&self, seen: Revision, within: Duration) -> impl Future<Output = Result<(), StoreError>> + Send;
}
