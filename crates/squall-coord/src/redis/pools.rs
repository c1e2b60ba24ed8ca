//! Pools in Redis or Valkey: one Lua script per step and pool, over declared keys only.
//! Refuses to keep state of its own but who of this process waits to be called.

mod listening;

use std::{sync::Arc, time::Duration};

use redis::{FromRedisValue, Script, ScriptInvocation};

use self::listening::Listening;
use super::{Link, RedisStore, expect_numbers, millis, no_number};
use crate::{
    Answer, Ask, Epoch, Hold, Item, ItemId, Listed, MemberId, PATIENCE, PoolCounts, PoolName, PoolStore, Released,
    Revision, StoreError, Ticket, pool::CALLS,
};

/// Things per put: a script stops everybody else meanwhile.
const BATCH: usize = 500;
/// Things per look for a number, for the same reason.
const LOOKS: u64 = 1000;

/// Where the pools of a cell live. All keys share a hash slot if the prefix has a hash tag.
#[derive(Clone, Debug)]
pub struct PoolKeys {
    prefix: Arc<str>,
}

impl PoolKeys {
    /// Keys with this before them, such as `squall:{default}:`; empty for the seed's own names.
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.into() }
    }

    /// Hash: pool → how many things were ever put in.
    pub fn resources(&self) -> String {
        format!("{}resources", self.prefix)
    }

    /// Set: ids that are free.
    pub fn available(&self, pool: &PoolName) -> String {
        self.of(pool, "available")
    }

    /// String, usually JSON: the payload of one thing.
    pub fn item(&self, pool: &PoolName, id: &ItemId) -> String {
        self.of(pool, id.as_str())
    }

    /// Hash: id → `<grant> <run> <ticket> <holder>`.
    pub fn held(&self, pool: &PoolName) -> String {
        self.of(pool, "held")
    }

    fn of(&self, pool: &PoolName, what: &str) -> String {
        format!("{}resource:{pool}:{what}", self.prefix)
    }

    /// Stream: who was called, over all pools.
    fn calls(&self) -> String {
        format!("{}resources:calls", self.prefix)
    }

    /// String: what one put was answered.
    fn put(&self, ticket: &Ticket) -> String {
        format!("{}resources:put:{}", self.prefix, ticket.as_str())
    }

    /// String: the current run.
    fn epoch(&self) -> String {
        format!("{}test:epoch", self.prefix)
    }
}

/// The pools of the members of one [`RedisStore`]. Clones share them and their connections.
#[derive(Clone)]
pub struct RedisPools {
    inner: Arc<Inner>,
}

struct Inner {
    members: RedisStore,
    keys: PoolKeys,
    scripts: Scripts,
    listening: Listening,
}

struct Scripts {
    put: Script,
    renew: Script,
    number: Script,
    ask: Script,
    forget: Script,
    release: Script,
    release_all: Script,
    sweep: Script,
    counts: Script,
}

macro_rules! step {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/pool/prelude.lua"),
            include_str!(concat!("scripts/pool/", $name, ".lua"))
        ))
    };
}

impl RedisPools {
    /// The pools under `keys` for the members of `members`. On a cluster, both must share a hash slot.
    pub fn new(link: &Link, members: &RedisStore, keys: PoolKeys) -> Self {
        let scripts = Scripts {
            put: step!("put"),
            renew: step!("renew"),
            number: step!("number"),
            ask: step!("ask"),
            forget: step!("forget"),
            release: step!("release"),
            release_all: step!("release_all"),
            sweep: step!("sweep"),
            counts: step!("counts"),
        };
        let listening = Listening::new(link.blocking(), keys.calls());
        Self { inner: Arc::new(Inner { members: members.clone(), keys, scripts, listening }) }
    }

    /// The pools' keys.
    pub fn keys(&self) -> &PoolKeys {
        &self.inner.keys
    }

    fn step<'a>(&self, script: &'a Script, pool: &PoolName) -> ScriptInvocation<'a> {
        let Inner { keys, members, .. } = &*self.inner;
        let mut call = script.prepare_invoke();
        call.key(keys.resources());
        for what in ["available", "held", "holders", "waiting", "tickets"] {
            call.key(keys.of(pool, what));
        }
        call.key(&*members.keys().live).key(keys.epoch()).key(keys.calls());
        call.arg(members.skew_ms()).arg(pool.as_str()).arg(millis(PATIENCE)).arg(CALLS);
        call
    }

    async fn run<T: FromRedisValue>(&self, pool: &PoolName, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match call.invoke_async(&mut self.inner.members.commands()).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error, pool).await),
        }
    }

    /// Finds the key behind an answer that does not name it: of another type, or text where a number belongs.
    async fn explain(&self, error: redis::RedisError, pool: &PoolName) -> StoreError {
        let explained = self.inner.members.explain(error, &self.types(pool)).await;
        let StoreError::Refused(error) = explained else { return explained };
        let (mut commands, resources) = (self.inner.members.commands(), self.keys().resources());
        if let Some(wrong) = expect_numbers(&mut commands, &[self.keys().epoch()]).await {
            return wrong;
        }
        let mut total = redis::cmd("HGET");
        let total: Result<Option<String>, _> =
            total.arg(&resources).arg(pool.as_str()).query_async(&mut commands).await;
        match total.ok().flatten().filter(|total| total.parse::<u64>().is_err()) {
            Some(total) => no_number(format!("{resources}, field {pool}"), &total),
            None => StoreError::Refused(error),
        }
    }

    async fn query<T: FromRedisValue>(&self, pool: &PoolName, command: &redis::Cmd) -> Result<T, StoreError> {
        match command.query_async(&mut self.inner.members.commands()).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.explain(error, pool).await),
        }
    }

    fn types(&self, pool: &PoolName) -> Vec<(String, &'static str)> {
        let keys = &self.inner.keys;
        vec![
            (keys.resources(), "hash"),
            (keys.available(pool), "set"),
            (keys.held(pool), "hash"),
            (keys.of(pool, "holders"), "hash"),
            (keys.of(pool, "waiting"), "zset"),
            (keys.of(pool, "tickets"), "hash"),
            (keys.epoch(), "string"),
            (keys.calls(), "stream"),
        ]
    }

    /// The same step on every pool; what stands in the way of one keeps none of the others from it, and is the answer.
    async fn on_each(&self, script: &Script, holder: Option<&MemberId>) -> Result<u64, StoreError> {
        let (mut count, mut trouble) = (0, None);
        for pool in self.names().await? {
            let mut call = self.step(script, &pool);
            if let Some(holder) = holder {
                call.arg(holder.as_str());
            }
            match self.run::<u64>(&pool, &call).await {
                Ok(done) => count += done,
                Err(error @ StoreError::Unreachable(_)) => return Err(error),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        trouble.map_or(Ok(count), Err)
    }

    /// The payload; not part of the step, because it never changes while its id exists.
    async fn payload(&self, pool: &PoolName, id: &ItemId) -> Result<String, StoreError> {
        let key = self.keys().item(pool, id);
        let payload: Option<String> = self.query(pool, redis::cmd("GET").arg(&key)).await?;
        payload.ok_or(StoreError::WrongType { key, expected: "payload", found: "nothing".into() })
    }
}

impl PoolStore for RedisPools {
    async fn put(
        &self,
        pool: &PoolName,
        items: &[Item],
        up_to: Option<u64>,
        run: Option<Epoch>,
    ) -> Result<Vec<ItemId>, StoreError> {
        let mut added = Vec::new();
        let mut batches = items.chunks(BATCH);
        let mut next = Some(batches.next().unwrap_or_default());
        while let Some(batch) = next {
            let mut call = self.step(&self.inner.scripts.put, pool);
            call.key(self.keys().of(pool, "pool_loaded_count"));
            // The client of a cluster sends a command again by itself when its answer is lost.
            call.key(self.keys().put(&Ticket::unique()));
            call.arg(signed(up_to)).arg(signed(run.map(|run| run.0)));
            for item in batch {
                call.key(self.keys().item(pool, &item.id)).arg(item.id.as_str()).arg(&item.payload);
            }
            let flags: Vec<bool> = self.run(pool, &call).await?;
            added.extend(batch.iter().zip(flags).filter(|(_, added)| *added).map(|(item, _)| item.id.clone()));
            next = batches.next();
        }
        Ok(added)
    }

    async fn renew(&self, pool: &PoolName, run: Epoch) -> Result<bool, StoreError> {
        let mut call = self.step(&self.inner.scripts.renew, pool);
        call.key(self.keys().of(pool, "pool_loaded_count")).arg(run.0);
        self.run(pool, &call).await
    }

    async fn number(&self, pool: &PoolName, run: Epoch, limit: Option<u64>) -> Result<Option<u64>, StoreError> {
        let mut call = self.step(&self.inner.scripts.number, pool);
        call.arg(run.0).arg(signed(limit)).arg(LOOKS);
        loop {
            match self.run::<i64>(pool, &call).await? {
                -2 => {}
                number => return Ok(u64::try_from(number).ok()),
            }
        }
    }

    async fn ask(&self, ask: &Ask, wait: Duration) -> Result<Answer, StoreError> {
        let mut call = self.step(&self.inner.scripts.ask, &ask.pool);
        // Rounded up: less than a millisecond is not "do not queue".
        let wait = millis(wait) + u64::from(!wait.subsec_nanos().is_multiple_of(1_000_000));
        call.arg(ask.holder.as_str()).arg(ask.run.0).arg(ask.ticket.as_str()).arg(wait);
        let answer: Vec<String> = self.run(&ask.pool, &call).await?;
        let number = |at: usize| answer.get(at).and_then(|text| text.parse().ok()).unwrap_or_default();
        Ok(match (answer[0].as_str(), answer.get(1)) {
            ("granted", Some(id)) => {
                let id = ItemId::stored(id.clone());
                let payload = self.payload(&ask.pool, &id).await?;
                let (pool, holder, run) = (ask.pool.clone(), ask.holder.clone(), ask.run);
                Answer::Granted(Hold { pool, id, holder, run, grant: Epoch(number(2)), payload })
            }
            ("waiting", _) => Answer::Waiting { ahead: number(1), seen: Revision(number(2)) },
            ("empty", _) => Answer::Empty,
            ("nopool", _) => Answer::NoPool,
            ("stale", _) => Answer::Stale(Epoch(number(1))),
            _ => Answer::Gone,
        })
    }

    async fn forget(&self, pool: &PoolName, ticket: &Ticket) -> Result<bool, StoreError> {
        let mut call = self.step(&self.inner.scripts.forget, pool);
        call.arg(ticket.as_str());
        self.run(pool, &call).await
    }

    async fn called(&self, ask: &Ask, seen: Revision, within: Duration) -> Result<(), StoreError> {
        match self.inner.listening.called(&ask.ticket, seen.0, within).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.inner.members.explain(error, &self.types(&ask.pool)).await),
        }
    }

    async fn release(&self, hold: &Hold) -> Result<Released, StoreError> {
        let mut call = self.step(&self.inner.scripts.release, &hold.pool);
        call.arg(hold.holder.as_str()).arg(hold.run.0).arg(hold.id.as_str()).arg(hold.grant.0);
        let answer: Vec<String> = self.run(&hold.pool, &call).await?;
        Ok(match (answer[0].as_str(), answer.get(1).and_then(|run| run.parse().ok())) {
            ("done", _) => Released::Done,
            ("stale", Some(run)) => Released::Stale(Epoch(run)),
            _ => Released::NotHeld,
        })
    }

    async fn release_all(&self, holder: &MemberId) -> Result<u64, StoreError> {
        self.on_each(&self.inner.scripts.release_all, Some(holder)).await
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        self.on_each(&self.inner.scripts.sweep, None).await
    }

    async fn names(&self) -> Result<Vec<PoolName>, StoreError> {
        let any = PoolName::new("any").expect("a valid name");
        let mut names: Vec<String> = self.query(&any, redis::cmd("HKEYS").arg(self.keys().resources())).await?;
        names.sort_unstable();
        // Names that nobody could have given are somebody else's and left alone.
        Ok(names.into_iter().filter_map(|name| PoolName::new(name).ok()).collect())
    }

    async fn count(&self, pool: &PoolName) -> Result<PoolCounts, StoreError> {
        let (total, available, held, waiting) = self.run(pool, &self.step(&self.inner.scripts.counts, pool)).await?;
        Ok(PoolCounts { pool: pool.clone(), total, available, held, waiting })
    }

    async fn list(&self, pool: &PoolName, limit: usize) -> Result<Vec<Listed>, StoreError> {
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
            read.arg(self.keys().item(pool, &ItemId::stored(id.clone())));
        }
        let payloads: Vec<Option<String>> = self.query(pool, &read).await?;
        let listed = found.into_iter().zip(payloads).map(|((id, record), payload)| Listed {
            id: ItemId::stored(id),
            payload: payload.unwrap_or_default(),
            held: record.as_deref().and_then(holder),
        });
        Ok(listed.collect())
    }
}

/// As scripts are told it: -1 where there is none.
fn signed(number: Option<u64>) -> i64 {
    number.map_or(-1, |number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// `<grant> <run> <ticket> <holder>`
fn holder(record: &str) -> Option<(MemberId, Epoch, Epoch)> {
    let mut parts = record.splitn(4, ' ');
    let grant = parts.next()?.parse().ok()?;
    let run = parts.next()?.parse().ok()?;
    Some((MemberId::new(parts.nth(1)?), Epoch(run), Epoch(grant)))
}
