//! Stores to test on. Every Redis test has its own server.

use std::time::Duration;

use squall_coord::{
    LeaseKeys, LeaseStore, MemberId, MemoryLeaseStore, MemoryPoolStore, PoolKeys, PoolStore, RedisClient,
    RedisLeaseStore, RedisPoolStore, RunEpoch, UnitId,
};
use squall_testkit::redis::RedisServer;

/// A store whose clock can be moved forward.
pub(crate) trait AdvanceClock: LeaseStore {
    fn advance(&self, by: Duration);
}

impl AdvanceClock for MemoryLeaseStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

impl AdvanceClock for RedisLeaseStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

pub(crate) fn keys(name: &str) -> LeaseKeys {
    LeaseKeys {
        members: format!("memb:{name}").into(),
        live: format!("live:{name}").into(),
        leases: format!("held:{name}").into(),
        control: format!("ctrl:{name}").into(),
        admin: format!("admin:{name}").into(),
        heartbeat_prefix: format!("beat:{name}.").into(),
        units_field: "partitions",
    }
}

pub(crate) async fn redis_lease_store(server: &RedisServer, name: &str) -> RedisLeaseStore {
    RedisLeaseStore::new(&RedisClient::open(&server.url()).await.expect("the server runs"), keys(name))
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name)
}

pub(crate) fn units(count: u32) -> Vec<UnitId> {
    (0..count).map(UnitId::from).collect()
}

/// A lease store with its pools, and a way to begin a run.
pub(crate) trait TestStores: Clone + Send + Sync + 'static {
    type Members: AdvanceClock;
    type Pools: PoolStore;
    fn members(&self) -> &Self::Members;
    fn pools(&self) -> &Self::Pools;
    async fn begin_run(&self, run: RunEpoch);
}

#[derive(Clone)]
pub(crate) struct MemoryTestStores(MemoryLeaseStore, MemoryPoolStore);

impl MemoryTestStores {
    pub(crate) fn new() -> Self {
        let members = MemoryLeaseStore::new();
        Self(members.clone(), MemoryPoolStore::new(&members))
    }
}

impl TestStores for MemoryTestStores {
    type Members = MemoryLeaseStore;
    type Pools = MemoryPoolStore;
    fn members(&self) -> &MemoryLeaseStore {
        &self.0
    }
    fn pools(&self) -> &MemoryPoolStore {
        &self.1
    }
    async fn begin_run(&self, run: RunEpoch) {
        self.1.begin_run(run);
    }
}

#[derive(Clone)]
pub(crate) struct RedisTestStores {
    pub(crate) client: RedisClient,
    prefix: String,
    members: RedisLeaseStore,
    pools: RedisPoolStore,
}

impl RedisTestStores {
    /// Stores with the keys of a fleet.
    pub(crate) fn new(client: &RedisClient, name: &str) -> Self {
        let prefix = format!("squall:{{{name}}}:");
        let mut lease_keys = keys("workers");
        for key in [
            &mut lease_keys.members,
            &mut lease_keys.live,
            &mut lease_keys.leases,
            &mut lease_keys.control,
            &mut lease_keys.admin,
        ] {
            *key = format!("{prefix}{key}").into();
        }
        lease_keys.heartbeat_prefix = format!("{prefix}{}", lease_keys.heartbeat_prefix).into();
        let members = RedisLeaseStore::new(client, lease_keys);
        let pools = RedisPoolStore::new(client, &members, PoolKeys::new(&prefix));
        Self { client: client.clone(), prefix, members, pools }
    }
}

impl TestStores for RedisTestStores {
    type Members = RedisLeaseStore;
    type Pools = RedisPoolStore;
    fn members(&self) -> &RedisLeaseStore {
        &self.members
    }
    fn pools(&self) -> &RedisPoolStore {
        &self.pools
    }
    async fn begin_run(&self, run: RunEpoch) {
        let mut set = ::redis::cmd("SET");
        set.arg(format!("{}test:epoch", self.prefix)).arg(run.0);
        let _: () = set.query_async(&mut self.client.connection()).await.unwrap();
    }
}

/// Runs each case against the memory stores and against Redis.
macro_rules! on_both_stores {
    ($($case:ident)*) => {
        mod in_memory {
            $(#[tokio::test] async fn $case() { super::$case(crate::support::MemoryTestStores::new()).await; })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $case() {
                let server = RedisServer::start();
                super::$case(RedisTestStores::new(&RedisClient::open(&server.url()).await.unwrap(), "pools")).await;
            })*
        }
    };
}
pub(crate) use on_both_stores;
