//! Streams without types: records that are encoded elsewhere, and events that are decoded elsewhere, for processors in another
//! language. Refuses to wait while it takes: taking answers at once, so that it may be called from any thread.

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

/// A record that has been encoded already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The Python `repr` of the key that orders it; without one it goes to partition 0.
    pub key: Option<String>,
    /// Its fields, compressed if the stream is.
    pub body: EntryBody,
}

/// An event that nobody has decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawEvent {
    /// As it lies in the stream.
    pub entry: Entry,
    /// Whether an earlier owner had it in hand.
    pub replayed: bool,
}

/// What taking an event gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// The next event.
    Event(RawEvent),
    /// None yet; [`RawPartitionEvents::wait_ready`] waits.
    Empty,
    /// The processor should return now.
    End,
}

impl<R> RecordStream<R> {
    /// The partition of a key, given as Python writes it with `repr`.
    pub fn partition_of_repr(&self, repr: &str) -> u32 {
        self.hasher().partition_of_repr(repr, self.partitions())
    }

    /// Compresses text as this stream does.
    pub fn compress(&self, data: Vec<u8>) -> Result<Vec<u8>, SendError> {
        self.codec().compress(data).map_err(SendError::from)
    }

    /// As [`RecordStream::send_many`], for records that are encoded already.
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

/// The events of one partition for a processor that decodes them itself. What it takes is in its hands until it completes it, gives it
/// back, or ends. Clones share one position.
#[derive(Clone)]
pub struct RawPartitionEvents {
    buffer: Arc<PartitionBuffer>,
}

impl RawPartitionEvents {
    pub(crate) fn new(buffer: Arc<PartitionBuffer>) -> Self {
        Self { buffer }
    }

    /// The partition these events are from.
    pub fn partition(&self) -> u32 {
        self.buffer.partition.number
    }

    /// The proof of ownership under which the processor runs.
    pub fn fence_token(&self) -> FenceToken {
        FenceToken { key: self.buffer.partition.lock_key.clone(), epoch: self.buffer.lease.epoch }
    }

    /// Everything taken so far is processed.
    pub fn complete(&self) {
        self.buffer.complete_delivered();
    }

    /// Takes the next event, if there is one.
    pub fn poll(&self) -> PollOutcome {
        match self.buffer.take_raw() {
            NextEvent::Ready(event) => PollOutcome::Event(event),
            NextEvent::Empty => PollOutcome::Empty,
            NextEvent::End => PollOutcome::End,
        }
    }

    /// Puts the last `count` events taken back; they are the next ones to be taken.
    pub fn requeue_last(&self, count: usize) {
        self.buffer.requeue_last(count);
    }

    /// The last event taken cannot be decoded: the failure policy shall decide, without retries, when the processor has returned.
    pub fn reject_last(&self, error: BoxError) {
        self.buffer.reject_last(error);
    }

    /// Waits until taking gives something else than [`PollOutcome::Empty`].
    pub async fn wait_ready(&self) {
        while !self.buffer.has_events() {
            self.buffer.wait_changed_or_stopped().await;
        }
    }
}
