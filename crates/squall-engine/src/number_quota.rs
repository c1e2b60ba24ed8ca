//! Numbers that are used once each: one for every iteration of a run that has so many and no more, or for every row of data. All threads of a
//! process take from one stock without a lock but once a block; a local run has the whole stock from the beginning, a member of a fleet is
//! supplied with blocks as it goes. Decides nothing: who supplies says how many and when it is over.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::{Notify, watch};

/// How a block is packed into one word: its first number above, how many there are below.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// More than anybody uses.
const MAX_NUMBER: u64 = 1 << (64 - COUNT_BITS);

/// A stock to take from. Cloning shares it.
#[derive(Debug, Clone)]
pub struct NumberQuota(Arc<QuotaState>);

/// The other end of a stock that is filled as it goes.
#[derive(Debug)]
pub struct QuotaRefill(Arc<QuotaState>);

/// A stock that has to be supplied, because others use the same numbers.
#[derive(Debug)]
pub struct SharedCounter {
    /// Its name; the same wherever the run is made.
    pub name: String,
    /// The numbers there are: 0 and up to here.
    pub limit: u64,
    pub refill: QuotaRefill,
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuotaOutcome {
    Number(u64),
    /// None is here; there may be more.
    Pending,
    /// There are no more.
    Exhausted,
}

/// How a supplied stock is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaStatus {
    /// Who asked in vain since something was last added.
    pub waiting: u64,
    /// Numbers that nobody has taken.
    pub available: u64,
    /// Numbers taken in all.
    pub taken: u64,
}

#[derive(Debug)]
struct QuotaState {
    /// The block being used. Filled only while it is empty and the stock is locked.
    block: AtomicU64,
    /// So few are left in the block that more should come.
    refill_threshold: AtomicU64,
    reserve: Mutex<QuotaReserve>,
    /// Over, and everything is taken.
    exhausted: AtomicBool,
    /// Raised whenever those who found nothing should ask again.
    changes: watch::Sender<u64>,
    refill_requested: Notify,
}

#[derive(Debug, Default)]
struct QuotaReserve {
    blocks: VecDeque<Range<u64>>,
    /// Nothing will be added any more.
    closed: bool,
    waiting: u64,
    /// Added in all, less what was taken back.
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
        self.changes.send_modify(|news| *news += 1);
    }

    /// Says that it is over once everything is taken; `stock` is what the caller has locked.
    fn update_exhausted(&self, stock: &QuotaReserve) {
        let empty = stock.blocks.is_empty() && self.block.load(Ordering::Relaxed) & COUNT_MASK == 0;
        if stock.closed && empty && !self.exhausted.swap(true, Ordering::Relaxed) {
            self.notify_waiters();
        }
    }
}

impl NumberQuota {
    /// The numbers 0 to `count`, all of them here.
    pub fn fixed(count: u64) -> NumberQuota {
        let (tickets, supply) = NumberQuota::with_refill();
        supply.add_block(0..count.min(MAX_NUMBER));
        supply.close();
        tickets
    }

    /// A stock that is empty, and the end by which it is filled.
    pub fn with_refill() -> (NumberQuota, QuotaRefill) {
        let shared = QuotaState::new();
        (NumberQuota(shared.clone()), QuotaRefill(shared))
    }

    #[inline]
    pub(crate) fn try_acquire(&self) -> QuotaOutcome {
        let shared = &*self.0;
        loop {
            let one = |packed: u64| (packed & COUNT_MASK != 0).then(|| packed + (1 << COUNT_BITS) - 1);
            if let Ok(packed) = shared.block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one) {
                let left = (packed & COUNT_MASK) - 1;
                if left == 0 {
                    shared.update_exhausted(&shared.lock_reserve());
                }
                if left == 0 || left == shared.refill_threshold.load(Ordering::Relaxed) {
                    shared.refill_requested.notify_one();
                }
                return QuotaOutcome::Number(packed >> COUNT_BITS);
            }
            if let Some(found) = self.load_block() {
                return found;
            }
        }
    }

    /// Moves a block of the stock to where it is taken from; or says why there is none.
    #[cold]
    fn load_block(&self) -> Option<QuotaOutcome> {
        let shared = &*self.0;
        let mut stock = shared.lock_reserve();
        if shared.block.load(Ordering::Relaxed) & COUNT_MASK != 0 {
            // Somebody else was faster.
            return None;
        }
        let Some(first) = stock.blocks.front_mut() else {
            if stock.closed {
                return Some(QuotaOutcome::Exhausted);
            }
            stock.waiting += 1;
            shared.refill_requested.notify_one();
            return Some(QuotaOutcome::Pending);
        };
        let count = (first.end - first.start).min(COUNT_MASK);
        shared.block.store((first.start << COUNT_BITS) | count, Ordering::Relaxed);
        first.start += count;
        if first.is_empty() {
            stock.blocks.pop_front();
        }
        None
    }

    /// The next number, as soon as there is one; `None` when there are no more.
    pub async fn acquire(&self) -> Option<u64> {
        let mut news = None;
        loop {
            match self.try_acquire() {
                QuotaOutcome::Number(number) => return Some(number),
                QuotaOutcome::Exhausted => return None,
                QuotaOutcome::Pending => {}
            }
            match &mut news {
                // Asked once more after beginning to listen: what came in between is not missed.
                None => news = Some(self.subscribe()),
                // Cannot fail: the sender is here.
                Some(news) => drop(news.changed().await),
            }
        }
    }

    /// Changes whenever those who found nothing should ask again.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Whether everything is taken and nothing will be added.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.0.exhausted.load(Ordering::Relaxed)
    }
}

impl QuotaRefill {
    /// Waits until more should come, or the last number in hand was taken.
    pub async fn refill_requested(&self) {
        self.0.refill_requested.notified().await;
    }

    pub fn status(&self) -> QuotaStatus {
        let stock = self.0.lock_reserve();
        let here: u64 = stock.blocks.iter().map(|block| block.end - block.start).sum();
        let in_hand = here + (self.0.block.load(Ordering::Relaxed) & COUNT_MASK);
        QuotaStatus { waiting: stock.waiting, available: in_hand, taken: stock.added - in_hand }
    }

    /// Adds a block; those who wait are told.
    pub fn add_block(&self, block: Range<u64>) {
        if block.is_empty() {
            return;
        }
        let mut stock = self.0.lock_reserve();
        stock.added += block.end - block.start;
        stock.waiting = 0;
        stock.blocks.push_back(block);
        drop(stock);
        self.0.notify_waiters();
    }

    /// More should come when so few are left of a block.
    pub fn set_refill_threshold(&self, left: u64) {
        self.0.refill_threshold.store(left.min(COUNT_MASK), Ordering::Relaxed);
    }

    /// Takes everything back that nobody has taken.
    pub fn reclaim(&self) -> Vec<Range<u64>> {
        let mut stock = self.0.lock_reserve();
        let packed = self.0.block.swap(0, Ordering::Relaxed);
        let (first, count) = (packed >> COUNT_BITS, packed & COUNT_MASK);
        let mut back: Vec<Range<u64>> = stock.blocks.drain(..).collect();
        if count > 0 {
            back.push(first..first + count);
        }
        stock.added -= back.iter().map(|block| block.end - block.start).sum::<u64>();
        self.0.update_exhausted(&stock);
        back
    }

    /// Nothing will be added any more.
    pub fn close(&self) {
        let mut stock = self.0.lock_reserve();
        stock.closed = true;
        self.0.update_exhausted(&stock);
        drop(stock);
        self.0.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fixed_stock_is_taken_once_by_many_threads_and_then_over() {
        let tickets = NumberQuota::fixed(3 * COUNT_MASK / 2);
        fn take_all(tickets: &NumberQuota) -> Vec<u64> {
            let take = || match tickets.try_acquire() {
                QuotaOutcome::Number(number) => Some(number),
                QuotaOutcome::Exhausted => None,
                QuotaOutcome::Pending => panic!("nothing is to come"),
            };
            std::iter::from_fn(take).collect()
        }
        let all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| take_all(&tickets))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(all.len() as u64, 3 * COUNT_MASK / 2);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len() as u64, 3 * COUNT_MASK / 2);
        assert!(tickets.is_exhausted());
        assert!(NumberQuota::fixed(0).is_exhausted());
    }

    #[tokio::test]
    async fn who_waits_is_told_what_comes_and_that_it_is_over() {
        let (tickets, supply) = NumberQuota::with_refill();
        let waiting = tokio::spawn({
            let tickets = tickets.clone();
            async move { [tickets.acquire().await, tickets.acquire().await] }
        });
        supply.refill_requested().await;
        supply.add_block(7..8);
        // Asks again, or sees at once that there is none.
        supply.refill_requested().await;
        supply.close();
        assert_eq!(waiting.await.expect("no panic"), [Some(7), None]);
        assert_eq!(supply.status(), QuotaStatus { waiting: 0, available: 0, taken: 1 });
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64),
        Take,
        Back,
    }

    proptest! {
        #[test]
        fn every_number_is_taken_taken_back_or_still_here(
            steps in prop::collection::vec(prop_oneof![
                (0u64..5).prop_map(Step::Add), Just(Step::Take), Just(Step::Take), Just(Step::Take), Just(Step::Back)
            ], 0..60)
        ) {
            let (tickets, supply) = NumberQuota::with_refill();
            let (mut next, mut taken, mut back) = (0, Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Add(count) => {
                        supply.add_block(next..next + count);
                        next += count;
                    }
                    Step::Take => match tickets.try_acquire() {
                        QuotaOutcome::Number(number) => taken.push(number),
                        other => {
                            prop_assert_eq!((other, supply.status().available), (QuotaOutcome::Pending, 0));
                            prop_assert!(supply.status().waiting > 0);
                        }
                    },
                    Step::Back => back.extend(supply.reclaim().into_iter().flatten()),
                }
                prop_assert_eq!(supply.status().taken, taken.len() as u64);
                prop_assert_eq!(supply.status().available, next - (taken.len() + back.len()) as u64);
            }
            back.extend(supply.reclaim().into_iter().flatten());
            let mut all: Vec<u64> = taken.into_iter().chain(back).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..next).collect::<Vec<_>>());
        }
    }
}
