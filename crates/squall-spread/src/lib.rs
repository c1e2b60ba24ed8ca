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
    let (mut dealt, mut ahead) = (vec![0; count], vec![0; count]);
    holders.iter().flatten().for_each(|&holder| ahead[holder] += 1);
    let quotas = target_counts(holders.len(), &ahead);
    let mut owners = Vec::with_capacity(holders.len());
    // One that is free goes to whoever has the fewest of those before it; one whose holder has too many in all goes there as well if
    // that one has fewer, and stays otherwise, as long as it can.
    for &holder in holders {
        let lacks = |other: &usize| dealt[*other] + ahead[*other] < quotas[*other];
        let in_need = (0..count).filter(lacks).min_by_key(|other| (dealt[*other], turn(dealt[*other], *other)));
        let stays = holder.filter(|&holder| {
            let too_many = dealt[holder] + ahead[holder] > quotas[holder];
            let first = in_need.is_none_or(|other| dealt[holder] <= dealt[other]);
            !too_many || first && dealt[holder] < quotas[holder]
        });
        let owner = stays.or(in_need).expect("what is free or too much is what others lack");
        if let Some(holder) = holder {
            ahead[holder] -= 1;
        }
        dealt[owner] += 1;
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
    let (share, odd) = (units / held.len(), units % held.len());
    let mut order: Vec<usize> = (0..held.len()).collect();
    order.sort_by_key(|&holder| (held[holder] <= share, holder));
    let mut quotas = vec![share; held.len()];
    order.iter().take(odd).for_each(|&holder| quotas[holder] += 1);
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(owners: &[usize], count: usize) -> Vec<usize> {
        (0..count).map(|holder| owners.iter().filter(|owner| **owner == holder).count()).collect()
    }

    #[test]
    fn nothing_is_dealt_to_nobody() {
        assert!(spread_units(&[], 0, round_robin).is_empty());
    }

    #[test]
    fn whoever_is_first_in_a_round_is_the_callers_choice() {
        let backwards = |_: usize, holder: usize| 9 - holder;
        assert_eq!(spread_units(&[None; 4], 3, backwards), [2, 1, 0, 0], "the odd one is the first's all the same");
    }

    /// Any number of units, of holders, and any state before.
    fn situations() -> impl Strategy<Value = (Vec<Option<usize>>, usize)> {
        (1usize..12)
            .prop_flat_map(|count| (proptest::collection::vec(proptest::option::of(0..count), 0..90), Just(count)))
    }

    /// As threads are dealt to.
    fn rotated(count: usize) -> impl Fn(usize, usize) -> usize {
        move |round, holder| (holder + round) % count
    }

    proptest! {
        #[test]
        fn a_deal_is_even_moves_the_fewest_and_stands((holders, count) in situations(), rotate in any::<bool>()) {
            let again = |holders: &[Option<usize>]| match rotate {
                true => spread_units(holders, count, rotated(count)),
                false => spread_units(holders, count, round_robin),
            };
            let owners = again(&holders);
            prop_assert_eq!(owners.len(), holders.len());
            let (share, odd) = (holders.len() / count, holders.len() % count);
            prop_assert!(counts(&owners, count).iter().all(|held| *held == share || *held == share + 1));
            // The best any even deal can do: everybody keeps up to a share, `odd` of them one more.
            let kept = holders.iter().zip(&owners).filter(|(holder, owner)| **holder == Some(**owner)).count();
            let held: Vec<usize> = (0..count).map(|it| holders.iter().filter(|holder| **holder == Some(it)).count()).collect();
            let more = held.iter().filter(|held| **held > share).count().min(odd);
            prop_assert_eq!(kept, held.iter().map(|held| *held.min(&share)).sum::<usize>() + more);
            let settled: Vec<Option<usize>> = owners.iter().copied().map(Some).collect();
            prop_assert_eq!(again(&settled), owners);
        }
    }
}
