//! The events of one partition as a processor sees them: one by one or in batches, decoded, in order.
//! Refuses to acknowledge early: an event counts as processed when the next one is asked for, or the processor returns.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use squall_coord::Epoch;
use tokio::time::{Instant, timeout_at};

use crate::{
    codec::Codec,
    entry::{Entry, EntryId},
    lane::{Lane, Next},
    middleware::{BoxError, Middleware},
};

/// One event.
#[derive(Clone, Debug)]
pub struct Event<R> {
    /// Its id in the partition.
    pub id: EntryId,
    /// The record.
    pub record: R,
}

/// Proof of ownership to be checked where effects happen: an effect is valid while the hash at `key` has this `epoch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The partition's lock.
    pub key: String,
    /// The epoch under which this processor runs.
    pub epoch: Epoch,
}

/// The events of one partition. Every method is safe to cancel: what has not been handed out is handed out next time.
pub struct Events<R> {
    lane: Arc<Lane>,
    codec: Codec,
    middleware: Arc<[Arc<dyn Middleware>]>,
    /// Collected by a `take` that was cancelled.
    batch: VecDeque<Event<R>>,
}

impl<R: DeserializeOwned> Events<R> {
    pub(crate) fn new(lane: Arc<Lane>, codec: Codec, middleware: Arc<[Arc<dyn Middleware>]>) -> Self {
        Self { lane, codec, middleware, batch: VecDeque::new() }
    }

    /// The partition these events are from.
    pub fn partition(&self) -> u32 {
        self.lane.partition.number
    }

    /// The proof of ownership under which this processor runs.
    pub fn fence(&self) -> Fence {
        Fence { key: self.lane.partition.lock.clone(), epoch: self.lane.lease.epoch }
    }

    /// The next event, when there is one; the one before counts as processed. `None` means: return now. The partition moves to
    /// another worker, or the next event needs the failure policy; the processor is called again if the partition stays.
    pub async fn next(&mut self) -> Option<Event<R>> {
        self.lane.complete();
        let event = match self.batch.pop_front() {
            Some(event) => event,
            None => self.one().await?,
        };
        self.lane.delivered(1);
        Some(event)
    }

    /// The records alone.
    pub fn records(&mut self) -> Records<'_, R> {
        Records(self)
    }

    /// Up to `count` records: waits for the first, then at most `within` for the others. The batch before counts as processed.
    pub async fn take(&mut self, count: usize, within: Duration) -> Option<Vec<R>> {
        self.lane.complete();
        if self.batch.is_empty() {
            let first = self.one().await?;
            self.batch.push_back(first);
        }
        let deadline = Instant::now() + within;
        while self.batch.len() < count {
            match timeout_at(deadline, self.one()).await {
                Ok(Some(event)) => self.batch.push_back(event),
                Ok(None) | Err(_) => break,
            }
        }
        self.lane.delivered(self.batch.len());
        Some(self.batch.drain(..).map(|event| event.record).collect())
    }

    async fn one(&mut self) -> Option<Event<R>> {
        loop {
            let next = if self.middleware.is_empty() {
                self.lane.take(|entry| decode(self.codec, entry))
            } else {
                match self.lane.prepare() {
                    Next::Got(entry) => self.lane.prepared(self.through(entry).await),
                    Next::Empty => Next::Empty,
                    Next::End => Next::End,
                }
            };
            match next {
                Next::Got(event) => return Some(event),
                Next::End => return None,
                Next::Empty => {
                    if !self.lane.has_events() {
                        self.lane.stirred().await;
                    }
                }
            }
        }
    }

    async fn through(&self, entry: Entry) -> Result<Option<Event<R>>, BoxError> {
        let mut entry = entry;
        for step in self.middleware.iter() {
            match step.before(entry).await? {
                Some(passed) => entry = passed,
                None => return Ok(None),
            }
        }
        decode(self.codec, &entry).map(Some)
    }
}

fn decode<R: DeserializeOwned>(codec: Codec, entry: &Entry) -> Result<Event<R>, BoxError> {
    Ok(Event { id: entry.id, record: codec.decode(&entry.body)? })
}

/// The records of [`Events`].
pub struct Records<'a, R>(&'a mut Events<R>);

impl<R: DeserializeOwned> Records<'_, R> {
    /// As [`Events::next`].
    pub async fn next(&mut self) -> Option<R> {
        self.0.next().await.map(|event| event.record)
    }
}
