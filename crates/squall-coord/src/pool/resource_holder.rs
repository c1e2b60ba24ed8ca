//! Acquires items for one member in one run: it sends the request, waits for its turn until a
//! deadline, and releases.
//! It leaks nothing. An abandoned request, a request whose reply was lost, and a failed release go
//! into a cleanup queue. The next call of the same holder and [`ResourceHolder::run_cleanup`] work
//! it off; the sweep frees the rest when the member expires or its run ends. squall-worker's
//! resource server uses it.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tracing::debug;

use super::{PoolLease, PoolName, PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore};
use crate::{MemberId, RunEpoch, StoreError};

/// How long to wait for a notification before the request is repeated.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Delay before a request is repeated while the store is unreachable. Cleanup retries double it up
/// to [`POLL_INTERVAL`].
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why no item was acquired.
#[derive(Debug, thiserror::Error)]
pub enum AcquireError {
    /// No item became free in time, or none was free and the caller did not want to wait.
    #[error(
        "no `{pool}` {}: make the pool larger, hold resources for less time, or wait longer", describe_wait(*waited)
    )]
    Exhausted {
        /// The pool.
        pool: PoolName,
        /// How long the caller waited.
        waited: Duration,
    },
    /// The pool does not exist.
    #[error(
        "there is no resource pool `{pool}`: declare it in the scenario (@resource in Python, [[resource]] in a file), or create it before the run (POST /ensure_resource)"
    )]
    NoPool {
        /// The requested pool.
        pool: PoolName,
    },
    /// The member has expired.
    #[error("this worker's membership of the fleet has expired, so it can hold no resources")]
    NotMember,
    /// A later run has begun.
    #[error("this run has ended; run {current} has begun")]
    RunEnded {
        /// The current run.
        current: RunEpoch,
    },
    /// The store failed until the deadline.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn describe_wait(waited: Duration) -> String {
    if waited.is_zero() { "was free".to_owned() } else { format!("became free within {waited:?}") }
}

/// One member that acquires items in one run. Clones share it.
#[derive(Clone, Debug)]
pub struct ResourceHolder<P> {
    pools: P,
    holder: MemberId,
    run: RunEpoch,
    cleanup: Arc<CleanupQueue>,
}

impl<P: PoolStore> ResourceHolder<P> {
    /// Acquires items for `holder` in `run`.
    pub fn new(pools: P, holder: MemberId, run: RunEpoch) -> Self {
        Self { pools, holder, run, cleanup: Arc::default() }
    }

    /// Acquires an item of `pool` within `wait`, after all earlier requests. With a zero `wait` it
    /// does not wait. The future may be dropped at any time.
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

    /// Sets `done` if the store holds nothing of the request except what it returns.
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
            // An earlier request without a reply may still reach the store.
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
                        // A notification is only faster than the next poll, so the wait continues
                        // without it.
                        debug!(pool = %request.pool, %error, "cannot receive turn notifications; polling instead");
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

    /// Releases an item. A second release changes nothing. After an error, or if the future is
    /// dropped, the release goes into the cleanup queue.
    pub async fn release(&self, lease: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        self.flush_cleanup().await;
        let mut guard = self.cleanup.guard(CleanupAction::ReleaseLease(lease.clone()));
        let outcome = self.pools.release(lease).await;
        guard.done = outcome.is_ok();
        outcome
    }

    /// Works off the cleanup queue for as long as it is polled. A long-lived holder runs this in a
    /// task.
    pub async fn run_cleanup(&self) -> Infallible {
        loop {
            self.cleanup.added.notified().await;
            self.finish_cleanup().await;
        }
    }

    /// Waits until the cleanup queue is empty. It retries failed actions with growing pauses.
    pub async fn finish_cleanup(&self) {
        let mut pause = RETRY_DELAY;
        while !self.flush_cleanup().await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_INTERVAL);
        }
    }

    /// Performs the queued actions in order, keeps those that fail, and returns whether the queue
    /// is empty.
    async fn flush_cleanup(&self) -> bool {
        // A concurrent call would only repeat the same actions.
        let Ok(_flushing) = self.cleanup.flush_lock.try_lock() else { return false };
        let pending: Vec<(u64, CleanupAction)> =
            self.cleanup.lock().iter().map(|(number, action)| (*number, action.clone())).collect();
        for (number, action) in pending {
            match self.perform(&action).await {
                // Removed only now, because this future may be dropped at the await. Repeating an
                // action is harmless.
                Ok(()) => drop(self.cleanup.lock().remove(&number)),
                Err(error) => {
                    debug!(pool = %action.pool(), %error, "cleanup action failed; it is kept for a retry");
                    // A broken pool must not block the cleanup of others.
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

/// An action that the store has not performed yet.
#[derive(Clone, Debug)]
enum CleanupAction {
    /// Cancel a request that is not needed.
    CancelRequest(PoolName, PoolRequestId),
    /// Release an item that is not needed.
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
    /// Actions in order of arrival.
    pending: Mutex<BTreeMap<u64, CleanupAction>>,
    /// Notified when an action is added.
    added: Notify,
    /// Held during a flush, so that only one runs at a time.
    flush_lock: tokio::sync::Mutex<()>,
}

impl CleanupQueue {
    /// Guards an operation in progress: if it is dropped before `done`, `action` is queued.
    fn guard(&self, action: CleanupAction) -> CleanupGuard<'_> {
        CleanupGuard { queue: self, action, done: false }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, CleanupAction>> {
        self.pending.lock().expect("no code panics while it holds the lock")
    }
}

/// Queues its action on drop unless the operation is done.
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
