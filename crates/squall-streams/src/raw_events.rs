//! Streams without types, for processors in another language: records that the caller encodes, and
//! events that the caller decodes. Taking an event never waits, so that any thread may call it. The
//! Python package uses this module.

use std::sync::Arc;

use crate::{
    codec::DATA_FIELD,
    entry::{Entry, EntryBody, EntryId},
    events::FenceToken,
    middleware::BoxError,
    partition_buffer::{NextEvent, PartitionBuffer},
    sender::SendError,
    stream::{RecordStream, RoutedRecord},
};

/// An encoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The Python `repr` of the partition key. A record without a key goes to partition 0.
    pub key: Option<String>,
    /// The fields, compressed if the stream has a compression.
    pub body: EntryBody,
}

/// An event that has not been decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// The entry of the stream.
    pub entry: Entry,
    /// Whether an earlier owner had fetched the event without acknowledging it.
    pub replayed: bool,
}

/// The result of [`RawPartitionEvents::poll`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The next event.
    Event(RawEvent),
    /// There is no event yet. [`RawPartitionEvents::wait_ready`] waits for one.
    Empty,
    /// The processor must return now.
    End,
}

impl<R> RecordStream<R> {
    /// The partition of a key, given as its Python `repr`.
    pub fn partition_of_repr(&self, repr: &str) -> u32 {
        self.hasher().partition_of_repr(repr, self.partitions())
    }

    /// Compresses the text of a record with the compression of this stream.
    pub fn compress(&self, data: Vec<u8>) -> Result<Vec<u8>, SendError> {
        self.codec().compress(data).map_err(SendError::from)
    }

    /// As [`RecordStream::send_many`], for encoded records.
    pub async fn send_raw(&self, records: Vec<RawRecord>) -> Result<Vec<EntryId>, SendError> {
        let routed = records.into_iter().map(|record| RoutedRecord {
            partition: record.key.as_deref().map_or(0, |key| self.partition_of_repr(key)),
            fields: match record.body {
                EntryBody::Data(data) => vec![(DATA_FIELD.to_vec(), data)],
                EntryBody::Fields(fields) => fields,
                EntryBody::Deleted => Vec::new(),
            },
        });
        self.send_routed(routed).await
    }
}

/// The events of one partition, for a processor that decodes them itself. An event is outstanding
/// from `poll` until the processor completes it, requeues it, or returns. Clones share one
/// position.
#[derive(Clone)]
pub struct RawPartitionEvents {
    buffer: Arc<PartitionBuffer>,
}

impl RawPartitionEvents {
    pub(crate) fn new(buffer: Arc<PartitionBuffer>) -> Self {
        Self { buffer }
    }

    /// The partition of these events.
    pub fn partition(&self) -> u32 {
        self.buffer.partition.number
    }

    /// The proof that this call owns the partition.
    pub fn fence_token(&self) -> FenceToken {
        FenceToken { key: self.buffer.partition.lock_key.clone(), epoch: self.buffer.lease.epoch }
    }

    /// Counts all events taken so far as processed.
    pub fn complete(&self) {
        self.buffer.complete_delivered();
    }

    /// Takes the next event, if there is one. Does not wait.
    pub fn poll(&self) -> PollOutcome {
        match self.buffer.take_raw() {
            NextEvent::Ready(event) => PollOutcome::Event(event),
            NextEvent::Empty => PollOutcome::Empty,
            NextEvent::End => PollOutcome::End,
        }
    }

    /// Puts the last `count` taken events back to the front of the queue.
    pub fn requeue_last(&self, count: usize) {
        self.buffer.requeue_last(count);
    }

    /// Reports that the last taken event cannot be decoded. When the processor has returned, the
    /// failure policy handles the event without retries.
    pub fn reject_last(&self, error: BoxError) {
        self.buffer.reject_last(error);
    }

    /// Waits until [`RawPartitionEvents::poll`] returns another outcome than
    /// [`PollOutcome::Empty`].
    pub async fn wait_ready(&self) {
        while !self.buffer.has_events() {
            self.buffer.wait_changed_or_stopped().await;
        }
    }
}
