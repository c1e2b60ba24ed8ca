//! Decides what one member does about a view: assign, take, drain, drop, give back.
//! Refuses to do any of it; [`super::Membership`] does.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{Epoch, Lease, LeaseSnapshot, MemberId, MemberSnapshot, UnitAssignment, UnitId, spread};

/// How many members make assignments: the oldest that may hold something. One would do; with three nothing waits for one
/// that stands still, and a thousand do not all write what only the first can.
const ASSIGNERS: usize = 3;

/// How many of a crowd look at every change, so that there is somebody to assign when all planners die at once.
const STANDBY_ASSIGNERS: usize = 10;

/// A lease this member believes to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    pub(super) epoch: Epoch,
    /// Its user has been told to finish and give it back.
    pub(super) draining: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeasePlan {
    /// The assignment is out of date and should become this; everything else waits for it.
    pub(super) new_assignment: Option<UnitAssignment>,
    /// Ours by assignment and free.
    pub(super) acquire: Vec<UnitId>,
    /// Held, but assigned to somebody else.
    pub(super) drain: Vec<Lease>,
    /// Held in our own belief only.
    pub(super) drop: Vec<Lease>,
    /// Held in the store only: an answer got lost, or we had given up on it.
    pub(super) orphaned: Vec<Lease>,
    /// A member becomes eligible then.
    pub(super) refresh_after: Option<Duration>,
}

/// `None` when the view does not have us as a member.
pub(super) fn plan_from_snapshot(
    view: &LeaseSnapshot,
    me: &MemberId,
    units: &[UnitId],
    join_delay: Duration,
    held: &BTreeMap<UnitId, HeldLease>,
) -> Option<LeasePlan> {
    view.assignment.get(me)?;
    let mut plan = LeasePlan::default();
    let mut eligible = Vec::new();
    for member in view.members.iter().filter(|member| !member.leaving) {
        if member.age >= join_delay || view.assignment.get(&member.id).is_some_and(|units| !units.is_empty()) {
            eligible.push(member.id.clone());
        } else {
            let wait = join_delay - member.age;
            plan.refresh_after = Some(plan.refresh_after.map_or(wait, |sooner| sooner.min(wait)));
        }
    }
    if eligible.iter().take(ASSIGNERS).any(|planner| planner == me) {
        let target = spread(units, &eligible, &view.assignment);
        if !same_assignment(&target, &view.assignment) {
            plan.new_assignment = Some(target);
        }
    }
    plan_own_leases(&view.for_member(me), me, held, &mut plan);
    Some(plan)
}

/// What a member does that leaves assigning to others. `None` when it is not a member.
pub(super) fn plan_from_member_snapshot(
    look: &MemberSnapshot,
    me: &MemberId,
    held: &BTreeMap<UnitId, HeldLease>,
) -> Option<LeasePlan> {
    look.older_members?;
    let mut plan = LeasePlan::default();
    plan_own_leases(look, me, held, &mut plan);
    Some(plan)
}

/// Whether a member with so many before it may have to assign.
pub(super) fn may_assign(before: Option<usize>) -> bool {
    before.is_none_or(|before| before < ASSIGNERS)
}

/// Whether a member with so many before it sits so near the front that it may soon have to assign.
pub(super) fn is_standby_assigner(before: Option<usize>) -> bool {
    before.is_none_or(|before| before < STANDBY_ASSIGNERS)
}

fn plan_own_leases(look: &MemberSnapshot, me: &MemberId, held: &BTreeMap<UnitId, HeldLease>, plan: &mut LeasePlan) {
    let mine: BTreeSet<&UnitId> = look.assigned.iter().collect();
    for (unit, HeldLease { epoch, draining }) in held {
        let lease = Lease { unit: unit.clone(), epoch: *epoch };
        if look.leases.get(unit) != Some(&(me.clone(), *epoch)) {
            plan.drop.push(lease);
        } else if !draining && !mine.contains(unit) {
            plan.drain.push(lease);
        }
    }
    for (unit, (holder, epoch)) in &look.leases {
        if holder == me && held.get(unit).is_none_or(|held| held.epoch != *epoch) {
            plan.orphaned.push(Lease { unit: unit.clone(), epoch: *epoch });
        }
    }
    plan.acquire =
        mine.into_iter().filter(|unit| !look.leases.contains_key(unit) && !held.contains_key(unit)).cloned().collect();
}

/// Equal but for members that have nothing.
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

    const DELAY: Duration = Duration::from_millis(100);

    fn units(names: &[&str]) -> Vec<UnitId> {
        names.iter().map(|name| UnitId::new(*name)).collect()
    }

    /// Members with what is assigned to them; all are old enough.
    fn view(members: &[(&str, &[&str])], leases: &[(&str, &str, u64)]) -> LeaseSnapshot {
        LeaseSnapshot {
            revision: Revision(1),
            members: members
                .iter()
                .map(|(id, _)| LiveMember { id: MemberId::new(*id), age: DELAY, expires_in: DELAY, leaving: false })
                .collect(),
            assignment: members.iter().map(|(id, assigned)| (MemberId::new(*id), units(assigned))).collect(),
            leases: leases
                .iter()
                .map(|(unit, id, epoch)| (UnitId::new(*unit), (MemberId::new(*id), Epoch(*epoch))))
                .collect(),
        }
    }

    fn believe(held: &[(&str, u64)]) -> BTreeMap<UnitId, HeldLease> {
        held.iter()
            .map(|(unit, epoch)| (UnitId::new(*unit), HeldLease { epoch: Epoch(*epoch), draining: false }))
            .collect()
    }

    fn lease(unit: &str, epoch: u64) -> Lease {
        Lease { unit: UnitId::new(unit), epoch: Epoch(epoch) }
    }

    #[track_caller]
    fn check(view: &LeaseSnapshot, held: &[(&str, u64)], expected: Option<LeasePlan>) {
        assert_eq!(plan_from_snapshot(view, &MemberId::new("a"), &units(&["0", "1"]), DELAY, &believe(held)), expected);
    }

    #[test]
    fn a_stranger_has_no_plan() {
        check(&view(&[("b", &["0", "1"])], &[]), &[], None);
    }

    #[test]
    fn free_units_assigned_to_us_are_taken() {
        let view = view(&[("a", &["0"]), ("b", &["1"])], &[]);
        check(&view, &[], Some(LeasePlan { acquire: units(&["0"]), ..LeasePlan::default() }));
    }

    #[test]
    fn units_still_held_by_others_are_waited_for() {
        check(&view(&[("a", &["0"]), ("b", &["1"])], &[("0", "b", 4)]), &[], Some(LeasePlan::default()));
    }

    #[test]
    fn units_assigned_to_others_are_drained() {
        let view = view(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 1), ("1", "a", 2)]);
        check(&view, &[("0", 1), ("1", 2)], Some(LeasePlan { drain: vec![lease("1", 2)], ..LeasePlan::default() }));
    }

    #[test]
    fn a_lease_the_store_does_not_know_is_dropped() {
        let view = view(&[("a", &["0"]), ("b", &["1"])], &[("0", "b", 9)]);
        check(&view, &[("0", 1)], Some(LeasePlan { drop: vec![lease("0", 1)], ..LeasePlan::default() }));
    }

    #[test]
    fn a_grant_whose_answer_was_lost_is_given_back() {
        let view = view(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 7)]);
        check(&view, &[], Some(LeasePlan { orphaned: vec![lease("0", 7)], ..LeasePlan::default() }));
    }

    #[test]
    fn a_young_member_waits_for_its_turn() {
        let mut view = view(&[("a", &["0", "1"]), ("b", &[])], &[("0", "a", 1), ("1", "a", 2)]);
        view.members[1].age = DELAY / 4;
        check(
            &view,
            &[("0", 1), ("1", 2)],
            Some(LeasePlan { refresh_after: Some(DELAY * 3 / 4), ..LeasePlan::default() }),
        );
    }

    #[test]
    fn a_leaving_member_loses_its_units() {
        let mut view = view(&[("a", &["0"]), ("b", &["1"])], &[("0", "a", 1), ("1", "b", 2)]);
        view.members[1].leaving = true;
        let assign = [(MemberId::new("a"), units(&["0", "1"]))].into();
        check(&view, &[("0", 1)], Some(LeasePlan { new_assignment: Some(assign), ..LeasePlan::default() }));
    }
}
