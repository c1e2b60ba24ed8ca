//! Spreads units over holders: evenly to one unit, with as few moves as possible, and with the same
//! result for every caller.
//! It does not know what a unit or a holder is; both are positions. A fleet spreads shares over
//! workers with it (squall-coord), squall-streams partitions over executors, and a worker its
//! shares over threads (squall-engine).

/// Returns the holder of each unit. `holders` gives the current holder of each unit, if it has one;
/// the holders to spread over are `0..count`.
///
/// Every unit gets exactly one holder, and two holders differ by at most one unit. No other spread
/// with these two properties moves fewer units. Spreading the result again changes nothing. The
/// units that move, and their new holders, are chosen so that every prefix of the units is spread
/// evenly too. `turn(round, holder)` orders the holders that have `round` units each and need
/// another: the lowest value is served first.
///
/// ```
/// use squall_spread::{round_robin, spread_units};
/// assert_eq!(spread_units(&[None; 5], 2, round_robin), [0, 1, 0, 1, 0]);
/// // A new holder gets every other unit.
/// assert_eq!(spread_units(&[Some(0); 4], 2, round_robin), [0, 1, 0, 1]);
/// ```
///
/// # Panics
///
/// If there are units but no holders, or if a current holder is not in `0..count`.
#[must_use]
pub fn spread_units(holders: &[Option<usize>], count: usize, turn: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    if holders.is_empty() {
        return Vec::new();
    }
    let (mut given, mut remaining) = (vec![0; count], vec![0; count]);
    holders.iter().flatten().for_each(|&holder| remaining[holder] += 1);
    let targets = target_counts(holders.len(), &remaining);
    let mut owners = Vec::with_capacity(holders.len());
    // A free unit goes to the holder with the fewest of the units so far. A unit whose holder has
    // too many in total goes there as well if that holder has fewer of the units so far. Otherwise
    // it stays, as long as its holder is below its target.
    for &holder in holders {
        let below_target = |other: &usize| given[*other] + remaining[*other] < targets[*other];
        let neediest = (0..count).filter(below_target).min_by_key(|other| (given[*other], turn(given[*other], *other)));
        let keeper = holder.filter(|&holder| {
            let above_target = given[holder] + remaining[holder] > targets[holder];
            let not_ahead = neediest.is_none_or(|other| given[holder] <= given[other]);
            !above_target || not_ahead && given[holder] < targets[holder]
        });
        let owner =
            keeper.or(neediest).expect("units that are free or above a target equal the units missing elsewhere");
        if let Some(holder) = holder {
            remaining[holder] -= 1;
        }
        given[owner] += 1;
        owners.push(owner);
    }
    owners
}

/// Serves holders in order of position in every round.
pub fn round_robin(_round: usize, holder: usize) -> usize {
    holder
}

/// How many units each holder should have: equal counts. The remainder goes first to holders that
/// would otherwise have to give up a unit, then to earlier holders.
fn target_counts(units: usize, held: &[usize]) -> Vec<usize> {
    let (per_holder, extra) = (units / held.len(), units % held.len());
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|&holder| (held[holder] <= per_holder, holder));
    let mut targets = vec![per_holder; held.len()];
    order.iter().take(extra).for_each(|&holder| targets[holder] += 1);
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[usize], count: usize) -> Vec<usize> {
        (0..count).map(|holder| owners.iter().filter(|owner| **owner == holder).count()).collect()
    }

    #[test]
    fn no_units_give_an_empty_spread() {
        assert!(spread_units(&[], 0, round_robin).is_empty());
    }

    #[test]
    fn turn_decides_which_holder_is_served_first() {
        let backwards = |_: usize, holder: usize| 9 - holder;
        assert_eq!(spread_units(&[None; 4], 3, backwards), [2, 1, 0, 0], "the remaining unit goes to the first holder");
    }

    /// Any number of units and holders, with any current holders.
    fn any_spread() -> impl Strategy<Value = (Vec<Option<usize>>, usize)> {
        (1usize..12)
            .prop_flat_map(|count| (proptest::collection::vec(proptest::option::of(0..count), 0..90), Just(count)))
    }

    /// The turn order that squall-engine uses for threads.
    fn rotated(count: usize) -> impl Fn(usize, usize) -> usize {
        move |round, holder| (holder + round) % count
    }

    proptest! {
        #[test]
        fn spread_is_even_moves_the_fewest_units_and_is_stable((holders, count) in any_spread(), rotate in any::<bool>()) {
            let respread = |holders: &[Option<usize>]| match rotate {
                true => spread_units(holders, count, rotated(count)),
                false => spread_units(holders, count, round_robin),
            };
            let owners = respread(&holders);
            prop_assert_eq!(owners.len(), holders.len());
            let (per_holder, extra) = (holders.len() / count, holders.len() % count);
            prop_assert!(counts(&owners, count).iter().all(|held| *held == per_holder || *held == per_holder + 1));
            // The best that an even spread can do: every holder keeps up to `per_holder` units, and
            // `extra` of them one more.
            let kept = holders.iter().zip(&owners).filter(|(holder, owner)| **holder == Some(**owner)).count();
            let held: Vec<usize> = (0..count).map(|it| holders.iter().filter(|holder| **holder == Some(it)).count()).collect();
            let more = held.iter().filter(|held| **held > per_holder).count().min(extra);
            prop_assert_eq!(kept, held.iter().map(|held| *held.min(&per_holder)).sum::<usize>() + more);
            let after: Vec<Option<usize>> = owners.iter().copied().map(Some).collect();
            prop_assert_eq!(respread(&after), owners);
        }
    }
}
