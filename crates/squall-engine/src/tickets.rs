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
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// More than anybody uses.
const MOST: u64 = 1 << (64 - COUNT_BITS);

/// A stock to take from. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Tickets(Arc<Shared>);

/// The other end of a stock that is filled as it goes.
#[derive(Debug)]
pub struct Supply(Arc<Shared>);

/// A stock that has to be supplied, because others use the same numbers.
#[derive(Debug)]
pub struct Ration {
    /// Its name; the same wherever the run is made.
    pub name: String,
    /// The numbers there are: 0 and up to here.
    pub limit: u64,
    pub supply: Supply,
}

/// What came of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Number(u64),
    /// None is here; there may be more.
    Later,
    /// There are no more.
    Over,
}

/// How a supplied stock is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Who asked in vain since something was last added.
    pub waiting: u64,
    /// Numbers that nobody has taken.
    pub in_hand: u64,
    /// Numbers taken in all.
    pub taken: u64,
}

#[derive(Debug)]
struct Shared {
    /// The block being used. Filled only while it is empty and the stock is locked.
    block: AtomicU64,
    /// So few are left in the block that more should come.
    low: AtomicU64,
    stock: Mutex<Stock>,
    /// Over, and everything is taken.
    over: AtomicBool,
    /// Raised whenever those who found nothing should ask again.
    news: watch::Sender<u64>,
    asked: Notify,
}

#[derive(Debug, Default)]
struct Stock {
    blocks: VecDeque<Range<u64>>,
    /// Nothing will be added any more.
    closed: bool,
    waiting: u64,
    /// Added in all, less what was taken back.
    added: u64,
}

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared {
            block: AtomicU64::new(0),
            low: AtomicU64::new(0),
            stock: Mutex::default(),
            over: AtomicBool::new(false),
            news: watch::Sender::default(),
            asked: Notify::new(),
        })
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }

    /// Says that it is over once everything is taken; `stock` is what the caller has locked.
    fn settle(&self, stock: &Stock) {
        let empty = stock.blocks.is_empty() && self.block.load(Ordering::Relaxed) & COUNT == 0;
        if stock.closed && empty && !self.over.swap(true, Ordering::Relaxed) {
            self.tell();
        }
    }
}

impl Tickets {
    /// The numbers 0 to `count`, all of them here.
    pub fn fixed(count: u64) -> Tickets {
        let (tickets, supply) = Tickets::supplied();
        supply.add(0..count.min(MOST));
        supply.close();
        tickets
    }

    /// A stock that is empty, and the end by which it is filled.
    pub fn supplied() -> (Tickets, Supply) {
        let shared = Shared::new();
        (Tickets(shared.clone()), Supply(shared))
    }

    #[inline]
    pub(crate) fn take(&self) -> Taken {
        let shared = &*self.0;
        loop {
            let one = |packed: u64| (packed & COUNT != 0).then(|| packed + (1 << COUNT_BITS) - 1);
            if let Ok(packed) = shared.block.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one) {
                let left = (packed & COUNT) - 1;
                if left == 0 {
                    shared.settle(&shared.stock());
                }
                if left == 0 || left == shared.low.load(Ordering::Relaxed) {
                    shared.asked.notify_one();
                }
                return Taken::Number(packed >> COUNT_BITS);
            }
            if let Some(found) = self.refill() {
                return found;
            }
        }
    }

    /// Moves a block of the stock to where it is taken from; or says why there is none.
    #[cold]
    fn refill(&self) -> Option<Taken> {
        let shared = &*self.0;
        let mut stock = shared.stock();
        if shared.block.load(Ordering::Relaxed) & COUNT != 0 {
            // Somebody else was faster.
            return None;
        }
        let Some(first) = stock.blocks.front_mut() else {
            if stock.closed {
                return Some(Taken::Over);
            }
            stock.waiting += 1;
            shared.asked.notify_one();
            return Some(Taken::Later);
        };
        let count = (first.end - first.start).min(COUNT);
        shared.block.store((first.start << COUNT_BITS) | count, Ordering::Relaxed);
        first.start += count;
        if first.is_empty() {
            stock.blocks.pop_front();
        }
        None
    }

    /// The next number, as soon as there is one; `None` when there are no more.
    pub async fn next(&self) -> Option<u64> {
        let mut news = None;
        loop {
            match self.take() {
                Taken::Number(number) => return Some(number),
                Taken::Over => return None,
                Taken::Later => {}
            }
            match &mut news {
                // Asked once more after beginning to listen: what came in between is not missed.
                None => news = Some(self.news()),
                // Cannot fail: the sender is here.
                Some(news) => drop(news.changed().await),
            }
        }
    }

    /// Changes whenever those who found nothing should ask again.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }

    /// Whether everything is taken and nothing will be added.
    pub(crate) fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }
}

impl Supply {
    /// Waits until more should come, or the last number in hand was taken.
    pub async fn asked(&self) {
        self.0.asked.notified().await;
    }

    pub fn need(&self) -> Need {
        let stock = self.0.stock();
        let here: u64 = stock.blocks.iter().map(|block| block.end - block.start).sum();
        let in_hand = here + (self.0.block.load(Ordering::Relaxed) & COUNT);
        Need { waiting: stock.waiting, in_hand, taken: stock.added - in_hand }
    }

    /// Adds a block; those who wait are told.
    pub fn add(&self, block: Range<u64>) {
        if block.is_empty() {
            return;
        }
        let mut stock = self.0.stock();
        stock.added += block.end - block.start;
        stock.waiting = 0;
        stock.blocks.push_back(block);
        drop(stock);
        self.0.tell();
    }

    /// More should come when so few are left of a block.
    pub fn low(&self, left: u64) {
        self.0.low.store(left.min(COUNT), Ordering::Relaxed);
    }

    /// Takes everything back that nobody has taken.
    pub fn take_back(&self) -> Vec<Range<u64>> {
        let mut stock = self.0.stock();
        let packed = self.0.block.swap(0, Ordering::Relaxed);
        let (first, count) = (packed >> COUNT_BITS, packed & COUNT);
        let mut back: Vec<Range<u64>> = stock.blocks.drain(..).collect();
        if count > 0 {
            back.push(first..first + count);
        }
        stock.added -= back.iter().map(|block| block.end - block.start).sum::<u64>();
        self.0.settle(&stock);
        back
    }

    /// Nothing will be added any more.
    pub fn close(&self) {
        let mut stock = self.0.stock();
        stock.closed = true;
        self.0.settle(&stock);
        drop(stock);
        self.0.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fixed_stock_is_taken_once_by_many_threads_and_then_over() {
        let tickets = Tickets::fixed(3 * COUNT / 2);
        fn take_all(tickets: &Tickets) -> Vec<u64> {
            let take = || match tickets.take() {
                Taken::Number(number) => Some(number),
                Taken::Over => None,
                Taken::Later => panic!("nothing is to come"),
            };
            std::iter::from_fn(take).collect()
        }
        let all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| take_all(&tickets))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(all.len() as u64, 3 * COUNT / 2);
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len() as u64, 3 * COUNT / 2);
        assert!(tickets.is_over());
        assert!(Tickets::fixed(0).is_over());
    }

    #[tokio::test]
    async fn who_waits_is_told_what_comes_and_that_it_is_over() {
        let (tickets, supply) = Tickets::supplied();
        let waiting = tokio::spawn({
            let tickets = tickets.clone();
            async move { [tickets.next().await, tickets.next().await] }
        });
        supply.asked().await;
        supply.add(7..8);
        // Asks again, or sees at once that there is none.
        supply.asked().await;
        supply.close();
        assert_eq!(waiting.await.expect("no panic"), [Some(7), None]);
        assert_eq!(supply.need(), Need { waiting: 0, in_hand: 0, taken: 1 });
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
            let (tickets, supply) = Tickets::supplied();
            let (mut next, mut taken, mut back) = (0, Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Add(count) => {
                        supply.add(next..next + count);
                        next += count;
                    }
                    Step::Take => match tickets.take() {
                        Taken::Number(number) => taken.push(number),
                        other => {
                            prop_assert_eq!((other, supply.need().in_hand), (Taken::Later, 0));
                            prop_assert!(supply.need().waiting > 0);
                        }
                    },
                    Step::Back => back.extend(supply.take_back().into_iter().flatten()),
                }
                prop_assert_eq!(supply.need().taken, taken.len() as u64);
                prop_assert_eq!(supply.need().in_hand, next - (taken.len() + back.len()) as u64);
            }
            back.extend(supply.take_back().into_iter().flatten());
            let mut all: Vec<u64> = taken.into_iter().chain(back).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..next).collect::<Vec<_>>());
        }
    }
}
