//! Appends records to partitions in batches. A retried batch is appended once. The sender never
//! drops unread events silently: while a partition is full, it waits or fails.
//! [`RecordStream::send`] and [`RecordStream::send_many`] use it.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::future::try_join_all;
use redis::{RedisError, Script, Value};
use serde::{Serialize, de::DeserializeOwned};
use squall_coord::{RedisClient, SharedConnection, StoreError, find_wrong_type, is_transient};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    codec::EncodeError,
    entry::EntryId,
    names::{Namespace, StreamName},
    stream::{DEFAULT_FULL_WAIT, RecordStream, RoutedRecord},
};

static SEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/send.lua")));

/// A larger batch would block the server for longer; a smaller one would cost more round trips.
const BATCH_SIZE: usize = 200;
/// Longer than a sender retries, so that a retry always finds its sequence number.
const DEDUP_TTL: Duration = Duration::from_secs(600);
/// How long the sender retries a batch while the server does not respond.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a sender does when a partition is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits for space, at most this long.
    Wait(Duration),
    /// Fails at once.
    Fail,
}

impl Default for WhenFull {
    fn default() -> Self {
        Self::Wait(DEFAULT_FULL_WAIT)
    }
}

/// Why a record was not appended. After [`SendError::Redis`] the server may have appended it.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The record cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The partition is full.
    #[error("partition `{key}` is full ({size} events): {}", explain_full(.slowest_processor))]
    Full {
        /// The key of the partition's events.
        key: String,
        /// How many events the partition may hold.
        size: usize,
        /// The processor that is furthest behind; empty if none is registered.
        slowest_processor: String,
    },
    /// A key holds another type.
    #[error(transparent)]
    WrongType(StoreError),
    /// The server did not respond, or returned an error. The batch may or may not have been
    /// appended.
    #[error("cannot send to `{key}`")]
    Redis {
        /// The key of the partition's events.
        key: String,
        /// The error of the client or the server.
        #[source]
        source: RedisError,
    },
    /// Another sender uses the id of this sender.
    #[error("the server rejected a batch for `{key}`, because it already has a later batch of the same sender")]
    StaleBatch {
        /// The key of the partition's events.
        key: String,
    },
}

fn explain_full(slowest_processor: &str) -> String {
    if slowest_processor.is_empty() {
        "no processor is registered on it, so no event may be trimmed; start a processor, raise the size, or allow dropping of unread events".into()
    } else {
        format!(
            "processor `{slowest_processor}` has not acknowledged them; start more workers, raise the size, or remove the processor"
        )
    }
}

/// Appends to the partitions of one stream. At most one batch per partition is in flight, so that a
/// retry keeps the order.
pub(crate) struct StreamSender {
    commands: SharedConnection,
    /// The id of this sender if the server has `IDMP`, else empty.
    producer: String,
    partitions: Vec<PartitionSender>,
    size: usize,
    when_full: WhenFull,
    drop_unread: bool,
}

struct PartitionSender {
    events_key: String,
    dedup_key: String,
    /// Number of the last batch. Locked while a batch is in flight.
    sequence: Arc<Mutex<u64>>,
}

impl StreamSender {
    pub(crate) async fn open(
        client: &RedisClient,
        namespace: &Namespace,
        name: &StreamName,
        partitions: u32,
        size: usize,
    ) -> Self {
        let sender = uuid::Uuid::new_v4().simple().to_string();
        let partition_senders = (0..partitions).map(|n| PartitionSender {
            events_key: namespace.events_key(name, n),
            dedup_key: namespace.dedup_key(name, n, &sender),
            sequence: Arc::default(),
        });
        Self {
            commands: client.connection(),
            partitions: partition_senders.collect(),
            producer: if supports_idempotent_producers(client).await { sender } else { String::new() },
            size,
            when_full: WhenFull::default(),
            drop_unread: false,
        }
    }

    pub(crate) fn when_full(mut self, when_full: WhenFull, drop_unread: bool) -> Self {
        self.when_full = when_full;
        self.drop_unread = drop_unread;
        self
    }

    /// Appends records of one partition in order.
    async fn append(&self, partition: u32, records: &[RoutedRecord]) -> Result<Vec<EntryId>, SendError> {
        let partition_sender = &self.partitions[partition as usize];
        let mut sequence = partition_sender.sequence.lock().await;
        let mut ids = Vec::with_capacity(records.len());
        for batch in records.chunks(BATCH_SIZE.min(self.size)) {
            *sequence += 1;
            ids.extend(self.append_with_retry(partition_sender, *sequence, batch).await?);
        }
        Ok(ids)
    }

    /// Retries one batch under the same number until the server has appended it, rejects it, or the
    /// time limit is over.
    async fn append_with_retry(
        &self,
        partition_sender: &PartitionSender,
        sequence: u64,
        batch: &[RoutedRecord],
    ) -> Result<Vec<EntryId>, SendError> {
        let begin = Instant::now();
        let mut delay = Duration::from_millis(2);
        loop {
            let time_limit = match self.try_append(partition_sender, sequence, batch).await {
                Ok(Some(ids)) => return Ok(ids),
                Ok(None) => return Err(SendError::StaleBatch { key: partition_sender.events_key.clone() }),
                Err(SendError::Full { key, size, slowest_processor }) => match self.when_full {
                    WhenFull::Wait(time_limit) if begin.elapsed() < time_limit => time_limit,
                    _ => return Err(SendError::Full { key, size, slowest_processor }),
                },
                Err(SendError::Redis { source, .. }) if is_transient(&source) && begin.elapsed() < RETRY_TIMEOUT => {
                    RETRY_TIMEOUT
                }
                Err(error) => return Err(error),
            };
            tokio::time::sleep(delay.min(time_limit.saturating_sub(begin.elapsed()))).await;
            delay = (delay * 2).min(Duration::from_millis(250));
        }
    }

    async fn try_append(
        &self,
        partition_sender: &PartitionSender,
        sequence: u64,
        batch: &[RoutedRecord],
    ) -> Result<Option<Vec<EntryId>>, SendError> {
        let mut call = SEND.key(&partition_sender.events_key);
        call.key(&partition_sender.dedup_key)
            .arg(sequence)
            .arg(self.size)
            .arg(u64::try_from(DEDUP_TTL.as_millis()).unwrap_or(u64::MAX));
        call.arg(u8::from(self.drop_unread)).arg(batch.len()).arg(&self.producer);
        for record in batch {
            call.arg(record.fields.len() * 2);
            for (name, value) in &record.fields {
                call.arg(name).arg(value);
            }
        }
        let response: Vec<Value> = match call.invoke_async(&mut self.commands.clone()).await {
            Ok(response) => response,
            Err(source) => return Err(self.map_error(partition_sender, source).await),
        };
        let parts: Vec<Vec<u8>> = response
            .into_iter()
            .filter_map(|part| match part {
                Value::BulkString(text) => Some(text),
                _ => None,
            })
            .collect();
        match parts.split_first() {
            Some((status, ids)) if status == b"ok" => {
                Ok(Some(ids.iter().filter_map(|id| EntryId::parse(id)).collect()))
            }
            Some((status, rest)) if status == b"full" => Err(SendError::Full {
                key: partition_sender.events_key.clone(),
                size: self.size,
                slowest_processor: rest
                    .first()
                    .map(|name| String::from_utf8_lossy(name).into_owned())
                    .unwrap_or_default(),
            }),
            _ => Ok(None),
        }
    }

    async fn map_error(&self, partition_sender: &PartitionSender, source: RedisError) -> SendError {
        if source.to_string().contains("WRONGTYPE") {
            let keys = [(&*partition_sender.events_key, "stream"), (&*partition_sender.dedup_key, "string")];
            if let Some(wrong_type) = find_wrong_type(&mut self.commands.clone(), &keys).await {
                return SendError::WrongType(wrong_type);
            }
        }
        SendError::Redis { key: partition_sender.events_key.clone(), source }
    }
}

/// Whether the server has `XADD … IDMP` (Redis 8.6). An error counts as no.
async fn supports_idempotent_producers(client: &RedisClient) -> bool {
    let response: Result<Vec<Value>, RedisError> =
        redis::cmd("COMMAND").arg("INFO").arg("XCFGSET").query_async(&mut client.connection()).await;
    response.is_ok_and(|response| matches!(response.first(), Some(Value::Array(_))))
}

impl<R: Serialize + DeserializeOwned + Send + Sync + 'static> RecordStream<R> {
    /// Appends a record and returns its id.
    pub async fn send(&self, record: &R) -> Result<EntryId, SendError> {
        let routed = self.encode(record)?;
        let ids = self.sender().append(routed.partition, &[routed]).await?;
        Ok(ids.into_iter().next_back().unwrap_or_default())
    }

    /// Appends records to all partitions concurrently, in each partition in the given order.
    /// Returns the ids in the order of the records. The call returns when the server has appended
    /// all records, which is the back-pressure. After an error, the records of earlier batches stay
    /// in the stream.
    pub async fn send_many<'a>(&self, records: impl IntoIterator<Item = &'a R>) -> Result<Vec<EntryId>, SendError> {
        let routed: Vec<RoutedRecord> =
            records.into_iter().map(|record| self.encode(record)).collect::<Result<_, EncodeError>>()?;
        self.send_routed(routed).await
    }
}

impl<R> RecordStream<R> {
    /// Appends encoded records to all partitions concurrently.
    pub(crate) async fn send_routed(
        &self,
        records: impl IntoIterator<Item = RoutedRecord>,
    ) -> Result<Vec<EntryId>, SendError> {
        let mut positions: Vec<Vec<usize>> = vec![Vec::new(); self.partitions() as usize];
        let mut batches: Vec<Vec<RoutedRecord>> = positions.iter().map(|_| Vec::new()).collect();
        let mut count = 0;
        for routed in records {
            let partition = routed.partition as usize;
            positions[partition].push(count);
            batches[partition].push(routed);
            count += 1;
        }
        let sends = batches.iter().zip(0u32..).filter(|(batch, _)| !batch.is_empty());
        let sent = try_join_all(sends.map(|(batch, partition)| self.sender().append(partition, batch))).await?;
        let mut ids = vec![EntryId::default(); count];
        for (positions, sent) in positions.iter().filter(|positions| !positions.is_empty()).zip(sent) {
            for (position, id) in positions.iter().zip(sent) {
                ids[*position] = id;
            }
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests;
