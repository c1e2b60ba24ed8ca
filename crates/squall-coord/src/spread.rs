//! Assigns named units to named members with squall-spread.
//! It reads no clock, store or load: equal input gives equal output. [`crate::Membership`] calls
//! it.

use std::collections::{BTreeMap, HashMap};

use crate::{MemberId, UnitId};

/// The units that each member should hold. A member without units has an empty list.
pub type UnitAssignment = BTreeMap<MemberId, Vec<UnitId>>;

/// Spreads `units` over `members`, starting from the assignment `previous`.
///
/// Every unit gets exactly one member, and two members differ by at most one unit. No other
/// assignment with these two properties moves fewer units away from members that are still there.
/// Spreading the result again changes nothing. Every prefix of the units is spread evenly too:
/// without a previous assignment, units go round robin to members, earlier members first. Without
/// members the assignment is empty.
///
/// ```
/// use squall_coord::{MemberId, UnitAssignment, UnitId, spread};
/// let units: Vec<UnitId> = (0..4).map(UnitId::from).collect();
/// let a = MemberId::new("a");
/// let b = MemberId::new("b");
/// let alone = spread(&units, &[a.clone()], &UnitAssignment::new());
/// let both = spread(&units, &[a.clone(), b.clone()], &alone);
/// assert_eq!(both[&a], [0, 2].map(UnitId::from)); // keeps every other unit
/// assert_eq!(both[&b], [1, 3].map(UnitId::from));
/// ```
#[must_use]
pub fn spread(units: &[UnitId], members: &[MemberId], previous: &UnitAssignment) -> UnitAssignment {
    if members.is_empty() {
        return UnitAssignment::new();
    }
    let owners = squall_spread::spread_units(
        &current_holders(units, members, previous),
        members.len(),
        squall_spread::round_robin,
    );
    let mut held = vec![Vec::new(); members.len()];
    for (unit, owner) in units.iter().zip(owners) {
        held[owner].push(unit.clone());
    }
    members.iter().cloned().zip(held).collect()
}

/// The position of the member that holds each unit. If several members claim a unit, the first one
/// holds it.
fn current_holders(units: &[UnitId], members: &[MemberId], previous: &UnitAssignment) -> Vec<Option<usize>> {
    let position: HashMap<&UnitId, usize> = units.iter().enumerate().map(|(at, unit)| (unit, at)).collect();
    let mut holders = vec![None; units.len()];
    for (member, id) in members.iter().enumerate() {
        for unit in previous.get(id).into_iter().flatten() {
            if let Some(&at) = position.get(unit) {
                holders[at].get_or_insert(member);
            }
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn units(count: u32) -> Vec<UnitId> {
        (0..count).map(UnitId::from).collect()
    }

    fn members(names: &[&str]) -> Vec<MemberId> {
        names.iter().map(|name| MemberId::new(*name)).collect()
    }

    #[test]
    fn units_go_round_robin_to_members_that_hold_none() {
        let got = spread(&units(7), &members(&["a", "b", "c"]), &UnitAssignment::new());
        let of = |name: &str| got[&MemberId::new(name)].clone();
        assert_eq!(of("a"), [0, 3, 6].map(UnitId::from));
        assert_eq!(of("b"), [1, 4].map(UnitId::from));
        assert_eq!(of("c"), [2, 5].map(UnitId::from));
    }

    #[test]
    fn no_members_give_an_empty_assignment() {
        assert!(spread(&units(5), &[], &UnitAssignment::new()).is_empty());
    }

    #[test]
    fn unit_claimed_by_two_members_is_assigned_to_one() {
        let both = members(&["a", "b"]);
        let doubled = both.iter().map(|member| (member.clone(), units(2))).collect();
        let got = spread(&units(2), &both, &doubled);
        assert_eq!(got.values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    /// The largest difference between members' counts over all prefixes of the units.
    fn unevenness(units: &[UnitId], assignment: &UnitAssignment) -> usize {
        let owned = assignment.iter().enumerate().flat_map(|(at, (_, held))| held.iter().map(move |unit| (unit, at)));
        let owners: HashMap<&UnitId, usize> = owned.collect();
        let mut counts = vec![0; assignment.len()];
        let differ = units.iter().map(|unit| {
            counts[owners[unit]] += 1;
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        });
        differ.max().unwrap_or(0)
    }

    #[test]
    fn first_units_stay_even_after_a_join_or_a_leave() {
        let units = units(256);
        let all_members: Vec<MemberId> = (0..9).map(|n| MemberId::new(format!("m{n}"))).collect();
        let mut joined = UnitAssignment::new();
        for count in 1..all_members.len() {
            let (members, more) = (&all_members[..count], &all_members[..=count]);
            joined = spread(&units, members, &joined);
            let fresh = spread(&units, members, &UnitAssignment::new());
            assert_eq!(unevenness(&units, &fresh), usize::from(count > 1), "{count} from nothing");
            let first = |member: &MemberId| joined[member].iter().filter(|unit| units[..count].contains(unit)).count();
            assert!(members.iter().all(|member| first(member) == 1), "{count} units for {count} that came one by one");
            for before in [&joined, &fresh] {
                assert!(unevenness(&units, before) <= 2, "{count} that came one by one");
                assert!(unevenness(&units, &spread(&units, more, before)) <= 2, "one more than {count}");
                for leaver in members.iter().filter(|_| count > 1) {
                    let others: Vec<_> = members.iter().filter(|member| *member != leaver).cloned().collect();
                    assert!(unevenness(&units, &spread(&units, &others, before)) <= 3, "{count} without {leaver}");
                }
            }
        }
    }

    /// Any units, members and previous assignment, including removed members and removed units.
    fn any_assignment() -> impl Strategy<Value = (Vec<UnitId>, Vec<MemberId>, UnitAssignment)> {
        (0u32..70, 1usize..12, proptest::collection::vec((0u32..80, 0usize..16), 0..90)).prop_map(
            |(count, present, history)| {
                let mut previous = UnitAssignment::new();
                let mut seen = HashSet::new();
                for (unit, owner) in history {
                    if seen.insert(unit) {
                        previous.entry(MemberId::new(format!("m{owner}"))).or_default().push(UnitId::from(unit));
                    }
                }
                (units(count), (0..present).map(|n| MemberId::new(format!("m{n}"))).collect(), previous)
            },
        )
    }

    proptest! {
        #[test]
        fn every_unit_is_assigned_to_exactly_one_member((units, members, previous) in any_assignment()) {
            let got = spread(&units, &members, &previous);
            let mut all: Vec<UnitId> = got.values().flatten().cloned().collect();
            all.sort();
            let mut want = units.clone();
            want.sort();
            prop_assert_eq!(all, want);
            prop_assert_eq!(got.len(), members.len());
        }

        #[test]
        fn member_unit_counts_differ_by_at_most_one((units, members, previous) in any_assignment()) {
            let got = spread(&units, &members, &previous);
            let sizes: Vec<usize> = got.values().map(Vec::len).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }

        #[test]
        fn fewest_possible_units_move((units, members, previous) in any_assignment()) {
            let got = spread(&units, &members, &previous);
            let stay: usize = members.iter().map(|member| {
                let before: HashSet<_> = previous.get(member).into_iter().flatten().collect();
                got[member].iter().filter(|unit| before.contains(unit)).count()
            }).sum();
            // The best that a fair assignment can do: every member keeps up to `share` units, and
            // `extra` of them one more.
            let share = units.len() / members.len();
            let extra = units.len() % members.len();
            let held: Vec<usize> = members.iter().map(|member| {
                previous.get(member).into_iter().flatten().filter(|unit| units.contains(unit)).count()
            }).collect();
            let best = held.iter().map(|held| (*held).min(share)).sum::<usize>()
                + held.iter().filter(|held| **held > share).count().min(extra);
            prop_assert_eq!(stay, best);
        }

        #[test]
        fn first_units_stay_even_over_many_joins_and_leaves(steps in proptest::collection::vec((any::<bool>(), 0usize..6), 0..10)) {
            let units = units(256);
            let mut members = members(&["a", "b", "c"]);
            let mut current = spread(&units, &members, &UnitAssignment::new());
            for (number, (joins, who)) in steps.into_iter().enumerate() {
                if members.len() > 1 && (!joins || members.len() == 6) {
                    members.remove(who % members.len());
                } else {
                    members.push(MemberId::new(format!("m{number}")));
                }
                current = spread(&units, &members, &current);
                prop_assert!(unevenness(&units, &current) <= 6, "{:?}", current);
            }
        }

        #[test]
        fn spreading_twice_gives_the_same_assignment((units, members, previous) in any_assignment()) {
            let once = spread(&units, &members, &previous);
            prop_assert_eq!(spread(&units, &members, &once), once);
        }
    }
}
