//! Spaces to test on. Every Redis test has a server of its own.

use std::time::Duration;

use squall_coord::{
    Epoch, LeaseKeys, LeaseStore, MemberId, MemoryLeaseStore, MemoryPoolStore, PoolKeys, PoolStore, RedisClient,
    RedisLeaseStore, RedisPoolStore, UnitId,
};
use squall_testkit::redis::RedisServer;

/// A store whose clock can be moved forward.
pub(crate) trait Advance: LeaseStore {
    fn advance(&self, by: Duration);
}

impl Advance for MemoryLeaseStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

impl Advance for RedisLeaseStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

pub(crate) fn keys(space: &str) -> LeaseKeys {
    LeaseKeys {
        members: format!("memb:{space}").into(),
        live: format!("live:{space}").into(),
        leases: format!("held:{space}").into(),
        control: format!("ctrl:{space}").into(),
        admin: format!("admin:{space}").into(),
        heartbeat_prefix: format!("beat:{space}.").into(),
        units_field: "partitions",
    }
}

pub(crate) async fn redis_space(server: &RedisServer, space: &str) -> RedisLeaseStore {
    RedisLeaseStore::new(&RedisClient::open(&server.url()).await.expect("the server runs"), keys(space))
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name)
}

pub(crate) fn units(count: u32) -> Vec<UnitId> {
    (0..count).map(UnitId::from).collect()
}

/// Members, their pools, and a way to begin a run.
pub(crate) trait Cell: Clone + Send + Sync + 'static {
    type Members: Advance;
    type Pools: PoolStore;
    fn members(&self) -> &Self::Members;
    fn pools(&self) -> &Self::Pools;
    async fn begin_run(&self, run: Epoch);
}

#[derive(Clone)]
pub(crate) struct MemoryCell(MemoryLeaseStore, MemoryPoolStore);

impl MemoryCell {
    pub(crate) fn new() -> Self {
        let members = MemoryLeaseStore::new();
        Self(members.clone(), MemoryPoolStore::new(&members))
    }
}

impl Cell for MemoryCell {
    type Members = MemoryLeaseStore;
    type Pools = MemoryPoolStore;
    fn members(&self) -> &MemoryLeaseStore {
        &self.0
    }
    fn pools(&self) -> &MemoryPoolStore {
        &self.1
    }
    async fn begin_run(&self, run: Epoch) {
        self.1.begin_run(run);
    }
}

#[derive(Clone)]
pub(crate) struct RedisCell {
    pub(crate) link: RedisClient,
    prefix: String,
    members: RedisLeaseStore,
    pools: RedisPoolStore,
}

impl RedisCell {
    /// A cell with the keys that a fleet gives it.
    pub(crate) fn new(link: &RedisClient, name: &str) -> Self {
        let prefix = format!("squall:{{{name}}}:");
        let mut space = keys("workers");
        for key in [&mut space.members, &mut space.live, &mut space.leases, &mut space.control, &mut space.admin] {
            *key = format!("{prefix}{key}").into();
        }
        space.heartbeat_prefix = format!("{prefix}{}", space.heartbeat_prefix).into();
        let members = RedisLeaseStore::new(link, space);
        let pools = RedisPoolStore::new(link, &members, PoolKeys::new(&prefix));
        Self { link: link.clone(), prefix, members, pools }
    }
}

impl Cell for RedisCell {
    type Members = RedisLeaseStore;
    type Pools = RedisPoolStore;
    fn members(&self) -> &RedisLeaseStore {
        &self.members
    }
    fn pools(&self) -> &RedisPoolStore {
        &self.pools
    }
    async fn begin_run(&self, run: Epoch) {
        let mut set = ::redis::cmd("SET");
        set.arg(format!("{}test:epoch", self.prefix)).arg(run.0);
        let _: () = set.query_async(&mut self.link.connection()).await.unwrap();
    }
}

/// Declares each case once and runs it against both back ends.
macro_rules! both {
    ($($case:ident)*) => {
        mod in_memory {
            $(#[tokio::test] async fn $case() { super::$case(crate::support::MemoryCell::new()).await; })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $case() {
                let server = RedisServer::start();
                super::$case(RedisCell::new(&RedisClient::open(&server.url()).await.unwrap(), "pools")).await;
            })*
        }
    };
}
pub(crate) use both;
