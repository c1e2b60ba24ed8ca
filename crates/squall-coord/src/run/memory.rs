//! The record of a run in this process: the default for an embedded fleet, and the model that tests
//! compare the Redis scripts with. It does not outlive the process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::mpsc, time::Instant};

use super::{
    BlockGrant, BlockRequest, CounterState, CounterStore, INSTANCE_FIELD, RUN_RETENTION, ReportFields, ReportOutcome,
    ReportReceipt, RunCheckpoint, RunRecord, RunStore, START_POSITION, ShipOutcome, ShippedDelta, WorkerSubscription,
    content_name,
};
use crate::{MemoryPoolStore, RunEpoch, StoreError};

/// The record of a run in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryRunStore {
    state: Arc<Mutex<MemoryRunState>>,
    /// The pools that learn of every new run, because all Redis stores read one epoch key.
    pools: Option<MemoryPoolStore>,
}

#[derive(Debug, Default)]
struct MemoryRunState {
    clock: ClockOrigin,
    skew: Duration,
    record: RunRecord,
    /// Bundles by name, with their expiry.
    bundles: BTreeMap<String, (Instant, Vec<u8>)>,
    reports: BTreeMap<String, (Instant, ReportFields)>,
    runs: BTreeMap<u64, RunData>,
    listeners: BTreeMap<String, Vec<mpsc::UnboundedSender<Vec<u8>>>>,
}

/// Maps tokio's clock to Unix time, so that a paused runtime also pauses the time that the store returns.
#[derive(Debug)]
struct ClockOrigin {
    instant: Instant,
    unix: Duration,
}

impl Default for ClockOrigin {
    fn default() -> Self {
        Self { instant: Instant::now(), unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }
}

#[derive(Debug)]
struct RunData {
    /// Removed then, unless it is written to earlier.
    expires_at: Instant,
    /// Number of deltas appended so far.
    delta_count: u64,
    deltas: Vec<ShippedDelta>,
    last_sequence: BTreeMap<String, u64>,
    checkpoint: Option<RunCheckpoint>,
    notes: BTreeMap<String, String>,
    counters: BTreeMap<String, CounterState>,
}

impl RunData {
    fn new(expires_at: Instant) -> RunData {
        let (deltas, last_sequence, notes, counters) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        RunData { expires_at, delta_count: 0, deltas, last_sequence, checkpoint: None, notes, counters }
    }
}

impl MemoryRunStore {
    /// A store without a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store without a run. `pools` learn of every run that begins.
    pub fn with_pools(pools: &MemoryPoolStore) -> Self {
        Self { pools: Some(pools.clone()), ..Self::default() }
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.lock_and_expire().skew += by;
    }

    /// Whether `epoch` is the run that the record shows.
    pub(crate) fn is_current(&self, epoch: u64) -> bool {
        self.lock_and_expire().record.epoch == epoch
    }

    fn lock_and_expire(&self) -> MutexGuard<'_, MemoryRunState> {
        let mut state = self.state.lock().expect("no operation panics while it holds the lock");
        state.remove_expired();
        state
    }
}

impl MemoryRunState {
    fn now_ms(&self) -> u64 {
        let now = self.clock.unix + self.clock.instant.elapsed() + self.skew;
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> Instant {
        Instant::now() + self.skew
    }

    /// Drops what Redis would have expired by now.
    fn remove_expired(&mut self) {
        let now = self.now();
        self.bundles.retain(|_, (expires_at, _)| *expires_at > now);
        self.runs.retain(|_, run| run.expires_at > now);
    }

    /// The data of a run for writing, with a renewed expiry.
    fn run_mut(&mut self, epoch: u64) -> &mut RunData {
        let expires_at = self.now() + RUN_RETENTION;
        let run = self.runs.entry(epoch).or_insert_with(|| RunData::new(expires_at));
        run.expires_at = expires_at;
        run
    }

    fn current_record(&self) -> RunRecord {
        RunRecord { now_ms: self.now_ms(), ..self.record.clone() }
    }
}

/// A position as a number, for comparison.
fn position_number(position: &str) -> u64 {
    position.split_once('-').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

impl RunStore for MemoryRunStore {
    async fn read_record(&self) -> Result<RunRecord, StoreError> {
        Ok(self.lock_and_expire().current_record())
    }

    async fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        spec: &str,
        raise_epoch: bool,
    ) -> Result<Option<RunRecord>, StoreError> {
        let mut inner = self.lock_and_expire();
        if (inner.record.epoch, inner.record.revision) != (seen.epoch, seen.revision) {
            return Ok(None);
        }
        inner.record.epoch += u64::from(raise_epoch);
        inner.record.revision += 1;
        (inner.record.state, inner.record.spec) = (state.to_owned(), spec.to_owned());
        if let Some(pools) = &self.pools {
            pools.begin_run(RunEpoch(inner.record.epoch));
        }
        Ok(Some(inner.current_record()))
    }

    async fn put_bundle(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        let mut inner = self.lock_and_expire();
        let expires_at = inner.now() + RUN_RETENTION;
        inner.bundles.insert(name.clone(), (expires_at, bytes.to_vec()));
        Ok(name)
    }

    async fn get_bundle(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock_and_expire().bundles.get(name).map(|(_, bytes)| bytes.clone()))
    }

    async fn report(&self, worker: &str, report: &ReportFields, ttl: Duration) -> Result<ReportOutcome, StoreError> {
        let mut inner = self.lock_and_expire();
        let (expires_at, now_ms) = (inner.now() + ttl, inner.now_ms());
        let now = inner.now();
        let current = inner.reports.get(worker).filter(|(expires_at, _)| *expires_at > now).map(|(_, report)| report);
        if let Some((current, own_instance, current_instance)) =
            current.and_then(|current| Some((current, report.get(INSTANCE_FIELD)?, current.get(INSTANCE_FIELD)?)))
            && own_instance != current_instance
        {
            return Ok(ReportOutcome::NameTaken(current.get("reported_at_ms").cloned().unwrap_or_default()));
        }
        let mut report = report.clone();
        report.insert("last_heartbeat".into(), (now_ms / 1000).to_string());
        report.insert("reported_at_ms".into(), now_ms.to_string());
        inner.reports.insert(worker.to_owned(), (expires_at, report));
        Ok(ReportOutcome::Accepted(ReportReceipt {
            epoch: inner.record.epoch,
            revision: inner.record.revision,
            now_ms,
        }))
    }

    async fn remove_worker(&self, worker: &str) -> Result<(), StoreError> {
        self.lock_and_expire().reports.remove(worker);
        Ok(())
    }

    async fn reports(&self) -> Result<BTreeMap<String, ReportFields>, StoreError> {
        let mut inner = self.lock_and_expire();
        let now = inner.now();
        inner.reports.retain(|_, (expires_at, _)| *expires_at > now);
        Ok(inner.reports.iter().map(|(worker, (_, report))| (worker.clone(), report.clone())).collect())
    }

    async fn ship(&self, epoch: u64, source: &str, seq: u64, delta: &[u8]) -> Result<ShipOutcome, StoreError> {
        let mut inner = self.lock_and_expire();
        if inner.record.epoch != epoch {
            return Ok(ShipOutcome::RunEnded);
        }
        let run = inner.run_mut(epoch);
        let expected = run.last_sequence.get(source).map_or(0, |last| last + 1);
        if seq < expected {
            return Ok(ShipOutcome::Duplicate);
        }
        if seq > expected {
            return Ok(ShipOutcome::Gap(expected));
        }
        run.last_sequence.insert(source.to_owned(), seq);
        run.delta_count += 1;
        run.deltas.push(ShippedDelta { position: format!("{}-0", run.delta_count), bytes: delta.to_vec() });
        Ok(ShipOutcome::Appended)
    }

    async fn deltas(&self, epoch: u64, position: &str, max_count: usize) -> Result<Vec<ShippedDelta>, StoreError> {
        let (inner, after) = (self.lock_and_expire(), position_number(position));
        let deltas = inner.runs.get(&epoch).map_or(&[][..], |run| &run.deltas);
        Ok(deltas.iter().filter(|delta| position_number(&delta.position) > after).take(max_count).cloned().collect())
    }

    async fn save_checkpoint(
        &self,
        epoch: u64,
        previous: &str,
        position: &str,
        data: &[u8],
    ) -> Result<bool, StoreError> {
        let mut inner = self.lock_and_expire();
        let run = inner.run_mut(epoch);
        if run.checkpoint.as_ref().map_or(START_POSITION, |saved| &saved.position) != previous {
            return Ok(false);
        }
        run.checkpoint = Some(RunCheckpoint { position: position.to_owned(), data: data.to_vec() });
        run.deltas.retain(|delta| position_number(&delta.position) >= position_number(previous));
        Ok(true)
    }

    async fn load_checkpoint(&self, epoch: u64) -> Result<Option<RunCheckpoint>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).and_then(|run| run.checkpoint.clone()))
    }

    async fn set_notes(&self, epoch: u64, notes: &[(String, String)]) -> Result<(), StoreError> {
        self.lock_and_expire().run_mut(epoch).notes.extend(notes.iter().cloned());
        Ok(())
    }

    async fn extend_retention(&self, epoch: u64, bundle: &str) -> Result<(), StoreError> {
        let mut inner = self.lock_and_expire();
        let expires_at = inner.now() + RUN_RETENTION;
        inner.bundles.entry(bundle.to_owned()).and_modify(|(until, _)| *until = expires_at);
        inner.runs.entry(epoch).and_modify(|run| run.expires_at = expires_at);
        Ok(())
    }

    async fn notes(&self, epoch: u64) -> Result<BTreeMap<String, String>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).map(|run| run.notes.clone()).unwrap_or_default())
    }

    async fn publish(&self, worker: &str, message: &str) -> Result<u64, StoreError> {
        let mut inner = self.lock_and_expire();
        let Some(listeners) = inner.listeners.get_mut(worker) else { return Ok(0) };
        listeners.retain(|listener| listener.send(message.as_bytes().to_vec()).is_ok());
        Ok(listeners.len() as u64)
    }

    fn subscribe(&self, worker: &str) -> WorkerSubscription {
        let (sender, messages) = mpsc::unbounded_channel();
        self.lock_and_expire().listeners.entry(worker.to_owned()).or_default().push(sender);
        WorkerSubscription::direct(messages)
    }
}

impl CounterStore for MemoryRunStore {
    async fn acquire_block(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
        request: &BlockRequest,
    ) -> Result<Option<BlockGrant>, StoreError> {
        let mut inner = self.lock_and_expire();
        if inner.record.epoch != epoch {
            return Ok(None);
        }
        let counters = &mut inner.run_mut(epoch).counters;
        Ok(Some(counters.entry(counter.to_owned()).or_default().allocate(source, request)))
    }

    async fn counters(&self, epoch: u64) -> Result<BTreeMap<String, CounterState>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).map(|run| run.counters.clone()).unwrap_or_default())
    }

    async fn write_off(&self, epoch: u64, counter: &str, source: &str) -> Result<Option<u64>, StoreError> {
        let mut inner = self.lock_and_expire();
        if inner.record.epoch != epoch {
            return Ok(None);
        }
        let counter = inner.runs.get_mut(&epoch).and_then(|run| run.counters.get_mut(counter));
        Ok(counter.and_then(|counter| counter.write_off(source)))
    }
}
