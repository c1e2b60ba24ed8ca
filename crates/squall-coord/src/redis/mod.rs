//! The lease store in Redis or Valkey: one Lua script per operation, over declared keys only.
//! It keeps no state of its own; two instances with the same keys are the same store.

mod address;
mod client;
mod lease_keys;
mod pool_store;
mod shared_connection;
mod snapshot_reply;
mod turn_listener;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{FromRedisValue, RedisError, Script, ScriptInvocation, Value};
use tokio::sync::Mutex;

pub use client::{BlockingConnection, RedisClient, RedisConnectError};
pub use lease_keys::LeaseKeys;
pub use pool_store::{PoolKeys, RedisPoolStore};
pub use shared_connection::SharedConnection;
pub(crate) use turn_listener::TurnListener;

use crate::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseEpoch, LeaseSnapshot, LeaseStore, MemberId, MemberSnapshot,
    Revision, StoreError, UnitAssignment, UnitId,
};

/// A lease store in Redis. Clones share it and its connections.
#[derive(Clone)]
pub struct RedisLeaseStore {
    inner: Arc<Inner>,
}

struct Inner {
    connection: SharedConnection,
    change_reader: Mutex<BlockingConnection>,
    keys: LeaseKeys,
    scripts: LeaseScripts,
    skew_ms: AtomicU64,
}

struct LeaseScripts {
    join: Script,
    heartbeat: Script,
    mark_leaving: Script,
    leave: Script,
    sweep: Script,
    snapshot: Script,
    member_snapshot: Script,
    assign: Script,
    acquire: Script,
    release: Script,
}

/// What `prelude.lua` reports of a members record that it cannot read.
const UNREADABLE_RECORD: &str = "holds text that Squall did not write";

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("scripts/prelude.lua"), include_str!(concat!("scripts/", $name, ".lua"))))
    };
}

impl RedisLeaseStore {
    /// The store under `keys` on the server of `client`.
    pub fn new(client: &RedisClient, keys: LeaseKeys) -> Self {
        let scripts = LeaseScripts {
            join: script!("join"),
            heartbeat: script!("heartbeat"),
            mark_leaving: script!("mark_leaving"),
            leave: script!("leave"),
            sweep: script!("sweep"),
            snapshot: script!("snapshot"),
            member_snapshot: script!("member_snapshot"),
            assign: script!("assign"),
            acquire: script!("acquire"),
            release: script!("release"),
        };
        let change_reader = Mutex::new(client.blocking_connection());
        Self {
            inner: Arc::new(Inner {
                connection: client.connection(),
                change_reader,
                keys,
                scripts,
                skew_ms: AtomicU64::new(0),
            }),
        }
    }

    /// The store's keys.
    pub fn keys(&self) -> &LeaseKeys {
        &self.inner.keys
    }

    /// Moves this handle's view of the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.inner.skew_ms.fetch_add(millis(by), Relaxed);
    }

    fn invocation<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let keys = &self.inner.keys;
        let mut call = script.prepare_invoke();
        call.key(&*keys.members).key(&*keys.live).key(&*keys.leases).key(&*keys.control);
        call.arg(self.skew_ms()).arg(keys.units_field);
        call
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match call.invoke_async(&mut self.inner.connection.clone()).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error, &self.inner.keys.expected_types()).await),
        }
    }

    fn connection(&self) -> SharedConnection {
        self.inner.connection.clone()
    }

    fn skew_ms(&self) -> u64 {
        self.inner.skew_ms.load(Relaxed)
    }

    /// Finds the key behind a WRONGTYPE error, which Redis does not name.
    async fn to_store_error<K: AsRef<str>>(&self, error: RedisError, types: &[(K, &'static str)]) -> StoreError {
        if is_transient(&error) {
            return StoreError::Unreachable(Box::new(error));
        }
        if error.to_string().contains("WRONGTYPE")
            && let Some(wrong_key) = find_wrong_type(&mut self.inner.connection.clone(), types).await
        {
            return wrong_key;
        }
        if error.to_string().contains(UNREADABLE_RECORD) {
            return unreadable_record(&self.inner.keys);
        }
        rejected(error)
    }
}

/// The error for a members record that is neither Squall's nor runnel's.
pub(crate) fn unreadable_record(keys: &LeaseKeys) -> StoreError {
    StoreError::WrongType {
        key: keys.members.to_string(),
        expected: "members record",
        found: "text of another kind".into(),
    }
}

/// Converts a server error, with a remedy where there is one.
pub(crate) fn rejected(error: RedisError) -> StoreError {
    match error.code() {
        Some("MOVED" | "ASK" | "CROSSSLOT") => StoreError::Rejected(
            "this server is a node of a Redis Cluster: write its address as redis-cluster://… instead of redis://…"
                .into(),
        ),
        _ => StoreError::Rejected(Box::new(error)),
    }
}

/// Whether the error may pass without intervention: the server does not respond, or is still
/// starting.
pub fn is_transient(error: &RedisError) -> bool {
    let no_reply = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
    no_reply || matches!(error.code(), Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "UNBLOCKED"))
}

/// Returns an error for the first of `keys` that has another type than expected.
pub async fn find_wrong_type<K: AsRef<str>>(
    connection: &mut SharedConnection,
    keys: &[(K, &'static str)],
) -> Option<StoreError> {
    for (key, expected) in keys {
        let key = key.as_ref();
        let found: String = redis::cmd("TYPE").arg(key).query_async(connection).await.ok()?;
        if found != "none" && found != *expected {
            return Some(StoreError::WrongType { key: key.to_owned(), expected, found });
        }
    }
    None
}

/// Returns an error for the first of `keys`, all strings, that is not a whole number.
pub async fn find_non_number<K: AsRef<str>>(connection: &mut SharedConnection, keys: &[K]) -> Option<StoreError> {
    for key in keys {
        let key = key.as_ref();
        let found: Option<String> = redis::cmd("GET").arg(key).query_async(connection).await.ok()?;
        if let Some(found) = found.filter(|found| found.parse::<u64>().is_err()) {
            return Some(not_a_number_error(key.to_owned(), &found));
        }
    }
    None
}

/// The error for a key that holds text in place of a number.
fn not_a_number_error(key: String, found: &str) -> StoreError {
    let found: String = found.chars().take(40).collect();
    StoreError::WrongType { key, expected: "whole number", found: format!("text that is none (`{found}`)") }
}

impl LeaseStore for RedisLeaseStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.join);
        call.key(self.keys().heartbeat_key(member)).arg(member.as_str()).arg(millis(ttl));
        self.invoke(&call).await.map(Revision)
    }

    async fn heartbeat(&self, member: &MemberId, ttl: Duration) -> Result<HeartbeatOutcome, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.heartbeat);
        call.key(self.keys().heartbeat_key(member)).arg(member.as_str()).arg(millis(ttl));
        let (revision, assigned): (i64, u64) = self.invoke(&call).await?;
        let alive = |revision| HeartbeatOutcome::Alive {
            revision: Revision(revision),
            assignment_revision: Revision(assigned),
        };
        Ok(u64::try_from(revision).map_or(HeartbeatOutcome::Expired, alive))
    }

    async fn mark_leaving(&self, member: &MemberId) -> Result<(), StoreError> {
        let mut call = self.invocation(&self.inner.scripts.mark_leaving);
        call.arg(member.as_str());
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        let mut call = self.invocation(&self.inner.scripts.leave);
        call.key(self.keys().heartbeat_key(member)).arg(member.as_str());
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        let removed: Vec<String> = self.invoke(&self.invocation(&self.inner.scripts.sweep)).await?;
        Ok(removed.into_iter().map(MemberId::new).collect())
    }

    async fn snapshot(&self) -> Result<LeaseSnapshot, StoreError> {
        let reply = self.invoke(&self.invocation(&self.inner.scripts.snapshot)).await?;
        snapshot_reply::parse_snapshot(reply, self.keys())
    }

    async fn member_snapshot(&self, member: &MemberId) -> Result<MemberSnapshot, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.member_snapshot);
        call.arg(member.as_str());
        snapshot_reply::parse_member_snapshot(self.invoke(&call).await?, self.keys())
    }

    async fn assign(&self, expected: Revision, assignment: &UnitAssignment) -> Result<bool, StoreError> {
        let text = serde_json::to_string(assignment).expect("strings only");
        let mut call = self.invocation(&self.inner.scripts.assign);
        call.arg(expected.0).arg(text);
        self.invoke(&call).await
    }

    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<LeaseAcquireOutcome, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.acquire);
        call.key(&*self.keys().admin).arg(member.as_str());
        for unit in units {
            call.arg(unit.as_str());
        }
        match self.invoke(&call).await? {
            Value::Array(grants) => {
                let grants: Vec<u64> =
                    redis::from_redis_value(Value::Array(grants)).map_err(|e| StoreError::Rejected(Box::new(e)))?;
                Ok(LeaseAcquireOutcome::Granted(
                    grants.into_iter().map(|epoch| (epoch > 0).then_some(LeaseEpoch(epoch))).collect(),
                ))
            }
            Value::BulkString(reply) if reply == b"grants_paused" => Ok(LeaseAcquireOutcome::GrantsPaused),
            _ => Ok(LeaseAcquireOutcome::NotMember),
        }
    }

    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.release);
        call.arg(member.as_str());
        for lease in leases {
            call.arg(lease.unit.as_str()).arg(lease.epoch.0);
        }
        self.invoke(&call).await
    }

    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(millis(within).max(1));
        command.arg("STREAMS").arg(&*self.keys().control).arg(format!("{}-0", seen.0));
        let mut change_reader = self.inner.change_reader.lock().await;
        match change_reader.query::<Value>(&command, within).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.to_store_error(error, &self.inner.keys.expected_types()).await),
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
