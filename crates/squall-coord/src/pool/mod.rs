//! Pools of unique items that users acquire: accounts, sessions, wallets. This module has the
//! operations of a pool store and their outcomes.
//! It does not read payloads, and it does not wait; [`ResourceHolder`] waits. A holder is a member
//! of a lease store. Its items become free when it stops being a member, or when its run ends.

mod fill;
mod memory;
mod names;
mod resource_holder;

use std::{future::Future, time::Duration};

pub use fill::{FillResult, add_pool_items, ensure_pool_size};
pub use memory::MemoryPoolStore;
pub use names::{ItemId, PoolName, PoolNameError, PoolRequestId};
pub use resource_holder::{AcquireError, ResourceHolder};

use crate::{LeaseEpoch, MemberId, Revision, RunEpoch, StoreError};

/// How long a notified waiter may take to repeat its request before the next waiter is notified.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(3);
/// How many waiters of a pool are notified at once. Each one that repeats its request lets the next
/// be notified.
pub(crate) const MAX_NOTIFIED_WAITERS: usize = 100;

/// An item to add to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolItem {
    /// Its id in the pool.
    pub id: ItemId,
    /// The data that its holder gets, usually a JSON object.
    pub payload: String,
}

/// A request for any item of a pool.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// The pool.
    pub pool: PoolName,
    /// The member that will hold the item.
    pub holder: MemberId,
    /// The run that it is for; rejected if a later run has begun.
    pub run: RunEpoch,
    /// The id of the request. A repeated request with the same id counts once: its position in the
    /// queue, or its granted item, stays the same.
    pub request_id: PoolRequestId,
}

/// An item that a member holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLease {
    /// Its pool.
    pub pool: PoolName,
    /// Its id.
    pub id: ItemId,
    /// The member that holds it.
    pub holder: MemberId,
    /// The run for which it is held.
    pub run: RunEpoch,
    /// The number of its grant; every grant of a pool has a higher number than all earlier ones.
    pub grant: LeaseEpoch,
    /// Its payload.
    pub payload: String,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolRequestOutcome {
    /// The item.
    Granted(PoolLease),
    /// The request waits in the queue.
    Queued {
        /// How many earlier requests still wait.
        ahead: u64,
        /// Notifications up to this one are not for this request.
        seen_notifications: Revision,
    },
    /// No item is free, or earlier requests wait for the free ones, and the caller did not want to
    /// wait.
    NoneAvailable,
    /// The pool does not exist.
    NoPool,
    /// The caller is not a member.
    NotMember,
    /// The caller's run has ended; this is the current run.
    RunEnded(RunEpoch),
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolReleaseOutcome {
    /// The item is free.
    Released,
    /// The item is not held by this grant; nothing has changed.
    NotHeld,
    /// The run has ended and nothing has changed; the sweep frees its items. This is the current
    /// run.
    RunEnded(RunEpoch),
}

/// Counts of one pool at one instant: `total` = `available` + `held`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCounts {
    /// The pool.
    pub pool: PoolName,
    /// All its items.
    pub total: u64,
    /// Free items.
    pub available: u64,
    /// Held items.
    pub held: u64,
    /// Requests in the queue.
    pub waiting: u64,
}

/// Counts of all pools.
#[derive(Debug, Default)]
pub struct AllPoolCounts {
    /// Counts, by pool name.
    pub pools: Vec<PoolCounts>,
    /// Pools that cannot be counted because their keys hold foreign data.
    pub failed: Vec<(PoolName, StoreError)>,
}

/// An item and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolItemStatus {
    /// Its id.
    pub id: ItemId,
    /// Its payload.
    pub payload: String,
    /// The holder, if a member holds the item.
    pub held: Option<PoolHolder>,
}

/// The member that holds an item, for which run, and by which grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHolder {
    /// The holder.
    pub member: MemberId,
    /// The run for which it holds the item.
    pub run: RunEpoch,
    /// The number of its grant.
    pub grant: LeaseEpoch,
}

/// The pools of one fleet. Every method except [`list`](Self::list) is atomic for each pool. Only
/// the store's clock decides what has expired. A request that finds no free item sweeps the pool
/// first, so items of expired holders are always found.
pub trait PoolStore: Clone + Send + Sync + 'static {
    /// Adds items that the pool lacks while it has fewer than `up_to`, and returns the added ids.
    /// Payload and id become visible together. Without items it only creates the pool. Items for a
    /// `run` that has ended are ignored; `None` adds items for any run.
    fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<RunEpoch>,
    ) -> impl Future<Output = Result<Vec<ItemId>, StoreError>> + Send;

    /// Empties a pool once per run and returns whether it did. The first call of a run empties it;
    /// further calls, and calls of an earlier run, change nothing.
    fn reset_for_run(&self, pool: &PoolName, run: RunEpoch) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Returns a number below `limit` that this run has not returned yet and that is not the id of
    /// an item, so each item is created once. Returns `None` if no number is left or the run has
    /// ended. The next run returns the number again if its item was not created.
    fn next_item_number(
        &self,
        pool: &PoolName,
        run: RunEpoch,
        limit: Option<u64>,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Acquires an item, or queues the request for `wait`. With a zero `wait` it does not queue.
    fn try_acquire(
        &self,
        request: &PoolRequest,
        wait: Duration,
    ) -> impl Future<Output = Result<PoolRequestOutcome, StoreError>> + Send;

    /// Cancels a request: removes it from the queue, or frees its item. Returns whether there was
    /// one.
    fn cancel_request(
        &self,
        pool: &PoolName,
        request_id: &PoolRequestId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Waits until the request is notified after `seen`, or for `within` at most. It never blocks
    /// other operations.
    fn wait_for_turn(
        &self,
        request: &PoolRequest,
        seen: Revision,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Releases an item.
    fn release(&self, lease: &PoolLease) -> impl Future<Output = Result<PoolReleaseOutcome, StoreError>> + Send;

    /// Releases all items of a member in all pools and removes its queued requests; returns the
    /// number of items. An unusable pool does not stop the others.
    fn release_all(&self, holder: &MemberId) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Frees items whose holders are not members or whose runs have ended, and notifies waiters;
    /// returns the number of items. Idempotent; any client may call it at any time. An unusable
    /// pool does not stop the others.
    fn sweep(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// The names of all pools, in order.
    fn names(&self) -> impl Future<Output = Result<Vec<PoolName>, StoreError>> + Send;

    /// Counts one pool; a missing pool has zero items.
    fn count(&self, pool: &PoolName) -> impl Future<Output = Result<PoolCounts, StoreError>> + Send;

    /// Counts every pool, by name, and returns the errors of those that cannot be counted.
    fn count_all(&self) -> impl Future<Output = Result<AllPoolCounts, StoreError>> + Send {
        async move {
            let mut counted = AllPoolCounts::default();
            for pool in self.names().await? {
                match self.count(&pool).await {
                    Ok(counts) => counted.pools.push(counts),
                    Err(error @ StoreError::Unreachable(_)) => return Err(error),
                    Err(error) => counted.failed.push((pool, error)),
                }
            }
            Ok(counted)
        }
    }

    /// Lists up to `limit` items, in no order. Items that move meanwhile may be missing or listed
    /// twice.
    fn list(
        &self,
        pool: &PoolName,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<PoolItemStatus>, StoreError>> + Send;
}
