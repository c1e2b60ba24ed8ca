//! Borrows on behalf of one member in one run: asks, waits for its turn until a deadline, gives back.
//! Refuses to lose anything on the way: a request that was abandoned, or whose answer got lost, and what could not be given back, are
//! owed to the store. Debts are settled with the next step of the same borrower and by [`ResourceHolder::settling`]; by the sweep when the
//! member or its run is gone.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tracing::debug;

use super::{PoolLease, PoolName, PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore};
use crate::{Epoch, MemberId, StoreError};

/// How long to trust in being called before asking again.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How soon to ask again when the store is away; debts are tried less and less often, up to [`ASK_AGAIN`].
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why nothing was borrowed.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// Nothing became free in time, or at once where waiting was not wanted.
    #[error(
        "no `{pool}` {}: make the pool larger, hold resources for less time, or wait longer", describe_wait(*waited)
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
    NotMember,
    /// A later run has begun.
    #[error("this run is over; run {current} has begun")]
    RunEnded {
        /// The run now.
        current: Epoch,
    },
    /// The store failed until the deadline.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn describe_wait(waited: Duration) -> String {
    if waited.is_zero() { "was free".to_owned() } else { format!("became free within {waited:?}") }
}

/// One member borrowing in one run. Clones share it.
#[derive(Clone, Debug)]
pub struct ResourceHolder<P> {
    pools: P,
    holder: MemberId,
    run: Epoch,
    cleanup: Arc<CleanupQueue>,
}

impl<P: PoolStore> ResourceHolder<P> {
    /// Borrows for `holder` in `run`.
    pub fn new(pools: P, holder: MemberId, run: Epoch) -> Self {
        Self { pools, holder, run, cleanup: Arc::default() }
    }

    /// Takes something out of `pool`, after everybody who came earlier, within `wait`. Zero does not wait. May be dropped.
    pub async fn acquire(&self, pool: &PoolName, wait: Duration) -> Result<PoolLease, AcquireError> {
        self.flush_cleanup().await;
        let request = PoolRequest {
            pool: pool.clone(),
            holder: self.holder.clone(),
            run: self.run,
            request_id: PoolRequestId::unique(),
        };
        let mut guard = self.cleanup.guard(CleanupAction::CancelRequest(pool.clone(), request.request_id.clone()));
        let outcome = self.request_until_granted(&request, &mut guard.done, wait).await;
        drop(guard);
        if outcome.is_err() {
            self.flush_cleanup().await;
        }
        outcome
    }

    /// `done` says in the end whether the store knows nothing of the ticket but what was granted.
    async fn request_until_granted(
        &self,
        request: &PoolRequest,
        done: &mut bool,
        wait: Duration,
    ) -> Result<PoolLease, AcquireError> {
        let (started, mut all_replied) = (Instant::now(), true);
        loop {
            let remaining = wait.saturating_sub(started.elapsed());
            let outcome = self.pools.try_acquire(request, remaining).await;
            // What was asked before and not answered may still come to the store.
            *done = match &outcome {
                Ok(PoolRequestOutcome::Queued { .. }) | Err(_) => false,
                Ok(PoolRequestOutcome::NoneAvailable) => all_replied,
                Ok(
                    PoolRequestOutcome::Granted(_)
                    | PoolRequestOutcome::NoPool
                    | PoolRequestOutcome::NotMember
                    | PoolRequestOutcome::RunEnded(_),
                ) => true,
            };
            match outcome {
                Ok(PoolRequestOutcome::Granted(lease)) => return Ok(lease),
                Ok(PoolRequestOutcome::Queued { seen_notifications: seen, .. }) if !remaining.is_zero() => {
                    let pause = remaining.min(POLL_INTERVAL);
                    if let Err(error) = self.pools.wait_for_turn(request, seen, pause).await {
                        // Being told is only faster than asking again: then the time passes without it.
                        debug!(pool = %request.pool, %error, "cannot hear whose turn it is");
                        tokio::time::sleep(pause).await;
                    }
                }
                Ok(PoolRequestOutcome::Queued { .. } | PoolRequestOutcome::NoneAvailable) => {
                    return Err(AcquireError::Exhausted { pool: request.pool.clone(), waited: wait });
                }
                Ok(PoolRequestOutcome::NoPool) => return Err(AcquireError::NoPool { pool: request.pool.clone() }),
                Ok(PoolRequestOutcome::NotMember) => return Err(AcquireError::NotMember),
                Ok(PoolRequestOutcome::RunEnded(current)) => return Err(AcquireError::RunEnded { current }),
                Err(StoreError::Unreachable(_)) if remaining > RETRY_DELAY => {
                    all_replied = false;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives something back. Doing it twice is doing it once. After an error, or if this is dropped, it is owed.
    pub async fn release(&self, lease: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        self.flush_cleanup().await;
        let mut guard = self.cleanup.guard(CleanupAction::ReleaseLease(lease.clone()));
        let outcome = self.pools.release(lease).await;
        guard.done = outcome.is_ok();
        outcome
    }

    /// Settles debts as they come up, for as long as it is polled; whoever borrows for long has somebody do this.
    pub async fn run_cleanup(&self) -> Infallible {
        loop {
            self.cleanup.added.notified().await;
            self.finish_cleanup().await;
        }
    }

    /// Waits until nothing is owed; what the store cannot be told is tried again, less and less often.
    pub async fn finish_cleanup(&self) {
        let mut pause = RETRY_DELAY;
        while !self.flush_cleanup().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_INTERVAL);
        }
    }

    /// Tells the store what is owed, one after the other; what it cannot be told now is kept. Says whether nothing is left.
    async fn flush_cleanup(&self) -> bool {
        // Whoever comes meanwhile would only tell the store the same.
        let Ok(_flushing) = self.cleanup.flush_lock.try_lock() else { return false };
        let pending: Vec<(u64, CleanupAction)> =
            self.cleanup.lock().iter().map(|(number, action)| (*number, action.clone())).collect();
        for (number, action) in pending {
            match self.perform(&action).await {
                // Only now: this may be dropped at the await, and telling twice is telling once.
                Ok(()) => drop(self.cleanup.lock().remove(&number)),
                Err(error) => {
                    debug!(pool = %action.pool(), %error, "the store could not be told yet what is not needed any more");
                    // A pool that is spoilt stands in nobody else's way.
                    if matches!(error, StoreError::Unreachable(_)) {
                        return false;
                    }
                }
            }
        }
        self.cleanup.lock().is_empty()
    }

    async fn perform(&self, action: &CleanupAction) -> Result<(), StoreError> {
        match action {
            CleanupAction::CancelRequest(pool, request_id) => {
                self.pools.cancel_request(pool, request_id).await.map(drop)
            }
            CleanupAction::ReleaseLease(lease) => self.pools.release(lease).await.map(drop),
        }
    }
}

/// Something that the store does not know yet.
#[derive(Clone, Debug)]
enum CleanupAction {
    /// Asked for, and not wanted any more.
    CancelRequest(PoolName, PoolRequestId),
    /// Not needed any more.
    ReleaseLease(PoolLease),
}

impl CleanupAction {
    fn pool(&self) -> &PoolName {
        match self {
            CleanupAction::CancelRequest(pool, _) => pool,
            CleanupAction::ReleaseLease(lease) => &lease.pool,
        }
    }
}

#[derive(Debug, Default)]
struct CleanupQueue {
    /// By the order in which they came up.
    pending: Mutex<BTreeMap<u64, CleanupAction>>,
    /// Rung when something is owed.
    added: Notify,
    /// Held by whoever settles them.
    flush_lock: tokio::sync::Mutex<()>,
}

impl CleanupQueue {
    /// Dropped before it is done, it is owed.
    fn guard(&self, action: CleanupAction) -> CleanupGuard<'_> {
        CleanupGuard { queue: self, action, done: false }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CleanupAction>> {
        self.pending.lock().expect("nobody panics while holding it")
    }
}

/// A step under way.
struct CleanupGuard<'a> {
    queue: &'a CleanupQueue,
    action: CleanupAction,
    done: bool,
}

impl Drop for CleanupGuard<'_> {
    fn drop(&mut self) {
        if !self.done {
            let mut pending = self.queue.lock();
            let number = pending.last_key_value().map_or(0, |(last, _)| last + 1);
            pending.insert(number, self.action.clone());
            self.queue.added.notify_one();
        }
    }
}
