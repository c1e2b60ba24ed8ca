//! A stream of typed records: its definition, the check of the definition against Redis, and the
//! routing of records to partitions. Does not open a stream whose partition count or hasher differs
//! from the stored values. [`crate::sender`] appends the records.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use redis::RedisError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use squall_coord::{RedisClient, StoreError, find_wrong_type};

use crate::{
    codec::{Codec, Compression, EncodeError, RecordLayout, to_json},
    names::{NameError, Namespace, StreamName},
    partition_hasher::PartitionHasher,
    sender::{StreamSender, WhenFull},
};

/// The defaults of runnel.
const DEFAULT_PARTITIONS: u32 = 16;
const DEFAULT_PARTITION_SIZE: usize = 50_000;
/// No app needs more partitions; the limit catches typing errors.
const MAX_PARTITIONS: u32 = 4096;

/// A stream that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamOpenError {
    /// The name of the stream is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The stream has several partitions and no partition key.
    #[error(
        "stream `{0}` has {1} partitions and no partition key; set one with partition_by(…), or --partition-by on the command line"
    )]
    MissingPartitionKey(StreamName, u32),
    /// The stream has no partitions, or its partitions hold no events.
    #[error("stream `{0}` needs at least one partition, and a partition size of at least one event")]
    ZeroSize(StreamName),
    /// The stream has too many partitions. Every partition costs every worker memory and reads.
    #[error(
        "stream `{0}` cannot have {1} partitions; the limit is {MAX_PARTITIONS}, because the count cannot change later"
    )]
    TooManyPartitions(StreamName, u32),
    /// The layout is flat, and a compression is set.
    #[error("stream `{0}` has the flat layout, which cannot be compressed; use the JSON layout, or no compression")]
    FlatCompressed(StreamName),
    /// The stored definition differs.
    #[error(
        "stream `{name}` has {stored} {what} in Redis (key `{key}`), but was opened with {wanted}. Events of one key would \
         move to another partition and lose their order. Open it with {stored}, or use another stream name, or stop all \
         senders, process the remaining events, stop all workers, and delete `{key}` together with the stream's `__strm` keys"
    )]
    DefinitionMismatch {
        /// The stream.
        name: StreamName,
        /// The key of the stored definition.
        key: String,
        /// The setting that differs: partitions or hasher.
        what: &'static str,
        /// The stored value.
        stored: String,
        /// The given value.
        wanted: String,
    },
    /// A key holds another type.
    #[error(transparent)]
    WrongType(StoreError),
    /// The server did not respond, or returned an error.
    #[error("cannot read the definition of stream `{name}`")]
    Redis {
        /// The stream.
        name: StreamName,
        /// The error of the client or the server.
        #[source]
        source: RedisError,
    },
}

type KeyExtractor<R> = Arc<dyn Fn(&R, &Value) -> Value + Send + Sync>;

/// The definition of a stream, before it is opened. Made by [`crate::StreamApp::stream`].
pub struct StreamBuilder<R> {
    pub(crate) client: RedisClient,
    pub(crate) namespace: Namespace,
    pub(crate) name: Result<StreamName, NameError>,
    key: Option<KeyExtractor<R>>,
    partitions: u32,
    size: usize,
    hasher: PartitionHasher,
    codec: Codec,
    when_full: WhenFull,
    drop_unread: bool,
}

impl<R: Serialize + DeserializeOwned + Send + Sync + 'static> StreamBuilder<R> {
    pub(crate) fn new(client: RedisClient, namespace: Namespace, name: Result<StreamName, NameError>) -> Self {
        Self {
            client,
            namespace,
            name,
            key: None,
            partitions: DEFAULT_PARTITIONS,
            size: DEFAULT_PARTITION_SIZE,
            hasher: PartitionHasher::default(),
            codec: Codec::default(),
            when_full: WhenFull::default(),
            drop_unread: false,
        }
    }

    /// Partitions events by a field of the record. A record without the field has the key `null`.
    #[must_use]
    pub fn partition_by(mut self, field: impl Into<String>) -> Self {
        let field = field.into();
        self.key = Some(Arc::new(move |_, json| json.get(&field).cloned().unwrap_or(Value::Null)));
        self
    }

    /// Partitions events by a key that `key` computes from the record.
    #[must_use]
    pub fn partition_by_key<K: Into<Value>>(mut self, key: impl Fn(&R) -> K + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(move |record, _| key(record).into()));
        self
    }

    /// The number of partitions, which is also the largest number of workers that can share the
    /// stream. Default 16, at most 4096. The first client that opens the stream fixes it.
    #[must_use]
    pub fn partitions(mut self, count: u32) -> Self {
        self.partitions = count;
        self
    }

    /// How many events a partition holds. A full partition trims acknowledged events; if there are
    /// none, senders wait. Default 50,000.
    #[must_use]
    pub fn partition_size(mut self, events: usize) -> Self {
        self.size = events;
        self
    }

    /// The hash function that maps keys to partitions. Default xxh64. The first client that opens
    /// the stream fixes it.
    #[must_use]
    pub fn hasher(mut self, hasher: PartitionHasher) -> Self {
        self.hasher = hasher;
        self
    }

    /// The layout of records. Default JSON.
    #[must_use]
    pub fn layout(mut self, layout: RecordLayout) -> Self {
        self.codec.layout = layout;
        self
    }

    /// The compression of JSON records. Default none.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.codec.compression = compression;
        self
    }

    /// What `send` does when a partition is full. Default: wait up to 30 s.
    #[must_use]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Drops the oldest events of a full partition as long as no processor is registered on it.
    /// Default: the partition counts as full.
    #[must_use]
    pub fn drop_unread(mut self) -> Self {
        self.drop_unread = true;
        self
    }

    /// Checks the definition against the stored one, or stores it if there is none.
    pub async fn open(self) -> Result<RecordStream<R>, StreamOpenError> {
        let name = self.name?;
        if self.partitions == 0 || self.size == 0 {
            return Err(StreamOpenError::ZeroSize(name));
        }
        if self.partitions > MAX_PARTITIONS {
            return Err(StreamOpenError::TooManyPartitions(name, self.partitions));
        }
        if self.key.is_none() && self.partitions > 1 {
            return Err(StreamOpenError::MissingPartitionKey(name, self.partitions));
        }
        if self.codec.layout == RecordLayout::Flat && self.codec.compression != Compression::None {
            return Err(StreamOpenError::FlatCompressed(name));
        }
        check_definition(&self.client, &self.namespace, &name, self.partitions, self.hasher).await?;
        let sender = StreamSender::open(&self.client, &self.namespace, &name, self.partitions, self.size).await;
        Ok(RecordStream {
            inner: Arc::new(RecordStreamInner {
                client: self.client,
                namespace: self.namespace,
                name,
                key: self.key,
                partitions: self.partitions,
                hasher: self.hasher,
                codec: self.codec,
                sender: sender.when_full(self.when_full, self.drop_unread),
                record: PhantomData,
            }),
        })
    }
}

/// Stores the definition if there is none, or compares it with the stored one.
async fn check_definition(
    client: &RedisClient,
    namespace: &Namespace,
    name: &StreamName,
    partitions: u32,
    hasher: PartitionHasher,
) -> Result<(), StreamOpenError> {
    let key = namespace.definition_key(name);
    let mut pipeline = redis::pipe();
    pipeline.atomic().hset_nx(&key, "partitions", partitions).ignore();
    pipeline.hset_nx(&key, "hasher", hasher.to_string()).ignore();
    pipeline.hget(&key, "partitions").hget(&key, "hasher");
    let stored: Result<(String, String), RedisError> = pipeline.query_async(&mut client.connection()).await;
    let (stored_partitions, stored_hasher) = match stored {
        Ok(stored) => stored,
        Err(source) => {
            let wrong_type = find_wrong_type(&mut client.connection(), &[(&key, "hash")]).await;
            return Err(
                wrong_type.map_or(StreamOpenError::Redis { name: name.clone(), source }, StreamOpenError::WrongType)
            );
        }
    };
    let pairs = [
        ("partitions", stored_partitions, partitions.to_string()),
        ("as its hasher", stored_hasher, hasher.to_string()),
    ];
    match pairs.into_iter().find(|(_, stored, wanted)| stored != wanted) {
        Some((what, stored, wanted)) => {
            Err(StreamOpenError::DefinitionMismatch { name: name.clone(), key, what, stored, wanted })
        }
        None => Ok(()),
    }
}

/// An open stream of records. Clones share its connection and its sender.
pub struct RecordStream<R> {
    inner: Arc<RecordStreamInner<R>>,
}

impl<R> Clone for RecordStream<R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct RecordStreamInner<R> {
    client: RedisClient,
    namespace: Namespace,
    name: StreamName,
    key: Option<KeyExtractor<R>>,
    partitions: u32,
    hasher: PartitionHasher,
    codec: Codec,
    sender: StreamSender,
    record: PhantomData<fn() -> R>,
}

impl<R> RecordStream<R> {
    /// The name of the stream.
    pub fn name(&self) -> &StreamName {
        &self.inner.name
    }

    /// The number of partitions.
    pub fn partitions(&self) -> u32 {
        self.inner.partitions
    }

    pub(crate) fn codec(&self) -> Codec {
        self.inner.codec
    }

    pub(crate) fn client(&self) -> &RedisClient {
        &self.inner.client
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    pub(crate) fn hasher(&self) -> PartitionHasher {
        self.inner.hasher
    }

    pub(crate) fn sender(&self) -> &StreamSender {
        &self.inner.sender
    }
}

/// An encoded record with its partition.
pub(crate) struct RoutedRecord {
    pub(crate) partition: u32,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<R: Serialize + DeserializeOwned + Send + Sync + 'static> RecordStream<R> {
    /// The partition of a record.
    pub fn route(&self, record: &R) -> Result<u32, EncodeError> {
        Ok(self.partition_of(record, &to_json(record)?))
    }

    pub(crate) fn encode(&self, record: &R) -> Result<RoutedRecord, EncodeError> {
        let json = to_json(record)?;
        Ok(RoutedRecord { partition: self.partition_of(record, &json), fields: self.inner.codec.encode(&json)? })
    }

    fn partition_of(&self, record: &R, json: &Value) -> u32 {
        match &self.inner.key {
            Some(key) => self.inner.hasher.partition(&key(record, json), self.inner.partitions),
            None => 0,
        }
    }
}

/// How long a sender waits for space in a full partition, by default.
pub(crate) const DEFAULT_FULL_WAIT: Duration = Duration::from_secs(30);
