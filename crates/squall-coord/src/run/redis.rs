//! The run's record in Redis or Valkey: one script per step that checks something, over declared keys that share a hash slot.

mod compat;
mod counters;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use redis::{AsyncCommands, Cmd, FromRedisValue, RedisError, Script, ScriptInvocation};
use tokio::sync::mpsc;

use self::{compat::CompatScripts, counters::CounterScripts};
use super::{
    INSTANCE_FIELD, RUN_RETENTION, ReportFields, ReportOutcome, ReportReceipt, RunRecord, RunStore, START_POSITION,
    ShipOutcome, ShippedDelta, content_name,
};
use crate::{
    RedisClient, SharedConnection, StoreError, find_non_number, find_wrong_type, is_transient, redis::rejected,
};

/// Where a run's record lives: `prefix` before every name, with a hash tag in it if the server is a cluster.
#[derive(Clone, Debug)]
pub struct RunKeys {
    prefix: Arc<str>,
}

impl RunKeys {
    /// Keys that begin with `prefix`; with an empty one they are the seed's own.
    pub fn new(prefix: impl Into<Arc<str>>) -> Self {
        Self { prefix: prefix.into() }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// String: IDLE, PREPARING, RUNNING or STOPPING.
    pub fn state(&self) -> String {
        self.key("test:state")
    }

    /// String, a whole number: how many runs there were.
    pub fn epoch(&self) -> String {
        self.key("test:epoch")
    }

    /// String, a whole number: how many changes there were.
    pub fn revision(&self) -> String {
        self.key("test:revision")
    }

    /// String, JSON: what is wanted.
    pub fn spec(&self) -> String {
        self.key("test:order")
    }

    /// String: a plan with all it needs, by its content.
    pub fn bundle(&self, name: &str) -> String {
        self.key(&format!("bundle:{name}"))
    }

    /// Set: who reports.
    pub fn workers(&self) -> String {
        self.key("workers")
    }

    /// Hash: what a worker says of itself.
    pub fn status(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:status"))
    }

    /// Channel: wake-ups for a worker.
    pub fn commands(&self, worker: &str) -> String {
        self.key(&format!("worker:{worker}:commands"))
    }

    /// Stream, field `d`: the deltas of a run.
    pub fn deltas(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:deltas"))
    }

    /// Hash: source → number of its last delta.
    pub fn shipped(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:shipped"))
    }

    /// Hash: `place` and `made`.
    pub fn checkpoint(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:saved"))
    }

    /// Hash: facts by name.
    pub fn notes(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:notes"))
    }

    /// Hash: numbers that are given out once each.
    pub fn counters(&self, epoch: u64) -> String {
        self.key(&format!("test:{epoch}:counters"))
    }
}

/// From this size on a value travels by a connection of its own: beats do not wait behind it, nor is it given up like a beat.
const LARGE_VALUE_BYTES: u64 = 256 << 10;
/// Bytes per second, by which the time for a large value is set; half of it is waited for.
const SLOW_BYTES_PER_SECOND: u64 = 512 << 10;
/// Most deltas of one answer, which has to be there in the time of any other.
const MAX_DELTAS_PER_READ: usize = 100;

/// One run's record in Redis. Clones share it and its connection.
#[derive(Clone)]
pub struct RedisRunStore {
    inner: Arc<Inner>,
}

struct Inner {
    client: RedisClient,
    keys: RunKeys,
    record: Script,
    compare_and_set: Script,
    report: Script,
    remove_worker: Script,
    ship: Script,
    save_checkpoint: Script,
    compat: CompatScripts,
    counters: CounterScripts,
}

impl RedisRunStore {
    /// The record under `keys` on the server at the other end of `link`.
    pub fn new(link: &RedisClient, keys: RunKeys) -> Self {
        Self {
            inner: Arc::new(Inner {
                client: link.clone(),
                keys,
                record: Script::new(include_str!("scripts/record.lua")),
                compare_and_set: Script::new(include_str!("scripts/replace.lua")),
                report: Script::new(include_str!("scripts/report.lua")),
                remove_worker: Script::new(include_str!("scripts/forget.lua")),
                ship: Script::new(include_str!("scripts/ship.lua")),
                save_checkpoint: Script::new(include_str!("scripts/save.lua")),
                compat: CompatScripts::new(),
                counters: CounterScripts::new(),
            }),
        }
    }

    /// The record's keys.
    pub fn keys(&self) -> &RunKeys {
        &self.inner.keys
    }

    fn connection(&self) -> SharedConnection {
        self.inner.client.connection()
    }

    async fn invoke<T: FromRedisValue>(&self, call: &ScriptInvocation<'_>) -> Result<T, StoreError> {
        // Boxed: the client's own futures are deep.
        let answer = Box::pin(call.invoke_async(&mut self.connection())).await;
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    async fn check_reply<T>(&self, answer: Result<T, RedisError>) -> Result<T, StoreError> {
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.to_store_error(error).await),
        }
    }

    /// Sends a command with, or for, a value of `size` bytes.
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

    /// Finds the key behind a WRONGTYPE, which Redis does not name.
    async fn to_store_error(&self, error: RedisError) -> StoreError {
        if is_transient(&error) {
            return StoreError::Unreachable(Box::new(error));
        }
        let keys = &self.inner.keys;
        let (state, epoch, revision, order) = (keys.state(), keys.epoch(), keys.revision(), keys.spec());
        let workers = keys.workers();
        let types =
            [(&*state, "string"), (&*epoch, "string"), (&*revision, "string"), (&*order, "string"), (&*workers, "set")];
        if error.to_string().contains("WRONGTYPE")
            && let Some(wrong) = find_wrong_type(&mut self.connection(), &types).await
        {
            return wrong;
        }
        if let Some(wrong) = find_non_number(&mut self.connection(), &[&*epoch, &*revision]).await {
            return wrong;
        }
        rejected(error)
    }

    /// One by one, because somebody else's key stands where a report should: that one is nobody's, the others count.
    async fn read_reports_singly(&self, names: &[String]) -> Result<Vec<ReportFields>, StoreError> {
        let mut reports = Vec::with_capacity(names.len());
        for name in names {
            let report = self.check_reply(self.connection().hgetall(self.inner.keys.status(name)).await).await;
            reports.push(match report {
                Ok(report) => report,
                Err(StoreError::Rejected(error)) => {
                    tracing::debug!(worker = name, %error, "a report cannot be read");
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// state, epoch, revision, order, now
type RecordReply = (String, u64, u64, String, u64);

/// Its id, and its fields.
type StreamEntry = (String, Vec<(String, Vec<u8>)>);

fn parse_record((state, epoch, revision, order, now_ms): RecordReply) -> RunRecord {
    RunRecord { state, epoch, revision, spec: order, now_ms }
}

impl RunStore for RedisRunStore {
    async fn read_record(&self) -> Result<RunRecord, StoreError> {
        self.invoke(&self.record_invocation(&self.inner.record)).await.map(parse_record)
    }

    async fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        order: &str,
        raise_epoch: bool,
    ) -> Result<Option<RunRecord>, StoreError> {
        let (mut call, keys) = (self.record_invocation(&self.inner.compare_and_set), &self.inner.keys);
        if raise_epoch {
            let next = seen.epoch + 1;
            call.key(keys.deltas(next)).key(keys.shipped(next)).key(keys.checkpoint(next));
            call.key(keys.notes(next)).key(keys.counters(next));
        }
        call.arg(seen.epoch).arg(seen.revision).arg(state).arg(order);
        let parts: Option<RecordReply> = self.invoke(&call).await?;
        Ok(parts.map(parse_record))
    }

    async fn put_bundle(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        let mut command = redis::cmd("SET");
        command.arg(self.inner.keys.bundle(&name)).arg(bytes).arg("EX").arg(RUN_RETENTION.as_secs());
        self.check_reply(self.query_sized::<()>(&command, bytes.len() as u64).await).await.map(|()| name)
    }

    async fn get_bundle(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let key = self.inner.keys.bundle(name);
        let answer: Result<_, RedisError> = async {
            let size = self.connection().strlen(&key).await?;
            self.query_sized(redis::cmd("GET").arg(&key), size).await
        }
        .await;
        if answer.as_ref().is_err_and(|error| error.code() == Some("WRONGTYPE"))
            && let Some(wrong) = find_wrong_type(&mut self.connection(), &[(key, "string")]).await
        {
            return Err(wrong);
        }
        self.check_reply(answer).await
    }

    async fn report(&self, worker: &str, report: &ReportFields, ttl: Duration) -> Result<ReportOutcome, StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.report.prepare_invoke();
        call.key(keys.epoch()).key(keys.revision()).key(keys.workers()).key(keys.status(worker));
        call.arg(worker).arg(millis(ttl)).arg(report.get(INSTANCE_FIELD).map_or("", String::as_str));
        for (field, value) in report {
            call.arg(field).arg(value);
        }
        let (epoch, revision, now_ms, other): (u64, u64, u64, Option<String>) = self.invoke(&call).await?;
        Ok(other.map_or(ReportOutcome::Accepted(ReportReceipt { epoch, revision, now_ms }), ReportOutcome::NameTaken))
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
                // Gone; unless it has come back this very moment, which the script looks at again.
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
        let (word, expected): (String, u64) = self.invoke(&call).await?;
        Ok(match word.as_str() {
            "taken" => ShipOutcome::Appended,
            "known" => ShipOutcome::Duplicate,
            "gap" => ShipOutcome::Gap(expected),
            _ => ShipOutcome::RunEnded,
        })
    }

    async fn deltas(&self, epoch: u64, place: &str, most: usize) -> Result<Vec<ShippedDelta>, StoreError> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.inner.keys.deltas(epoch)).arg(format!("({place}")).arg("+").arg("COUNT");
        command.arg(most.min(MAX_DELTAS_PER_READ));
        let answer = command.query_async(&mut self.connection()).await;
        let entries: Vec<StreamEntry> = self.check_reply(answer).await?;
        let delta = |(place, fields): StreamEntry| {
            // Somebody else's entry is passed on as it is: whoever decodes deltas refuses and counts it.
            let bytes = fields.into_iter().find(|(name, _)| name == "d").map(|(_, bytes)| bytes).unwrap_or_default();
            ShippedDelta { position: place, bytes }
        };
        Ok(entries.into_iter().map(delta).collect())
    }

    async fn save_checkpoint(&self, epoch: u64, before: &str, place: &str, made: &[u8]) -> Result<bool, StoreError> {
        let keys = &self.inner.keys;
        let mut call = self.inner.save_checkpoint.prepare_invoke();
        call.key(keys.checkpoint(epoch)).key(keys.deltas(epoch));
        call.arg(before).arg(place).arg(made).arg(millis(RUN_RETENTION)).arg(START_POSITION);
        self.invoke(&call).await
    }

    async fn load_checkpoint(&self, epoch: u64) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let key = self.inner.keys.checkpoint(epoch);
        let answer: Result<(Option<String>, Option<Vec<u8>>), RedisError> = async {
            let size = redis::cmd("HSTRLEN").arg(&key).arg("made").query_async(&mut self.connection()).await?;
            self.query_sized(redis::cmd("HMGET").arg(&key).arg("place").arg("made"), size).await
        }
        .await;
        let (place, made) = self.check_reply(answer).await?;
        Ok(place.zip(made))
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
        let (keys, day) = (&self.inner.keys, RUN_RETENTION.as_millis() as i64);
        let mut pipeline = redis::pipe();
        pipeline.pexpire(keys.bundle(bundle), day).ignore().pexpire(keys.notes(epoch), day).ignore();
        self.check_reply(pipeline.query_async(&mut self.connection()).await).await
    }

    async fn notes(&self, epoch: u64) -> Result<BTreeMap<String, String>, StoreError> {
        let answer = self.connection().hgetall(self.inner.keys.notes(epoch)).await;
        self.check_reply(answer).await
    }

    async fn publish(&self, worker: &str, message: &str) -> Result<u64, StoreError> {
        let answer = self.connection().publish(self.inner.keys.commands(worker), message).await;
        self.check_reply(answer).await
    }

    fn subscribe(&self, worker: &str) -> mpsc::UnboundedReceiver<Vec<u8>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(forward_messages(self.inner.client.clone(), self.inner.keys.commands(worker), sender));
        receiver
    }
}

/// Passes messages on until nobody wants them; subscribes again whenever the connection is lost.
async fn forward_messages(link: RedisClient, channel: String, messages: mpsc::UnboundedSender<Vec<u8>>) {
    use futures_util::StreamExt;
    const LONGEST: Duration = Duration::from_secs(2);
    let mut wait = Duration::from_millis(50);
    while !messages.is_closed() {
        let subscribed = async {
            let mut subscription = link.open_pubsub().await?;
            subscription.subscribe(&channel).await?;
            Ok::<_, RedisError>(subscription)
        };
        if let Ok(subscription) = subscribed.await {
            wait = Duration::from_millis(50);
            // Whatever was said while nobody listened is lost.
            if messages.send(Vec::new()).is_err() {
                return;
            }
            let mut heard = subscription.into_on_message();
            loop {
                tokio::select! {
                    message = heard.next() => match message {
                        Some(message) if messages.send(message.get_payload_bytes().to_vec()).is_err() => return,
                        Some(_) => {}
                        None => break,
                    },
                    () = messages.closed() => return,
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST);
    }
}
