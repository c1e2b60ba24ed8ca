//! The stores that one fleet shares: the workers' shares, the orchestrators' leader lease, the run
//! and the resource pools.
//! The trait has two implementations, so a fleet can run within one process or on one Redis server.
//! The command line creates it; workers, orchestrators and the API use it.

use crate::{
    LeaseKeys, LeaseStore, MemoryLeaseStore, MemoryPoolStore, MemoryRunStore, PoolKeys, PoolStore, RedisClient,
    RedisLeaseStore, RedisPoolStore, RedisRunStore, RunKeys, RunStore,
};

/// The stores of one fleet. Clones share them.
pub trait FleetStores: Clone + Send + Sync + 'static {
    /// Leases: the shares of the load, and the leader role.
    type Leases: LeaseStore;
    /// The record of the run.
    type Run: RunStore;
    /// Pools of resources that users acquire.
    type Pools: PoolStore;

    /// The workers and the shares of the load.
    fn workers(&self) -> Self::Leases;

    /// The orchestrators and the leader lease.
    fn orchestrators(&self) -> Self::Leases;

    /// The run.
    fn run(&self) -> Self::Run;

    /// The resource pools. Their holders are workers.
    fn pools(&self) -> Self::Pools;
}

/// A fleet within this process.
#[derive(Clone, Debug)]
pub struct MemoryFleetStores {
    workers: MemoryLeaseStore,
    orchestrators: MemoryLeaseStore,
    run: MemoryRunStore,
    pools: MemoryPoolStore,
}

impl Default for MemoryFleetStores {
    fn default() -> Self {
        let workers = MemoryLeaseStore::default();
        let pools = MemoryPoolStore::new(&workers);
        Self { workers, orchestrators: MemoryLeaseStore::default(), run: MemoryRunStore::with_pools(&pools), pools }
    }
}

impl FleetStores for MemoryFleetStores {
    type Leases = MemoryLeaseStore;
    type Run = MemoryRunStore;
    type Pools = MemoryPoolStore;

    fn workers(&self) -> MemoryLeaseStore {
        self.workers.clone()
    }

    fn orchestrators(&self) -> MemoryLeaseStore {
        self.orchestrators.clone()
    }

    fn run(&self) -> MemoryRunStore {
        self.run.clone()
    }

    fn pools(&self) -> MemoryPoolStore {
        self.pools.clone()
    }
}

/// A fleet on a Redis or Valkey server.
#[derive(Clone)]
pub struct RedisFleetStores {
    workers: RedisLeaseStore,
    orchestrators: RedisLeaseStore,
    run: RedisRunStore,
    pools: RedisPoolStore,
}

impl RedisFleetStores {
    /// The fleet `name` on the server of `client`. Its keys begin with [`fleet_key_prefix`].
    pub fn new(client: &RedisClient, name: &str) -> Self {
        let prefix = fleet_key_prefix(name);
        let workers = RedisLeaseStore::new(client, LeaseKeys::with_prefix(&format!("{prefix}shares")));
        Self {
            pools: RedisPoolStore::new(client, &workers, PoolKeys::new(&prefix)),
            workers,
            orchestrators: RedisLeaseStore::new(client, LeaseKeys::with_prefix(&format!("{prefix}lead"))),
            run: RedisRunStore::new(client, RunKeys::new(prefix)),
        }
    }
}

/// The prefix of a fleet's keys: `squall:{name}:`, so that all keys share one cluster slot. For an
/// empty name the prefix is empty, which gives vikhry's key names.
pub fn fleet_key_prefix(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("squall:{{{name}}}:") }
}

impl FleetStores for RedisFleetStores {
    type Leases = RedisLeaseStore;
    type Run = RedisRunStore;
    type Pools = RedisPoolStore;

    fn workers(&self) -> RedisLeaseStore {
        self.workers.clone()
    }

    fn orchestrators(&self) -> RedisLeaseStore {
        self.orchestrators.clone()
    }

    fn run(&self) -> RedisRunStore {
        self.run.clone()
    }

    fn pools(&self) -> RedisPoolStore {
        self.pools.clone()
    }
}
