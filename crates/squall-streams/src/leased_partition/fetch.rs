//! Reads events of a partition under its fence. Neither a replaced owner nor a read whose response
//! was lost can take events out of the stream, because no worker would process them.
//!
//! A read is a plain `XREADGROUP` that names a second stream beside the events, the gate. Redis
//! looks up the groups of both streams before it reads, so without the gate it reads nothing. The
//! gate expires with the lease. The fence of the next owner deletes it, and after a read with a
//! lost response the owner replaces it. A script could do the same, but would cost the server twice
//! the time, because it turns every event into Lua tables.

use std::sync::{
    Arc, LazyLock, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use redis::{Script, Value};

use super::{FenceOutcome, LeasedPartition, PartitionError};
use crate::entry::{Entry, EntryId, parse_read_response, parse_script_entries};

/// For clusters, whose client repeats a command with a lost response. If it repeated a plain read,
/// no worker would process the events of the first read.
static FETCH: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("../scripts/fetch.lua")));

/// All owners of a partition use the same consumer; the fence distinguishes them.
const CONSUMER_NAME: &str = "1";

/// New or pending events.
#[derive(Debug)]
pub(crate) struct FetchedEntries {
    pub(crate) entries: Vec<Entry>,
    /// There are no events after this id yet.
    pub(crate) caught_up_at: Option<EntryId>,
}

/// The progress of the reads under one lease.
pub(super) struct ReadProgress {
    use_script: bool,
    /// How many scripted reads this lease has started. The script rejects a read whose number is
    /// not higher than the last one, so a late read takes no events.
    pub(super) scripted_reads: AtomicU64,
    /// How many gates this lease has opened.
    gate_number: AtomicU64,
    /// Whether a read has started without a response. The server may still execute it.
    response_pending: AtomicBool,
    /// The last event that Redis has delivered to this owner or to an earlier one.
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

    /// Simulates a read whose response was lost.
    #[cfg(test)]
    pub(super) fn mark_response_lost(&self) {
        self.response_pending.store(true, Relaxed);
    }

    /// Raises the last delivered id to `id`, if that is higher, and returns it.
    fn advance_delivered(&self, id: Option<EntryId>) -> EntryId {
        let mut delivered = self.last_delivered.lock().expect("no code panics while it holds this lock");
        *delivered = (*delivered).max(id.unwrap_or_default());
        *delivered
    }
}

impl LeasedPartition {
    /// Reads up to `count` events: pending ones after `pending`, or new ones. The caller must not
    /// start two reads concurrently.
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

    /// The key of the current gate.
    pub(super) fn gate_key(&self) -> String {
        self.namespace.gate_key(&self.processor, self.number, self.epoch, self.read_progress.gate_number.load(Relaxed))
    }

    /// The number and the key of the next gate, which becomes the current one.
    pub(super) fn next_gate_key(&self) -> (u64, String) {
        let number = self.read_progress.gate_number.fetch_add(1, Relaxed) + 1;
        (number, self.gate_key())
    }

    /// Records the last delivered id that the fence returned. From now on the server executes no
    /// earlier read.
    pub(super) fn record_last_delivered(&self, delivered: Option<EntryId>) {
        self.read_progress.advance_delivered(delivered);
    }

    fn unexpected_response(&self) -> PartitionError {
        PartitionError::UnexpectedResponse { key: self.events_key.clone() }
    }
}
