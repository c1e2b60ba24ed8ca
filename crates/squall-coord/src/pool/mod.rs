//! Pools of unique things that users borrow: accounts, sessions, wallets. The atomic steps, and what they answer.
//! Refuses to know what is inside a payload, and to wait: [`ResourceHolder`] waits. A holder is a member of a space; what it
//! holds goes back when it is no member any more, or when its run is over.

mod fill;
mod memory;
mod names;
mod resource_holder;

use std::{future::Future, time::Duration};

pub use fill::{FillResult, add_pool_items, ensure_pool_size};
pub use memory::MemoryPoolStore;
pub use names::{ItemId, PoolName, PoolNameError, PoolRequestId};
pub use resource_holder::{AcquireError, ResourceHolder};

use crate::{Epoch, MemberId, Revision, StoreError};

/// How long somebody whose turn it is may take to come for it before the next in the queue is called.
pub const TURN_TIMEOUT: Duration = Duration::from_secs(3);
/// How many waiters are called at once at most; each that comes calls the next.
pub(crate) const MAX_NOTIFIED_WAITERS: usize = 100;

/// One thing to put into a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolItem {
    /// Its name in the pool.
    pub id: ItemId,
    /// What a borrower gets to see, usually a JSON object.
    pub payload: String,
}

/// Somebody asking for anything out of a pool.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// The pool.
    pub pool: PoolName,
    /// The member that will hold it.
    pub holder: MemberId,
    /// The run it is for; refused when a later one has begun.
    pub run: Epoch,
    /// Asking twice with the same ticket is asking once: the place in the queue, or what was given, stays the same.
    pub request_id: PoolRequestId,
}

/// Something borrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLease {
    /// Where it belongs.
    pub pool: PoolName,
    /// Which one it is.
    pub id: ItemId,
    /// Who has it.
    pub holder: MemberId,
    /// For which run.
    pub run: Epoch,
    /// Which grant it is; every grant of a pool has a higher number than any before it.
    pub grant: Epoch,
    /// What was put in.
    pub payload: String,
}

/// The answer to somebody asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolRequestOutcome {
    /// Here it is.
    Granted(PoolLease),
    /// In the queue.
    Queued {
        /// How many came earlier and are still waiting.
        ahead: u64,
        /// Calls up to this one do not concern this asker.
        seen_notifications: Revision,
    },
    /// Nothing there that is not somebody else's turn, and the asker did not want to wait.
    NoneAvailable,
    /// There is no such pool.
    NoPool,
    /// The asker is not a member (any more).
    NotMember,
    /// The asker's run is over; this is the current one.
    RunEnded(Epoch),
}

/// The answer to giving something back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolReleaseOutcome {
    /// It is free again.
    Released,
    /// It was not held by this grant any more; nothing was changed.
    NotHeld,
    /// The run is over and nothing was changed: what it held goes back by the sweep. This is the current run.
    RunEnded(Epoch),
}

/// A pool in numbers, all of one instant: `total` = `available` + `held`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCounts {
    /// The pool.
    pub pool: PoolName,
    /// Things that belong to it.
    pub total: u64,
    /// Free ones.
    pub available: u64,
    /// Borrowed ones.
    pub held: u64,
    /// Tickets in the queue.
    pub waiting: u64,
}

/// All pools in numbers.
#[derive(Debug, Default)]
pub struct AllPoolCounts {
    /// In the order of their names.
    pub pools: Vec<PoolCounts>,
    /// Those whose keys hold somebody else's values.
    pub failed: Vec<(PoolName, StoreError)>,
}

/// One thing in a pool and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolItemStatus {
    /// Which one.
    pub id: ItemId,
    /// What was put in.
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
    pub run: Epoch,
    /// The number of its grant.
    pub grant: Epoch,
}

/// The pools of one cell. Every method but the listings is one atomic step per pool; only the store's clock counts.
/// Whoever finds a pool empty sweeps it first, so a dead holder's things are missed by nobody.
pub trait PoolStore: Clone + Send + Sync + 'static {
    /// Adds items that the pool does not have yet, as long as it has less than `up_to`; says which were added.
    /// Payload and id become visible together. Without items it only makes the pool known. What is put in for a `run` that is over
    /// changes nothing; `None` is for those who fill pools between runs or for any of them.
    fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<Epoch>,
    ) -> impl Future<Output = Result<Vec<ItemId>, StoreError>> + Send;

    /// Empties a pool once for a run: whoever asks first does it, whoever asks again changes nothing, and neither does an earlier
    /// run. Says whether it was emptied now.
    fn reset_for_run(&self, pool: &PoolName, run: Epoch) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// A number below `limit` that nobody has been given in this run and that names nothing in the pool; `None` when there is none, or the
    /// run is over. Things that are made on demand are made once each by it; what was not made is given out again in the next run.
    fn next_item_number(
        &self,
        pool: &PoolName,
        run: Epoch,
        limit: Option<u64>,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// Takes something, or a place in the queue for `wait`; zero means not to queue.
    fn try_acquire(
        &self,
        request: &PoolRequest,
        wait: Duration,
    ) -> impl Future<Output = Result<PoolRequestOutcome, StoreError>> + Send;

    /// Gives up a ticket: its place in the queue, or what it was given. Says whether there was anything to give up.
    fn cancel_request(
        &self,
        pool: &PoolName,
        request_id: &PoolRequestId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Waits until the asker is called after `seen`, or `within` has passed; never blocks other steps.
    fn wait_for_turn(
        &self,
        request: &PoolRequest,
        seen: Revision,
        within: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Gives something back.
    fn release(&self, lease: &PoolLease) -> impl Future<Output = Result<PoolReleaseOutcome, StoreError>> + Send;

    /// Gives back everything that a member has out of any pool, and its places in queues; says how many things it had. A pool that
    /// cannot be used keeps it from none of the others.
    fn release_all(&self, holder: &MemberId) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Gives back what is held by those who are no members, or for runs that are over, and calls whoever is next.
    /// Idempotent; anybody may run it at any time. Says how many things came back. A pool that cannot be used keeps it from none of
    /// the others.
    fn sweep(&self) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// The pools there are, in order.
    fn names(&self) -> impl Future<Output = Result<Vec<PoolName>, StoreError>> + Send;

    /// Counts one pool; there is nothing of one that does not exist.
    fn count(&self, pool: &PoolName) -> impl Future<Output = Result<PoolCounts, StoreError>> + Send;

    /// Counts every pool, in the order of their names; with those that cannot be counted, and why.
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

    /// Lists up to `limit` things of a pool, in no order. What moves meanwhile may be missed or listed twice.
    fn list(
        &self,
        pool: &PoolName,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<PoolItemStatus>, StoreError>> + Send;
}
