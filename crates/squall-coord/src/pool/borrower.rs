//! Borrows on behalf of one member in one run: asks, waits for its turn until a deadline, gives back.
//! Refuses to lose anything on the way: a request that was abandoned, or whose answer got lost, and what could not be given back, are
//! owed to the store. Debts are settled with the next step of the same borrower and by [`Borrower::settling`]; by the sweep when the
//! member or its run is gone.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tracing::debug;

use super::{Answer, Ask, Hold, PoolName, PoolStore, Released, Ticket};
use crate::{Epoch, MemberId, StoreError};

/// How long to trust in being called before asking again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How soon to ask again when the store is away; debts are tried less and less often, up to [`ASK_AGAIN`].
const RETRY: Duration = Duration::from_millis(100);

/// Why nothing was borrowed.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Nothing became free in time, or at once where waiting was not wanted.
    #[error(
        "no `{pool}` {}: make the pool larger, hold resources for less time, or wait longer", waiting(*waited)
    )]
    Exhausted {
        /// The pool.
        pool: PoolName,
        /// How long was waited.
        waited: Duration,
    },
    /// No such pool.
    #[error(
        "there is no resource pool `{pool}`: declare it in the scenario (@resource in Python, [[resource]] in a file), or create it before the run (POST /ensure_resource)"
    )]
    NoPool {
        /// The pool that was asked for.
        pool: PoolName,
    },
    /// The member has expired.
    #[error("this worker is not a member of the fleet any more, so it can hold nothing")]
    Gone,
    /// A later run has begun.
    #[error("this run is over; run {current} has begun")]
    Stale {
        /// The run now.
        current: Epoch,
    },
    /// The store failed until the deadline.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn waiting(waited: Duration) -> String {
    if waited.is_zero() { "was free".to_owned() } else { format!("became free within {waited:?}") }
}

/// One member borrowing in one run. Clones share it.
#[derive(Clone, Debug)]
pub struct Borrower<P> {
    pools: P,
    holder: MemberId,
    run: Epoch,
    debts: Arc<Debts>,
}

impl<P: PoolStore> Borrower<P> {
    /// Borrows for `holder` in `run`.
    pub fn new(pools: P, holder: MemberId, run: Epoch) -> Self {
        Self { pools, holder, run, debts: Arc::default() }
    }

    /// Takes something out of `pool`, after everybody who came earlier, within `wait`. Zero does not wait. May be dropped.
    pub async fn acquire(&self, pool: &PoolName, wait: Duration) -> Result<Hold, AcquireError> {
        self.settle().await;
        let ask = Ask { pool: pool.clone(), holder: self.holder.clone(), run: self.run, ticket: Ticket::unique() };
        let mut asking = self.debts.unless_done(Debt::Ticket(pool.clone(), ask.ticket.clone()));
        let outcome = self.turn(&ask, &mut asking.done, wait).await;
        drop(asking);
        if outcome.is_err() {
            self.settle().await;
        }
        outcome
    }

    /// `done` says in the end whether the store knows nothing of the ticket but what was granted.
    async fn turn(&self, ask: &Ask, done: &mut bool, wait: Duration) -> Result<Hold, AcquireError> {
        let (began, mut all_answered) = (Instant::now(), true);
        loop {
            let left = wait.saturating_sub(began.elapsed());
            let answer = self.pools.ask(ask, left).await;
            // What was asked before and not answered may still come to the store.
            *done = match &answer {
                Ok(Answer::Waiting { .. }) | Err(_) => false,
                Ok(Answer::Empty) => all_answered,
                Ok(Answer::Granted(_) | Answer::NoPool | Answer::Gone | Answer::Stale(_)) => true,
            };
            match answer {
                Ok(Answer::Granted(hold)) => return Ok(hold),
                Ok(Answer::Waiting { seen, .. }) if !left.is_zero() => {
                    let pause = left.min(ASK_AGAIN);
                    if let Err(error) = self.pools.called(ask, seen, pause).await {
                        // Being told is only faster than asking again: then the time passes without it.
                        debug!(pool = %ask.pool, %error, "cannot hear whose turn it is");
                        tokio::time::sleep(pause).await;
                    }
                }
                Ok(Answer::Waiting { .. } | Answer::Empty) => {
                    return Err(AcquireError::Exhausted { pool: ask.pool.clone(), waited: wait });
                }
                Ok(Answer::NoPool) => return Err(AcquireError::NoPool { pool: ask.pool.clone() }),
                Ok(Answer::Gone) => return Err(AcquireError::Gone),
                Ok(Answer::Stale(current)) => return Err(AcquireError::Stale { current }),
                Err(StoreError::Unreachable(_)) if left > RETRY => {
                    all_answered = false;
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives something back. Doing it twice is doing it once. After an error, or if this is dropped, it is owed.
    pub async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        self.settle().await;
        let mut releasing = self.debts.unless_done(Debt::Thing(hold.clone()));
        let outcome = self.pools.release(hold).await;
        releasing.done = outcome.is_ok();
        outcome
    }

    /// Settles debts as they come up, for as long as it is polled; whoever borrows for long has somebody do this.
    pub async fn settling(&self) -> Infallible {
        loop {
            self.debts.news.notified().await;
            self.settled().await;
        }
    }

    /// Waits until nothing is owed; what the store cannot be told is tried again, less and less often.
    pub async fn settled(&self) {
        let mut pause = RETRY;
        while !self.settle().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ASK_AGAIN);
        }
    }

    /// Tells the store what is owed, one after the other; what it cannot be told now is kept. Says whether nothing is left.
    async fn settle(&self) -> bool {
        // Whoever comes meanwhile would only tell the store the same.
        let Ok(_alone) = self.debts.settling.try_lock() else { return false };
        let owed: Vec<(u64, Debt)> = self.debts.lock().iter().map(|(number, debt)| (*number, debt.clone())).collect();
        for (number, debt) in owed {
            match self.pay(&debt).await {
                // Only now: this may be dropped at the await, and telling twice is telling once.
                Ok(()) => drop(self.debts.lock().remove(&number)),
                Err(error) => {
                    debug!(pool = %debt.pool(), %error, "the store could not be told yet what is not needed any more");
                    // A pool that is spoilt stands in nobody else's way.
                    if matches!(error, StoreError::Unreachable(_)) {
                        return false;
                    }
                }
            }
        }
        self.debts.lock().is_empty()
    }

    async fn pay(&self, debt: &Debt) -> Result<(), StoreError> {
        match debt {
            Debt::Ticket(pool, ticket) => self.pools.forget(pool, ticket).await.map(drop),
            Debt::Thing(hold) => self.pools.release(hold).await.map(drop),
        }
    }
}

/// Something that the store does not know yet.
#[derive(Clone, Debug)]
enum Debt {
    /// Asked for, and not wanted any more.
    Ticket(PoolName, Ticket),
    /// Not needed any more.
    Thing(Hold),
}

impl Debt {
    fn pool(&self) -> &PoolName {
        match self {
            Debt::Ticket(pool, _) => pool,
            Debt::Thing(hold) => &hold.pool,
        }
    }
}

#[derive(Debug, Default)]
struct Debts {
    /// By the order in which they came up.
    owed: Mutex<BTreeMap<u64, Debt>>,
    /// Rung when something is owed.
    news: Notify,
    /// Held by whoever settles them.
    settling: tokio::sync::Mutex<()>,
}

impl Debts {
    /// Dropped before it is done, it is owed.
    fn unless_done(&self, debt: Debt) -> UnlessDone<'_> {
        UnlessDone { debts: self, debt, done: false }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Debt>> {
        self.owed.lock().expect("nobody panics while holding it")
    }
}

/// A step under way.
struct UnlessDone<'a> {
    debts: &'a Debts,
    debt: Debt,
    done: bool,
}

impl Drop for UnlessDone<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut owed = self.debts.lock();
            let number = owed.last_key_value().map_or(0, |(last, _)| last + 1);
            owed.insert(number, self.debt.clone());
            self.debts.news.notify_one();
        }
    }
}
