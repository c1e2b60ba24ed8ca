//! Deals units to holders: fair to one unit, moving as few as possible, the same for everyone who asks.
//! Refuses to know what a unit or a holder is: both are positions. Workers of a fleet get shares by it, executors partitions, and
//! the threads of a worker its shares.

/// Who gets each unit. `holders` says who has it now, if anybody; those who are to have units are `0..count`.
///
/// Every unit gets exactly one holder; two holders differ by at most one unit; no deal with these two properties moves fewer units
/// away from whoever has them; and dealing again changes nothing. Which units move, and to whom, is chosen so that the first few
/// units, however many, are spread evenly too. `turn(round, holder)` orders those who have `round` units each and lack one: the
/// least is served first.
///
/// ```
/// use squall_spread::{deal, in_turn};
/// assert_eq!(deal(&[None; 5], 2, in_turn), [0, 1, 0, 1, 0]);
/// assert_eq!(deal(&[Some(0); 4], 2, in_turn), [0, 1, 0, 1]); // a newcomer gets every other
/// ```
///
/// # Panics
///
/// If there are units and nobody to hold them, or a unit is with somebody who is not one of `0..count`.
#[must_use]
pub fn spread_units(holders: &[Option<usize>], count: usize, turn: impl Fn(usize, usize) -> usize) -> Vec<usize> {
    if holders.is_empty() {
        return Vec::new();
    }
    let (mut given, mut remaining) = (vec![0; count], vec![0; count]);
    holders.iter().flatten().for_each(|&holder| remaining[holder] += 1);
    let targets = target_counts(holders.len(), &remaining);
    let mut owners = Vec::with_capacity(holders.len());
    // One that is free goes to whoever has the fewest of those before it; one whose holder has too many in all goes there as well if
    // that one has fewer, and stays otherwise, as long as it can.
    for &holder in holders {
        let below_target = |other: &usize| given[*other] + remaining[*other] < targets[*other];
        let neediest = (0..count).filter(below_target).min_by_key(|other| (given[*other], turn(given[*other], *other)));
        let keeper = holder.filter(|&holder| {
            let above_target = given[holder] + remaining[holder] > targets[holder];
            let not_ahead = neediest.is_none_or(|other| given[holder] <= given[other]);
            !above_target || not_ahead && given[holder] < targets[holder]
        });
        let owner = keeper.or(neediest).expect("what is free or too much is what others lack");
        if let Some(holder) = holder {
            remaining[holder] -= 1;
        }
        given[owner] += 1;
        owners.push(owner);
    }
    owners
}

/// Every round begins with the first holder.
pub fn round_robin(_round: usize, holder: usize) -> usize {
    holder
}

/// Equal shares; the odd units go to whoever would otherwise have to give one up, then to earlier holders.
fn target_counts(units: usize, held: &[usize]) -> Vec<usize> {
    let (share, extra) = (units / held.len(), units % held.len());
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|&holder| (held[holder] <= share, holder));
    let mut targets = vec![share; held.len()];
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
        assert_eq!(spread_units(&[None; 4], 3, backwards), [2, 1, 0, 0], "the odd one is the first's all the same");
    }

    /// Any number of units, of holders, and any state before.
    fn any_spread() -> impl Strategy<Value = (Vec<Option<usize>>, usize)> {
        (1usize..12)
            .prop_flat_map(|count| (proptest::collection::vec(proptest::option::of(0..count), 0..90), Just(count)))
    }

    /// As threads are dealt to.
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
            let (share, extra) = (holders.len() / count, holders.len() % count);
            prop_assert!(counts(&owners, count).iter().all(|held| *held == share || *held == share + 1));
            // The best any even deal can do: everybody keeps up to a share, `odd` of them one more.
            let kept = holders.iter().zip(&owners).filter(|(holder, owner)| **holder == Some(**owner)).count();
            let held: Vec<usize> = (0..count).map(|it| holders.iter().filter(|holder| **holder == Some(it)).count()).collect();
            let more = held.iter().filter(|held| **held > share).count().min(extra);
            prop_assert_eq!(kept, held.iter().map(|held| *held.min(&share)).sum::<usize>() + more);
            let after: Vec<Option<usize>> = owners.iter().copied().map(Some).collect();
            prop_assert_eq!(respread(&after), owners);
        }
    }
}
