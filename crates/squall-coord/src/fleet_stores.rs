//! Everything that one fleet shares, in one place: its workers' shares, its orchestrators' lead, its run. One trait with the two
//! back ends, so that a whole fleet can live in one process or on one server.

use crate::{
    Link, MemoryPools, MemoryRun, MemoryStore, PoolKeys, PoolStore, RedisPools, RedisRun, RedisStore, RunKeys,
    RunStore, SpaceKeys, Store,
};

/// The stores of one fleet. Clones share them.
pub trait FleetStores: Clone + Send + Sync + 'static {
    /// Who holds which share of the load, and who leads.
    type Leases: Store;
    /// The record of the run.
    type Run: RunStore;
    /// Things that users borrow.
    type Pools: PoolStore;

    /// The workers and the shares of the load.
    fn workers(&self) -> Self::Leases;

    /// The orchestrators and the lead.
    fn orchestrators(&self) -> Self::Leases;

    /// The run.
    fn run(&self) -> Self::Run;

    /// The pools; whoever holds something of them is a worker.
    fn pools(&self) -> Self::Pools;
}

/// A fleet within this process.
#[derive(Clone, Debug)]
pub struct MemoryCell {
    workers: MemoryStore,
    orchestrators: MemoryStore,
    run: MemoryRun,
    pools: MemoryPools,
}

impl Default for MemoryCell {
    fn default() -> Self {
        let workers = MemoryStore::default();
        let pools = MemoryPools::new(&workers);
        Self { workers, orchestrators: MemoryStore::default(), run: MemoryRun::with_pools(&pools), pools }
    }
}

impl FleetStores for MemoryCell {
    type Leases = MemoryStore;
    type Run = MemoryRun;
    type Pools = MemoryPools;

    fn workers(&self) -> MemoryStore {
        self.workers.clone()
    }

    fn orchestrators(&self) -> MemoryStore {
        self.orchestrators.clone()
    }

    fn run(&self) -> MemoryRun {
        self.run.clone()
    }

    fn pools(&self) -> MemoryPools {
        self.pools.clone()
    }
}

/// A fleet on a Redis or Valkey server.
#[derive(Clone)]
pub struct RedisCell {
    workers: RedisStore,
    orchestrators: RedisStore,
    run: RedisRun,
    pools: RedisPools,
}

impl RedisCell {
    /// The fleet whose keys begin with [`prefix`] of its name, on the server at the other end of `link`.
    pub fn new(link: &Link, name: &str) -> Self {
        let prefix = prefix(name);
        let workers = RedisStore::new(link, SpaceKeys::under(&format!("{prefix}shares")));
        Self {
            pools: RedisPools::new(link, &workers, PoolKeys::new(&prefix)),
            workers,
            orchestrators: RedisStore::new(link, SpaceKeys::under(&format!("{prefix}lead"))),
            run: RedisRun::new(link, RunKeys::new(prefix)),
        }
    }
}

/// What the keys of a fleet begin with: `squall:{name}:`, all in one cluster slot; for an empty name nothing, which gives the
/// seed's own key names.
pub fn prefix(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("squall:{{{name}}}:") }
}

impl FleetStores for RedisCell {
    type Leases = RedisStore;
    type Run = RedisRun;
    type Pools = RedisPools;

    fn workers(&self) -> RedisStore {
        self.workers.clone()
    }

    fn orchestrators(&self) -> RedisStore {
        self.orchestrators.clone()
    }

    fn run(&self) -> RedisRun {
        self.run.clone()
    }

    fn pools(&self) -> RedisPools {
        self.pools.clone()
    }
}
