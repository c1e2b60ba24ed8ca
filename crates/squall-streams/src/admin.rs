//! Operations for administrators: definitions, lag, members, quarantine, reset, tail. Does not
//! disturb running workers: a reset requires that they are stopped, and a tail takes no events.
//! `squall stream` uses it.

mod overview;

use std::collections::BTreeMap;

use redis::{FromRedisValue, RedisError, Value, streams::StreamInfoGroupsReply};
use serde::Serialize;
use squall_coord::{
    LeaseSnapshot, LeaseStore, RedisClient, RedisLeaseStore, SharedConnection, StoreError, find_wrong_type,
};

use crate::{
    names::{Namespace, ProcessorName, StreamName},
    partition_hasher::PartitionHasher,
    runnel_members::read_runnel_members,
};

pub use crate::runnel_members::RunnelMember;
pub use overview::{PartitionOverview, ProcessorOverview, StreamOverview};

/// How long the lock of an administrator lives. Meanwhile the lease store grants no partition.
const ADMIN_LOCK_MS: u64 = 30_000;
/// Entries per request when the client counts the lag itself.
const PAGE_SIZE: usize = 10_000;

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// No client has opened the stream.
    #[error("there is no stream `{0}` (key `{1}`); is the namespace right?")]
    NoStream(StreamName, String),
    /// The stored definition is invalid.
    #[error("key `{0}` does not hold the definition of a stream")]
    InvalidDefinition(String),
    /// The start is neither 0, $ nor an id.
    #[error(
        "`{0}` is not a start position: write 0 for the first event, $ for new events only, or an id as in 1700000000000-0"
    )]
    InvalidStart(String),
    /// The stream has fewer partitions.
    #[error("stream `{stream}` has no partition {partition}; it has 0 to {last}")]
    NoPartition {
        /// The stream.
        stream: StreamName,
        /// The last partition of the stream.
        last: u32,
        /// The requested partition.
        partition: u32,
    },
    /// No worker has run the processor, or it was removed.
    #[error("stream `{0}` has no processor `{1}`")]
    NoProcessor(StreamName, String),
    /// Workers of the processor are running.
    #[error("processor `{0}` has {1} running workers; stop them first")]
    WorkersRunning(ProcessorName, usize),
    /// Another administrator holds the lock.
    #[error("another administrator holds the lock `{0}`; try again in 30 s")]
    AdminLocked(String),
    /// A scan of a cluster would see one node only.
    #[error("streams of a Redis cluster cannot be listed; name one, as in `squall stream lag APP.STREAM.PROCESSOR`")]
    ClusterScan,
    /// A step of the lease store failed, or a key holds another type.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server did not respond, or returned an error.
    #[error("a Redis command failed")]
    Redis(#[from] RedisError),
}

/// The settings of a stream that all its clients share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StreamDefinition {
    /// The number of partitions.
    pub partitions: u32,
    /// The hash function that maps keys to partitions.
    pub hasher: PartitionHasher,
}

/// The lag of a processor in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionLag {
    /// The partition.
    pub partition: u32,
    /// Events in the partition, including acknowledged ones.
    pub length: u64,
    /// Events that a worker has fetched and not acknowledged.
    pub pending: u64,
    /// Events that no worker has fetched.
    pub waiting: u64,
    /// The id of the last fetched event.
    pub last_delivered: String,
    /// Whether the partition is in quarantine.
    pub quarantined: bool,
    /// Whether a worker has run the processor on the partition.
    pub registered: bool,
}

/// The operations on one server and namespace.
#[derive(Clone)]
pub struct StreamAdmin {
    client: RedisClient,
    namespace: Namespace,
}

impl StreamAdmin {
    /// The operations on `namespace`.
    pub fn new(client: RedisClient, namespace: Namespace) -> Self {
        Self { client, namespace }
    }

    fn commands(&self) -> SharedConnection {
        self.client.connection()
    }

    /// The stored definition of a stream, or `None` if no client has opened the stream.
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

    /// Fails if no client has opened the stream.
    pub async fn check_stream_exists(&self, name: &StreamName) -> Result<(), AdminError> {
        self.partition_count(name).await.map(drop)
    }

    async fn partition_count(&self, name: &StreamName) -> Result<u32, AdminError> {
        let found = self.definition(name).await?;
        found
            .map(|found| found.partitions)
            .ok_or_else(|| AdminError::NoStream(name.clone(), self.namespace.definition_key(name)))
    }

    /// The lag of a processor in each partition.
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
            Err(_) if length == 0 => None, // the key does not exist yet
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

    /// Counts the entries after an id. Redis before 7 does not report the lag, and no version
    /// reports it after entries were deleted.
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

    /// The workers of a processor, and the partitions that they hold.
    pub async fn members(&self, name: &ProcessorName) -> Result<LeaseSnapshot, AdminError> {
        Ok(self.lease_store(name).snapshot().await?)
    }

    /// The workers of runnel that run the processor.
    pub async fn runnel_members(&self, name: &ProcessorName) -> Result<Vec<RunnelMember>, AdminError> {
        read_runnel_members(&mut self.commands(), &self.namespace.lease_keys(name)).await
    }

    fn lease_store(&self, name: &ProcessorName) -> RedisLeaseStore {
        RedisLeaseStore::new(&self.client, self.namespace.lease_keys(name))
    }

    /// The partitions in quarantine, with the reason as JSON.
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

    /// Fails with the name of the key if it holds another type.
    async fn expect_key_type(&self, key: &str, kind: &'static str) -> Result<(), AdminError> {
        match find_wrong_type(&mut self.commands(), &[(key, kind)]).await {
            Some(wrong_type) => Err(wrong_type.into()),
            None => Ok(()),
        }
    }

    /// Clears the quarantine of a partition. With `skip`, acknowledges the failed events first.
    /// Returns whether the partition was in quarantine.
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

    /// Restarts a processor in every partition at `start`: an id, `0` for the first event, or `$`
    /// for new events only. Returns the number of partitions.
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

    /// Removes a processor from the stream, so that the stream can trim events that the processor
    /// has not acknowledged. Returns the number of partitions.
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
        // If the key does not exist, Redis returns an error, and there is no group.
        Ok(groups.is_ok_and(|reply| reply.groups.iter().any(|group| group.name == name.processor())))
    }

    /// Destroys the groups and runs the commands of `add_commands`, while a lock keeps workers from
    /// taking partitions.
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
        let running = self.members(name).await?.members.len() + self.runnel_members(name).await?.len();
        if running > 0 {
            return Err(AdminError::WorkersRunning(name.clone(), running));
        }
        // Checks all keys first, so that an error cannot leave the processor reset in some
        // partitions only.
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

    /// Reads new events of a stream, or all events with `from_start`, without taking them.
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

/// Whether Redis accepts the text as an id: milliseconds, optionally with a sequence number.
fn is_entry_id(text: &str) -> bool {
    let number = |part: &str| part.parse::<u64>().is_ok() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('-').map_or_else(|| number(text), |(ms, seq)| number(ms) && number(seq))
}

/// A reader without a consumer group: it takes and acknowledges no events.
pub struct StreamTail {
    connection: squall_coord::BlockingConnection,
    positions: Vec<(String, String)>,
}

/// One event of a tail.
#[derive(Clone, Debug, Serialize)]
pub struct TailedEvent {
    /// The partition.
    pub partition: u32,
    /// The id.
    pub id: String,
    /// The content of the event.
    pub record: serde_json::Value,
}

impl StreamTail {
    /// The next events, or none if no event arrived within 5 s.
    pub async fn next(&mut self) -> Result<Vec<TailedEvent>, AdminError> {
        let all = 0..self.positions.len();
        let streams = match self.read(all, 5_000).await {
            // A cluster rejects a command on several slots, and each partition has its own slot.
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
