//! The store in Redis or Valkey: one Lua script per step, over declared keys only.
//! Refuses to keep state of its own; two of these on the same keys are the same store.

mod address;
mod commands;
mod keys;
mod link;
mod pools;
mod reply;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{FromRedisValue, RedisError, Script, ScriptInvocation, Value};
use tokio::sync::Mutex;

pub use commands::Commands;
pub use keys::SpaceKeys;
pub use link::{BlockingLink, Link, LinkError};
pub use pools::{PoolKeys, RedisPools};

use crate::{Acquired, Assignment, Beat, Epoch, Lease, Look, MemberId, Revision, Store, StoreError, UnitId, View};

/// One space in Redis. Clones share it and its connections.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    commands: Commands,
    waiting: Mutex<BlockingLink>,
    keys: SpaceKeys,
    scripts: Scripts,
    skew_ms: AtomicU64,
}

struct Scripts {
    join: Script,
    beat: Script,
    retire: Script,
    leave: Script,
    sweep: Script,
    view: Script,
    look: Script,
    assign: Script,
    acquire: Script,
    release: Script,
}

macro_rules! step {
    ($name:literal) => {
        Script::new(concat!(include_str!("scripts/prelude.lua"), include_str!(concat!("scripts/", $name, ".lua"))))
    };
}

impl RedisStore {
    /// The space under `keys` on the server at the other end of `link`.
    pub fn new(link: &Link, keys: SpaceKeys) -> Self {
        let scripts = Scripts {
            join: step!("join"),
            beat: step!("beat"),
            retire: step!("retire"),
            leave: step!("leave"),
            sweep: step!("sweep"),
            view: step!("view"),
            look: step!("look"),
            assign: step!("assign"),
            acquire: step!("acquire"),
            release: step!("release"),
        };
        let waiting = Mutex::new(link.blocking());
        Self {
            inner: Arc::new(Inner { commands: link.commands(), waiting, keys, scripts, skew_ms: AtomicU64::new(0) }),
        }
    }

    /// The space's keys.
    pub fn keys(&self) -> &SpaceKeys {
        &self.inner.keys
    }

    /// Moves this handle's idea of the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.inner.skew_ms.fetch_add(millis(by), Relaxed);
    }

    fn step<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let keys = &self.inner.keys;
        let mut call = script.prepare_invoke();
        call.key(&*keys.members).key(&*keys.live).key(&*keys.held).key(&*keys.control);
        call.arg(self.skew_ms()).arg(keys.units_word);
        call
    }

    async fn run<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match call.invoke_async(&mut self.inner.commands.clone()).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error, &self.inner.keys.types()).await),
        }
    }

    fn commands(&self) -> Commands {
        self.inner.commands.clone()
    }

    fn skew_ms(&self) -> u64 {
        self.inner.skew_ms.load(Relaxed)
    }

    /// Finds the key behind a WRONGTYPE, which Redis does not name.
    async fn explain<K: AsRef<str>>(&self, error: RedisError, types: &[(K, &'static str)]) -> StoreError {
        if passing(&error) {
            return StoreError::Unreachable(Box::new(error));
        }
        if error.to_string().contains("WRONGTYPE")
            && let Some(wrong) = expect_types(&mut self.inner.commands.clone(), types).await
        {
            return wrong;
        }
        refused(error)
    }
}

/// What the server has against a step, with the remedy where there is one.
pub(crate) fn refused(error: RedisError) -> StoreError {
    match error.code() {
        Some("MOVED" | "ASK" | "CROSSSLOT") => StoreError::Refused(
            "this server is one of a Redis Cluster: give its address as redis-cluster://… instead of redis://…".into(),
        ),
        _ => StoreError::Refused(Box::new(error)),
    }
}

/// Whether the server may be back soon, without anybody doing anything: nobody answers, or it says that it is still coming up.
pub fn passing(error: &RedisError) -> bool {
    let silent = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
    silent || matches!(error.code(), Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "UNBLOCKED"))
}

/// The first of `keys` that exists with another type than expected, as the error to report.
pub async fn expect_types<K: AsRef<str>>(commands: &mut Commands, keys: &[(K, &'static str)]) -> Option<StoreError> {
    for (key, expected) in keys {
        let key = key.as_ref();
        let found: String = redis::cmd("TYPE").arg(key).query_async(commands).await.ok()?;
        if found != "none" && found != *expected {
            return Some(StoreError::WrongType { key: key.to_owned(), expected, found });
        }
    }
    None
}

/// The first of `keys`, all strings, that holds something else than a whole number, as the error to report.
pub async fn expect_numbers<K: AsRef<str>>(commands: &mut Commands, keys: &[K]) -> Option<StoreError> {
    for key in keys {
        let key = key.as_ref();
        let found: Option<String> = redis::cmd("GET").arg(key).query_async(commands).await.ok()?;
        if let Some(found) = found.filter(|found| found.parse::<u64>().is_err()) {
            return Some(no_number(key.to_owned(), &found));
        }
    }
    None
}

/// What stands in `key` is not the number that belongs there.
fn no_number(key: String, found: &str) -> StoreError {
    let found: String = found.chars().take(40).collect();
    StoreError::WrongType { key, expected: "whole number", found: format!("text that is none (`{found}`)") }
}

impl Store for RedisStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        let mut call = self.step(&self.inner.scripts.join);
        call.key(self.keys().beat(member)).arg(member.as_str()).arg(millis(ttl));
        self.run(&call).await.map(Revision)
    }

    async fn beat(&self, member: &MemberId, ttl: Duration) -> Result<Beat, StoreError> {
        let mut call = self.step(&self.inner.scripts.beat);
        call.key(self.keys().beat(member)).arg(member.as_str()).arg(millis(ttl));
        let (revision, assigned): (i64, u64) = self.run(&call).await?;
        let alive = |revision| Beat::Alive { revision: Revision(revision), assigned: Revision(assigned) };
        Ok(u64::try_from(revision).map_or(Beat::Gone, alive))
    }

    async fn retire(&self, member: &MemberId) -> Result<(), StoreError> {
        let mut call = self.step(&self.inner.scripts.retire);
        call.arg(member.as_str());
        self.run::<i64>(&call).await.map(drop)
    }

    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        let mut call = self.step(&self.inner.scripts.leave);
        call.key(self.keys().beat(member)).arg(member.as_str());
        self.run::<i64>(&call).await.map(drop)
    }

    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        let dead: Vec<String> = self.run(&self.step(&self.inner.scripts.sweep)).await?;
        Ok(dead.into_iter().map(MemberId::new).collect())
    }

    async fn view(&self) -> Result<View, StoreError> {
        let parts = self.run(&self.step(&self.inner.scripts.view)).await?;
        reply::view(parts, self.keys())
    }

    async fn look(&self, member: &MemberId) -> Result<Look, StoreError> {
        let mut call = self.step(&self.inner.scripts.look);
        call.arg(member.as_str());
        reply::look(self.run(&call).await?, self.keys())
    }

    async fn assign(&self, expected: Revision, assignment: &Assignment) -> Result<bool, StoreError> {
        let text = serde_json::to_string(assignment).expect("strings only");
        let mut call = self.step(&self.inner.scripts.assign);
        call.arg(expected.0).arg(text);
        self.run(&call).await
    }

    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<Acquired, StoreError> {
        let mut call = self.step(&self.inner.scripts.acquire);
        call.key(&*self.keys().admin).arg(member.as_str());
        for unit in units {
            call.arg(unit.as_str());
        }
        match self.run(&call).await? {
            Value::Array(grants) => {
                let grants: Vec<u64> =
                    redis::from_redis_value(Value::Array(grants)).map_err(|e| StoreError::Refused(Box::new(e)))?;
                Ok(Acquired::Units(grants.into_iter().map(|epoch| (epoch > 0).then_some(Epoch(epoch))).collect()))
            }
            Value::BulkString(word) if word == b"closed" => Ok(Acquired::Closed),
            _ => Ok(Acquired::Gone),
        }
    }

    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        let mut call = self.step(&self.inner.scripts.release);
        call.arg(member.as_str());
        for lease in leases {
            call.arg(lease.unit.as_str()).arg(lease.epoch.0);
        }
        self.run(&call).await
    }

    async fn changed(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(millis(within).max(1));
        command.arg("STREAMS").arg(&*self.keys().control).arg(format!("{}-0", seen.0));
        let mut waiting = self.inner.waiting.lock().await;
        match waiting.query::<Value>(&command, within).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(error, &self.inner.keys.types()).await),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
