//! Aggregates one fleet run: reads what workers ship, merges each delta exactly once, judges each
//! second as it closes, and keeps the roster of workers. It stops nothing; the leader decides.
//!
//! The leader and every live view have an aggregator each. The leader's is saved for its successor.

mod checkpoint;
mod roster_update;
#[cfg(test)]
mod tests;
mod worker_activity;

use squall_coord::{FleetStores, RunCheckpoint, RunStore, START_POSITION, StoreError};
use squall_metrics::{Collector, MergeError, RunView, SourceId, decode_delta};
use squall_model::{
    FleetEvent, FleetEventKind, LevelUnit, Plan, RunSpec, StopReason, ThresholdResult, WorkerFacts, WorkerState,
    protocol::{RunNotes, SendBudgetReport, format_instance},
};
use std::{collections::BTreeMap, time::Duration};
use tracing::warn;

use super::worker_roster::{GaveUpWorker, RosterEntry, RosterEntryState, WorkerRoster};
use crate::{
    ThresholdJudge,
    saturation::{GeneratorUsage, dropped_start_advice, saturation_reasons},
};
use checkpoint::{decode_checkpoint, encode_checkpoint, final_view_of};

pub use worker_activity::{WorkerActivity, WorkerSecond};

/// Deltas that one read of the stream returns at most.
const DELTA_BATCH: usize = 500;

/// A run as it is seen from outside its workers.
pub struct RunAggregator<C: FleetStores> {
    run_store: C::Run,
    epoch: u64,
    window_s: u32,
    collector: Collector,
    stream_position: String,
    saved_position: String,
    roster: WorkerRoster,
    judge: ThresholdJudge,
    /// Whether workers still make load; the judge needs it.
    load_active: bool,
    /// Seconds closed since the last [`RunAggregator::poll`] returned.
    pending_closed_seconds: usize,
    /// By instance. A checkpoint does not contain it, because the next delta brings it again.
    latest_seconds: BTreeMap<u64, WorkerSecond>,
    /// What people have noted, as last read.
    person_notes: Vec<FleetEvent>,
    level_unit: LevelUnit,
    /// The changes of the load. The run record keeps them, so no checkpoint does.
    load_changes: Vec<FleetEvent>,
}

impl<C: FleetStores> RunAggregator<C> {
    /// Opens the run `epoch` at its last checkpoint.
    pub async fn open(stores: &C, epoch: u64, plan: &Plan, keep_s: u32) -> Result<RunAggregator<C>, StoreError> {
        let window_s = ThresholdJudge::longest_window(plan).max(keep_s);
        let mut aggregator = RunAggregator {
            run_store: stores.run(),
            epoch,
            window_s,
            collector: Collector::new([], window_s),
            stream_position: START_POSITION.to_owned(),
            saved_position: START_POSITION.to_owned(),
            roster: WorkerRoster::default(),
            judge: ThresholdJudge::new(plan),
            load_active: true,
            pending_closed_seconds: 0,
            latest_seconds: BTreeMap::new(),
            person_notes: Vec::new(),
            level_unit: plan.load.model.unit(),
            load_changes: Vec::new(),
        };
        aggregator.restore_checkpoint().await?;
        Ok(aggregator)
    }

    /// Replaces the state of this aggregator by the last checkpoint.
    async fn restore_checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(RunCheckpoint { position, data }) = self.run_store.load_checkpoint(self.epoch).await? else {
            // The store has none, or has lost it. The next checkpoint counts as the first and holds
            // all state.
            START_POSITION.clone_into(&mut self.saved_position);
            return Ok(());
        };
        if let Some((roster, collector)) = decode_checkpoint(&data, self.window_s) {
            self.judge.resume(&roster.judged);
            (self.roster, self.collector) = (roster, collector);
            (self.stream_position, self.saved_position) = (position.clone(), position);
        }
        Ok(())
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn view(&self) -> &RunView {
        self.collector.view()
    }

    /// The results of the thresholds so far.
    pub fn threshold_results(&self) -> Vec<ThresholdResult> {
        self.judge.current_results(self.view())
    }

    /// Why the generator is the limit of the run so far, in the words of the report; empty if it is not.
    pub fn saturation_reasons(&self, plan: &Plan, elapsed: Duration) -> Vec<String> {
        self.saturation_reasons_at(plan, self.view(), elapsed, StopReason::Completed)
    }

    /// As [`saturation_reasons`](Self::saturation_reasons), of `view` and for a run that ended with `stop`.
    pub(crate) fn saturation_reasons_at(
        &self,
        plan: &Plan,
        view: &RunView,
        elapsed: Duration,
        stop: StopReason,
    ) -> Vec<String> {
        let (threads, cpu_s) = self.roster.generator_usage();
        let lost = self.roster.workers.values().filter(|entry| entry.state == RosterEntryState::Lost).count();
        let usage = GeneratorUsage { elapsed, cpu_s, threads };
        saturation_reasons(plan, view, usage, dropped_start_advice(stop, lost, view))
    }

    /// What has happened to the fleet and its load, and what people have noted, in order of time.
    pub fn events(&self) -> Vec<FleetEvent> {
        let known = self.roster.events.iter().chain(&self.load_changes).chain(&self.person_notes);
        let mut events: Vec<FleetEvent> = known.cloned().collect();
        events.sort_by(|a, b| a.t_s.total_cmp(&b.t_s));
        events
    }

    /// Takes over the changes of the load.
    pub fn set_load_changes(&mut self, spec: &RunSpec) {
        if spec.changes.len() != self.load_changes.len() {
            self.load_changes = spec.changes.iter().map(|change| change.event(self.level_unit)).collect();
        }
    }

    /// Reads what people have noted.
    pub async fn read_person_notes(&mut self) -> Result<(), StoreError> {
        self.person_notes = RunNotes::from(self.run_store.notes(self.epoch).await?).person_notes();
        Ok(())
    }

    /// The thresholds, judged second by second as seconds closed.
    pub(crate) fn judge(&self) -> &ThresholdJudge {
        &self.judge
    }

    /// Sets whether workers still make load; see [`ThresholdJudge::judge_closed_seconds`].
    pub(crate) fn set_load_active(&mut self, load_active: bool) {
        self.load_active = load_active;
    }

    /// The view as it would be if the run ended now.
    pub(crate) fn final_view(&self) -> Option<RunView> {
        final_view_of(&self.checkpoint(), self.window_s)
    }

    /// The view in a leader's checkpoint; `None` if the bytes are not a checkpoint.
    pub(crate) fn view_of_checkpoint(bytes: &[u8]) -> Option<RunView> {
        final_view_of(bytes, 1)
    }

    pub(crate) fn roster(&self) -> &WorkerRoster {
        &self.roster
    }

    /// Entries in the delta stream that could not be decoded and were skipped.
    pub fn rejected_entries(&self) -> u64 {
        self.roster.refused
    }

    pub(crate) fn record_event(&mut self, event: FleetEvent) {
        self.roster.events.push(event);
    }

    /// Records that the orchestrator `name`, with the member id `member`, leads the run from now
    /// on.
    pub(crate) fn set_leader(&mut self, name: &str, member: &str, elapsed: Duration) {
        match self.roster.leader.replace(member.to_owned()) {
            None => {}
            Some(previous) if previous == member => {
                self.record_leader(name, elapsed, "leads again");
            }
            Some(_) => self.record_leader(name, elapsed, "leads now; the previous leader left or was lost"),
        }
    }

    fn record_leader(&mut self, name: &str, elapsed: Duration, what: &str) {
        let text = format!("orchestrator {name} {what}");
        self.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Leader, text).about(name));
    }

    /// Changes whenever the roster does. The leader then saves a checkpoint, so that a successor
    /// does not record the same arrivals and losses again.
    pub(crate) fn roster_version(&self) -> (usize, usize) {
        (self.roster.workers.len(), self.roster.events.len())
    }

    /// Merges everything that workers have shipped. Returns how many seconds have closed since the
    /// last call.
    pub async fn poll(&mut self) -> Result<usize, StoreError> {
        let mut closed = std::mem::take(&mut self.pending_closed_seconds);
        loop {
            let entries = self.run_store.deltas(self.epoch, &self.stream_position, DELTA_BATCH).await?;
            if entries.is_empty() {
                return Ok(closed);
            }
            for entry in entries {
                match self.merge_entry(&entry.bytes) {
                    Ok(seconds) => closed += seconds,
                    Err(MergeError::Gap { .. }) => {
                        // The store has dropped the deltas in between, because a checkpoint
                        // contains them.
                        self.restore_checkpoint().await?;
                        return Ok(closed + 1);
                    }
                    Err(_) => {}
                }
                self.stream_position = entry.position;
            }
        }
    }

    fn merge_entry(&mut self, bytes: &[u8]) -> Result<usize, MergeError> {
        if let Some(report) = SendBudgetReport::decode(bytes) {
            self.roster.announced.insert(report.instance, report);
            return Ok(0);
        }
        let delta = match decode_delta(bytes) {
            Ok(delta) => delta,
            Err(error) => {
                warn!(%error, "the aggregator skipped an entry of the delta stream that is not a delta");
                self.roster.refused += 1;
                return Ok(0);
            }
        };
        let source = delta.source;
        // A delta may arrive before the first report of its worker; it names the worker well
        // enough.
        self.add_to_roster(source.instance, &format_instance(source.instance), f64::from(delta.second));
        let second = WorkerSecond::of(&delta);
        let closed = self.collector.merge(delta)?;
        self.latest_seconds.insert(source.instance, second);
        if closed > 0 {
            let _ = self.judge.judge_closed_seconds(self.collector.view(), self.load_active);
        }
        Ok(closed)
    }

    /// Most requests that a lost worker can have sent without reporting them, by its send budget.
    pub(crate) fn lost_at_most(&self, instance: u64) -> u64 {
        match self.roster.workers.get(&instance) {
            Some(entry)
                if entry.state == RosterEntryState::Lost && !self.collector.is_finished(worker_source(instance)) =>
            {
                let announced = self.roster.announced.get(&instance).map_or(0, |report| report.most);
                let most = entry.final_send_limit.map_or(announced, |limit| limit.min(announced));
                most.saturating_sub(self.collector.recorded_sent_of(worker_source(instance)))
            }
            _ => 0,
        }
    }

    /// Most requests of one iteration, if every worker has reported a limit.
    pub(crate) fn max_requests_per_iteration(&self) -> Option<u64> {
        let limit = |instance: &u64| self.roster.announced.get(instance).and_then(|report| report.each);
        let limits: Option<Vec<u64>> = self.roster.workers.keys().map(limit).collect();
        limits?.into_iter().max()
    }

    /// What each worker contributed to a run whose load ended at `active`. All workers together
    /// cannot have lost more than `max_unreported` requests.
    pub(crate) fn worker_facts(&self, active: Duration, max_unreported: u64) -> Vec<WorkerFacts> {
        let facts = |(instance, entry): (&u64, &RosterEntry)| WorkerFacts {
            id: entry.id.clone(),
            instance: format_instance(*instance),
            requests: self.collector.recorded_sent_of(worker_source(*instance)),
            state: entry.fact_state(active),
            joined_s: entry.joined_s,
            ended_s: entry.ended_s,
            lost_at_most: self.lost_at_most(*instance).min(max_unreported),
        };
        let unable = |(instance, unable): (&u64, &GaveUpWorker)| WorkerFacts {
            id: unable.id.clone(),
            instance: format_instance(*instance),
            requests: 0,
            state: WorkerState::Unable,
            joined_s: unable.since_s,
            ended_s: Some(unable.since_s),
            lost_at_most: 0,
        };
        let never_worked =
            self.roster.gave_up.iter().filter(|(instance, _)| !self.roster.workers.contains_key(instance));
        self.roster.workers.iter().map(facts).chain(never_worked.map(unable)).collect()
    }

    /// Ends the part of workers that have not shipped their last delta: they are lost, and their
    /// final send limits are read. If the run has not `started` they count as finished, because no
    /// worker has been given a start time.
    pub(crate) async fn end_unfinished_workers(&mut self, elapsed: Duration, started: bool) -> Result<(), StoreError> {
        let notes = RunNotes::from(self.run_store.notes(self.epoch).await?);
        self.end_unfinished_workers_with_notes(elapsed, started, &notes);
        Ok(())
    }

    pub(crate) fn end_unfinished_workers_with_notes(&mut self, elapsed: Duration, started: bool, notes: &RunNotes) {
        let open: Vec<u64> = self
            .roster
            .workers
            .iter()
            .filter(|(instance, entry)| {
                !entry.left_before_start() && !self.collector.is_finished(worker_source(**instance))
            })
            .map(|(instance, _)| *instance)
            .collect();
        for instance in open {
            if let Some(entry) = self.roster.workers.get_mut(&instance) {
                entry.state = if started { RosterEntryState::Lost } else { RosterEntryState::Finished };
                entry.ended_s.get_or_insert(elapsed.as_secs_f64());
                entry.final_send_limit = notes.final_send_limit(instance);
            }
            self.stop_waiting_for(instance);
        }
    }

    /// Lets seconds close without the worker.
    fn stop_waiting_for(&mut self, instance: u64) {
        self.pending_closed_seconds += self.collector.mark_lost(worker_source(instance));
        // Judged before the next second closes, which drops histograms that the windows need.
        let _ = self.judge.judge_closed_seconds(self.collector.view(), self.load_active);
    }

    /// Everything that a successor needs.
    pub(crate) fn checkpoint(&self) -> Vec<u8> {
        encode_checkpoint(&self.roster, &self.collector)
    }

    /// Extends the time for which the store keeps the bundle and the data of the run.
    pub(crate) async fn extend_retention(&self, bundle: &str) -> Result<(), StoreError> {
        self.run_store.extend_retention(self.epoch, bundle).await
    }

    /// Saves a checkpoint for a successor. Returns `false`, and restores the stored one, if another
    /// leader has saved in the meantime.
    pub(crate) async fn save_checkpoint(&mut self) -> Result<bool, StoreError> {
        self.roster.judged = self.judge.checkpoint();
        let bytes = self.checkpoint();
        let saved =
            self.run_store.save_checkpoint(self.epoch, &self.saved_position, &self.stream_position, &bytes).await?;
        if saved {
            self.saved_position.clone_from(&self.stream_position);
        } else {
            self.restore_checkpoint().await?;
        }
        Ok(saved)
    }
}

/// A worker merges its threads before it ships, so the collector sees it as one source.
pub(crate) fn worker_source(instance: u64) -> SourceId {
    SourceId { instance, thread: 0 }
}
