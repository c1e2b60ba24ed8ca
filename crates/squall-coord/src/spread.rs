//! Assigns units to members: fair to one unit, moving as few as possible, the same for everyone who asks.
//! Refuses to look at clocks, stores or loads; equal input gives equal output.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::{MemberId, Unit};

/// Which units each member should hold. Members without units have an entry with an empty list.
pub type Assignment = BTreeMap<MemberId, Vec<Unit>>;

/// Spreads `units` over `members`, starting from `previous`.
///
/// Every unit gets exactly one member; two members differ by at most one unit; no assignment with these two properties
/// moves fewer units away from a member that is still there; and applying it again changes nothing. The order of
/// `members` breaks ties (earlier members get the odd unit), the order of `units` decides which ones move: the last.
/// Starting from nothing, members get contiguous runs. With no members the assignment is empty.
///
/// ```
/// use squall_coord::{spread, Assignment, MemberId, Unit};
/// let units: Vec<Unit> = (0..4).map(Unit::from).collect();
/// let a = MemberId::new("a");
/// let b = MemberId::new("b");
/// let alone = spread(&units, &[a.clone()], &Assignment::new());
/// let both = spread(&units, &[a.clone(), b.clone()], &alone);
/// assert_eq!(both[&a], units[..2]); // keeps half, moves half
/// assert_eq!(both[&b], units[2..]);
/// ```
#[must_use]
pub fn spread(units: &[Unit], members: &[MemberId], previous: &Assignment) -> Assignment {
    if members.is_empty() {
        return Assignment::new();
    }
    let position: HashMap<&Unit, usize> = units.iter().enumerate().map(|(at, unit)| (unit, at)).collect();
    let mut taken = vec![false; units.len()];
    let mut kept: Vec<Vec<usize>> =
        members.iter().map(|member| still_held(member, previous, &position, &mut taken)).collect();
    let quotas = quotas(units.len(), &kept);
    for (held, quota) in kept.iter_mut().zip(&quotas) {
        for dropped in held.drain((*quota).min(held.len())..) {
            taken[dropped] = false;
        }
    }
    let mut free = (0..units.len()).filter(|&at| !taken[at]);
    members
        .iter()
        .zip(kept)
        .zip(quotas)
        .map(|((member, mut held), quota)| {
            while held.len() < quota {
                held.push(free.next().expect("quotas sum to the number of units"));
            }
            held.sort_unstable();
            (member.clone(), held.into_iter().map(|at| units[at].clone()).collect())
        })
        .collect()
}

/// What the member had and may keep: known units, each counted once, in the order of `units`.
fn still_held(
    member: &MemberId,
    previous: &Assignment,
    position: &HashMap<&Unit, usize>,
    taken: &mut [bool],
) -> Vec<usize> {
    let before: HashSet<usize> =
        previous.get(member).into_iter().flatten().filter_map(|unit| position.get(unit).copied()).collect();
    let mut held: Vec<usize> = before.into_iter().filter(|&at| !std::mem::replace(&mut taken[at], true)).collect();
    held.sort_unstable();
    held
}

/// Equal shares; the odd units go to whoever would otherwise have to give one up, then to earlier members.
fn quotas(units: usize, kept: &[Vec<usize>]) -> Vec<usize> {
    let share = units / kept.len();
    let odd = units % kept.len();
    let mut order: Vec<usize> = (0..kept.len()).collect();
    order.sort_by_key(|&member| (kept[member].len() <= share, member));
    let mut quotas = vec![share; kept.len()];
    for &member in order.iter().take(odd) {
        quotas[member] += 1;
    }
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn units(count: u32) -> Vec<Unit> {
        (0..count).map(Unit::from).collect()
    }

    fn members(names: &[&str]) -> Vec<MemberId> {
        names.iter().map(|name| MemberId::new(*name)).collect()
    }

    #[test]
    fn fresh_members_get_contiguous_runs() {
        let got = spread(&units(5), &members(&["a", "b"]), &Assignment::new());
        assert_eq!(got[&MemberId::new("a")], units(3));
        assert_eq!(got[&MemberId::new("b")], units(5)[3..]);
    }

    #[test]
    fn nobody_gets_nothing() {
        assert!(spread(&units(5), &[], &Assignment::new()).is_empty());
    }

    #[test]
    fn a_unit_claimed_by_two_is_given_to_one() {
        let both = members(&["a", "b"]);
        let doubled = both.iter().map(|member| (member.clone(), units(2))).collect();
        let got = spread(&units(2), &both, &doubled);
        assert_eq!(got.values().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    /// Any number of units, any members, any previous state, also one with strangers and vanished units in it.
    fn situations() -> impl Strategy<Value = (Vec<Unit>, Vec<MemberId>, Assignment)> {
        (0u32..70, 1usize..12, proptest::collection::vec((0u32..80, 0usize..16), 0..90)).prop_map(
            |(count, present, history)| {
                let mut previous = Assignment::new();
                let mut seen = HashSet::new();
                for (unit, owner) in history {
                    if seen.insert(unit) {
                        previous.entry(MemberId::new(format!("m{owner}"))).or_default().push(Unit::from(unit));
                    }
                }
                (units(count), (0..present).map(|n| MemberId::new(format!("m{n}"))).collect(), previous)
            },
        )
    }

    proptest! {
        #[test]
        fn every_unit_has_exactly_one_member((units, members, previous) in situations()) {
            let got = spread(&units, &members, &previous);
            let mut all: Vec<Unit> = got.values().flatten().cloned().collect();
            all.sort();
            let mut want = units.clone();
            want.sort();
            prop_assert_eq!(all, want);
            prop_assert_eq!(got.len(), members.len());
        }

        #[test]
        fn shares_differ_by_at_most_one((units, members, previous) in situations()) {
            let got = spread(&units, &members, &previous);
            let sizes: Vec<usize> = got.values().map(Vec::len).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }

        #[test]
        fn the_fewest_possible_units_move((units, members, previous) in situations()) {
            let got = spread(&units, &members, &previous);
            let stay: usize = members.iter().map(|member| {
                let before: HashSet<_> = previous.get(member).into_iter().flatten().collect();
                got[member].iter().filter(|unit| before.contains(unit)).count()
            }).sum();
            // The best any fair assignment can do: everybody keeps up to a share, `odd` of them one more.
            let share = units.len() / members.len();
            let odd = units.len() % members.len();
            let held: Vec<usize> = members.iter().map(|member| {
                previous.get(member).into_iter().flatten().filter(|unit| units.contains(unit)).count()
            }).collect();
            let best = held.iter().map(|held| (*held).min(share)).sum::<usize>()
                + held.iter().filter(|held| **held > share).count().min(odd);
            prop_assert_eq!(stay, best);
        }

        #[test]
        fn spreading_again_changes_nothing((units, members, previous) in situations()) {
            let once = spread(&units, &members, &previous);
            prop_assert_eq!(spread(&units, &members, &once), once);
        }
    }
}
