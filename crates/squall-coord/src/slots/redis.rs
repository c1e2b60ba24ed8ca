//! The slot store in Redis or Valkey: one Lua script per operation.
//! It keeps no state except which claims of this process wait for a notification. The scripts also
//! write playwright-distributed's keys, so its monitoring works with a grid.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{
    AttachOutcome, ClaimOutcome, EndReason, OfferOutcome, ReleaseCause, SlotAttach, SlotClaim, SlotGrant, SlotOffer,
    SlotSessionId, SlotSnapshot, SlotStore, SlotWorkerId, StoredApiKey,
    records::{ANY_VERSION, HeldRecord, OfferRecord, SessionRecord, TicketRecord},
};
use crate::{
    MemberId, Revision, StoreError,
    redis::{RedisClient, SharedConnection, TurnListener, find_wrong_type, is_transient, millis, rejected},
};

/// A slot store in Redis. Clones share it and its connections.
#[derive(Clone)]
pub struct RedisSlotStore {
    inner: Arc<Inner>,
}

struct Inner {
    connection: SharedConnection,
    prefix: String,
    scripts: SlotScripts,
    grant_listener: TurnListener,
    skew_ms: AtomicU64,
}

struct SlotScripts {
    offer: Script,
    leave: Script,
    renew_server: Script,
    claim: Script,
    attach: Script,
    release: Script,
    end_session: Script,
    drain: Script,
    snapshot: Script,
    revoke_api_key: Script,
}

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(include_str!("scripts/prelude.lua"), include_str!(concat!("scripts/", $name, ".lua"))))
    };
}

impl RedisSlotStore {
    /// The store whose keys begin with `prefix`, such as `squall-grid:{default}:`. An empty prefix
    /// gives playwright-distributed's key names; a cluster needs a prefix with a hash tag.
    pub fn new(client: &RedisClient, prefix: &str) -> Self {
        let scripts = SlotScripts {
            offer: script!("offer"),
            leave: script!("leave"),
            renew_server: script!("renew_server"),
            claim: script!("claim"),
            attach: script!("attach"),
            release: script!("release"),
            end_session: script!("end_session"),
            drain: script!("drain"),
            snapshot: script!("snapshot"),
            revoke_api_key: script!("revoke_api_key"),
        };
        let grant_listener = TurnListener::new(client.blocking_connection(), format!("{prefix}calls"));
        let skew_ms = AtomicU64::new(0);
        let inner =
            Inner { connection: client.connection(), prefix: prefix.to_owned(), scripts, grant_listener, skew_ms };
        Self { inner: Arc::new(inner) }
    }

    /// Moves this handle's view of the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.inner.skew_ms.fetch_add(millis(by), Relaxed);
    }

    fn invocation<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(format!("{}sessions", self.inner.prefix));
        call.arg(&self.inner.prefix).arg(self.inner.skew_ms.load(Relaxed));
        call
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        match call.invoke_async(&mut self.inner.connection.clone()).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    fn api_keys_key(&self) -> String {
        format!("{}api_keys", self.inner.prefix)
    }

    async fn query<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StoreError> {
        match command.query_async(&mut self.inner.connection.clone()).await {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    /// Finds the key behind a WRONGTYPE error, which Redis does not name.
    async fn to_store_error(&self, error: redis::RedisError) -> StoreError {
        if is_transient(&error) {
            return StoreError::Unreachable(Box::new(error));
        }
        if error.to_string().contains("WRONGTYPE") {
            let types: Vec<(String, &'static str)> =
                FIXED_KEYS.iter().map(|(name, kind)| (format!("{}{name}", self.inner.prefix), *kind)).collect();
            if let Some(wrong_key) = find_wrong_type(&mut self.inner.connection.clone(), &types).await {
                return wrong_key;
            }
        }
        rejected(error)
    }
}

/// The keys whose names do not depend on data, and their types.
const FIXED_KEYS: [(&str, &str); 18] = [
    ("sessions", "hash"),
    ("offers", "hash"),
    ("workers", "zset"),
    ("servers", "zset"),
    ("pending", "zset"),
    ("released", "zset"),
    ("lost", "zset"),
    ("tickets", "hash"),
    ("waiting", "zset"),
    ("arrivals", "string"),
    ("keys", "hash"),
    ("keys:waiting", "hash"),
    ("calls", "stream"),
    ("api_keys", "hash"),
    ("revoked_api_keys", "zset"),
    ("sweep_at", "string"),
    ("cluster:active_connections", "hash"),
    ("cluster:lifetime_connections", "hash"),
];

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("strings and numbers only")
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Rejected(Box::new(error)))
}

/// The reply of HGETALL and the like.
type Pairs = Vec<(String, String)>;

impl SlotStore for RedisSlotStore {
    async fn offer(&self, offer: &SlotOffer, ttl: Duration) -> Result<OfferOutcome, StoreError> {
        let held: Vec<HeldRecord<'_>> = offer
            .sessions
            .iter()
            .map(|held| HeldRecord {
                id: held.id.as_str(),
                key: &held.key,
                version: &held.version,
                server: held.server.as_str(),
                direct: held.direct,
                detached: held.detached,
            })
            .collect();
        let mut call = self.invocation(&self.inner.scripts.offer);
        call.arg(offer.worker.kind()).arg(offer.worker.name()).arg(to_json(&OfferRecord::new(offer)));
        let ended: Vec<&str> = offer.ended.iter().map(SlotSessionId::as_str).collect();
        call.arg(millis(ttl)).arg(to_json(&held)).arg(to_json(&ended));
        let reply: Vec<String> = self.invoke(&call).await?;
        if reply[0] == "name_taken" {
            return Ok(OfferOutcome { name_taken: true, ..OfferOutcome::default() });
        }
        let end = reply[2..].chunks_exact(2).map(|pair| {
            let reason = match pair[1].as_str() {
                "deleted" => EndReason::Deleted,
                "server_lost" => EndReason::ServerLost,
                _ => EndReason::ServerUnknown,
            };
            (SlotSessionId(pair[0].clone()), reason)
        });
        let pending = reply[1].parse().unwrap_or_default();
        Ok(OfferOutcome { drain: reply[0] == "1", pending, end: end.collect(), name_taken: false })
    }

    async fn leave_worker(&self, worker: &SlotWorkerId) -> Result<(), StoreError> {
        let mut call = self.invocation(&self.inner.scripts.leave);
        call.arg("worker").arg(worker.to_string());
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn renew_server(&self, server: &MemberId, ttl: Duration) -> Result<Vec<SlotSessionId>, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.renew_server);
        call.arg(server.as_str()).arg(millis(ttl));
        let mut ids: Vec<String> = self.invoke(&call).await?;
        ids.sort_unstable();
        Ok(ids.into_iter().map(SlotSessionId).collect())
    }

    async fn leave_server(&self, server: &MemberId) -> Result<(), StoreError> {
        let mut call = self.invocation(&self.inner.scripts.leave);
        call.arg("server").arg(server.as_str());
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn claim(&self, claim: &SlotClaim) -> Result<ClaimOutcome, StoreError> {
        let ticket = TicketRecord {
            kind: claim.kind.clone(),
            version: claim.version.clone().unwrap_or_else(|| ANY_VERSION.to_owned()),
            key: claim.key.clone(),
            server: claim.server.as_str().to_owned(),
            dial: millis(claim.listed_within),
            reserved: claim.reserved,
            // The script fills it in from the store's clock.
            since: 0,
        };
        let mut call = self.invocation(&self.inner.scripts.claim);
        call.arg(claim.session.as_str()).arg(to_json(&ticket)).arg(millis(claim.wait));
        let limit = |limit: Option<u64>| limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        call.arg(claim.queue_limit).arg(limit(claim.key_limit)).arg(limit(claim.key_queue_limit));
        let reply: Vec<String> = self.invoke(&call).await?;
        let number = |at: usize| reply.get(at).and_then(|text| text.parse().ok()).unwrap_or_default();
        let text = |at: usize| reply.get(at).cloned().unwrap_or_default();
        Ok(match (reply[0].as_str(), SlotWorkerId::parse(&text(1))) {
            ("granted", Some(worker)) => {
                ClaimOutcome::Granted(SlotGrant { worker, version: text(2), endpoint: text(3), secret: text(4) })
            }
            ("waiting", _) => ClaimOutcome::Waiting { ahead: number(1), seen_notifications: Revision(number(2)) },
            ("queue_full", _) => ClaimOutcome::QueueFull,
            ("key_full", _) => ClaimOutcome::KeyFull,
            ("key_queue_full", _) => ClaimOutcome::KeyQueueFull,
            ("no_version", _) => {
                let mut versions = reply[1..].to_vec();
                versions.sort_unstable();
                ClaimOutcome::NoVersion(versions)
            }
            _ => ClaimOutcome::NotMember,
        })
    }

    async fn attach(&self, attach: &SlotAttach) -> Result<AttachOutcome, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.attach);
        call.arg(attach.session.as_str()).arg(attach.server.as_str()).arg(millis(attach.listed_within));
        call.arg(u8::from(attach.key.is_some())).arg(attach.key.as_deref().unwrap_or_default());
        let reply: Vec<String> = self.invoke(&call).await?;
        let text = |at: usize| reply.get(at).cloned().unwrap_or_default();
        Ok(match (reply[0].as_str(), SlotWorkerId::parse(&text(1))) {
            ("attached", Some(worker)) => AttachOutcome::Attached {
                grant: SlotGrant { worker, version: text(2), endpoint: text(3), secret: text(4) },
                begun: text(5) == "1",
            },
            ("taken", _) => AttachOutcome::Taken,
            ("ended", _) => AttachOutcome::Ended,
            ("not_member", _) => AttachOutcome::NotMember,
            _ => AttachOutcome::Unknown,
        })
    }

    async fn wait_for_grant(
        &self,
        session: &SlotSessionId,
        seen: Revision,
        within: Duration,
    ) -> Result<(), StoreError> {
        match self.inner.grant_listener.wait_for_turn(session.as_str(), seen.0, within).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    async fn release(&self, session: &SlotSessionId, cause: ReleaseCause) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.release);
        let cause = match cause {
            ReleaseCause::Ended => "ended",
            ReleaseCause::NeverBegan => "never_began",
            ReleaseCause::WorkerUnreachable => "unreachable",
            ReleaseCause::Detached => "detached",
        };
        call.arg(session.as_str()).arg(cause);
        self.invoke(&call).await
    }

    async fn end_session(&self, session: &SlotSessionId) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.end_session);
        call.arg(session.as_str());
        self.invoke(&call).await
    }

    async fn drain(&self, worker: &SlotWorkerId) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.drain);
        call.arg(worker.to_string());
        self.invoke(&call).await
    }

    async fn snapshot(&self) -> Result<SlotSnapshot, StoreError> {
        let call = self.invocation(&self.inner.scripts.snapshot);
        type Reply = (u64, Pairs, HashMap<String, u64>, Pairs, Pairs, Pairs, Vec<String>);
        let (now, offers, lifetimes, live, sessions, tickets, servers): Reply = self.invoke(&call).await?;
        let mut snapshot = SlotSnapshot::default();
        let mut active: HashMap<String, u32> = HashMap::new();
        for (id, text) in sessions {
            let record: SessionRecord = from_json(&text)?;
            *active.entry(record.worker.clone()).or_default() += 1;
            snapshot.sessions.extend(record.view(SlotSessionId(id), now));
        }
        for (name, text) in offers {
            let Some(worker) = SlotWorkerId::parse(&name) else { continue };
            if live.iter().any(|(live, _)| *live == name) {
                let active = active.get(&name).copied().unwrap_or(0);
                let mut offer: OfferRecord = from_json(&text)?;
                offer.lifetime = lifetimes.get(&name).copied().unwrap_or(offer.lifetime);
                snapshot.workers.push(offer.view(worker, active));
            }
        }
        for (_, text) in tickets {
            let ticket: TicketRecord = from_json(&text)?;
            snapshot.add_waiting(ticket.kind, now.saturating_sub(ticket.since));
        }
        snapshot.servers = servers.into_iter().map(MemberId::new).collect();
        snapshot.workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        snapshot.sessions.sort_by(|a, b| a.id.cmp(&b.id));
        snapshot.waiting.sort_unstable();
        snapshot.servers.sort_unstable();
        Ok(snapshot)
    }

    async fn add_api_key(&self, key: &StoredApiKey) -> Result<bool, StoreError> {
        let mut command = redis::cmd("HSETNX");
        command.arg(self.api_keys_key()).arg(&key.name).arg(to_json(key));
        self.query(&command).await
    }

    async fn revoke_api_key(&self, name: &str) -> Result<bool, StoreError> {
        let mut call = self.invocation(&self.inner.scripts.revoke_api_key);
        call.arg(name);
        self.invoke(&call).await
    }

    async fn revoked_api_keys(&self) -> Result<Vec<String>, StoreError> {
        let mut command = redis::cmd("ZRANGE");
        command.arg(format!("{}revoked_api_keys", self.inner.prefix)).arg(0).arg(-1);
        let texts: Vec<String> = self.query(&command).await?;
        let keys = texts.iter().map(|text| Ok(from_json::<StoredApiKey>(text)?.id()));
        let mut ids = keys.collect::<Result<Vec<String>, StoreError>>()?;
        ids.sort_unstable();
        Ok(ids)
    }

    async fn api_keys(&self) -> Result<Vec<StoredApiKey>, StoreError> {
        let mut command = redis::cmd("HVALS");
        command.arg(self.api_keys_key());
        let texts: Vec<String> = self.query(&command).await?;
        let mut keys = texts.iter().map(|text| from_json(text)).collect::<Result<Vec<StoredApiKey>, _>>()?;
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(keys)
    }
}
