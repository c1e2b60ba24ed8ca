//! Resource pools in Redis or Valkey: one Lua script per operation and pool, over declared keys
//! only.
//! It keeps no state except which requests of this process wait for a notification.

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{RedisClient, RedisLeaseStore, TurnListener, find_non_number, millis, not_a_number_error};
use crate::{
    ItemId, LeaseEpoch, MemberId, PoolCounts, PoolHolder, PoolItem, PoolItemStatus, PoolLease, PoolName,
    PoolReleaseOutcome, PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, Revision, RunEpoch, StoreError,
    TURN_TIMEOUT, pool::MAX_NOTIFIED_WAITERS,
};

/// Items per put, because a script blocks the server while it runs.
const ITEMS_PER_PUT: usize = 500;
/// Item numbers that one script checks, for the same reason.
const NUMBERS_PER_SEARCH: u64 = 1000;

/// The keys of a fleet's pools. They share a hash slot if the prefix has a hash tag.
#[derive(Clone, Debug)]
pub struct PoolKeys {
    prefix: Arc<str>,
}

impl PoolKeys {
    /// Keys that begin with `prefix`, such as `squall:{default}:`. An empty prefix gives vikhry's
    /// key names.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Hash: pool → number of its items.
    pub fn resources(&self) -> String {
        format!("{}resources", self.prefix)
    }

    /// Set: ids of free items.
    pub fn available(&self, pool: &PoolName) -> String {
        self.pool_key(pool, "available")
    }

    /// String, usually JSON: the payload of an item.
    pub fn item(&self, pool: &PoolName, id: &ItemId) -> String {
        self.pool_key(pool, id.as_str())
    }

    /// Hash: id → `<grant> <run> <ticket> <holder>`.
    pub fn held(&self, pool: &PoolName) -> String {
        self.pool_key(pool, "held")
    }

    fn pool_key(&self, pool: &PoolName, part: &str) -> String {
        format!("{}resource:{pool}:{part}", self.prefix)
    }

    /// vikhry numbers items from 1.
    fn first_item_number(&self) -> u64 {
        u64::from(self.prefix.is_empty())
    }

    /// Stream: notified requests of all pools.
    fn calls(&self) -> String {
        format!("{}resources:calls", self.prefix)
    }

    /// String: the reply to one put.
    fn put_reply(&self, request_id: &PoolRequestId) -> String {
        format!("{}resources:put:{}", self.prefix, request_id.as_str())
    }

    /// String: the current run.
    fn epoch(&self) -> String {
        format!("{}test:epoch", self.prefix)
    }
}

/// The pools of the members of one [`RedisLeaseStore`]. Clones share them and their connections.
#[derive(Clone)]
pub struct RedisPoolStore {
    inner: Arc<Inner>,
}

struct Inner {
    members: RedisLeaseStore,
    keys: PoolKeys,
    scripts: PoolScripts,
    turn_listener: TurnListener,
}

struct PoolScripts {
    put: Script,
    reset_for_run: Script,
    next_item_number: Script,
    try_acquire: Script,
    cancel_request: Script,
    release: Script,
    release_all: Script,
    sweep: Script,
    count: Script,
}

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/pool/prelude.lua"),
            include_str!(concat!("scripts/pool/", $name, ".lua"))
        ))
    };
}

impl RedisPoolStore {
    /// The pools under `keys` for the members of `members`. On a cluster, both must share a hash slot.
    pub fn new(client: &RedisClient, members: &RedisLeaseStore, keys: PoolKeys) -> Self {
        let scripts = PoolScripts {
            put: script!("put"),
            reset_for_run: script!("reset_for_run"),
            next_item_number: script!("next_item_number"),
            try_acquire: script!("try_acquire"),
            cancel_request: script!("cancel_request"),
            release: script!("release"),
            release_all: script!("release_all"),
            sweep: script!("sweep"),
            count: script!("count"),
        };
        let turn_listener = TurnListener::new(client.blocking_connection(), keys.calls());
        Self { inner: Arc::new(Inner { members: members.clone(), keys, scripts, turn_listener }) }
    }

    /// The pools' keys.
    pub fn keys(&self) -> &PoolKeys {
        &self.inner.keys
    }

    fn invocation<'a>(&self, script: &'a Script, pool: &PoolName) -> ScriptInvocation<'a> {
        let Inner { keys, members, .. } = &*self.inner;
        let mut call = script.prepare_invoke();
        call.key(keys.resources());
        for part in ["available", "held", "holders", "waiting", "tickets"] {
            call.key(keys.pool_key(pool, part));
        }
        call.key(&*members.keys().live).key(keys.epoch()).key(keys.calls());
        call.arg(members.skew_ms()).arg(pool.as_str()).arg(millis(TURN_TIMEOUT)).arg(MAX_NOTIFIED_WAITERS);
        call
    }

    async fn invoke<T: FromRedisValue>(&self, pool: &PoolName, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match call.invoke_async(&mut self.inner.members.connection()).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error, pool).await),
        }
    }

    /// Finds the key behind an error that does not name it: a wrong type, or text in place of a
    /// number.
    async fn to_store_error(&self, error: redis::RedisError, pool: &PoolName) -> StoreError {
        let explained = self.inner.members.to_store_error(error, &self.expected_types(pool)).await;
        let StoreError::Rejected(error) = explained else { return explained };
        let (mut connection, resources) = (self.inner.members.connection(), self.keys().resources());
        if let Some(wrong_key) = find_non_number(&mut connection, &[self.keys().epoch()]).await {
            return wrong_key;
        }
        let mut total = redis::cmd("HGET");
        let total: Result<Option<String>, _> =
            total.arg(&resources).arg(pool.as_str()).query_async(&mut connection).await;
        match total.ok().flatten().filter(|total| total.parse::<u64>().is_err()) {
            Some(total) => not_a_number_error(format!("{resources}, field {pool}"), &total),
            None => StoreError::Rejected(error),
        }
    }

    async fn query<T: FromRedisValue>(&self, pool: &PoolName, command: &redis::Cmd) -> Result<T, StoreError> {
        match command.query_async(&mut self.inner.members.connection()).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error, pool).await),
        }
    }

    fn expected_types(&self, pool: &PoolName) -> Vec<(String, &'static str)> {
        let keys = &self.inner.keys;
        vec![
            (keys.resources(), "hash"),
            (keys.available(pool), "set"),
            (keys.held(pool), "hash"),
            (keys.pool_key(pool, "holders"), "hash"),
            (keys.pool_key(pool, "waiting"), "zset"),
            (keys.pool_key(pool, "tickets"), "hash"),
            (keys.epoch(), "string"),
            (keys.calls(), "stream"),
        ]
    }

    /// Runs a script on every pool. A failing pool does not stop the others; the first error is
    /// returned at the end.
    async fn invoke_on_all(&self, script: &Script, holder: Option<&MemberId>) -> Result<u64, StoreError> {
        let (mut count, mut first_error) = (0, None);
        for pool in self.names().await? {
            let mut call = self.invocation(script, &pool);
            if let Some(holder) = holder {
                call.arg(holder.as_str());
            }
            match self.invoke::<u64>(&pool, &call).await {
                Ok(freed) => count += freed,
                Err(error @ StoreError::Unreachable(_)) => return Err(error),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(count), Err)
    }

    /// Reads a payload outside the script, because it never changes while its id exists.
    async fn payload(&self, pool: &PoolName, id: &ItemId) -> Result<String, StoreError> {
        let key = self.keys().item(pool, id);
        let payload: Option<String> = self.query(pool, redis::cmd("GET").arg(&key)).await?;
        payload.ok_or(StoreError::WrongType { key, expected: "payload", found: "nothing".into() })
    }
}

impl PoolStore for RedisPoolStore {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[PoolItem],
        up_to: Option<u64>,
        run: Option<RunEpoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        let mut added = Vec::new();
        let mut batches = items.chunks(ITEMS_PER_PUT);
        let mut next = Some(batches.next().unwrap_or_default());
        while let Some(batch) = next {
            let mut call = self.invocation(&self.inner.scripts.put, pool);
            call.key(self.keys().pool_key(pool, "pool_loaded_count"));
            // The cluster client repeats a command by itself when its reply is lost; this key makes
            // the repetition harmless.
            call.key(self.keys().put_reply(&PoolRequestId::unique()));
            call.arg(optional_arg(up_to)).arg(optional_arg(run.map(|run| run.0)));
            for item in batch {
                call.key(self.keys().item(pool, &item.id)).arg(item.id.as_str()).arg(&item.payload);
            }
            let flags: Vec<bool> = self.invoke(pool, &call).await?;
            added.extend(batch.iter().zip(flags).filter(|(_, added)| *added).map(|(item, _)| item.id.clone()));
            next = batches.next();
        }
        Ok(added)
    }

    async fn reset_for_run(&self, pool: &PoolName, run: RunEpoch) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.reset_for_run, pool);
        call.key(self.keys().pool_key(pool, "pool_loaded_count")).arg(run.0);
        self.invoke(pool, &call).await
    }

    async fn next_item_number(
        &self,
        pool: &PoolName,
        run: RunEpoch,
        limit: Option<u64>,
    ) -> Result<Option<u64>, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.next_item_number, pool);
        call.arg(run.0).arg(optional_arg(limit)).arg(NUMBERS_PER_SEARCH).arg(self.keys().first_item_number());
        loop {
            match self.invoke::<i64>(pool, &call).await? {
                -2 => {}
                number => return Ok(u64::try_from(number).ok()),
            }
        }
    }

    async fn try_acquire(&self, request: &PoolRequest, wait: Duration) -> Result<PoolRequestOutcome, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.try_acquire, &request.pool);
        // Rounded up, because 0 means not to queue.
        let wait = millis(wait) + u64::from(!wait.subsec_nanos().is_multiple_of(1_000_000));
        call.arg(request.holder.as_str()).arg(request.run.0).arg(request.request_id.as_str()).arg(wait);
        let reply: Vec<String> = self.invoke(&request.pool, &call).await?;
        let number = |at: usize| reply.get(at).and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(match (reply[0].as_str(), reply.get(1)) {
            ("granted", Some(id)) => {
                let id = ItemId::from_stored(id.clone());
                let payload = self.payload(&request.pool, &id).await?;
                let (pool, holder, run) = (request.pool.clone(), request.holder.clone(), request.run);
                PoolRequestOutcome::Granted(PoolLease { pool, id, holder, run, grant: LeaseEpoch(number(2)), payload })
            }
            ("queued", _) => PoolRequestOutcome::Queued { ahead: number(1), seen_notifications: Revision(number(2)) },
            ("none_available", _) => PoolRequestOutcome::NoneAvailable,
            ("no_pool", _) => PoolRequestOutcome::NoPool,
            ("run_ended", _) => PoolRequestOutcome::RunEnded(RunEpoch(number(1))),
            _ => PoolRequestOutcome::NotMember,
        })
    }

    async fn cancel_request(&self, pool: &PoolName, request_id: &PoolRequestId) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.cancel_request, pool);
        call.arg(request_id.as_str());
        self.invoke(pool, &call).await
    }

    async fn wait_for_turn(&self, request: &PoolRequest, seen: Revision, within: Duration) -> Result<(), StoreError> {
        match self.inner.turn_listener.wait_for_turn(request.request_id.as_str(), seen.0, within).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.inner.members.to_store_error(error, &self.expected_types(&request.pool)).await),
        }
    }

    async fn release(&self, lease: &PoolLease) -> Result<PoolReleaseOutcome, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.release, &lease.pool);
        call.arg(lease.holder.as_str()).arg(lease.run.0).arg(lease.id.as_str()).arg(lease.grant.0);
        let reply: Vec<String> = self.invoke(&lease.pool, &call).await?;
        Ok(match (reply[0].as_str(), reply.get(1).and_then(|run| run.parse().ok())) {
            ("released", _) => PoolReleaseOutcome::Released,
            ("run_ended", Some(run)) => PoolReleaseOutcome::RunEnded(RunEpoch(run)),
            _ => PoolReleaseOutcome::NotHeld,
        })
    }

    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        self.invoke_on_all(&self.inner.scripts.release_all, Some(holder)).await
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        self.invoke_on_all(&self.inner.scripts.sweep, None).await
    }

    async fn names(&self) -> Result<Vec<PoolName>, StoreError> {
        let any = PoolName::new("any").expect("a valid name");
        let mut names: Vec<String> = self.query(&any, redis::cmd("HKEYS").arg(self.keys().resources())).await?;
        names.sort_unstable();
        // Invalid names are foreign and are skipped.
        Ok(names.into_iter().filter_map(|name| PoolName::new(name).ok()).collect())
    }

    async fn count(&self, pool: &PoolName) -> Result<PoolCounts, StoreError> {
        let (total, available, held, waiting) =
            self.invoke(pool, &self.invocation(&self.inner.scripts.count, pool)).await?;
        Ok(PoolCounts { pool: pool.clone(), total, available, held, waiting })
    }

    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<PoolItemStatus>, StoreError> {
        let mut found: Vec<(String, Option<String>)> = Vec::new();
        for (scan, key) in [("SSCAN", self.keys().available(pool)), ("HSCAN", self.keys().held(pool))] {
            let mut cursor = String::from("0");
            while found.len() < limit {
                let (next, page): (String, Vec<String>) =
                    self.query(pool, redis::cmd(scan).arg(&key).arg(&cursor).arg("COUNT").arg(limit.min(1000))).await?;
                match scan {
                    "SSCAN" => found.extend(page.into_iter().map(|id| (id, None))),
                    _ => found.extend(page.chunks_exact(2).map(|pair| (pair[0].clone(), Some(pair[1].clone())))),
                }
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
        }
        found.truncate(limit);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut read = redis::cmd("MGET");
        for (id, _) in &found {
            read.arg(self.keys().item(pool, &ItemId::from_stored(id.clone())));
        }
        let payloads: Vec<Option<String>> = self.query(pool, &read).await?;
        let listed = found.into_iter().zip(payloads).map(|((id, record), payload)| PoolItemStatus {
            id: ItemId::from_stored(id),
            payload: payload.unwrap_or_default(),
            held: record.as_deref().and_then(parse_holder),
        });
        Ok(listed.collect())
    }
}

/// An optional number as a script argument; -1 for `None`.
fn optional_arg(number: Option<u64>) -> i64 {
    number.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// `<grant> <run> <ticket> <holder>`
fn parse_holder(record: &str) -> Option<PoolHolder> {
    let mut parts = record.splitn(4, ' ');
    let grant = parts.next()?.parse().ok()?;
    let run = parts.next()?.parse().ok()?;
    Some(PoolHolder { member: MemberId::new(parts.nth(1)?), run: RunEpoch(run), grant: LeaseEpoch(grant) })
}
