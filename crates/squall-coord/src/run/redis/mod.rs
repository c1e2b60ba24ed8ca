//! The record of a run in Redis or Valkey: one Lua script per operation that checks something, over
//! declared keys that share a hash slot.
//! It keeps no state of its own.

mod counters;
mod run_keys;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::{AsyncCommands, Cmd, FromRedisValue, RedisError, Script, ScriptInvocation};
use tokio::sync::mpsc;

use self::counters::CounterScripts;
pub use self::run_keys::RunKeys;
use super::{
    INSTANCE_FIELD, RUN_RETENTION, ReportFields, ReportOutcome, ReportReceipt, RunCheckpoint, RunRecord, RunStore,
    START_POSITION, ShipOutcome, ShippedDelta, WorkerSubscription, content_name,
};
use crate::{
    RedisClient, SharedConnection, StoreError,
    compat::CompatScripts,
    find_non_number, find_wrong_type, is_transient,
    redis::{millis, rejected},
};

/// From this size on, a value travels over its own connection: heartbeats do not wait behind it,
/// and it has more time than they do.
const LARGE_VALUE_BYTES: u64 = 256 << 10;
/// The slowest expected transfer rate; it sets the timeout of a large value.
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;
/// Most deltas in one reply, which must arrive within the timeout of any other command.
const MAX_DELTAS_PER_READ: usize = 100;

/// The record of a run in Redis. Clones share it and its connection.
#[derive(Clone)]
pub struct RedisRunStore {
    inner: Arc<Inner>,
}

struct Inner {
    client: RedisClient,
    keys: RunKeys,
    read_record: Script,
    compare_and_set: Script,
    report: Script,
    remove_worker: Script,
    ship: Script,
    save_checkpoint: Script,
    compat: CompatScripts,
    counters: CounterScripts,
}

impl RedisRunStore {
    /// The record under `keys` on the server of `client`.
    pub fn new(client: &RedisClient, keys: RunKeys) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: client.clone(),
                keys,
                read_record: Script::new(include_str!("../scripts/read_record.lua")),
                compare_and_set: Script::new(include_str!("../scripts/compare_and_set.lua")),
                report: Script::new(include_str!("../scripts/report.lua")),
                remove_worker: Script::new(include_str!("../scripts/remove_worker.lua")),
                ship: Script::new(include_str!("../scripts/ship.lua")),
                save_checkpoint: Script::new(include_str!("../scripts/save_checkpoint.lua")),
                compat: CompatScripts::new(),
                counters: CounterScripts::new(),
            }),
        }
    }

    /// The record's keys.
    pub fn keys(&self) -> &RunKeys {
        &self.inner.keys
    }

    /// The scripts of the compat view, which share this store's connection.
    pub(crate) fn compat_scripts(&self) -> &CompatScripts {
        &self.inner.compat
    }

    pub(crate) fn connection(&self) -> SharedConnection {
        self.inner.client.connection()
    }

    pub(crate) async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        // Boxed, because the Redis client's futures are large.
        let reply = Box::pin(call.invoke_async(&mut self.connection())).await;
        match reply {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    pub(crate) async fn check_reply<T>(&self, reply: Result<T, RedisError>) -> Result<T, StoreError> {
        match reply {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    /// Sends a command that carries or returns a value of `size` bytes.
    async fn query_sized<T: FromRedisValue>(&self, command: &Cmd, size: u64) -> Result<T, RedisError> {
        match size < LARGE_VALUE_BYTES {
            true => command.query_async(&mut self.connection()).await,
            false => {
                Box::pin(
                    self.inner
                        .client
                        .blocking_connection()
                        .query(command, Duration::from_secs(size / SLOW_BYTES_PER_SECOND)),
                )
                .await
            }
        }
    }

    /// Finds the key behind a WRONGTYPE error, which Redis does not name.
    async fn to_store_error(&self, error: RedisError) -> StoreError {
        if is_transient(&error) {
            return StoreError::Unreachable(Box::new(error));
        }
        let keys = &self.inner.keys;
        let (state, epoch, revision, spec) = (keys.state(), keys.epoch(), keys.revision(), keys.spec());
        let workers = keys.workers();
        let types =
            [(&*state, "string"), (&*epoch, "string"), (&*revision, "string"), (&*spec, "string"), (&*workers, "set")];
        if error.to_string().contains("WRONGTYPE")
            && let Some(wrong_key) = find_wrong_type(&mut self.connection(), &types).await
        {
            return wrong_key;
        }
        if let Some(wrong_key) = find_non_number(&mut self.connection(), &[&*epoch, &*revision]).await {
            return wrong_key;
        }
        rejected(error)
    }

    /// Reads reports one by one, because a foreign key in place of one report fails the pipeline.
    /// That worker counts as unhealthy; the others are returned.
    async fn read_reports_singly(&self, names: &[String]) -> Result<Vec<ReportFields>, StoreError> {
        let mut reports = Vec::with_capacity(names.len());
        for name in names {
            let report = self.check_reply(self.connection().hgetall(self.inner.keys.status(name)).await).await;
            reports.push(match report {
                Ok(report) => report,
                Err(StoreError::Rejected(error)) => {
                    tracing::debug!(worker = name, %error, "cannot read a worker's report");
                    [("status", "unhealthy"), ("message", "its report cannot be read")]
                        .map(|(field, value)| (field.to_owned(), value.to_owned()))
                        .into()
                }
                Err(error) => return Err(error),
            });
        }
        Ok(reports)
    }

    fn record_invocation<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let keys = &self.inner.keys;
        let mut call = script.prepare_invoke();
        call.key(keys.state()).key(keys.epoch()).key(keys.revision()).key(keys.spec());
        call
    }
}

/// state, epoch, revision, spec, time in ms
type RecordReply = (String, u64, u64, String, u64);

/// Id and fields of an entry.
type StreamEntry = (String, Vec<(String, Vec<u8>)>);

fn parse_record((state, epoch, revision, spec, now_ms): RecordReply) -> RunRecord {
    RunRecord { state, epoch, revision, spec, now_ms }
}

impl RunStore for RedisRunStore {
    async fn read_record(&self) -> Result<RunRecord, StoreError> {
        self.invoke(&self.record_invocation(&self.inner.read_record)).await.map(parse_record)
    }

    async fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        spec: &str,
        raise_epoch: bool,
    ) -> Result<Option<RunRecord>, StoreError> {
        let (mut call, keys) = (self.record_invocation(&self.inner.compare_and_set), &self.inner.keys);
        if raise_epoch {
            let next = seen.epoch + 1;
            call.key(keys.deltas(next)).key(keys.shipped(next)).key(keys.checkpoint(next));
            call.key(keys.notes(next)).key(keys.counters(next));
        }
        call.arg(seen.epoch).arg(seen.revision).arg(state).arg(spec);
        let reply: Option<RecordReply> = self.invoke(&call).await?;
        Ok(reply.map(parse_record))
    }

    async fn put_bundle(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        let mut command = redis::cmd("SET");
        command.arg(self.inner.keys.bundle(&name)).arg(bytes).arg("EX").arg(RUN_RETENTION.as_secs());
        self.check_reply(self.query_sized::<()>(&command, bytes.len() as u64).await).await.map(|()| name)
    }

    async fn get_bundle(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.inner.keys.bundle(name);
        let reply: Result<_, RedisError> = async {
            let size = self.connection().strlen(&key).await?;
            self.query_sized(redis::cmd("GET").arg(&key), size).await
        }
        .await;
        if reply.as_ref().is_err_and(|error| error.code() == Some("WRONGTYPE"))
            && let Some(wrong_key) = find_wrong_type(&mut self.connection(), &[(key, "string")]).await
        {
            return Err(wrong_key);
        }
        self.check_reply(reply).await
    }

    async fn report(&self, worker: &str, report: &ReportFields, ttl: Duration) -> Result<ReportOutcome, StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.report.prepare_invoke();
        call.key(keys.epoch()).key(keys.revision()).key(keys.workers()).key(keys.status(worker));
        call.arg(worker).arg(millis(ttl)).arg(report.get(INSTANCE_FIELD).map_or("", String::as_str));
        for (field, value) in report {
            call.arg(field).arg(value);
        }
        let (epoch, revision, now_ms, taken_since): (u64, u64, u64, Option<String>) = self.invoke(&call).await?;
        Ok(taken_since
            .map_or(ReportOutcome::Accepted(ReportReceipt { epoch, revision, now_ms }), ReportOutcome::NameTaken))
    }

    async fn remove_worker(&self, worker: &str) -> Result<(), StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.remove_worker.prepare_invoke();
        call.key(keys.workers()).key(keys.status(worker)).arg(worker).arg(1);
        self.invoke::<i64>(&call).await.map(drop)
    }

    async fn reports(&self) -> Result<BTreeMap<String, ReportFields>, StoreError> {
        let keys = &self.inner.keys;
        let names: Vec<String> = self.check_reply(self.connection().smembers(keys.workers()).await).await?;
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut pipeline = redis::pipe();
        for name in &names {
            pipeline.hgetall(keys.status(name));
        }
        let reports: Vec<ReportFields> =
            match self.check_reply(pipeline.query_async(&mut self.connection()).await).await {
                Ok(reports) => reports,
                Err(StoreError::Rejected(_)) => self.read_reports_singly(&names).await?,
                Err(error) => return Err(error),
            };
        let mut alive = BTreeMap::new();
        for (name, report) in names.into_iter().zip(reports) {
            if report.is_empty() {
                // The report has expired. The script checks again, because the worker may have
                // reported meanwhile.
                let mut call = self.inner.remove_worker.prepare_invoke();
                call.key(keys.workers()).key(keys.status(&name)).arg(&name).arg(0);
                self.invoke::<i64>(&call).await?;
            } else {
                alive.insert(name, report);
            }
        }
        Ok(alive)
    }

    async fn ship(&self, epoch: u64, source: &str, seq: u64, delta: &[u8]) -> Result<ShipOutcome, StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.ship.prepare_invoke();
        call.key(keys.epoch()).key(keys.shipped(epoch)).key(keys.deltas(epoch));
        call.arg(epoch).arg(source).arg(seq).arg(delta).arg(millis(RUN_RETENTION));
        let (outcome, expected): (String, u64) = self.invoke(&call).await?;
        Ok(match outcome.as_str() {
            "appended" => ShipOutcome::Appended,
            "duplicate" => ShipOutcome::Duplicate,
            "gap" => ShipOutcome::Gap(expected),
            _ => ShipOutcome::RunEnded,
        })
    }

    async fn deltas(&self, epoch: u64, position: &str, max_count: usize) -> Result<Vec<ShippedDelta>, StoreError> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.inner.keys.deltas(epoch)).arg(format!("({position}")).arg("+").arg("COUNT");
        command.arg(max_count.min(MAX_DELTAS_PER_READ));
        let reply = command.query_async(&mut self.connection()).await;
        let entries: Vec<StreamEntry> = self.check_reply(reply).await?;
        let delta = |(position, fields): StreamEntry| {
            // A foreign entry is returned as it is; the decoder of deltas rejects and counts it.
            let bytes = fields.into_iter().find(|(name, _)| name == "d").map(|(_, bytes)| bytes).unwrap_or_default();
            ShippedDelta { position, bytes }
        };
        Ok(entries.into_iter().map(delta).collect())
    }

    async fn save_checkpoint(
        &self,
        epoch: u64,
        previous: &str,
        position: &str,
        data: &[u8],
    ) -> Result<bool, StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.save_checkpoint.prepare_invoke();
        call.key(keys.checkpoint(epoch)).key(keys.deltas(epoch));
        call.arg(previous).arg(position).arg(data).arg(millis(RUN_RETENTION)).arg(START_POSITION);
        self.invoke(&call).await
    }

    async fn load_checkpoint(&self, epoch: u64) -> Result<Option<RunCheckpoint>, StoreError> {
        let key = self.inner.keys.checkpoint(epoch);
        let reply: Result<(Option<String>, Option<Vec<u8>>), RedisError> = async {
            let size = redis::cmd("HSTRLEN").arg(&key).arg("made").query_async(&mut self.connection()).await?;
            self.query_sized(redis::cmd("HMGET").arg(&key).arg("place").arg("made"), size).await
        }
        .await;
        let (position, data) = self.check_reply(reply).await?;
        Ok(position.zip(data).map(|(position, data)| RunCheckpoint { position, data }))
    }

    async fn set_notes(&self, epoch: u64, notes: &[(String, String)]) -> Result<(), StoreError> {
        if notes.is_empty() {
            return Ok(());
        }
        let key = self.inner.keys.notes(epoch);
        let mut pipeline = redis::pipe();
        pipeline.hset_multiple(&key, notes).ignore().pexpire(&key, RUN_RETENTION.as_millis() as i64).ignore();
        self.check_reply(pipeline.query_async(&mut self.connection()).await).await
    }

    async fn extend_retention(&self, epoch: u64, bundle: &str) -> Result<(), StoreError> {
        let (keys, retention_ms) = (&self.inner.keys, RUN_RETENTION.as_millis() as i64);
        let mut pipeline = redis::pipe();
        pipeline.pexpire(keys.bundle(bundle), retention_ms).ignore().pexpire(keys.notes(epoch), retention_ms).ignore();
        self.check_reply(pipeline.query_async(&mut self.connection()).await).await
    }

    async fn notes(&self, epoch: u64) -> Result<BTreeMap<String, String>, StoreError> {
        let reply = self.connection().hgetall(self.inner.keys.notes(epoch)).await;
        self.check_reply(reply).await
    }

    async fn publish(&self, worker: &str, message: &str) -> Result<u64, StoreError> {
        let reply = self.connection().publish(self.inner.keys.commands(worker), message).await;
        self.check_reply(reply).await
    }

    fn subscribe(&self, worker: &str) -> WorkerSubscription {
        let (client, channel) = (self.inner.client.clone(), self.inner.keys.commands(worker));
        WorkerSubscription::forwarded(|sender| forward_messages(client, channel, sender))
    }
}

/// Forwards messages until the receiver is dropped; subscribes again when the connection is lost.
async fn forward_messages(client: RedisClient, channel: String, messages: mpsc::UnboundedSender<Vec<u8>>) {
    use futures_util::StreamExt;
    const MAX_WAIT: Duration = Duration::from_secs(2);
    let mut wait = Duration::from_millis(50);
    while !messages.is_closed() {
        let subscribed = async {
            let mut subscription = client.open_pubsub().await?;
            subscription.subscribe(&channel).await?;
            Ok::<_, RedisError>(subscription)
        };
        if let Ok(subscription) = subscribed.await {
            wait = Duration::from_millis(50);
            // Messages sent before the subscription are lost; the empty message tells the worker.
            if messages.send(Vec::new()).is_err() {
                return;
            }
            let mut incoming = subscription.into_on_message();
            loop {
                tokio::select! {
                    message = incoming.next() => match message {
                        Some(message) if messages.send(message.get_payload_bytes().to_vec()).is_err() => return,
                        Some(_) => {}
                        None => break,
                    },
                    () = messages.closed() => return,
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(MAX_WAIT);
    }
}
