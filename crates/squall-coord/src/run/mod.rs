//! The record of a run, as a fleet shares it: where it is, what is wanted, who reports what, and what was measured on the way.
//! Refuses to understand any of it: states, orders, reports and deltas are texts and bytes to this room. One trait, two back ends of
//! equal meaning: [`MemoryRunStore`] and [`RedisRunStore`].

mod compat;
mod counter_store;
mod memory;
mod redis;

pub use compat::{CompatView, MAX_USERS_PER_MOVE, SecondRow, SeriesKind, UserLocations, UserMove};
pub use counter_store::{BlockGrant, BlockRequest, CounterState, CounterStore, SourceAllocation};
pub use memory::MemoryRunStore;
pub use redis::{RedisRunStore, RunKeys};

use std::{collections::BTreeMap, future::Future, time::Duration};

use crate::StoreError;

/// How long what belongs to an ended run stays readable.
pub(crate) const RUN_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The position before the first delta.
pub const START_POSITION: &str = "0-0";

/// The run as it is recorded at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRecord {
    /// Empty before the first run.
    pub state: String,
    /// Raised with every run.
    pub epoch: u64,
    /// Raised with every change.
    pub revision: u64,
    /// What is wanted; empty before the first run.
    pub spec: String,
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// What a worker hears when it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportReceipt {
    /// Of the run.
    pub epoch: u64,
    /// Of the record; if it differs from the one last read, there is something to read.
    pub revision: u64,
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// The field of a report that says which life of a worker it is of.
pub(crate) const INSTANCE_FIELD: &str = "instance";

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    Accepted(ReportReceipt),
    /// Another life has this name, and was last heard then.
    NameTaken(String),
}

/// What became of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShipOutcome {
    /// It is in.
    Appended,
    /// It was in already.
    Duplicate,
    /// Another run has begun; nobody wants it any more.
    RunEnded,
    /// An earlier one of the same source is missing; this is its number.
    Gap(u64),
}

/// A delta and its place among all deltas of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedDelta {
    /// Give it back to read on from here.
    pub position: String,
    /// As it was shipped.
    pub bytes: Vec<u8>,
}

/// A worker's report as the store keeps it: one text per field. `squall_model::protocol` encodes and decodes it.
pub type ReportFields = BTreeMap<String, String>;

/// One run at a time and its workers. Every method is one atomic step.
pub trait RunStore: CompatView + CounterStore + Clone + Send + Sync + 'static {
    /// Reads the record.
    fn read_record(&self) -> impl Future<Output = Result<RunRecord, StoreError>> + Send;

    /// Replaces state and order if epoch and revision are still those of `seen`, raising the epoch if asked to; answers with the new
    /// record, or `None` if somebody was faster.
    fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        order: &str,
        raise_epoch: bool,
    ) -> impl Future<Output = Result<Option<RunRecord>, StoreError>> + Send;

    /// Keeps `bytes` under a name made from them; the same bytes have the same name.
    fn put_bundle(&self, bytes: &[u8]) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// What is kept under `name`.
    fn get_bundle(&self, name: &str) -> impl Future<Output = Result<Option<Vec<u8>>, StoreError>> + Send;

    /// Replaces what `worker` says of itself, for `ttl`. A name belongs to the `instance` that reports under it until it is forgotten.
    fn report(
        &self,
        worker: &str,
        report: &ReportFields,
        ttl: Duration,
    ) -> impl Future<Output = Result<ReportOutcome, StoreError>> + Send;

    /// Removes `worker` from those who report.
    fn remove_worker(&self, worker: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Everybody whose report has not expired, by name.
    fn reports(&self) -> impl Future<Output = Result<BTreeMap<String, ReportFields>, StoreError>> + Send;

    /// Appends a delta, once however often it is tried.
    fn ship(
        &self,
        epoch: u64,
        source: &str,
        seq: u64,
        delta: &[u8],
    ) -> impl Future<Output = Result<ShipOutcome, StoreError>> + Send;

    /// Up to `most` deltas of the run after `place`, in order.
    fn deltas(
        &self,
        epoch: u64,
        place: &str,
        most: usize,
    ) -> impl Future<Output = Result<Vec<ShippedDelta>, StoreError>> + Send;

    /// Keeps what was made of all deltas up to `place`, if the last to do so had come to `before`; deltas that were in that earlier
    /// one are dropped. Says whether it was kept.
    fn save_checkpoint(
        &self,
        epoch: u64,
        before: &str,
        place: &str,
        made: &[u8],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// What was last kept, with its place.
    fn load_checkpoint(&self, epoch: u64)
    -> impl Future<Output = Result<Option<(String, Vec<u8>)>, StoreError>> + Send;

    /// Keeps small facts of a run by name; a later one replaces an earlier one.
    fn set_notes(&self, epoch: u64, notes: &[(String, String)]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Puts off the day on which the bundle and the notes of a run are forgotten: it may last longer than they are kept.
    fn extend_retention(&self, epoch: u64, bundle: &str) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// All facts of a run.
    fn notes(&self, epoch: u64) -> impl Future<Output = Result<BTreeMap<String, String>, StoreError>> + Send;

    /// Sends `message` to whoever listens as `worker`; says how many do. Only a wake-up: it may be lost.
    fn publish(&self, worker: &str, message: &str) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Listens as `worker` until dropped. An empty message says that some may have been missed.
    fn subscribe(&self, worker: &str) -> tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>;
}

/// A name made from the content: 128 bits are plenty against accidents, and whoever may write here is trusted with scenarios anyway.
pub(crate) fn content_name(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}
