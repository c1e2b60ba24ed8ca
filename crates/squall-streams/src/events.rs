//! The decoded events of one partition, for a processor: one by one or in batches, in order. An
//! event counts as processed when the processor asks for the next one or returns, never earlier.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use squall_coord::LeaseEpoch;
use tokio::time::{Instant, timeout_at};

use crate::{
    codec::Codec,
    entry::{Entry, EntryId},
    middleware::{BoxError, Middleware},
    partition_buffer::{NextEvent, PartitionBuffer},
};

/// One event.
#[derive(Clone, Debug)]
pub struct Event<R> {
    /// The id in the partition.
    pub id: EntryId,
    /// The record.
    pub record: R,
}

/// The proof that a call of a processor owns its partition. Check it where a side effect happens:
/// the call owns the partition while the hash at `key` has this `epoch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceToken {
    /// The key of the partition's lock.
    pub key: String,
    /// The epoch of the lease under which the processor runs.
    pub epoch: LeaseEpoch,
}

/// The events of one partition. Every method is safe to cancel: the next call returns the events
/// that a cancelled call did not return.
pub struct PartitionEvents<R> {
    buffer: Arc<PartitionBuffer>,
    codec: Codec,
    middleware: Arc<[Arc<dyn Middleware>]>,
    /// Events that a cancelled `take_batch` has collected.
    batch: VecDeque<Event<R>>,
}

impl<R: DeserializeOwned> PartitionEvents<R> {
    pub(crate) fn new(buffer: Arc<PartitionBuffer>, codec: Codec, middleware: Arc<[Arc<dyn Middleware>]>) -> Self {
        Self { buffer, codec, middleware, batch: VecDeque::new() }
    }

    /// The partition of these events.
    pub fn partition(&self) -> u32 {
        self.buffer.partition.number
    }

    /// The proof that this call owns the partition.
    pub fn fence_token(&self) -> FenceToken {
        FenceToken { key: self.buffer.partition.lock_key.clone(), epoch: self.buffer.lease.epoch }
    }

    /// Waits for the next event. The previous event counts as processed. `None` means: return now,
    /// because the partition moves to another worker, or the failure policy must handle the next
    /// event. The worker calls the processor again if the partition stays.
    pub async fn next(&mut self) -> Option<Event<R>> {
        self.buffer.complete_delivered();
        let event = match self.batch.pop_front() {
            Some(event) => event,
            None => self.next_event().await?,
        };
        self.buffer.mark_delivered(1);
        Some(event)
    }

    /// The records, without their ids.
    pub fn records(&mut self) -> PartitionRecords<'_, R> {
        PartitionRecords(self)
    }

    /// Up to `count` records: waits for the first one, then at most `within` for the others. The
    /// previous batch counts as processed.
    pub async fn take_batch(&mut self, count: usize, within: Duration) -> Option<Vec<R>> {
        self.buffer.complete_delivered();
        if self.batch.is_empty() {
            let first = self.next_event().await?;
            self.batch.push_back(first);
        }
        let deadline = Instant::now() + within;
        while self.batch.len() < count {
            match timeout_at(deadline, self.next_event()).await {
                Ok(Some(event)) => self.batch.push_back(event),
                Ok(None) | Err(_) => break,
            }
        }
        self.buffer.mark_delivered(self.batch.len());
        Some(self.batch.drain(..).map(|event| event.record).collect())
    }

    async fn next_event(&mut self) -> Option<Event<R>> {
        loop {
            let next = if self.middleware.is_empty() {
                self.buffer.take_decoded(|entry| decode(self.codec, entry))
            } else {
                match self.buffer.take_for_middleware() {
                    NextEvent::Ready(entry) => self.buffer.finish_middleware(self.apply_middleware(entry).await),
                    NextEvent::Empty => NextEvent::Empty,
                    NextEvent::End => NextEvent::End,
                }
            };
            match next {
                NextEvent::Ready(event) => return Some(event),
                NextEvent::End => return None,
                NextEvent::Empty => {
                    if !self.buffer.has_events() {
                        self.buffer.wait_changed_or_stopped().await;
                    }
                }
            }
        }
    }

    async fn apply_middleware(&self, entry: Entry) -> Result<Option<Event<R>>, BoxError> {
        let mut entry = entry;
        for step in self.middleware.iter() {
            match step.before_event(entry).await? {
                Some(kept) => entry = kept,
                None => return Ok(None),
            }
        }
        decode(self.codec, &entry).map(Some)
    }
}

fn decode<R: DeserializeOwned>(codec: Codec, entry: &Entry) -> Result<Event<R>, BoxError> {
    Ok(Event { id: entry.id, record: codec.decode(&entry.body)? })
}

/// The records of [`PartitionEvents`].
pub struct PartitionRecords<'a, R>(&'a mut PartitionEvents<R>);

impl<R: DeserializeOwned> PartitionRecords<'_, R> {
    /// The record of [`PartitionEvents::next`].
    pub async fn next(&mut self) -> Option<R> {
        self.0.next().await.map(|event| event.record)
    }
}
