//! Spaces to test on. Every Redis test has a server of its own.

use std::time::Duration;

use squall_coord::{Link, MemberId, MemoryStore, RedisStore, SpaceKeys, Store, Unit};
use squall_testkit::redis::RedisServer;

/// A store whose clock can be moved forward.
pub(crate) trait Advance: Store {
    fn advance(&self, by: Duration);
}

impl Advance for MemoryStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

impl Advance for RedisStore {
    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

pub(crate) fn keys(space: &str) -> SpaceKeys {
    SpaceKeys {
        members: format!("memb:{space}").into(),
        live: format!("live:{space}").into(),
        held: format!("held:{space}").into(),
        control: format!("ctrl:{space}").into(),
        admin: format!("admin:{space}").into(),
        beat_prefix: format!("beat:{space}.").into(),
        units_word: "partitions",
    }
}

pub(crate) async fn redis_space(server: &RedisServer, space: &str) -> RedisStore {
    RedisStore::new(&Link::open(&server.url()).await.expect("the server runs"), keys(space))
}

pub(crate) fn member(name: &str) -> MemberId {
    MemberId::new(name)
}

pub(crate) fn units(count: u32) -> Vec<Unit> {
    (0..count).map(Unit::from).collect()
}
