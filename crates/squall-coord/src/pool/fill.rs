//! Fills pools with numbered things: up to a size, or by a number. Refuses to number anything twice, whoever else
//! fills the same pool at the same time.

use std::future::Future;

use super::{ItemId, PoolItem, PoolName, PoolStore};
use crate::StoreError;

/// Things per step; a step stops everybody else at the store meanwhile.
const ITEMS_PER_STEP: u64 = 500;

/// What filling a pool came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillResult {
    /// How many there were.
    pub existing: u64,
    /// What this call added.
    pub created: Vec<ItemId>,
    /// How many there are now.
    pub current: u64,
}

/// Sees to it that a pool has at least `target` things. `make` gets each new id and answers its payload; nothing of an
/// id is seen before its payload is there. When two fill the same pool, the payload of whoever was first counts.
pub async fn ensure_pool_size<P, M, F, E>(pools: &P, pool: &PoolName, size: u64, make: M) -> Result<FillResult, E>
where
    P: PoolStore,
    M: FnMut(ItemId) -> F,
    F: Future<Output = Result<String, E>>,
    E: From<StoreError>,
{
    fill(pools, pool, FillTarget::AtLeast(size), make).await
}

/// Adds `count` things to a pool, however many it has. Otherwise as [`ensure`].
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
        // Numbers that somebody else has taken are skipped by the store; the next round tries higher ones.
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
