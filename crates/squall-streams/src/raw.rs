//! Streams without types: records that are encoded elsewhere, and events that are decoded elsewhere, for processors in another
//! language. Refuses to wait while it takes: taking answers at once, so that it may be called from any thread.

use std::sync::Arc;

use crate::{
    codec::DATA,
    entry::{Body, Entry, EntryId},
    events::Fence,
    lane::{Lane, Next},
    middleware::BoxError,
    send::SendError,
    stream::{Routed, Stream},
};

/// A record that has been encoded already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// The Python `repr` of the key that orders it; without one it goes to partition 0.
    pub key: Option<String>,
    /// Its fields, compressed if the stream is.
    pub body: Body,
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
pub enum Taken {
    /// The next event.
    Event(RawEvent),
    /// None yet; [`RawEvents::ready`] waits.
    Empty,
    /// The processor should return now.
    End,
}

impl<R> Stream<R> {
    /// The partition of a key, given as Python writes it with `repr`.
    pub fn route_repr(&self, repr: &str) -> u32 {
        self.hasher().partition_of_repr(repr, self.partitions())
    }

    /// Compresses text as this stream does.
    pub fn pack(&self, data: Vec<u8>) -> Result<Vec<u8>, SendError> {
        self.codec().pack(data).map_err(SendError::from)
    }

    /// As [`Stream::send_many`], for records that are encoded already.
    pub async fn send_raw(&self, records: Vec<RawRecord>) -> Result<Vec<EntryId>, SendError> {
        let routed = records.into_iter().map(|record| Routed {
            partition: record.key.as_deref().map_or(0, |key| self.route_repr(key)),
            fields: match record.body {
                Body::Data(data) => vec![(DATA.to_vec(), data)],
                Body::Fields(fields) => fields,
                Body::Deleted => Vec::new(),
            },
        });
        self.send_routed(routed).await
    }
}

/// The events of one partition for a processor that decodes them itself. What it takes is in its hands until it completes it, gives it
/// back, or ends. Clones share one position.
#[derive(Clone)]
pub struct RawEvents {
    lane: Arc<Lane>,
}

impl RawEvents {
    pub(crate) fn new(lane: Arc<Lane>) -> Self {
        Self { lane }
    }

    /// The partition these events are from.
    pub fn partition(&self) -> u32 {
        self.lane.partition.number
    }

    /// The proof of ownership under which the processor runs.
    pub fn fence(&self) -> Fence {
        Fence { key: self.lane.partition.lock.clone(), epoch: self.lane.lease.epoch }
    }

    /// Everything taken so far is processed.
    pub fn complete(&self) {
        self.lane.complete();
    }

    /// Takes the next event, if there is one.
    pub fn take(&self) -> Taken {
        match self.lane.take_raw() {
            Next::Got(event) => Taken::Event(event),
            Next::Empty => Taken::Empty,
            Next::End => Taken::End,
        }
    }

    /// Puts the last `count` events taken back; they are the next ones to be taken.
    pub fn give_back(&self, count: usize) {
        self.lane.give_back(count);
    }

    /// The last event taken cannot be decoded: the failure policy shall decide, without retries, when the processor has returned.
    pub fn spoil(&self, error: BoxError) {
        self.lane.spoil(error);
    }

    /// Waits until taking gives something else than [`Taken::Empty`].
    pub async fn ready(&self) {
        while !self.lane.has_events() {
            self.lane.stirred().await;
        }
    }
}
