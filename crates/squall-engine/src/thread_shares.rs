//! Divides the shares of a process among its threads. Shares stay with their thread where possible,
//! because a user that moves to another thread starts anew. It does not decide which worker has
//! which share: the oldest workers do (squall-coord `membership`).

use squall_model::ShareSet;

/// As [`assign_to_threads`], for the first `count` threads only. A later thread gets shares only if it
/// or a thread after it has some already: to take them away would start its users anew elsewhere.
pub(crate) fn assign_to_first_threads(shares: ShareSet, previous: &[ShareSet], count: usize) -> Vec<ShareSet> {
    let in_use = previous.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
    let mut parts = assign_to_threads(shares, &previous[..count.max(in_use).min(previous.len())]);
    parts.resize(previous.len(), ShareSet::NONE);
    parts
}

/// Gives each thread its part of `shares`; `previous` is the part that it had.
///
/// Two threads differ by at most one share, and no other such division leaves more shares with
/// their threads. At first, shares are dealt in turn, so that even a few users keep all threads
/// busy; later moves keep that order, as between workers. Rounds begin with different threads: a
/// new worker takes about every n-th share of a worker, and these should not all belong to one
/// thread.
fn assign_to_threads(shares: ShareSet, previous: &[ShareSet]) -> Vec<ShareSet> {
    let threads = previous.len();
    let holder = |share: u32| previous.iter().position(|part| part.contains(u64::from(share)));
    let holders: Vec<Option<usize>> = shares.iter().map(holder).collect();
    let owners = squall_spread::spread_units(&holders, threads, |round, thread| {
        (thread + first_thread_of_round(round, threads)) % threads
    });
    let mut parts = vec![ShareSet::NONE; threads];
    shares.iter().zip(owners).for_each(|(share, owner)| parts[owner].insert(share));
    parts
}

/// The thread with which a round begins: by the golden ratio, so that for any n every n-th round
/// begins with each thread about equally often.
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

    /// How many shares are with the same thread in both divisions.
    fn stay(previous: &[ShareSet], after: &[ShareSet]) -> u32 {
        previous.iter().zip(after).map(|(previous, after)| previous.without(previous.without(*after)).len()).sum()
    }

    /// The largest difference between threads in the number of the first shares.
    fn unevenness(parts: &[ShareSet]) -> usize {
        let mut counts = vec![0; parts.len()];
        let differ = (0..u64::from(SHARE_COUNT)).map(|share| {
            parts.iter().zip(&mut counts).for_each(|(part, count)| *count += usize::from(part.contains(share)));
            counts.iter().max().unwrap() - counts.iter().min().unwrap()
        });
        differ.max().unwrap()
    }

    #[test]
    fn first_two_users_are_on_different_threads() {
        let parts = fresh(ShareSet::ALL, 2);
        assert!(parts.iter().all(|part| part.contains(0) != part.contains(1)));
    }

    #[test]
    fn first_threads_get_all_shares_and_a_thread_with_shares_keeps_some() {
        let none = [ShareSet::NONE; 4];
        let sizes = |parts: &[ShareSet]| parts.iter().map(ShareSet::len).collect::<Vec<_>>();
        let two = assign_to_first_threads(ShareSet::ALL, &none, 2);
        assert_eq!(sizes(&two), [128, 128, 0, 0]);
        assert_eq!(sizes(&assign_to_first_threads(ShareSet::ALL, &two, 4)), [64; 4]);
        assert_eq!(assign_to_first_threads(ShareSet::ALL, &two, 1), two);
        assert_eq!(sizes(&assign_to_first_threads(ShareSet::ALL, &none, usize::MAX)), [64; 4]);
    }

    /// One of several workers gives shares to a new worker.
    #[test]
    fn new_worker_moves_at_most_a_tenth_of_kept_shares_between_threads() {
        for (workers, threads) in
            [(1, 2), (1, 4), (2, 2), (2, 4), (3, 2), (3, 4), (4, 8), (1, 8), (7, 2), (7, 4), (5, 2), (5, 3)]
        {
            let mine = ShareSet::ALL.part(0, workers);
            let previous = fresh(mine, threads);
            let kept = mine.without(mine.part(workers, workers + 1));
            let after = assign_to_threads(kept, &previous);
            let moved = kept.len() - stay(&previous, &after);
            assert!(moved * 10 <= kept.len(), "{workers} workers of {threads} threads: {moved} of {}", kept.len());
            assert!(unevenness(&previous) <= 1 && unevenness(&after) <= 6, "{workers} workers of {threads} threads");
        }
    }

    proptest! {
        #[test]
        fn every_share_has_one_thread_and_the_fewest_shares_move(
            history in prop::collection::vec(sets(), 1..6), threads in 1usize..9,
        ) {
            let mut parts = vec![ShareSet::NONE; threads];
            for shares in history {
                let previous = parts.clone();
                parts = assign_to_threads(shares, &previous);
                for share in 0..u64::from(SHARE_COUNT) {
                    let owners = parts.iter().filter(|part| part.contains(share)).count();
                    prop_assert_eq!(owners, usize::from(shares.contains(share)));
                }
                let (least, odd) = (shares.len() / threads as u32, shares.len() as usize % threads);
                prop_assert!(parts.iter().all(|part| part.len() == least || part.len() == least + 1));
                // The best even division: each thread keeps up to its part, and `odd` threads one
                // more.
                let held: Vec<u32> = previous.iter().map(|part| part.without(part.without(shares)).len()).collect();
                let more = held.iter().filter(|held| **held > least).count().min(odd);
                prop_assert_eq!(stay(&previous, &parts), held.iter().map(|held| *held.min(&least)).sum::<u32>() + more as u32);
                prop_assert_eq!(assign_to_threads(shares, &parts), parts.clone(), "nothing has changed");
            }
        }
    }
}
