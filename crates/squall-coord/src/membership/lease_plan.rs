//! Decides from a snapshot what one member does: assign, acquire, request back, drop, release.
//! It performs nothing; [`super::Membership`] does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{Lease, LeaseEpoch, LeaseHolder, LeaseSnapshot, MemberId, MemberSnapshot, UnitAssignment, UnitId, spread};

/// How many members make assignments: the oldest ones that may hold units. One would be enough.
/// With three, a stalled one delays nothing, and a large fleet does not send writes of which only
/// the first can succeed.
const ASSIGNERS: usize = 3;

/// How many of the oldest members of a large group read every change, so that a member can assign
/// when all assigners die at once.
const STANDBY_ASSIGNERS: usize = 10;

/// A lease that this member believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    pub(super) epoch: LeaseEpoch,
    /// The lease's user has received the request to give it back.
    pub(super) return_requested: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeasePlan {
    /// The new assignment, if the current one is outdated. Nothing is acquired until it is stored.
    pub(super) new_assignment: Option<UnitAssignment>,
    /// Assigned to this member and free.
    pub(super) acquire: Vec<UnitId>,
    /// Held, but assigned to another member.
    pub(super) request_return: Vec<Lease>,
    /// Held in this member's belief only, not in the store.
    pub(super) drop: Vec<Lease>,
    /// Held in the store only: the reply to the acquire was lost, or this member has dropped the
    /// lease.
    pub(super) orphaned: Vec<Lease>,
    /// Time until the next member becomes eligible for units.
    pub(super) refresh_after: Option<Duration>,
}

/// The plan of a member that may make assignments. `None` means that it is not a member.
pub(super) fn plan_from_snapshot(
    snapshot: &LeaseSnapshot,
    me: &MemberId,
    units: &[UnitId],
    join_delay: Duration,
    held: &BTreeMap<UnitId, HeldLease>,
) -> Option<LeasePlan> {
    snapshot.assignment.get(me)?;
    let mut plan = LeasePlan::default();
    let mut eligible = Vec::new();
    for member in snapshot.members.iter().filter(|member| !member.leaving) {
        if member.age >= join_delay || snapshot.assignment.get(&member.id).is_some_and(|units| !units.is_empty()) {
            eligible.push(member.id.clone());
        } else {
            let remaining = join_delay - member.age;
            plan.refresh_after = Some(plan.refresh_after.map_or(remaining, |earliest| earliest.min(remaining)));
        }
    }
    if eligible.iter().take(ASSIGNERS).any(|assigner| assigner == me) {
        let target = spread(units, &eligible, &snapshot.assignment);
        if !same_assignment(&target, &snapshot.assignment) {
            plan.new_assignment = Some(target);
        }
    }
    plan_own_leases(&snapshot.for_member(me), me, held, &mut plan);
    Some(plan)
}

/// The plan of a member that makes no assignments. `None` means that it is not a member.
pub(super) fn plan_from_member_snapshot(
    snapshot: &MemberSnapshot,
    me: &MemberId,
    held: &BTreeMap<UnitId, HeldLease>,
) -> Option<LeasePlan> {
    snapshot.older_members?;
    let mut plan = LeasePlan::default();
    plan_own_leases(snapshot, me, held, &mut plan);
    Some(plan)
}

/// Whether a member with that many older members may have to make assignments.
pub(super) fn may_assign(older_members: Option<usize>) -> bool {
    older_members.is_none_or(|older_members| older_members < ASSIGNERS)
}

/// Whether a member with that many older members must be ready to make assignments.
pub(super) fn is_standby_assigner(older_members: Option<usize>) -> bool {
    older_members.is_none_or(|older_members| older_members < STANDBY_ASSIGNERS)
}

fn plan_own_leases(snapshot: &MemberSnapshot, me: &MemberId, held: &BTreeMap<UnitId, HeldLease>, plan: &mut LeasePlan) {
    let assigned: BTreeSet<&UnitId> = snapshot.assigned.iter().collect();
    for (unit, HeldLease { epoch, return_requested }) in held {
        let lease = Lease { unit: unit.clone(), epoch: *epoch };
        if snapshot.leases.get(unit) != Some(&LeaseHolder { member: me.clone(), epoch: *epoch }) {
            plan.drop.push(lease);
        } else if !return_requested && !assigned.contains(unit) {
            plan.request_return.push(lease);
        }
    }
    for (unit, LeaseHolder { member, epoch }) in &snapshot.leases {
        if member == me && held.get(unit).is_none_or(|held| held.epoch != *epoch) {
            plan.orphaned.push(Lease { unit: unit.clone(), epoch: *epoch });
        }
    }
    plan.acquire = assigned
        .into_iter()
        .filter(|unit| !snapshot.leases.contains_key(unit) && !held.contains_key(unit))
        .cloned()
        .collect();
}

/// Whether two assignments are equal, apart from members without units.
fn same_assignment(a: &UnitAssignment, b: &UnitAssignment) -> bool {
    let holding = |assignment: &UnitAssignment| -> BTreeSet<(MemberId, UnitId)> {
        assignment.iter().flat_map(|(member, units)| units.iter().map(|unit| (member.clone(), unit.clone()))).collect()
    };
    holding(a) == holding(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LiveMember, Revision};

    const JOIN_DELAY: Duration = Duration::from_millis(100);

    fn units(names: &[&str]) -> Vec<UnitId> {
        names.iter().map(|name| UnitId::new(*name)).collect()
    }

    /// Members with their assigned units; all are older than the join delay.
    fn snapshot(members: &[(&str, &[&str])], leases: &[(&str, &str, u64)]) -> LeaseSnapshot {
        LeaseSnapshot {
            revision: Revision(1),
            members: members
                .iter()
                .map(|(id, _)| LiveMember {
                    id: MemberId::new(*id),
                    age: JOIN_DELAY,
                    expires_in: JOIN_DELAY,
                    leaving: false,
                })
                .collect(),
            assignment: members.iter().map(|(id, assigned)| (MemberId::new(*id), units(assigned))).collect(),
            leases: leases
                .iter()
                .map(|(unit, id, epoch)| {
                    (UnitId::new(*unit), LeaseHolder { member: MemberId::new(*id), epoch: LeaseEpoch(*epoch) })
                })
                .collect(),
        }
    }

    fn held_leases(held: &[(&str, u64)]) -> BTreeMap<UnitId, HeldLease> {
        held.iter()
            .map(|(unit, epoch)| (UnitId::new(*unit), HeldLease { epoch: LeaseEpoch(*epoch), return_requested: false }))
            .collect()
    }

    fn lease(unit: &str, epoch: u64) -> Lease {
        Lease { unit: UnitId::new(unit), epoch: LeaseEpoch(epoch) }
    }

    #[track_caller]
    fn check(snapshot: &LeaseSnapshot, held: &[(&str, u64)], expected: Option<LeasePlan>) {
        assert_eq!(
            plan_from_snapshot(snapshot, &MemberId::new("a"), &units(&["0", "1"]), JOIN_DELAY, &held_leases(held)),
            expected
        );
    }

    #[test]
    fn non_member_has_no_plan() {
        check(&snapshot(&[("b", &["0", "1"])], &[]), &[], None);
    }

    #[test]
    fn free_assigned_units_are_acquired() {
        let snapshot = snapshot(&[("a", &["0"]), ("b", &["1"])], &[]);
        check(&snapshot, &[], Some(LeasePlan { acquire: units(&["0"]), ..LeasePlan::default() }));
    }

    #[test]
    fn assigned_units_held_by_others_are_not_acquired() {
        check(&snapshot(&[("a", &["0"]), ("b", &["1"])], &[("0", "b", 4)]), &[], Some(LeasePlan::default()));
    }

    #[test]
    fn held_units_assigned_to_others_are_drained() {
        let snapshot = snapshot(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 1), ("1", "a", 2)]);
        check(
            &snapshot,
            &[("0", 1), ("1", 2)],
            Some(LeasePlan { request_return: vec![lease("1", 2)], ..LeasePlan::default() }),
        );
    }

    #[test]
    fn lease_unknown_to_the_store_is_dropped() {
        let snapshot = snapshot(&[("a", &["0"]), ("b", &["1"])], &[("0", "b", 9)]);
        check(&snapshot, &[("0", 1)], Some(LeasePlan { drop: vec![lease("0", 1)], ..LeasePlan::default() }));
    }

    #[test]
    fn grant_whose_reply_was_lost_is_released() {
        let snapshot = snapshot(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 7)]);
        check(&snapshot, &[], Some(LeasePlan { orphaned: vec![lease("0", 7)], ..LeasePlan::default() }));
    }

    #[test]
    fn member_younger_than_the_join_delay_gets_no_units() {
        let mut snapshot = snapshot(&[("a", &["0", "1"]), ("b", &[])], &[("0", "a", 1), ("1", "a", 2)]);
        snapshot.members[1].age = JOIN_DELAY / 4;
        check(
            &snapshot,
            &[("0", 1), ("1", 2)],
            Some(LeasePlan { refresh_after: Some(JOIN_DELAY * 3 / 4), ..LeasePlan::default() }),
        );
    }

    #[test]
    fn units_of_a_leaving_member_are_reassigned() {
        let mut snapshot = snapshot(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 1), ("1", "b", 2)]);
        snapshot.members[1].leaving = true;
        let assign = [(MemberId::new("a"), units(&["0", "1"]))].into();
        check(&snapshot, &[("0", 1)], Some(LeasePlan { new_assignment: Some(assign), ..LeasePlan::default() }));
    }
}
