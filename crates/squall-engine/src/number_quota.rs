//! Numbers that are used once each: one for every iteration of a run with an iteration limit, or
//! one for every row of data. All threads of a process take from one quota, with one lock per block
//! of numbers. A local run has the whole quota from the start; a worker of a fleet receives blocks
//! during the run. The quota does not decide how many numbers there are; the owner of the
//! [`QuotaRefill`] does.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::{Notify, watch};

/// A block is packed into one word: its first number in the upper bits, its length in the lower
/// ones.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// Numbers stay below this, so that they fit into the upper bits.
const MAX_NUMBER: u64 = 1 << (64 - COUNT_BITS);

/// A quota to take numbers from. Clones share it.
#[derive(Debug, Clone)]
pub struct NumberQuota(Arc<QuotaState>);

/// The other end of a quota that receives blocks during the run.
#[derive(Debug)]
pub struct QuotaRefill(Arc<QuotaState>);

/// A quota that must be refilled, because several processes use the same numbers.
#[derive(Debug)]
pub struct SharedCounter {
    /// The name of the counter, the same in every process of the run.
    pub name: String,
    /// The numbers are `0..limit`.
    pub limit: u64,
    pub refill: QuotaRefill,
}

/// The result of [`NumberQuota::try_acquire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaOutcome {
    Number(u64),
    /// The quota is empty, but may be refilled.
    Pending,
    /// All numbers are taken, and no more will be added.
    Exhausted,
}

/// The state of a refilled quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaStatus {
    /// How many attempts found the quota empty since the last block was added.
    pub waiting: u64,
    /// Numbers that are not taken.
    pub available: u64,
    /// Numbers taken in total.
    pub taken: u64,
}

#[derive(Debug)]
struct QuotaState {
    /// The block in use. It is filled only while it is empty and the reserve is locked.
    block: AtomicU64,
    /// At this many numbers left in the block, a refill is requested.
    refill_threshold: AtomicU64,
    reserve: Mutex<QuotaReserve>,
    /// Whether all numbers are taken and no more will be added.
    exhausted: AtomicBool,
    /// Changes when waiting users should try again.
    changes: watch::Sender<u64>,
    refill_requested: Notify,
}

#[derive(Debug, Default)]
struct QuotaReserve {
    blocks: VecDeque<Range<u64>>,
    /// Whether no more blocks will be added.
    closed: bool,
    waiting: u64,
    /// Numbers added in total, without reclaimed ones.
    added: u64,
}

impl QuotaState {
    fn new() -> Arc<QuotaState> {
        Arc::new(QuotaState {
            block: AtomicU64::new(0),
            refill_threshold: AtomicU64::new(0),
            reserve: Mutex::default(),
            exhausted: AtomicBool::new(false),
            changes: watch::Sender::default(),
            refill_requested: Notify::new(),
        })
    }

    fn lock_reserve(&self) -> MutexGuard<'_, QuotaReserve> {
        self.reserve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_waiters(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Marks the quota as exhausted once everything is taken. The caller has locked `reserve`.
    fn update_exhausted(&self, reserve: &QuotaReserve) {
        let empty = reserve.blocks.is_empty() && self.block.load(Ordering::Relaxed) & COUNT_MASK == 0;
        if reserve.closed && empty && !self.exhausted.swap(true, Ordering::Relaxed) {
            self.notify_waiters();
        }
    }
}

impl NumberQuota {
    /// The numbers `0..count`, all available at once.
    pub fn fixed(count: u64) -> NumberQuota {
        let (quota, refill) = NumberQuota::with_refill();
        refill.add_block(0..count.min(MAX_NUMBER));
        refill.close();
        quota
    }

    /// An empty quota, and the end that refills it.
    pub fn with_refill() -> (NumberQuota, QuotaRefill) {
        let state = QuotaState::new();
        (NumberQuota(state.clone()), QuotaRefill(state))
    }

    #[inline]
    pub(crate) fn try_acquire(&self) -> QuotaOutcome {
        let state = &*self.0;
        loop {
            let one = |packed: u64| (packed & COUNT_MASK != 0).then(|| packed + (1 << COUNT_BITS) - 1);
            if let Ok(packed) = state.block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one) {
                let left = (packed & COUNT_MASK) - 1;
                if left == 0 {
                    state.update_exhausted(&state.lock_reserve());
                }
                if left == 0 || left == state.refill_threshold.load(Ordering::Relaxed) {
                    state.refill_requested.notify_one();
                }
                return QuotaOutcome::Number(packed >> COUNT_BITS);
            }
            if let Some(found) = self.load_block() {
                return found;
            }
        }
    }

    /// Moves a block from the reserve into use, or returns why there is none.
    #[cold]
    fn load_block(&self) -> Option<QuotaOutcome> {
        let state = &*self.0;
        let mut reserve = state.lock_reserve();
        if state.block.load(Ordering::Relaxed) & COUNT_MASK != 0 {
            // Another thread has loaded a block.
            return None;
        }
        let Some(first) = reserve.blocks.front_mut() else {
            if reserve.closed {
                return Some(QuotaOutcome::Exhausted);
            }
            reserve.waiting += 1;
            state.refill_requested.notify_one();
            return Some(QuotaOutcome::Pending);
        };
        let count = (first.end - first.start).min(COUNT_MASK);
        state.block.store((first.start << COUNT_BITS) | count, Ordering::Relaxed);
        first.start += count;
        if first.is_empty() {
            reserve.blocks.pop_front();
        }
        None
    }

    /// The next number, as soon as there is one; `None` when there will be none.
    pub async fn acquire(&self) -> Option<u64> {
        let mut changes = None;
        loop {
            match self.try_acquire() {
                QuotaOutcome::Number(number) => return Some(number),
                QuotaOutcome::Exhausted => return None,
                QuotaOutcome::Pending => {}
            }
            match &mut changes {
                // Tries again after subscribing, so that a block added in between is not missed.
                None => changes = Some(self.subscribe()),
                // Cannot fail: this quota holds the sender.
                Some(changes) => drop(changes.changed().await),
            }
        }
    }

    /// A receiver that changes when waiting users should try again.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether all numbers are taken and no more will be added.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.exhausted.load(Ordering::Relaxed)
    }
}

impl QuotaRefill {
    /// Waits until the quota runs low, or its last number was taken.
    pub async fn refill_requested(&self) {
        self.0.refill_requested.notified().await;
    }

    pub fn status(&self) -> QuotaStatus {
        let reserve = self.0.lock_reserve();
        let in_reserve: u64 = reserve.blocks.iter().map(|block| block.end - block.start).sum();
        let available = in_reserve + (self.0.block.load(Ordering::Relaxed) & COUNT_MASK);
        QuotaStatus { waiting: reserve.waiting, available, taken: reserve.added - available }
    }

    /// Adds a block and notifies waiting users.
    pub fn add_block(&self, block: Range<u64>) {
        if block.is_empty() {
            return;
        }
        let mut reserve = self.0.lock_reserve();
        reserve.added += block.end - block.start;
        reserve.waiting = 0;
        reserve.blocks.push_back(block);
        drop(reserve);
        self.0.notify_waiters();
    }

    /// Requests a refill when `left` numbers are left of a block.
    pub fn set_refill_threshold(&self, left: u64) {
        self.0.refill_threshold.store(left.min(COUNT_MASK), Ordering::Relaxed);
    }

    /// Removes and returns all numbers that are not taken.
    pub fn reclaim(&self) -> Vec<Range<u64>> {
        let mut reserve = self.0.lock_reserve();
        let packed = self.0.block.swap(0, Ordering::Relaxed);
        let (first, count) = (packed >> COUNT_BITS, packed & COUNT_MASK);
        let mut reclaimed: Vec<Range<u64>> = reserve.blocks.drain(..).collect();
        if count > 0 {
            reclaimed.push(first..first + count);
        }
        reserve.added -= reclaimed.iter().map(|block| block.end - block.start).sum::<u64>();
        self.0.update_exhausted(&reserve);
        reclaimed
    }

    /// Ends the quota: no more blocks will be added.
    pub fn close(&self) {
        let mut reserve = self.0.lock_reserve();
        reserve.closed = true;
        self.0.update_exhausted(&reserve);
        drop(reserve);
        self.0.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn fixed_quota_gives_each_number_to_one_thread_and_is_then_exhausted() {
        let quota = NumberQuota::fixed(3 * COUNT_MASK / 2);
        fn take_all(quota: &NumberQuota) -> Vec<u64> {
            let take = || match quota.try_acquire() {
                QuotaOutcome::Number(number) => Some(number),
                QuotaOutcome::Exhausted => None,
                QuotaOutcome::Pending => panic!("nothing is to come"),
            };
            std::iter::from_fn(take).collect()
        }
        let all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| take_all(&quota))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(all.len() as u64, 3 * COUNT_MASK / 2);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len() as u64, 3 * COUNT_MASK / 2);
        assert!(quota.is_exhausted());
        assert!(NumberQuota::fixed(0).is_exhausted());
    }

    #[tokio::test]
    async fn waiting_acquire_gets_an_added_number_and_none_after_close() {
        let (quota, refill) = NumberQuota::with_refill();
        let waiting = tokio::spawn({
            let quota = quota.clone();
            async move { [quota.acquire().await, quota.acquire().await] }
        });
        refill.refill_requested().await;
        refill.add_block(7..8);
        // The second `acquire` finds the quota empty and requests a refill.
        refill.refill_requested().await;
        refill.close();
        assert_eq!(waiting.await.expect("no panic"), [Some(7), None]);
        assert_eq!(refill.status(), QuotaStatus { waiting: 0, available: 0, taken: 1 });
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64),
        Take,
        Back,
    }

    proptest! {
        #[test]
        fn every_number_is_either_taken_reclaimed_or_available(
            steps in prop::collection::vec(prop_oneof![
                (0u64..5).prop_map(Step::Add), Just(Step::Take), Just(Step::Take), Just(Step::Take), Just(Step::Back)
            ], 0..60)
        ) {
            let (quota, refill) = NumberQuota::with_refill();
            let (mut next, mut taken, mut reclaimed) = (0, Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Add(count) => {
                        refill.add_block(next..next + count);
                        next += count;
                    }
                    Step::Take => match quota.try_acquire() {
                        QuotaOutcome::Number(number) => taken.push(number),
                        other => {
                            prop_assert_eq!((other, refill.status().available), (QuotaOutcome::Pending, 0));
                            prop_assert!(refill.status().waiting > 0);
                        }
                    },
                    Step::Back => reclaimed.extend(refill.reclaim().into_iter().flatten()),
                }
                prop_assert_eq!(refill.status().taken, taken.len() as u64);
                prop_assert_eq!(refill.status().available, next - (taken.len() + reclaimed.len()) as u64);
            }
            reclaimed.extend(refill.reclaim().into_iter().flatten());
            let mut all: Vec<u64> = taken.into_iter().chain(reclaimed).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..next).collect::<Vec<_>>());
        }
    }
}
