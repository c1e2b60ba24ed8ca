//! The record of the run that a fleet shares: its state, its spec, the workers' reports and the
//! measured deltas.
//! This module does not interpret them; states, specs, reports and deltas are texts and bytes here.
//! One trait has two implementations of equal behaviour, [`MemoryRunStore`] and [`RedisRunStore`].
//! Orchestrators, workers and the API use it.

mod counter_store;
mod memory;
mod redis;
mod subscription;

pub use counter_store::{BlockGrant, BlockRequest, CounterState, CounterStore, SourceAllocation};
pub use memory::MemoryRunStore;
pub use redis::{RedisRunStore, RunKeys};
pub use subscription::WorkerSubscription;

use std::{collections::BTreeMap, future::Future, time::Duration};

use crate::{CompatView, StoreError};

/// How long the data of an ended run stays readable.
pub(crate) const RUN_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The position before the first delta.
pub const START_POSITION: &str = "0-0";

/// The record of the run at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// Empty before the first run.
    pub state: String,
    /// Number of the run; every run raises it.
    pub epoch: u64,
    /// Number of changes; every change raises it.
    pub revision: u64,
    /// The desired state of the run, as JSON; empty before the first run.
    pub spec: String,
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What a worker gets back for its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportReceipt {
    /// The current run.
    pub epoch: u64,
    /// The revision of the record. If it differs from the last one read, the record has changed.
    pub revision: u64,
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// The field of a report that identifies the worker's process.
pub(crate) const INSTANCE_FIELD: &str = "instance";

/// The outcome of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// The report is stored.
    Accepted(ReportReceipt),
    /// Another process has this name; the text is the time of its last report.
    NameTaken(String),
}

/// The outcome of shipping a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShipOutcome {
    /// The delta is appended.
    Appended,
    /// The delta was appended earlier.
    Duplicate,
    /// Another run has begun, so the delta is not needed.
    RunEnded,
    /// An earlier delta of the same source is missing; this is its number.
    Gap(u64),
}

/// A delta and its position among all deltas of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedDelta {
    /// The position to read on from.
    pub position: String,
    /// The shipped bytes.
    pub bytes: Vec<u8>,
}

/// A checkpoint that a leader saved for its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunCheckpoint {
    /// The position of the last delta that the checkpoint covers.
    pub position: String,
    /// The saved bytes.
    pub data: Vec<u8>,
}

/// A worker's report as the store keeps it: one text per field. `squall_model::protocol` encodes and
/// decodes it.
pub type ReportFields = BTreeMap<String, String>;

/// The current run and its workers. Every method is atomic.
pub trait RunStore: CompatView + CounterStore + Clone + Send + Sync + 'static {
    /// Reads the record.
    fn read_record(&self) -> impl Future<Output = Result<RunRecord, StoreError>> + Send;

    /// Replaces state and spec if epoch and revision are still those of `seen`, and raises the
    /// epoch if `raise_epoch` is set. Returns the new record, or `None` if another client changed
    /// the record first.
    fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        spec: &str,
        raise_epoch: bool,
    ) -> impl Future<Output = Result<Option<RunRecord>, StoreError>> + Send;

    /// Stores `bytes` under a name derived from them; equal bytes have equal names.
    fn put_bundle(&self, bytes: &[u8]) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// Reads the bytes stored under `name`.
    fn get_bundle(&self, name: &str) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Replaces the report of `worker` for `ttl`. A name belongs to the `instance` that reports
    /// under it until that report expires or is removed.
    fn report(
        &self,
        worker: &str,
        report: &ReportFields,
        ttl: Duration,
    ) -> impl Future<Output = Result<ReportOutcome, StoreError>> + Send;

    /// Removes the report of `worker`.
    fn remove_worker(&self, worker: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// All reports that have not expired, by worker.
    fn reports(&self) -> impl Future<Output = Result<BTreeMap<String, ReportFields>, StoreError>> + Send;

    /// Appends a delta. A repeated call appends nothing.
    fn ship(
        &self,
        epoch: u64,
        source: &str,
        seq: u64,
        delta: &[u8],
    ) -> impl Future<Output = Result<ShipOutcome, StoreError>> + Send;

    /// Returns up to `max_count` deltas of the run after `position`, in order.
    fn deltas(
        &self,
        epoch: u64,
        position: &str,
        max_count: usize,
    ) -> impl Future<Output = Result<Vec<ShippedDelta>, StoreError>> + Send;

    /// Stores a checkpoint of all deltas up to `position` if the stored checkpoint is at
    /// `previous`, and returns whether it did. Deltas that the previous checkpoint covers are
    /// dropped.
    fn save_checkpoint(
        &self,
        epoch: u64,
        previous: &str,
        position: &str,
        data: &[u8],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads the last checkpoint.
    fn load_checkpoint(&self, epoch: u64) -> impl Future<Output = Result<Option<RunCheckpoint>, StoreError>> + Send;

    /// Stores notes of a run by name; a later note replaces an earlier one.
    fn set_notes(&self, epoch: u64, notes: &[(String, String)]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Postpones the expiry of a run's bundle and notes, because a run may last longer than their
    /// retention.
    fn extend_retention(&self, epoch: u64, bundle: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads all notes of a run.
    fn notes(&self, epoch: u64) -> impl Future<Output = Result<BTreeMap<String, String>, StoreError>> + Send;

    /// Sends `message` to the subscribers of `worker` and returns how many there are. It is only a
    /// wake-up and may be lost.
    fn publish(&self, worker: &str, message: &str) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Subscribes to the messages for `worker` until the subscription is dropped. An empty message
    /// means that earlier ones may be missing.
    fn subscribe(&self, worker: &str) -> WorkerSubscription;
}

/// A name derived from the content. 128 bits exclude accidental collisions; deliberate ones do not
/// matter, because every client that may write here is trusted with scenarios.
pub(crate) fn content_name(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}
