//! Borrows on behalf of one member in one run: asks, waits for its turn until a deadline, gives back.
//! Refuses to lose anything on the way: a request that was abandoned, or whose answer got lost, is given up at the store
//! with the next step of the same borrower, and by the sweep when the member is gone.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tracing::debug;

use super::{Answer, Ask, Hold, PoolName, PoolStore, Released, Ticket};
use crate::{Epoch, MemberId, StoreError};

/// How long to trust in being called before asking again.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// How soon to ask again when the store is away.
const RETRY: Duration = Duration::from_millis(100);
const CALM: &str = "nobody panics while holding it";

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
    /// Asked for, and not wanted any more.
    abandoned: Arc<Mutex<Vec<(PoolName, Ticket)>>>,
}

impl<P: PoolStore> Borrower<P> {
    /// Borrows for `holder` in `run`.
    pub fn new(pools: P, holder: MemberId, run: Epoch) -> Self {
        Self { pools, holder, run, abandoned: Arc::default() }
    }

    /// Takes something out of `pool`, after everybody who came earlier, within `wait`. Zero does not wait. May be dropped.
    pub async fn acquire(&self, pool: &PoolName, wait: Duration) -> Result<Hold, AcquireError> {
        self.tidy().await;
        let began = Instant::now();
        let ask = Ask { pool: pool.clone(), holder: self.holder.clone(), run: self.run, ticket: Ticket::unique() };
        let mut asking = Asking { ask, abandoned: &self.abandoned, settled: false };
        let outcome = self.turn(&asking.ask, began, wait).await;
        asking.settled = matches!(
            outcome,
            Ok(_) | Err(AcquireError::NoPool { .. } | AcquireError::Gone | AcquireError::Stale { .. })
        );
        drop(asking);
        if outcome.is_err() {
            self.tidy().await;
        }
        outcome
    }

    async fn turn(&self, ask: &Ask, began: Instant, wait: Duration) -> Result<Hold, AcquireError> {
        loop {
            let left = wait.saturating_sub(began.elapsed());
            match self.pools.ask(ask, left).await {
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
                Err(StoreError::Unreachable(_)) if left > RETRY => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives something back. Doing it twice is doing it once.
    pub async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        self.tidy().await;
        self.pools.release(hold).await
    }

    /// Gives up what was abandoned; what cannot be told to the store now is kept for the next time.
    async fn tidy(&self) {
        while let Some((pool, ticket)) = self.first_abandoned() {
            if let Err(error) = self.pools.forget(&pool, &ticket).await {
                debug!(%pool, %error, "could not give up a ticket yet");
                return;
            }
            // Only now: this may be dropped at the await, and forgetting twice is forgetting once.
            self.abandoned.lock().expect(CALM).retain(|(_, other)| *other != ticket);
        }
    }

    fn first_abandoned(&self) -> Option<(PoolName, Ticket)> {
        self.abandoned.lock().expect(CALM).first().cloned()
    }
}

/// A request under way. Dropped before its end, it is to be given up.
struct Asking<'a> {
    ask: Ask,
    abandoned: &'a Mutex<Vec<(PoolName, Ticket)>>,
    settled: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.settled {
            let given_up = (self.ask.pool.clone(), self.ask.ticket.clone());
            self.abandoned.lock().expect(CALM).push(given_up);
        }
    }
}
