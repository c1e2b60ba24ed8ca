//! Updates the roster from the worker reports: workers join, finish, fail, get lost and rejoin.
//! Every change that a reader of the report must know becomes an event. It moves no load; workers
//! do that.

use squall_coord::{FleetStores, StoreError};
use squall_model::{FleetEvent, FleetEventKind, protocol::ProtocolVersion};
use std::{collections::btree_map::Entry, time::Duration};

use super::{RunAggregator, worker_source};
use crate::fleet::{
    WorkerInfo, WorkerKind,
    worker_roster::{GaveUpWorker, RosterEntry, RosterEntryState},
};

/// A worker that joins later than this after the start is worth an event.
const LATE_JOIN_S: f64 = 0.5;

impl<C: FleetStores> RunAggregator<C> {
    /// Brings the roster up to date with the reports of all `workers`. A worker of
    /// another protocol version takes no part: it refuses the run and holds no shares.
    pub async fn update_roster(&mut self, workers: &[WorkerInfo], elapsed: Duration) -> Result<(), StoreError> {
        let epoch = self.epoch;
        let other_protocol = workers.iter().filter(|worker| !worker.protocol.is_current() && worker.instance != 0);
        other_protocol.for_each(|worker| self.record_other_protocol(worker, elapsed));
        let takes_part = |worker: &&WorkerInfo| worker.protocol.is_current() && worker.is_present();
        let workers: Vec<&WorkerInfo> = workers.iter().filter(takes_part).collect();
        // A last delta that is already in the store must be merged before its worker is called
        // lost.
        if workers.iter().any(|worker| self.ended_early_without_last_delta(worker)) {
            self.pending_closed_seconds += self.poll().await?;
        }
        for &worker in workers.iter().filter(|worker| worker.ready == epoch && worker.instance != 0) {
            self.record_prepared(worker, elapsed);
            if self.ended_early_without_last_delta(worker) {
                self.lose_early_ended_worker(worker, elapsed);
            } else {
                self.record_finish(worker, elapsed);
                self.record_rejoin(worker, elapsed);
            }
        }
        for &worker in workers.iter().filter(|worker| worker.given_up_run == epoch && worker.instance != 0) {
            self.record_gave_up(worker, &workers, elapsed);
        }
        // The message of a Squall worker is the reason why it gave the run up.
        for &worker in workers.iter().filter(|worker| worker.ready == epoch && worker.kind == WorkerKind::Vikhry) {
            self.record_notice(worker, elapsed);
        }
        self.record_absent_workers(&workers, elapsed).await
    }

    /// Adds a worker that the collector waits for from now on. Returns whether it is new.
    pub(super) fn add_to_roster(&mut self, instance: u64, id: &str, joined_s: f64) -> bool {
        let Entry::Vacant(entry) = self.roster.workers.entry(instance) else { return false };
        entry.insert(RosterEntry::new(id, joined_s));
        self.collector.add_source(worker_source(instance));
        true
    }

    /// Whether the worker has ended its part early, so that it will ship nothing more, and its last
    /// delta is missing.
    fn ended_early_without_last_delta(&self, worker: &WorkerInfo) -> bool {
        let ended_early = worker.given_up_run == self.epoch && worker.done == self.epoch;
        ended_early && !self.collector.is_finished(worker_source(worker.instance))
    }

    /// Records the first report of a worker that has built its users, and its resource use.
    fn record_prepared(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        let at_s = elapsed.as_secs_f64();
        if self.add_to_roster(worker.instance, &worker.id, at_s) && at_s > LATE_JOIN_S {
            self.record_worker_event(elapsed, FleetEventKind::Joined, &worker.id, "joined");
        }
        if let Some(entry) = self.roster.workers.get_mut(&worker.instance) {
            entry.record_usage(worker);
        }
    }

    fn record_worker_event(&mut self, elapsed: Duration, kind: FleetEventKind, worker: &str, what: &str) {
        let text = format!("worker {worker} {what}");
        self.record_event(FleetEvent::new(elapsed.as_secs_f64(), kind, text).about(worker));
    }

    fn lose_early_ended_worker(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        let Some(entry) = self.roster.workers.get_mut(&worker.instance) else { return };
        if entry.state != RosterEntryState::Lost {
            entry.end(RosterEntryState::Lost, elapsed.as_secs_f64());
            self.stop_waiting_for(worker.instance);
        }
    }

    /// A worker that is leaving reports itself unhealthy; it counts as left once it is absent.
    fn record_finish(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        let Some(entry) = self.roster.workers.get_mut(&worker.instance) else { return };
        if worker.done == self.epoch && worker.is_healthy() && entry.state == RosterEntryState::Working {
            entry.end(RosterEntryState::Finished, elapsed.as_secs_f64());
        }
    }

    /// A worker rejoins after it was lost, or after it was frozen before the start and so counted
    /// as left.
    fn record_rejoin(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        let Some(entry) = self.roster.workers.get_mut(&worker.instance) else { return };
        let returned_before_end = entry.state == RosterEntryState::Left && worker.done != self.epoch;
        if entry.state == RosterEntryState::Lost || returned_before_end {
            (entry.state, entry.ended_s) = (RosterEntryState::Working, None);
            self.collector.restore_source(worker_source(worker.instance));
            self.record_worker_event(elapsed, FleetEventKind::Back, &worker.id, "is back");
        }
    }

    fn record_other_protocol(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        if self.add_gave_up(worker, elapsed) {
            let (found, current) = (worker.protocol, ProtocolVersion::CURRENT);
            let what = format!(
                "takes no part: it has fleet protocol {found}, and the run has {current}; \
                 use the same release of squall for the orchestrator and the workers"
            );
            self.record_worker_event(elapsed, FleetEventKind::Unable, &worker.id, &what);
        }
    }

    /// Returns whether the worker is new among those that cannot carry out the run.
    fn add_gave_up(&mut self, worker: &WorkerInfo, elapsed: Duration) -> bool {
        let Entry::Vacant(entry) = self.roster.gave_up.entry(worker.instance) else { return false };
        entry.insert(GaveUpWorker { id: worker.id.clone(), since_s: elapsed.as_secs_f64() });
        true
    }

    fn record_gave_up(&mut self, worker: &WorkerInfo, workers: &[&WorkerInfo], elapsed: Duration) {
        if !self.add_gave_up(worker, elapsed) {
            return;
        }
        let others_can = workers.iter().any(|other| other.can_carry_out(self.epoch));
        let (kind, what) = match self.roster.workers.contains_key(&worker.instance) {
            true if others_can => {
                (FleetEventKind::Lost, "ended its part early, and its load moves to the other workers")
            }
            true => (FleetEventKind::Lost, "ended its part early, and no other worker can take its load"),
            false => (FleetEventKind::Unable, "takes no part: it cannot carry out the run"),
        };
        self.record_worker_event(elapsed, kind, &worker.id, &format!("{what}: {}", worker.message));
    }

    fn record_notice(&mut self, worker: &WorkerInfo, elapsed: Duration) {
        let is_notice = !worker.message.is_empty() && worker.given_up_run != self.epoch;
        if is_notice && self.roster.noticed.insert(worker.instance) {
            let text = format!("worker {}: {}", worker.id, worker.message);
            self.record_event(FleetEvent::new(elapsed.as_secs_f64(), FleetEventKind::Notice, text).about(&worker.id));
        }
    }

    /// Workers that no longer report have left if they shipped everything, and are lost otherwise.
    async fn record_absent_workers(&mut self, workers: &[&WorkerInfo], elapsed: Duration) -> Result<(), StoreError> {
        let present = |instance: &u64| workers.iter().any(|worker| worker.instance == *instance);
        let entries = self.roster.workers.iter();
        let absent: Vec<(u64, String)> = entries
            .filter(|(instance, entry)| entry.state == RosterEntryState::Working && !present(instance))
            .map(|(instance, entry)| (*instance, entry.id.clone()))
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        // A worker that leaves ships its last delta before it stops reporting.
        self.pending_closed_seconds += self.poll().await?;
        let then = match workers.iter().any(|worker| worker.can_carry_out(self.epoch)) {
            true => "its load moves to the other workers",
            false => "no worker is left, and its load pauses until one joins",
        };
        for (instance, id) in absent {
            let (kind, what) = match self.end_absent_worker(instance, elapsed) {
                RosterEntryState::Lost => (FleetEventKind::Lost, "was lost"),
                RosterEntryState::Left | RosterEntryState::Working | RosterEntryState::Finished => {
                    (FleetEventKind::Left, "left")
                }
            };
            self.record_worker_event(elapsed, kind, &id, &format!("{what}; {then}"));
        }
        Ok(())
    }

    /// Returns how the worker ended.
    fn end_absent_worker(&mut self, instance: u64, elapsed: Duration) -> RosterEntryState {
        // Before the start a worker has measured nothing that could be lost.
        let complete = elapsed.is_zero() || self.collector.is_finished(worker_source(instance));
        let state = if complete { RosterEntryState::Left } else { RosterEntryState::Lost };
        if let Some(entry) = self.roster.workers.get_mut(&instance) {
            entry.end(state, elapsed.as_secs_f64());
        }
        self.stop_waiting_for(instance);
        state
    }
}
