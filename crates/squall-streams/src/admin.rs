//! What operators ask and do: definitions, lag, members, quarantine, reset, reading along.
//! Refuses to disturb running workers: a reset needs them stopped, and reading along takes nothing.

use std::collections::BTreeMap;

use redis::{FromRedisValue, RedisError, Value, streams::StreamInfoGroupsReply};
use serde::Serialize;
use squall_coord::{
    LeaseSnapshot, LeaseStore, RedisClient, RedisLeaseStore, SharedConnection, StoreError, find_wrong_type,
};

use crate::{
    names::{Namespace, ProcessorName, StreamName},
    partition_hasher::PartitionHasher,
};

/// How long an administrator may keep a space closed.
const ADMIN_LOCK_MS: u64 = 30_000;
/// Entries counted at a time on servers that do not tell the lag.
const PAGE_SIZE: usize = 10_000;

/// An operator's request that could not be met.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody has opened the stream.
    #[error("there is no stream `{0}` (key `{1}`); is the namespace right?")]
    NoStream(StreamName, String),
    /// The definition is not readable.
    #[error("key `{0}` does not hold a stream's definition")]
    InvalidDefinition(String),
    /// Not a place to begin.
    #[error(
        "`{0}` is not a place to begin: write 0 for the first event, $ for what comes next, or an id as in 1700000000000-0"
    )]
    InvalidStart(String),
    /// There are fewer.
    #[error("stream `{stream}` has partitions 0 to {last}, and no {partition}")]
    NoPartition {
        /// The stream.
        stream: StreamName,
        /// Its last partition.
        last: u32,
        /// What was asked for.
        partition: u32,
    },
    /// No worker has ever run it, or it was removed.
    #[error("stream `{0}` knows no processor `{1}`")]
    NoProcessor(StreamName, String),
    /// Workers are running.
    #[error("processor `{0}` has {1} running workers; stop them first")]
    WorkersRunning(ProcessorName, usize),
    /// Another administrator is at it.
    #[error("key `{0}` says that another administrator is at work; try again in half a minute")]
    AdminLocked(String),
    /// A store step failed, or a key is in use for something else.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server did not answer, or refused.
    #[error("Redis did not do it")]
    Redis(#[from] RedisError),
}

/// What everybody agrees on about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StreamDefinition {
    /// How many partitions.
    pub partitions: u32,
    /// How keys become partitions.
    pub hasher: PartitionHasher,
}

/// How far a processor is behind in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionLag {
    /// The partition.
    pub partition: u32,
    /// Events in it, acknowledged ones included.
    pub length: u64,
    /// Fetched by a worker, not acknowledged.
    pub pending: u64,
    /// Not fetched yet.
    pub waiting: u64,
    /// The id up to which events were fetched.
    pub last_delivered: String,
    /// Whether it stands still.
    pub quarantined: bool,
    /// Whether a worker has ever run the processor on it.
    pub registered: bool,
}

/// Operators' tools on one server and namespace.
#[derive(Clone)]
pub struct StreamAdmin {
    client: RedisClient,
    namespace: Namespace,
}

impl StreamAdmin {
    /// Tools for a namespace.
    pub fn new(client: RedisClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    fn commands(&self) -> SharedConnection {
        self.client.connection()
    }

    /// The stored definition of a stream, if anybody has opened it.
    pub async fn definition(&self, name: &StreamName) -> Result<Option<StreamDefinition>, AdminError> {
        let key = self.namespace.definition_key(name);
        self.expect_key_type(&key, "hash").await?;
        let fields: BTreeMap<String, String> =
            redis::cmd("HGETALL").arg(&key).query_async(&mut self.commands()).await?;
        if fields.is_empty() {
            return Ok(None);
        }
        let hasher = match fields.get("hasher").map(String::as_str) {
            Some("xxh64") => Some(PartitionHasher::Xxh64),
            Some("md5") => Some(PartitionHasher::Md5),
            _ => None,
        };
        let partitions = fields.get("partitions").and_then(|count| count.parse().ok());
        match (partitions, hasher) {
            (Some(partitions), Some(hasher)) => Ok(Some(StreamDefinition { partitions, hasher })),
            _ => Err(AdminError::InvalidDefinition(key)),
        }
    }

    /// Refuses a stream that nobody has opened.
    pub async fn check_stream_exists(&self, name: &StreamName) -> Result<(), AdminError> {
        self.partition_count(name).await.map(drop)
    }

    async fn partition_count(&self, name: &StreamName) -> Result<u32, AdminError> {
        let found = self.definition(name).await?;
        found
            .map(|found| found.partitions)
            .ok_or_else(|| AdminError::NoStream(name.clone(), self.namespace.definition_key(name)))
    }

    /// How far a processor is behind, partition by partition.
    pub async fn lag(&self, name: &ProcessorName) -> Result<Vec<PartitionLag>, AdminError> {
        let mut all = Vec::new();
        for partition in 0..self.partition_count(name.stream()).await? {
            all.push(self.partition_lag(name, partition).await?);
        }
        Ok(all)
    }

    pub(crate) async fn partition_lag(&self, name: &ProcessorName, partition: u32) -> Result<PartitionLag, AdminError> {
        let key = self.namespace.events_key(name.stream(), partition);
        self.expect_key_type(&key, "stream").await?;
        let mut commands = self.commands();
        let length: u64 = redis::cmd("XLEN").arg(&key).query_async(&mut commands).await?;
        let quarantine = self.namespace.quarantine_key(name, partition);
        let quarantined = redis::cmd("EXISTS").arg(quarantine).query_async(&mut commands).await?;
        let groups =
            redis::cmd("XINFO").arg("GROUPS").arg(&key).query_async::<StreamInfoGroupsReply>(&mut commands).await;
        let group = match groups {
            Ok(reply) => reply.groups.into_iter().find(|group| group.name == name.processor()),
            Err(_) if length == 0 => None, // no such key yet
            Err(error) => return Err(error.into()),
        };
        let mut lag = PartitionLag {
            partition,
            length,
            pending: 0,
            waiting: length,
            last_delivered: "0-0".into(),
            quarantined,
            registered: group.is_some(),
        };
        if let Some(group) = group {
            lag.waiting = match group.lag {
                Some(lag) => lag as u64,
                None => self.count_after(&key, &group.last_delivered_id).await?,
            };
            lag.pending = group.pending as u64;
            lag.last_delivered = group.last_delivered_id;
        }
        Ok(lag)
    }

    /// Redis before 7 does not tell the lag, and no version does after entries were deleted.
    async fn count_after(&self, key: &str, id: &str) -> Result<u64, AdminError> {
        let (mut after, mut count) = (id.to_owned(), 0);
        loop {
            let mut command = redis::cmd("XRANGE");
            command.arg(key).arg(format!("({after}")).arg("+").arg("COUNT").arg(PAGE_SIZE);
            let page: Vec<(String, Value)> = command.query_async(&mut self.commands()).await?;
            count += page.len() as u64;
            match page.last() {
                Some((last, _)) if page.len() == PAGE_SIZE => after.clone_from(last),
                _ => return Ok(count),
            }
        }
    }

    /// Who runs a processor and who holds which partition.
    pub async fn members(&self, name: &ProcessorName) -> Result<LeaseSnapshot, AdminError> {
        Ok(self.lease_store(name).snapshot().await?)
    }

    fn lease_store(&self, name: &ProcessorName) -> RedisLeaseStore {
        RedisLeaseStore::new(&self.client, self.namespace.lease_keys(name))
    }

    /// Partitions that stand still, with the reason as JSON.
    pub async fn quarantined_partitions(&self, name: &ProcessorName) -> Result<BTreeMap<u32, String>, AdminError> {
        let mut all = BTreeMap::new();
        for partition in 0..self.partition_count(name.stream()).await? {
            let reason = self.quarantine_reason(&self.namespace.quarantine_key(name, partition)).await?;
            all.extend(reason.map(|reason| (partition, reason)));
        }
        Ok(all)
    }

    async fn quarantine_reason(&self, key: &str) -> Result<Option<String>, AdminError> {
        self.expect_key_type(key, "string").await?;
        Ok(redis::cmd("GET").arg(key).query_async(&mut self.commands()).await?)
    }

    /// Refuses a key that is in use for something else, by name.
    async fn expect_key_type(&self, key: &str, kind: &'static str) -> Result<(), AdminError> {
        match find_wrong_type(&mut self.commands(), &[(key, kind)]).await {
            Some(wrong_type) => Err(wrong_type.into()),
            None => Ok(()),
        }
    }

    /// Lets a partition go on; with `skip`, without the events that failed. Says whether it stood still.
    pub async fn clear_quarantine(&self, name: &ProcessorName, partition: u32, skip: bool) -> Result<bool, AdminError> {
        let last = self.partition_count(name.stream()).await?.saturating_sub(1);
        if partition > last {
            return Err(AdminError::NoPartition { stream: name.stream().clone(), last, partition });
        }
        let key = self.namespace.quarantine_key(name, partition);
        let Some(reason) = self.quarantine_reason(&key).await? else { return Ok(false) };
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        if skip {
            let reason: serde_json::Value = serde_json::from_str(&reason).unwrap_or_default();
            let ids: Vec<&str> =
                reason["xids"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str).collect();
            if !ids.is_empty() {
                pipeline.xack(self.namespace.events_key(name.stream(), partition), name.processor(), &ids).ignore();
            }
        }
        pipeline.del(&key).ignore();
        let () = pipeline.query_async(&mut self.commands()).await?;
        Ok(true)
    }

    /// Makes a processor begin again at `start` (an id, `0` for the first event, `$` for what comes next), in every partition.
    pub async fn reset_processor(&self, name: &ProcessorName, start: &str) -> Result<u32, AdminError> {
        if !matches!(start, "0" | "$") && !is_entry_id(start) {
            return Err(AdminError::InvalidStart(start.to_owned()));
        }
        self.recreate_groups_locked(name, |mut pipeline, events, group| {
            pipeline.cmd("XGROUP").arg("CREATE").arg(events).arg(group).arg(start).arg("MKSTREAM").ignore();
            pipeline
        })
        .await
    }

    /// Makes the stream forget a processor, so that it no longer keeps events from being trimmed.
    pub async fn remove_processor(&self, name: &ProcessorName) -> Result<u32, AdminError> {
        let mut registered = false;
        for partition in 0..self.partition_count(name.stream()).await? {
            registered |= self.is_registered(name, partition).await?;
        }
        if !registered {
            return Err(AdminError::NoProcessor(name.stream().clone(), name.processor().to_owned()));
        }
        self.recreate_groups_locked(name, |pipeline, _, _| pipeline).await
    }

    async fn is_registered(&self, name: &ProcessorName, partition: u32) -> Result<bool, AdminError> {
        let key = self.namespace.events_key(name.stream(), partition);
        self.expect_key_type(&key, "stream").await?;
        let groups: Result<StreamInfoGroupsReply, RedisError> =
            redis::cmd("XINFO").arg("GROUPS").arg(&key).query_async(&mut self.commands()).await;
        // Without the key there is an error, and no group.
        Ok(groups.is_ok_and(|reply| reply.groups.iter().any(|group| group.name == name.processor())))
    }

    /// Destroys the groups while nobody can take a partition, and does what `then` adds.
    async fn recreate_groups_locked(
        &self,
        name: &ProcessorName,
        add_commands: impl Fn(redis::Pipeline, &str, &str) -> redis::Pipeline,
    ) -> Result<u32, AdminError> {
        let partitions = self.partition_count(name.stream()).await?;
        let admin = self.namespace.lease_keys(name).admin;
        let mut commands = self.commands();
        let locked: Value = redis::cmd("SET")
            .arg(&*admin)
            .arg("reset")
            .arg("NX")
            .arg("PX")
            .arg(ADMIN_LOCK_MS)
            .query_async(&mut commands)
            .await?;
        if locked == Value::Nil {
            return Err(AdminError::AdminLocked(admin.to_string()));
        }
        let outcome = self.recreate_groups(name, partitions, add_commands).await;
        let unlocked: Result<i64, _> = redis::cmd("DEL").arg(&*admin).query_async(&mut commands).await;
        outcome?;
        unlocked?;
        Ok(partitions)
    }

    async fn recreate_groups(
        &self,
        name: &ProcessorName,
        partitions: u32,
        add_commands: impl Fn(redis::Pipeline, &str, &str) -> redis::Pipeline,
    ) -> Result<(), AdminError> {
        let running = self.members(name).await?.members.len();
        if running > 0 {
            return Err(AdminError::WorkersRunning(name.clone(), running));
        }
        // All of them first: a processor that begins again in some partitions only would be in no state at all.
        for partition in 0..partitions {
            self.expect_key_type(&self.namespace.events_key(name.stream(), partition), "stream").await?;
        }
        for partition in 0..partitions {
            let events = self.namespace.events_key(name.stream(), partition);
            let exists: bool = redis::cmd("EXISTS").arg(&events).query_async(&mut self.commands()).await?;
            let mut pipeline = redis::pipe();
            pipeline.atomic().del(self.namespace.quarantine_key(name, partition)).ignore();
            if exists {
                pipeline.cmd("XGROUP").arg("DESTROY").arg(&events).arg(name.processor()).ignore();
            }
            let () = add_commands(pipeline, &events, name.processor()).query_async(&mut self.commands()).await?;
        }
        Ok(())
    }

    /// Reads a stream along from now on, or from its beginning.
    pub async fn tail(&self, name: &StreamName, from_start: bool) -> Result<StreamTail, AdminError> {
        let mut positions = Vec::new();
        for partition in 0..self.partition_count(name).await? {
            let key = self.namespace.events_key(name, partition);
            self.expect_key_type(&key, "stream").await?;
            let last = if from_start { "0-0".to_owned() } else { self.last_id(&key).await? };
            positions.push((key, last));
        }
        Ok(StreamTail { connection: self.client.blocking_connection(), positions })
    }

    async fn last_id(&self, key: &str) -> Result<String, AdminError> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(key).arg("+").arg("-").arg("COUNT").arg(1);
        let last: Vec<(String, Value)> = command.query_async(&mut self.commands()).await?;
        Ok(last.into_iter().next().map_or_else(|| "0-0".to_owned(), |(id, _)| id))
    }
}

/// Whether Redis takes it for an entry's id: milliseconds, perhaps with a sequence number.
fn is_entry_id(text: &str) -> bool {
    let number = |part: &str| part.parse::<u64>().is_ok() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').map_or_else(|| number(text), |(ms, seq)| number(ms) && number(seq))
}

/// A reader that takes nothing: no group, no acknowledgement.
pub struct StreamTail {
    connection: squall_coord::BlockingConnection,
    positions: Vec<(String, String)>,
}

/// One event as it went by.
#[derive(Clone, Debug, Serialize)]
pub struct TailedEvent {
    /// Its partition.
    pub partition: u32,
    /// Its id.
    pub id: String,
    /// What it holds.
    pub record: serde_json::Value,
}

impl StreamTail {
    /// The next events; empty when none came for a while.
    pub async fn next(&mut self) -> Result<Vec<TailedEvent>, AdminError> {
        let all = 0..self.positions.len();
        let streams = match self.read(all, 5_000).await {
            // A cluster node answers for one slot at a time, and each partition has its own.
            Err(AdminError::Redis(error)) if error.code() == Some("CROSSSLOT") => {
                let mut streams = Vec::new();
                for at in 0..self.positions.len() {
                    streams.extend(self.read(at..at + 1, 10).await?);
                }
                streams
            }
            outcome => outcome?,
        };
        let mut events = Vec::new();
        for (key, entries) in streams {
            let Some((at, position)) = self.positions.iter_mut().enumerate().find(|(_, (name, _))| *name == key) else {
                continue;
            };
            for (id, fields) in entries {
                let record = crate::entry::parse_body(fields)
                    .map(|body| crate::codec::to_display_json(&body))
                    .unwrap_or_default();
                position.1.clone_from(&id);
                events.push(TailedEvent { partition: at as u32, id, record });
            }
        }
        events.sort_by_key(|event| crate::entry::EntryId::parse(event.id.as_bytes()));
        Ok(events)
    }

    async fn read(
        &mut self,
        which: std::ops::Range<usize>,
        wait_ms: u64,
    ) -> Result<Vec<(String, Vec<(String, Value)>)>, AdminError> {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(100).arg("BLOCK").arg(wait_ms).arg("STREAMS");
        let (keys, ids): (Vec<&String>, Vec<&String>) = self.positions[which].iter().map(|(key, id)| (key, id)).unzip();
        command.arg(keys).arg(ids);
        match self.connection.query(&command, std::time::Duration::from_millis(wait_ms)).await? {
            Value::Nil => Ok(Vec::new()),
            response => Ok(FromRedisValue::from_redis_value(response).map_err(RedisError::from)?),
        }
    }
}
