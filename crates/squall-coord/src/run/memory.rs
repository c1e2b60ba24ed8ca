//! The run's record in this process: the embedded default, and the model the Redis scripts are tested against.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::mpsc, time::Instant};

use super::{
    BlockGrant, BlockRequest, CompatView, CounterState, CounterStore, INSTANCE_FIELD, RUN_RETENTION, ReportFields,
    ReportOutcome, ReportReceipt, RunRecord, RunStore, START_POSITION, SecondRow, ShipOutcome, ShippedDelta,
    UserLocations, UserMove, content_name,
};
use crate::{Epoch, MemoryPoolStore, StoreError};

/// One run's record in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryRunStore {
    state: Arc<Mutex<MemoryRunState>>,
    /// Told when a run begins, as in Redis all read one key.
    pools: Option<MemoryPoolStore>,
}

#[derive(Debug, Default)]
struct MemoryRunState {
    clock: ClockOrigin,
    skew: Duration,
    record: RunRecord,
    /// What is under a name, and until when.
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
    /// Forgotten then, unless something of it is written before.
    expires_at: Instant,
    /// Of the next delta.
    delta_count: u64,
    deltas: Vec<ShippedDelta>,
    last_sequence: BTreeMap<String, u64>,
    checkpoint: Option<(String, Vec<u8>)>,
    notes: BTreeMap<String, String>,
    counters: BTreeMap<String, CounterState>,
}

impl RunData {
    fn new(until: Instant) -> RunData {
        let (deltas, shipped, notes, counters) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        RunData { expires_at: until, delta_count: 0, deltas, last_sequence: shipped, checkpoint: None, notes, counters }
    }
}

impl MemoryRunStore {
    /// No run yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No run yet; `pools` are told of every one that begins.
    pub fn with_pools(pools: &MemoryPoolStore) -> Self {
        Self { pools: Some(pools.clone()), ..Self::default() }
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.lock_and_expire().skew += by;
    }

    fn lock_and_expire(&self) -> MutexGuard<'_, MemoryRunState> {
        let mut state = self.state.lock().expect("no step panics");
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

    /// Drops what Redis would have dropped by now.
    fn remove_expired(&mut self) {
        let now = self.now();
        self.bundles.retain(|_, (until, _)| *until > now);
        self.runs.retain(|_, run| run.expires_at > now);
    }

    /// A run of which something is written.
    fn run_mut(&mut self, epoch: u64) -> &mut RunData {
        let until = self.now() + RUN_RETENTION;
        let run = self.runs.entry(epoch).or_insert_with(|| RunData::new(until));
        run.expires_at = until;
        run
    }

    fn current_record(&self) -> RunRecord {
        RunRecord { now_ms: self.now_ms(), ..self.record.clone() }
    }
}

/// A place as a number, for comparing.
fn position_number(place: &str) -> u64 {
    place.split_once('-').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

impl RunStore for MemoryRunStore {
    async fn read_record(&self) -> Result<RunRecord, StoreError> {
        Ok(self.lock_and_expire().current_record())
    }

    async fn compare_and_set(
        &self,
        seen: &RunRecord,
        state: &str,
        order: &str,
        raise_epoch: bool,
    ) -> Result<Option<RunRecord>, StoreError> {
        let mut all = self.lock_and_expire();
        if (all.record.epoch, all.record.revision) != (seen.epoch, seen.revision) {
            return Ok(None);
        }
        all.record.epoch += u64::from(raise_epoch);
        all.record.revision += 1;
        (all.record.state, all.record.spec) = (state.to_owned(), order.to_owned());
        if let Some(pools) = &self.pools {
            pools.begin_run(Epoch(all.record.epoch));
        }
        Ok(Some(all.current_record()))
    }

    async fn put_bundle(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        let mut all = self.lock_and_expire();
        let until = all.now() + RUN_RETENTION;
        all.bundles.insert(name.clone(), (until, bytes.to_vec()));
        Ok(name)
    }

    async fn get_bundle(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.lock_and_expire().bundles.get(name).map(|(_, bytes)| bytes.clone()))
    }

    async fn report(&self, worker: &str, report: &ReportFields, ttl: Duration) -> Result<ReportOutcome, StoreError> {
        let mut all = self.lock_and_expire();
        let (until, now_ms) = (all.now() + ttl, all.now_ms());
        let now = all.now();
        let holder = all.reports.get(worker).filter(|(until, _)| *until > now).map(|(_, report)| report);
        if let Some((holder, mine, theirs)) =
            holder.and_then(|holder| Some((holder, report.get(INSTANCE_FIELD)?, holder.get(INSTANCE_FIELD)?)))
            && mine != theirs
        {
            return Ok(ReportOutcome::NameTaken(holder.get("last_heartbeat").cloned().unwrap_or_default()));
        }
        let mut report = report.clone();
        report.insert("last_heartbeat".into(), format!("{:.3}", now_ms as f64 / 1e3));
        all.reports.insert(worker.to_owned(), (until, report));
        Ok(ReportOutcome::Accepted(ReportReceipt { epoch: all.record.epoch, revision: all.record.revision, now_ms }))
    }

    async fn remove_worker(&self, worker: &str) -> Result<(), StoreError> {
        self.lock_and_expire().reports.remove(worker);
        Ok(())
    }

    async fn reports(&self) -> Result<BTreeMap<String, ReportFields>, StoreError> {
        let mut all = self.lock_and_expire();
        let now = all.now();
        all.reports.retain(|_, (until, _)| *until > now);
        Ok(all.reports.iter().map(|(worker, (_, report))| (worker.clone(), report.clone())).collect())
    }

    async fn ship(&self, epoch: u64, source: &str, seq: u64, delta: &[u8]) -> Result<ShipOutcome, StoreError> {
        let mut all = self.lock_and_expire();
        if all.record.epoch != epoch {
            return Ok(ShipOutcome::RunEnded);
        }
        let run = all.run_mut(epoch);
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

    async fn deltas(&self, epoch: u64, place: &str, most: usize) -> Result<Vec<ShippedDelta>, StoreError> {
        let (all, after) = (self.lock_and_expire(), position_number(place));
        let deltas = all.runs.get(&epoch).map_or(&[][..], |run| &run.deltas);
        Ok(deltas.iter().filter(|delta| position_number(&delta.position) > after).take(most).cloned().collect())
    }

    async fn save_checkpoint(&self, epoch: u64, before: &str, place: &str, made: &[u8]) -> Result<bool, StoreError> {
        let mut all = self.lock_and_expire();
        let run = all.run_mut(epoch);
        if run.checkpoint.as_ref().map_or(START_POSITION, |(place, _)| place) != before {
            return Ok(false);
        }
        run.checkpoint = Some((place.to_owned(), made.to_vec()));
        run.deltas.retain(|delta| position_number(&delta.position) >= position_number(before));
        Ok(true)
    }

    async fn load_checkpoint(&self, epoch: u64) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).and_then(|run| run.checkpoint.clone()))
    }

    async fn set_notes(&self, epoch: u64, notes: &[(String, String)]) -> Result<(), StoreError> {
        self.lock_and_expire().run_mut(epoch).notes.extend(notes.iter().cloned());
        Ok(())
    }

    async fn extend_retention(&self, epoch: u64, bundle: &str) -> Result<(), StoreError> {
        let mut all = self.lock_and_expire();
        let day = all.now() + RUN_RETENTION;
        all.bundles.entry(bundle.to_owned()).and_modify(|(until, _)| *until = day);
        all.runs.entry(epoch).and_modify(|run| run.expires_at = day);
        Ok(())
    }

    async fn notes(&self, epoch: u64) -> Result<BTreeMap<String, String>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).map(|run| run.notes.clone()).unwrap_or_default())
    }

    async fn publish(&self, worker: &str, message: &str) -> Result<u64, StoreError> {
        let mut all = self.lock_and_expire();
        let Some(listeners) = all.listeners.get_mut(worker) else { return Ok(0) };
        listeners.retain(|listener| listener.send(message.as_bytes().to_vec()).is_ok());
        Ok(listeners.len() as u64)
    }

    fn subscribe(&self, worker: &str) -> mpsc::UnboundedReceiver<Vec<u8>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock_and_expire().listeners.entry(worker.to_owned()).or_default().push(sender);
        receiver
    }
}

impl CounterStore for MemoryRunStore {
    async fn acquire_block(
        &self,
        epoch: u64,
        counter: &str,
        source: &str,
        draw: &BlockRequest,
    ) -> Result<Option<BlockGrant>, StoreError> {
        let mut all = self.lock_and_expire();
        if all.record.epoch != epoch {
            return Ok(None);
        }
        let counters = &mut all.run_mut(epoch).counters;
        Ok(Some(counters.entry(counter.to_owned()).or_default().allocate(source, draw)))
    }

    async fn counters(&self, epoch: u64) -> Result<BTreeMap<String, CounterState>, StoreError> {
        Ok(self.lock_and_expire().runs.get(&epoch).map(|run| run.counters.clone()).unwrap_or_default())
    }

    async fn write_off(&self, epoch: u64, counter: &str, source: &str) -> Result<Option<u64>, StoreError> {
        let mut all = self.lock_and_expire();
        if all.record.epoch != epoch {
            return Ok(None);
        }
        let counter = all.runs.get_mut(&epoch).and_then(|run| run.counters.get_mut(counter));
        Ok(counter.and_then(|counter| counter.write_off(source)))
    }
}

/// Nobody looks into this process's memory: nothing is kept, but a stale run is told so.
impl CompatView for MemoryRunStore {
    async fn clear_compat_view(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn user_locations(&self, _: u64) -> Result<UserLocations, StoreError> {
        Ok(UserLocations::new())
    }

    async fn move_users(&self, epoch: u64, _: UserMove<'_>) -> Result<bool, StoreError> {
        Ok(self.lock_and_expire().record.epoch == epoch)
    }

    async fn append_user_count(&self, epoch: u64, _: u64, _: &str) -> Result<bool, StoreError> {
        Ok(self.lock_and_expire().record.epoch == epoch)
    }

    async fn append_second(&self, epoch: u64, _: u64, _: &[SecondRow]) -> Result<bool, StoreError> {
        Ok(self.lock_and_expire().record.epoch == epoch)
    }
}
