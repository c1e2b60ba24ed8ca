//! Fills pools with numbered items: up to a size, or by a count.
//! It uses no number twice, even if several callers fill the same pool at once. squall-web and
//! squall-worker call it.

use std::future::Future;

use super::{ItemId, PoolItem, PoolName, PoolStore};
use crate::StoreError;

/// Items per call; the store serves no other caller during a call.
const ITEMS_PER_STEP: u64 = 500;

/// The outcome of filling a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillResult {
    /// Items before the call.
    pub existing: u64,
    /// Items that this call added.
    pub created: Vec<ItemId>,
    /// Items now.
    pub current: u64,
}

/// Adds items until a pool has at least `size`. `make` receives each new id and returns its
/// payload; an id becomes visible together with its payload. If two callers fill the same pool, the
/// payload that is stored first counts.
pub async fn ensure_pool_size<P, M, F, E>(pools: &P, pool: &PoolName, size: u64, make: M) -> Result<FillResult, E>
where
    P: PoolStore,
    M: FnMut(ItemId) -> F,
    F: Future<Output = Result<String, E>>,
    E: From<StoreError>,
{
    fill(pools, pool, FillTarget::AtLeast(size), make).await
}

/// Adds `count` items to a pool. Otherwise like [`ensure_pool_size`].
pub async fn add_pool_items<P, M, F, E>(pools: &P, pool: &PoolName, count: u64, make: M) -> Result<FillResult, E>
where
    P: PoolStore,
    M: FnMut(ItemId) -> F,
    F: Future<Output = Result<String, E>>,
    E: From<StoreError>,
{
    fill(pools, pool, FillTarget::Add(count), make).await
}

#[derive(Clone, Copy)]
enum FillTarget {
    AtLeast(u64),
    Add(u64),
}

async fn fill<P, M, F, E>(pools: &P, pool: &PoolName, target: FillTarget, mut make: M) -> Result<FillResult, E>
where
    P: PoolStore,
    M: FnMut(ItemId) -> F,
    F: Future<Output = Result<String, E>>,
    E: From<StoreError>,
{
    pools.put(pool, &[], None, None).await?;
    let existing = total(pools, pool).await?;
    let (mut current, mut created, mut next) = (existing, Vec::new(), existing + 1);
    loop {
        let missing = match target {
            FillTarget::AtLeast(size) => size.saturating_sub(current),
            FillTarget::Add(count) => count - created.len() as u64,
        };
        if missing == 0 {
            return Ok(FillResult { existing, created, current });
        }
        let mut items = Vec::new();
        for number in next..next + missing.min(ITEMS_PER_STEP) {
            let id = ItemId::from(number);
            let payload = make(id.clone()).await?;
            items.push(PoolItem { id, payload });
        }
        // The store skips numbers that another caller has taken; the next round tries higher ones.
        next += items.len() as u64;
        let up_to = if let FillTarget::AtLeast(size) = target { Some(size) } else { None };
        created.extend(pools.put(pool, &items, up_to, None).await?);
        current = total(pools, pool).await?;
        next = next.max(current + 1);
    }
}

async fn total<P: PoolStore>(pools: &P, pool: &PoolName) -> Result<u64, StoreError> {
    Ok(pools.count(pool).await?.total)
}
