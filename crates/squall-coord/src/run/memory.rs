//! The run's record in this process: the embedded default, and the model the Redis scripts are tested against.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::mpsc, time::Instant};

use super::{
    BEGINNING, Counter, Counters, Draw, Drawn, Heard, INSTANCE, KEEP, Report, Reported, RunRecord, RunStore, Shipped,
    ShippedDelta, Showcase, ShownSecond, ShownUsers, UserMove, content_name,
};
use crate::{Epoch, MemoryPools, StoreError};

/// One run's record in memory. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryRun {
    state: Arc<Mutex<State>>,
    /// Told when a run begins, as in Redis all read one key.
    pools: Option<MemoryPools>,
}

#[derive(Debug, Default)]
struct State {
    skew: Duration,
    record: RunRecord,
    /// What is under a name, and until when.
    kept: BTreeMap<String, (Instant, Vec<u8>)>,
    reports: BTreeMap<String, (Instant, Report)>,
    runs: BTreeMap<u64, Run>,
    listeners: BTreeMap<String, Vec<mpsc::UnboundedSender<Vec<u8>>>>,
}

#[derive(Debug)]
struct Run {
    /// Forgotten then, unless something of it is written before.
    until: Instant,
    /// Of the next delta.
    next: u64,
    deltas: Vec<ShippedDelta>,
    shipped: BTreeMap<String, u64>,
    saved: Option<(String, Vec<u8>)>,
    notes: BTreeMap<String, String>,
    counters: BTreeMap<String, Counter>,
}

impl Run {
    fn new(until: Instant) -> Run {
        let (deltas, shipped, notes, counters) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Run { until, next: 0, deltas, shipped, saved: None, notes, counters }
    }
}

impl MemoryRun {
    /// No run yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No run yet; `pools` are told of every one that begins.
    pub fn with_pools(pools: &MemoryPools) -> Self {
        Self { pools: Some(pools.clone()), ..Self::default() }
    }

    /// Moves the store's clock forward, for tests of expiry.
    pub fn advance(&self, by: Duration) {
        self.enter().skew += by;
    }

    fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("no step panics");
        state.forget();
        state
    }
}

impl State {
    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + self.skew;
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> Instant {
        Instant::now() + self.skew
    }

    /// Drops what Redis would have dropped by now.
    fn forget(&mut self) {
        let now = self.now();
        self.kept.retain(|_, (until, _)| *until > now);
        self.runs.retain(|_, run| run.until > now);
    }

    /// A run of which something is written.
    fn write(&mut self, epoch: u64) -> &mut Run {
        let until = self.now() + KEEP;
        let run = self.runs.entry(epoch).or_insert_with(|| Run::new(until));
        run.until = until;
        run
    }

    fn read(&self) -> RunRecord {
        RunRecord { now_ms: self.now_ms(), ..self.record.clone() }
    }
}

/// A place as a number, for comparing.
fn number(place: &str) -> u64 {
    place.split_once('-').and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}

impl RunStore for MemoryRun {
    async fn record(&self) -> Result<RunRecord, StoreError> {
        Ok(self.enter().read())
    }

    async fn replace(
        &self,
        seen: &RunRecord,
        state: &str,
        order: &str,
        raise_epoch: bool,
    ) -> Result<Option<RunRecord>, StoreError> {
        let mut all = self.enter();
        if (all.record.epoch, all.record.revision) != (seen.epoch, seen.revision) {
            return Ok(None);
        }
        all.record.epoch += u64::from(raise_epoch);
        all.record.revision += 1;
        (all.record.state, all.record.order) = (state.to_owned(), order.to_owned());
        if let Some(pools) = &self.pools {
            pools.begin_run(Epoch(all.record.epoch));
        }
        Ok(Some(all.read()))
    }

    async fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let name = content_name(bytes);
        let mut all = self.enter();
        let until = all.now() + KEEP;
        all.kept.insert(name.clone(), (until, bytes.to_vec()));
        Ok(name)
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.enter().kept.get(name).map(|(_, bytes)| bytes.clone()))
    }

    async fn report(&self, worker: &str, report: &Report, ttl: Duration) -> Result<Reported, StoreError> {
        let mut all = self.enter();
        let (until, now_ms) = (all.now() + ttl, all.now_ms());
        let now = all.now();
        let holder = all.reports.get(worker).filter(|(until, _)| *until > now).map(|(_, report)| report);
        if let Some((holder, mine, theirs)) =
            holder.and_then(|holder| Some((holder, report.get(INSTANCE)?, holder.get(INSTANCE)?)))
            && mine != theirs
        {
            return Ok(Reported::Taken(holder.get("last_heartbeat").cloned().unwrap_or_default()));
        }
        let mut report = report.clone();
        report.insert("last_heartbeat".into(), format!("{:.3}", now_ms as f64 / 1e3));
        all.reports.insert(worker.to_owned(), (until, report));
        Ok(Reported::Heard(Heard { epoch: all.record.epoch, revision: all.record.revision, now_ms }))
    }

    async fn forget(&self, worker: &str) -> Result<(), StoreError> {
        self.enter().reports.remove(worker);
        Ok(())
    }

    async fn reports(&self) -> Result<BTreeMap<String, Report>, StoreError> {
        let mut all = self.enter();
        let now = all.now();
        all.reports.retain(|_, (until, _)| *until > now);
        Ok(all.reports.iter().map(|(worker, (_, report))| (worker.clone(), report.clone())).collect())
    }

    async fn ship(&self, epoch: u64, source: &str, seq: u64, delta: &[u8]) -> Result<Shipped, StoreError> {
        let mut all = self.enter();
        if all.record.epoch != epoch {
            return Ok(Shipped::Stale);
        }
        let run = all.write(epoch);
        let expected = run.shipped.get(source).map_or(0, |last| last + 1);
        if seq < expected {
            return Ok(Shipped::Known);
        }
        if seq > expected {
            return Ok(Shipped::Gap(expected));
        }
        run.shipped.insert(source.to_owned(), seq);
        run.next += 1;
        run.deltas.push(ShippedDelta { place: format!("{}-0", run.next), bytes: delta.to_vec() });
        Ok(Shipped::Taken)
    }

    async fn deltas(&self, epoch: u64, place: &str, most: usize) -> Result<Vec<ShippedDelta>, StoreError> {
        let (all, after) = (self.enter(), number(place));
        let deltas = all.runs.get(&epoch).map_or(&[][..], |run| &run.deltas);
        Ok(deltas.iter().filter(|delta| number(&delta.place) > after).take(most).cloned().collect())
    }

    async fn save(&self, epoch: u64, before: &str, place: &str, made: &[u8]) -> Result<bool, StoreError> {
        let mut all = self.enter();
        let run = all.write(epoch);
        if run.saved.as_ref().map_or(BEGINNING, |(place, _)| place) != before {
            return Ok(false);
        }
        run.saved = Some((place.to_owned(), made.to_vec()));
        run.deltas.retain(|delta| number(&delta.place) >= number(before));
        Ok(true)
    }

    async fn saved(&self, epoch: u64) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        Ok(self.enter().runs.get(&epoch).and_then(|run| run.saved.clone()))
    }

    async fn note(&self, epoch: u64, notes: &[(String, String)]) -> Result<(), StoreError> {
        self.enter().write(epoch).notes.extend(notes.iter().cloned());
        Ok(())
    }

    async fn keep(&self, epoch: u64, bundle: &str) -> Result<(), StoreError> {
        let mut all = self.enter();
        let day = all.now() + KEEP;
        all.kept.entry(bundle.to_owned()).and_modify(|(until, _)| *until = day);
        all.runs.entry(epoch).and_modify(|run| run.until = day);
        Ok(())
    }

    async fn notes(&self, epoch: u64) -> Result<BTreeMap<String, String>, StoreError> {
        Ok(self.enter().runs.get(&epoch).map(|run| run.notes.clone()).unwrap_or_default())
    }

    async fn call(&self, worker: &str, message: &str) -> Result<u64, StoreError> {
        let mut all = self.enter();
        let Some(listeners) = all.listeners.get_mut(worker) else { return Ok(0) };
        listeners.retain(|listener| listener.send(message.as_bytes().to_vec()).is_ok());
        Ok(listeners.len() as u64)
    }

    fn listen(&self, worker: &str) -> mpsc::UnboundedReceiver<Vec<u8>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.enter().listeners.entry(worker.to_owned()).or_default().push(sender);
        receiver
    }
}

impl Counters for MemoryRun {
    async fn draw(&self, epoch: u64, counter: &str, source: &str, draw: &Draw) -> Result<Option<Drawn>, StoreError> {
        let mut all = self.enter();
        if all.record.epoch != epoch {
            return Ok(None);
        }
        let counters = &mut all.write(epoch).counters;
        Ok(Some(counters.entry(counter.to_owned()).or_default().draw(source, draw)))
    }

    async fn counters(&self, epoch: u64) -> Result<BTreeMap<String, Counter>, StoreError> {
        Ok(self.enter().runs.get(&epoch).map(|run| run.counters.clone()).unwrap_or_default())
    }

    async fn write_off(&self, epoch: u64, counter: &str, source: &str) -> Result<Option<u64>, StoreError> {
        let mut all = self.enter();
        if all.record.epoch != epoch {
            return Ok(None);
        }
        let counter = all.runs.get_mut(&epoch).and_then(|run| run.counters.get_mut(counter));
        Ok(counter.and_then(|counter| counter.write_off(source)))
    }
}

/// Nobody looks into this process's memory: nothing is kept, but a stale run is told so.
impl Showcase for MemoryRun {
    async fn unshow(&self, _: u64) -> Result<(), StoreError> {
        Ok(())
    }

    async fn shown_users(&self, _: u64) -> Result<ShownUsers, StoreError> {
        Ok(ShownUsers::new())
    }

    async fn show_users(&self, epoch: u64, _: UserMove<'_>) -> Result<bool, StoreError> {
        Ok(self.enter().record.epoch == epoch)
    }

    async fn show_level(&self, epoch: u64, _: u64, _: &str) -> Result<bool, StoreError> {
        Ok(self.enter().record.epoch == epoch)
    }

    async fn show_second(&self, epoch: u64, _: u64, _: &[ShownSecond]) -> Result<bool, StoreError> {
        Ok(self.enter().record.epoch == epoch)
    }
}
