//! Divides the shares of a process among its threads, and keeps it so: a user that goes to another thread begins anew.
//! Refuses to know what a share is good for; which one goes to whom is squall-spread's.

use squall_model::ShareSet;

/// Gives each thread its part of `shares`; `before` is what they had.
///
/// Two threads differ by at most one share, and no other such division leaves more shares with their threads. From nothing they are
/// dealt in turn, so that even a few users keep all threads busy; afterwards those that move are chosen for the same, as
/// between workers. Rounds begin with different threads: a newcomer to a fleet is given about every n-th share of a worker, and those
/// should not all be one thread's.
pub(crate) fn assign_to_threads(shares: ShareSet, before: &[ShareSet]) -> Vec<ShareSet> {
    let threads = before.len();
    let holder = |share: u32| before.iter().position(|part| part.contains(u64::from(share)));
    let holders: Vec<Option<usize>> = shares.iter().map(holder).collect();
    let owners = squall_spread::spread_units(&holders, threads, |round, thread| {
        (thread + first_thread_of_round(round, threads)) % threads
    });
    let mut parts = vec![ShareSet::NONE; threads];
    shares.iter().zip(owners).for_each(|(share, owner)| parts[owner].insert(share));
    parts
}

/// Which thread a round begins with: by the golden ratio, so that every n-th round begins with each thread about as often, whatever n is.
fn first_thread_of_round(round: usize, threads: usize) -> usize {
    let part = (round as u32).wrapping_mul(0x9e37_79b9);
    ((u64::from(part) * threads as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use squall_model::SHARE_COUNT;

    fn sets() -> impl Strategy<Value = ShareSet> {
        (prop::collection::vec(0..SHARE_COUNT, 0..300), any::<bool>()).prop_map(|(shares, all_but)| {
            let some = ShareSet::from_iter(shares);
            if all_but { ShareSet::ALL.without(some) } else { some }
        })
    }

    fn fresh(shares: ShareSet, threads: usize) -> Vec<ShareSet> {
        assign_to_threads(shares, &vec![ShareSet::NONE; threads])
    }

    /// How many shares are with the same thread in both deals.
    fn stay(before: &[ShareSet], after: &[ShareSet]) -> u32 {
        before.iter().zip(after).map(|(before, after)| before.without(before.without(*after)).len()).sum()
    }

    /// By how many of the first shares threads differ at worst.
    fn unevenness(parts: &[ShareSet]) -> usize {
        let mut counts = vec![0; parts.len()];
        let differ = (0..u64::from(SHARE_COUNT)).map(|share| {
            parts.iter().zip(&mut counts).for_each(|(part, count)| *count += usize::from(part.contains(share)));
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        });
        differ.max().unwrap()
    }

    #[test]
    fn two_users_go_to_two_threads() {
        let parts = fresh(ShareSet::ALL, 2);
        assert!(parts.iter().all(|part| part.contains(0) != part.contains(1)));
    }

    /// The shares of somebody who was alone, or one of two or three, when another one comes.
    #[test]
    fn a_newcomer_to_the_fleet_moves_hardly_anybody_between_threads() {
        for (workers, threads) in
            [(1, 2), (1, 4), (2, 2), (2, 4), (3, 2), (3, 4), (4, 8), (1, 8), (7, 2), (7, 4), (5, 2), (5, 3)]
        {
            let mine = ShareSet::ALL.part(0, workers);
            let before = fresh(mine, threads);
            let kept = mine.without(mine.part(workers, workers + 1));
            let after = assign_to_threads(kept, &before);
            let moved = kept.len() - stay(&before, &after);
            assert!(moved * 10 <= kept.len(), "{workers} workers of {threads} threads: {moved} of {}", kept.len());
            assert!(unevenness(&before) <= 1 && unevenness(&after) <= 6, "{workers} workers of {threads} threads");
        }
    }

    proptest! {
        #[test]
        fn every_share_has_one_thread_and_stays_with_it_if_it_can(
            history in prop::collection::vec(sets(), 1..6), threads in 1usize..9,
        ) {
            let mut parts = vec![ShareSet::NONE; threads];
            for shares in history {
                let before = parts.clone();
                parts = assign_to_threads(shares, &before);
                for share in 0..u64::from(SHARE_COUNT) {
                    let owners = parts.iter().filter(|part| part.contains(share)).count();
                    prop_assert_eq!(owners, usize::from(shares.contains(share)));
                }
                let (least, odd) = (shares.len() / threads as u32, shares.len() as usize % threads);
                prop_assert!(parts.iter().all(|part| part.len() == least || part.len() == least + 1));
                // The best that any even division can do: everybody keeps up to its part, `odd` of them one more.
                let held: Vec<u32> = before.iter().map(|part| part.without(part.without(shares)).len()).collect();
                let more = held.iter().filter(|held| **held > least).count().min(odd);
                prop_assert_eq!(stay(&before, &parts), held.iter().map(|held| *held.min(&least)).sum::<u32>() + more as u32);
                prop_assert_eq!(assign_to_threads(shares, &parts), parts.clone(), "nothing has changed");
            }
        }
    }
}
