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

use super::{FenceOutcome, LeasedPartition, PartitionError};
use crate::entry::{Entry, EntryId, parse_read_response, parse_script_entries};

/// For clusters, whose client repeats what it believes lost: a repeated plain read would strand the events of the first.
static FETCH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/fetch.lua")));

/// All owners of a partition are one consumer; the fence tells them apart.
const CONSUMER_NAME: &str = "1";

/// New or pending events.
#[derive(Debug)]
pub(crate) struct FetchedEntries {
    pub(crate) entries: Vec<Entry>,
    /// There is nothing after this id yet.
    pub(crate) caught_up_at: Option<EntryId>,
}

/// How far the reads of one lease have come.
pub(super) struct ReadProgress {
    use_script: bool,
    /// Reads by script begun under this lease; a late one must not overtake its repetition.
    pub(super) scripted_reads: AtomicU64,
    /// Gates under this lease.
    gate_number: AtomicU64,
    /// A read has begun and its answer has not come; it may still be on its way.
    response_pending: AtomicBool,
    /// Up to here, events were given out, to this owner or to earlier ones.
    last_delivered: Mutex<EntryId>,
}

impl ReadProgress {
    pub(super) fn new(use_script: bool) -> Arc<Self> {
        Arc::new(Self {
            use_script,
            scripted_reads: AtomicU64::default(),
            gate_number: AtomicU64::default(),
            response_pending: AtomicBool::default(),
            last_delivered: Mutex::default(),
        })
    }

    /// As if the answer to a read had not come.
    #[cfg(test)]
    pub(super) fn mark_response_lost(&self) {
        self.response_pending.store(true, Relaxed);
    }

    /// Raises what was given out, and says what it is now.
    fn advance_delivered(&self, id: Option<EntryId>) -> EntryId {
        let mut delivered = self.last_delivered.lock().expect("nothing panics here");
        *delivered = (*delivered).max(id.unwrap_or_default());
        *delivered
    }
}

impl LeasedPartition {
    /// Up to `count` events: pending ones after `pending`, or new ones. One at a time.
    pub(crate) async fn fetch(
        &self,
        count: usize,
        pending: Option<EntryId>,
    ) -> Result<FenceOutcome<FetchedEntries>, PartitionError> {
        if self.read_progress.use_script {
            return self.fetch_by_script(count, pending).await;
        }
        if self.read_progress.response_pending.load(Relaxed) && self.fence().await? == FenceOutcome::FencedOff {
            return Ok(FenceOutcome::FencedOff);
        }
        self.read_progress.response_pending.store(true, Relaxed);
        let response = self.read_group(count, pending).await?;
        self.read_progress.response_pending.store(false, Relaxed);
        let Some(entries) = parse_read_response(response) else { return Err(self.unexpected_response()) };
        let last = self.read_progress.advance_delivered(entries.last().map(|entry| entry.id));
        let caught_up_at = (pending.is_none() && entries.len() < count).then_some(last);
        Ok(FenceOutcome::Done(FetchedEntries { entries, caught_up_at }))
    }

    async fn read_group(&self, count: usize, pending: Option<EntryId>) -> Result<Value, PartitionError> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(CONSUMER_NAME).arg("COUNT").arg(count);
        read.arg("STREAMS").arg(self.gate_key()).arg(&self.events_key).arg(">");
        match pending {
            Some(after) => read.arg(after.to_string()),
            None => read.arg(">"),
        };
        self.map_error(read.query_async(&mut self.commands.clone()).await).await
    }

    async fn fetch_by_script(
        &self,
        count: usize,
        pending: Option<EntryId>,
    ) -> Result<FenceOutcome<FetchedEntries>, PartitionError> {
        let mut call = FETCH.key(&self.events_key);
        call.key(&self.lock_key).arg(self.epoch.0).arg(&self.group).arg(count);
        match pending {
            Some(after) => call.arg(after.to_string()),
            None => call.arg(">"),
        };
        call.arg(self.read_progress.scripted_reads.fetch_add(1, Relaxed) + 1);
        let Value::Array(parts) = self.invoke_script(&call).await? else { return Ok(FenceOutcome::FencedOff) };
        let mut parts = parts.into_iter();
        let Some(Value::BulkString(caught_up_at)) = parts.next() else { return Err(self.unexpected_response()) };
        let entries = parse_script_entries(parts).ok_or_else(|| self.unexpected_response())?;
        Ok(FenceOutcome::Done(FetchedEntries { entries, caught_up_at: EntryId::parse(&caught_up_at) }))
    }

    /// The gate that reads name now.
    pub(super) fn gate_key(&self) -> String {
        self.namespace.gate_key(&self.processor, self.number, self.epoch, self.read_progress.gate_number.load(Relaxed))
    }

    /// The gate after that, and its number.
    pub(super) fn next_gate_key(&self) -> (u64, String) {
        let number = self.read_progress.gate_number.fetch_add(1, Relaxed) + 1;
        (number, self.gate_key())
    }

    /// Every read before now is done or never will be.
    pub(super) fn reset_delivered(&self, delivered: Option<EntryId>) {
        self.read_progress.advance_delivered(delivered);
    }

    fn unexpected_response(&self) -> PartitionError {
        PartitionError::UnexpectedResponse { key: self.events_key.clone() }
    }
}
