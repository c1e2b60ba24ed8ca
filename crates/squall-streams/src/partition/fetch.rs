//! Reading events of a partition under its fence. Refuses to take an event out of the stream for an owner that has been replaced,
//! or for a read that was given up on: nobody would process it.
//!
//! A read is a plain `XREADGROUP` that names a second stream beside the events, the gate. Redis looks for the groups of both
//! before it reads anything, so without the gate it does nothing. The gate runs out with the lease, is shut by the next owner's
//! fence, and is replaced after a read whose answer did not come. Inside a script the same would cost the server twice its time,
//! for turning every event into tables of Lua.

use std::sync::{
    Arc, LazyLock, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use redis::{Script, Value};

use super::{Fenced, Partition, PartitionError};
use crate::entry::{Entry, EntryId, entries, entries_read};

/// For clusters, whose client repeats what it believes lost: a repeated plain read would strand the events of the first.
static FETCH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/fetch.lua")));

/// All owners of a partition are one consumer; the fence tells them apart.
const CONSUMER: &str = "1";

/// New or pending events.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) entries: Vec<Entry>,
    /// There is nothing after this id yet.
    pub(crate) drained: Option<EntryId>,
}

/// How far the reads of one lease have come.
pub(super) struct Reading {
    by_script: bool,
    /// Reads by script begun under this lease; a late one must not overtake its repetition.
    pub(super) scripted: AtomicU64,
    /// Gates under this lease.
    gates: AtomicU64,
    /// A read has begun and its answer has not come; it may still be on its way.
    unanswered: AtomicBool,
    /// Up to here, events were given out, to this owner or to earlier ones.
    delivered: Mutex<EntryId>,
}

impl Reading {
    pub(super) fn new(by_script: bool) -> Arc<Self> {
        Arc::new(Self {
            by_script,
            scripted: AtomicU64::default(),
            gates: AtomicU64::default(),
            unanswered: AtomicBool::default(),
            delivered: Mutex::default(),
        })
    }

    /// As if the answer to a read had not come.
    #[cfg(test)]
    pub(super) fn given_up(&self) {
        self.unanswered.store(true, Relaxed);
    }

    /// Raises what was given out, and says what it is now.
    fn delivered(&self, id: Option<EntryId>) -> EntryId {
        let mut delivered = self.delivered.lock().expect("nothing panics here");
        *delivered = (*delivered).max(id.unwrap_or_default());
        *delivered
    }
}

impl Partition {
    /// Up to `count` events: pending ones after `pending`, or new ones. One at a time.
    pub(crate) async fn fetch(
        &self,
        count: usize,
        pending: Option<EntryId>,
    ) -> Result<Fenced<Fetched>, PartitionError> {
        if self.reading.by_script {
            return self.fetch_by_script(count, pending).await;
        }
        if self.reading.unanswered.load(Relaxed) && self.fence().await? == Fenced::Refused {
            return Ok(Fenced::Refused);
        }
        self.reading.unanswered.store(true, Relaxed);
        let answer = self.read(count, pending).await?;
        self.reading.unanswered.store(false, Relaxed);
        let Some(entries) = entries_read(answer) else { return Err(self.not_understood()) };
        let last = self.reading.delivered(entries.last().map(|entry| entry.id));
        let drained = (pending.is_none() && entries.len() < count).then_some(last);
        Ok(Fenced::Done(Fetched { entries, drained }))
    }

    async fn read(&self, count: usize, pending: Option<EntryId>) -> Result<Value, PartitionError> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(CONSUMER).arg("COUNT").arg(count);
        read.arg("STREAMS").arg(self.gate()).arg(&self.events).arg(">");
        match pending {
            Some(after) => read.arg(after.to_string()),
            None => read.arg(">"),
        };
        self.judge(read.query_async(&mut self.commands.clone()).await).await
    }

    async fn fetch_by_script(&self, count: usize, pending: Option<EntryId>) -> Result<Fenced<Fetched>, PartitionError> {
        let mut call = FETCH.key(&self.events);
        call.key(&self.lock).arg(self.epoch.0).arg(&self.group).arg(count);
        match pending {
            Some(after) => call.arg(after.to_string()),
            None => call.arg(">"),
        };
        call.arg(self.reading.scripted.fetch_add(1, Relaxed) + 1);
        let Value::Array(parts) = self.run(&call).await? else { return Ok(Fenced::Refused) };
        let mut parts = parts.into_iter();
        let Some(Value::BulkString(drained)) = parts.next() else { return Err(self.not_understood()) };
        let entries = entries(parts).ok_or_else(|| self.not_understood())?;
        Ok(Fenced::Done(Fetched { entries, drained: EntryId::parse(&drained) }))
    }

    /// The gate that reads name now.
    pub(super) fn gate(&self) -> String {
        self.namespace.gate(&self.name, self.number, self.epoch, self.reading.gates.load(Relaxed))
    }

    /// The gate after that, and its number.
    pub(super) fn next_gate(&self) -> (u64, String) {
        let number = self.reading.gates.fetch_add(1, Relaxed) + 1;
        (number, self.gate())
    }

    /// Every read before now is done or never will be.
    pub(super) fn gate_opened(&self, delivered: Option<EntryId>) {
        self.reading.delivered(delivered);
    }

    fn not_understood(&self) -> PartitionError {
        PartitionError::Answer { key: self.events.clone() }
    }
}
