//! The loop of a worker: reports once a beat, reads the record when it has changed, takes and gives back shares, passes deltas on.

use squall_coord::{
    FleetStores, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, MembershipHandle,
    ReportOutcome, RunStore,
};
use squall_model::{
    CommandEnvelope, HookAssignment, RunPhase, RunSpec,
    protocol::{FailedRun, RunNote, WorkerHealth, WorkerReport, format_instance},
};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    hooks::{self, HookKind, ScenarioHooks},
    membership_task::MembershipTask,
    process_monitor::ProcessMonitor,
    rejected_message_counter::RejectedMessageCounter,
    share_leases::ShareLeases,
    share_units,
    store_clock::StoreClock,
    worker_run::{DriverFactory, WorkerRun},
    worker_run_state::{WorkerRunConfig, WorkerRunEvent, WorkerRunState},
};

/// How a worker behaves.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Its name in the fleet. Two live workers must not share one.
    pub id: String,
    /// Time between beats; never more than a third of `ttl`.
    pub heartbeat_interval: Duration,
    /// How long it lives without one.
    pub ttl: Duration,
    /// Deltas, one a second, that may wait for a store that is away before it ends its part of the run.
    pub max_unshipped_deltas: usize,
}

impl WorkerConfig {
    pub fn new(id: impl Into<String>) -> WorkerConfig {
        let (beat, ttl) = (Duration::from_millis(1150), Duration::from_millis(3500));
        WorkerConfig { id: id.into(), heartbeat_interval: beat, ttl, max_unshipped_deltas: 120 }
    }
}

/// What a worker last said of itself, for those who look at it from outside.
#[derive(Debug, Clone, Default)]
pub struct WorkerStatus {
    pub report: WorkerReport,
    /// When the store last heard it.
    pub last_acknowledged: Option<Instant>,
}

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    InvalidTimings(#[from] MembershipConfigError),
    #[error("another worker that is alive is called `{0}`: give this one another --id")]
    NameTaken(String),
}

/// The load ends this much before others could take it over.
const LEASE_SAFETY_MARGIN: Duration = Duration::from_millis(100);

/// How long a worker that leaves waits for its last deltas to be in.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// One process of a fleet.
pub struct Worker<C: FleetStores, H: DriverFactory> {
    cell: C,
    driver_factory: Arc<H>,
    config: WorkerConfig,
    /// Of this life of the worker.
    instance: u64,
    clock: StoreClock,
    process_monitor: ProcessMonitor,
    seen_revision: u64,
    desired_run: Option<(u64, RunPhase, RunSpec)>,
    run_state: WorkerRunState,
    share_leases: ShareLeases,
    failed_run: Option<FailedRun>,
    /// What the scenario of a run does once, and what of it was begun here.
    hooks: Option<(u64, Arc<dyn ScenarioHooks>)>,
    started_hooks: BTreeSet<(u64, HookKind)>,
    /// What goes on beside the loop, and is waited for before it leaves.
    background_tasks: JoinSet<()>,
    stale_commands: u64,
    bad_commands: u64,
    rejected_messages: RejectedMessageCounter,
    leaving: bool,
    /// Another life has this worker's name.
    name_taken: bool,
    status: watch::Sender<WorkerStatus>,
    /// Its place in the fleet was certain at the last beat.
    membership_valid: bool,
    /// The record has been looked at: whether a run is on is known.
    record_known: bool,
    /// It has to be looked at again, whatever its revision: a store that has forgotten everything counts those anew.
    reread_record: bool,
}

impl<C: FleetStores, H: DriverFactory> Worker<C, H> {
    pub fn new(cell: C, host: H, config: WorkerConfig) -> Worker<C, H> {
        // The random part of a unique name is as good a source as any.
        let name = MemberId::unique();
        let instance = u64::from_str_radix(&name.as_str()[..15], 16).unwrap_or(1);
        Worker {
            cell,
            driver_factory: Arc::new(host),
            config,
            instance,
            clock: StoreClock::default(),
            process_monitor: ProcessMonitor::new(),
            seen_revision: 0,
            desired_run: None,
            run_state: WorkerRunState::Idle,
            share_leases: ShareLeases::default(),
            failed_run: None,
            hooks: None,
            started_hooks: BTreeSet::new(),
            background_tasks: JoinSet::new(),
            stale_commands: 0,
            bad_commands: 0,
            rejected_messages: RejectedMessageCounter::default(),
            leaving: false,
            name_taken: false,
            status: watch::Sender::default(),
            membership_valid: false,
            record_known: false,
            reread_record: false,
        }
    }

    /// How it is, as it goes on.
    pub fn status(&self) -> watch::Receiver<WorkerStatus> {
        self.status.subscribe()
    }

    /// Works until `stop`, then drains: shares go to others, what is under way is finished, everything measured is shipped.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), WorkerError> {
        let beat = self.config.heartbeat_interval.min(self.config.ttl / 3);
        let seat = MembershipConfig {
            heartbeat_interval: beat,
            ttl: self.config.ttl,
            ..MembershipConfig::new(self.member_id(), share_units())
        };
        // Timings that do not fit are refused before anybody hears of this worker.
        Membership::new(self.cell.workers(), seat.clone())?;
        let run = self.cell.run();
        self.claim_name(&run, &stop).await?;
        let mut place: Option<MembershipTask> = None;
        let mut commands = run.subscribe(&self.config.id);
        let mut beats = tokio::time::interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut goodbye = None;
        info!(worker = self.config.id, instance = format_instance(self.instance), "ready");
        loop {
            tokio::select! {
                () = stop_requested(&stop, self.name_taken), if !self.leaving => {
                    info!(worker = self.config.id, "leaving");
                    self.leaving = true;
                    goodbye = Some(Instant::now() + LEAVE_TIMEOUT);
                }
                Some(notice) = MembershipTask::next_notice(&mut place) => self.handle_notice(notice),
                _ = beats.tick() => self.heartbeat(&run, place.as_ref()).await,
                Some(message) = commands.recv() => if self.accept_command(&message) { self.read_record(&run).await; },
                Some(_) = self.background_tasks.join_next() => {}
                progress = self.run_state.next_event() => match progress {
                    WorkerRunEvent::Prepared(made) => self.handle_prepared(*made, &run).await,
                    WorkerRunEvent::DeltaForwarded => self.check_run(&run).await,
                },
            }
            if let Some(MembershipTask { handle, .. }) = &mut place {
                // Looked at before the notices: by then everything that was lost before it has been told.
                let until = handle.validity.expires_at().into_std();
                while let Ok(notice) = handle.events.try_recv() {
                    self.handle_notice(notice);
                }
                if self.share_leases.has_changes() {
                    self.apply_share_changes(&run, handle).await;
                    if self.desired_run.as_ref().is_some_and(|(_, phase, _)| *phase == RunPhase::Preparing) {
                        // The start waits until every share is held.
                        self.report_now(&run).await;
                    }
                }
                // Who has just come and holds nothing yet is not held back: its first shares are to be taken up where they were left.
                if let WorkerRunState::Active(job) = &self.run_state
                    && (!job.shares().is_empty() || until > Instant::now())
                {
                    job.set_lease_deadline(until - LEASE_SAFETY_MARGIN);
                }
            }
            self.join_or_leave(&mut place, &seat)?;
            if self.leaving && self.is_drained(goodbye) && self.background_tasks.is_empty() {
                place.iter().for_each(MembershipTask::leave);
                if place.as_ref().is_none_or(MembershipTask::is_finished) {
                    break;
                }
            }
        }
        if self.name_taken {
            return Err(WorkerError::NameTaken(self.config.id));
        }
        if let Err(error) = run.remove_worker(&self.config.id).await {
            debug!(%error, "could not say good-bye; the report will expire");
        }
        Ok(())
    }

    /// Takes the name: the last who had it is waited for until it is forgotten, unless it is heard again.
    async fn claim_name(&mut self, run: &C::Run, stop: &CancellationToken) -> Result<(), WorkerError> {
        let mut last = None;
        loop {
            let report = self.build_report();
            let Ok(ReportOutcome::NameTaken(heard)) =
                run.report(&self.config.id, &report.encode(), self.config.ttl).await
            else {
                // A store that does not answer is the beats' to wait for.
                return Ok(());
            };
            match last.replace(heard.clone()) {
                None => info!(worker = self.config.id, "waits until the last worker of this name is forgotten"),
                Some(before) if before != heard => return Err(WorkerError::NameTaken(self.config.id.clone())),
                Some(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(self.config.heartbeat_interval) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Takes a place among those who make the load, or gives it up: shares held by somebody who makes nothing of them are load that
    /// nobody makes.
    fn join_or_leave(
        &self,
        place: &mut Option<MembershipTask>,
        seat: &MembershipConfig,
    ) -> Result<(), MembershipConfigError> {
        match place {
            Some(taken) if !self.leaving && taken.is_finished() => *place = None,
            // Who leaves keeps its place until its users are done: what they have borrowed is theirs until then.
            Some(taken) if self.leaving || self.has_failed_run() && self.has_active_run() => taken.release_shares(),
            // Nobody comes back from retirement but by a new place.
            Some(taken) if self.has_failed_run() || taken.is_releasing_shares() && !self.has_active_run() => {
                taken.leave()
            }
            None if !self.leaving && !self.has_failed_run() && self.can_join() => {
                *place = Some(MembershipTask::spawn(self.cell.workers(), seat.clone())?);
            }
            _ => {}
        }
        Ok(())
    }

    fn has_active_run(&self) -> bool {
        matches!(self.run_state, WorkerRunState::Active(_))
    }

    /// Whether it cannot carry out the run that is on, or not any more.
    fn has_failed_run(&self) -> bool {
        let on = self.desired_run.as_ref().filter(|(_, phase, _)| *phase != RunPhase::Idle);
        on.is_some_and(|(epoch, _, _)| self.failed_epoch() == Some(*epoch))
    }

    /// Whether it could make load at once: who comes in the middle of a run builds its users first.
    fn can_join(&self) -> bool {
        let is_on = self.desired_run.as_ref().is_some_and(|(_, phase, _)| *phase != RunPhase::Idle);
        self.record_known
            && (!is_on || matches!(self.run_state, WorkerRunState::Active(_) | WorkerRunState::Done { .. }))
    }

    /// The worker's name is for people; its place in the fleet belongs to this life of it.
    fn member_id(&self) -> MemberId {
        MemberId::new(format!("{}.{}", self.config.id, format_instance(self.instance)))
    }

    /// Whether a worker that is leaving has nothing left to do.
    fn is_drained(&mut self, goodbye: Option<Instant>) -> bool {
        if goodbye.is_some_and(|at| Instant::now() > at) {
            warn!("leaving although not everything is shipped");
            return true;
        }
        match &mut self.run_state {
            WorkerRunState::Active(job) => {
                if self.share_leases.shares().is_empty() {
                    job.stop(false);
                }
                job.is_done()
            }
            WorkerRunState::Idle | WorkerRunState::Preparing { .. } | WorkerRunState::Done { .. } => true,
        }
    }

    fn handle_notice(&mut self, notice: LeaseEvent) {
        self.reread_record = true;
        if self.share_leases.apply_notice(notice) {
            // Whoever lost a share has lost its place, and with it what its users had borrowed.
            self.run_state.invalidate_resources();
        }
    }

    /// Tells the engine what it holds now, and gives back what was asked for.
    async fn apply_share_changes(&mut self, run: &C::Run, handle: &MembershipHandle) {
        let job = match &mut self.run_state {
            WorkerRunState::Active(job) => Some(&mut **job),
            WorkerRunState::Idle | WorkerRunState::Preparing { .. } | WorkerRunState::Done { .. } => None,
        };
        let profile = self.desired_run.as_ref().map(|(_, _, order)| &order.profile);
        let back = self.share_leases.apply_changes(job, profile, run).await;
        back.into_iter().for_each(|lease| handle.release(lease));
    }

    async fn heartbeat(&mut self, run: &C::Run, place: Option<&MembershipTask>) {
        let asked = Instant::now();
        if let Some(messages) = self.rejected_messages.take_due(asked) {
            warn!(messages, "more messages were refused");
        }
        self.membership_valid = place.is_some_and(|place| place.handle.validity.is_valid());
        if !self.membership_valid {
            self.run_state.invalidate_resources();
        }
        let report = self.build_report();
        match run.report(&self.config.id, &report.encode(), self.config.ttl).await {
            Ok(ReportOutcome::NameTaken(_)) => {
                warn!(worker = self.config.id, "was away too long: another worker has its name now");
                self.name_taken = true;
            }
            Ok(ReportOutcome::Accepted(heard)) => {
                self.clock.record_reading(asked, heard.now_ms);
                self.status.send_modify(|status| status.last_acknowledged = Some(asked));
                let is_another = self.desired_run.as_ref().is_some_and(|(epoch, ..)| *epoch != heard.epoch);
                if heard.revision != self.seen_revision || is_another || std::mem::take(&mut self.reread_record) {
                    self.read_record(run).await;
                }
                self.record_known |= heard.revision == self.seen_revision;
            }
            Err(error) => debug!(%error, "a beat was not heard"),
        }
        self.check_run(run).await;
    }

    fn build_report(&mut self) -> WorkerReport {
        let vitals = self.process_monitor.sample();
        let takes_load = (self.membership_valid || self.has_failed_run()) && !self.leaving;
        let (ready, done, waiting, sent, threads) = match &self.run_state {
            WorkerRunState::Active(job) => (job.epoch, 0, job.unshipped_deltas(), job.sent(), job.thread_count()),
            WorkerRunState::Done { epoch } => (*epoch, *epoch, 0, 0, 0),
            WorkerRunState::Idle | WorkerRunState::Preparing { .. } => (0, 0, 0, 0, 0),
        };
        let held = self.share_leases.shares();
        let report = WorkerReport {
            health: if takes_load { WorkerHealth::Healthy } else { WorkerHealth::Unhealthy },
            instance: self.instance,
            cpu_percent: vitals.cpu_percent,
            cpu_s: vitals.cpu_s,
            rss_bytes: vitals.rss_bytes,
            max_rss_bytes: vitals.max_rss_bytes,
            memory_percent: vitals.memory_percent,
            total_ram_bytes: vitals.total_ram_bytes,
            revision: self.seen_revision,
            ready,
            done,
            share_count: held.len(),
            held,
            waiting: waiting as u64,
            sent,
            threads: threads as u32,
            stale_commands: self.stale_commands,
            bad_commands: self.bad_commands,
            failed_run: self.failed_run.clone(),
        };
        self.status.send_modify(|status| status.report.clone_from(&report));
        report
    }

    /// Whether a message is worth reading the record for.
    fn accept_command(&mut self, message: &[u8]) -> bool {
        if message.is_empty() {
            return true;
        }
        match CommandEnvelope::decode(message) {
            Ok(envelope) if self.desired_run.as_ref().is_some_and(|(epoch, _, _)| envelope.epoch < *epoch) => {
                self.stale_commands += 1;
                debug!(epoch = envelope.epoch, "a command of an earlier run was ignored");
                false
            }
            Ok(_) => true,
            Err(error) => {
                self.bad_commands += 1;
                self.rejected_messages.add();
                if let Some(messages) = self.rejected_messages.take_due(Instant::now()) {
                    warn!(%error, messages, "a message was refused");
                }
                false
            }
        }
    }

    /// Reads the record and does what it says; says whether it could.
    async fn read_record(&mut self, run: &C::Run) -> bool {
        let asked = Instant::now();
        let record = match run.read_record().await {
            Ok(record) => record,
            Err(error) => {
                debug!(%error, "the record could not be read");
                return false;
            }
        };
        self.clock.record_reading(asked, record.now_ms);
        let phase = match RunPhase::from_name(&record.state) {
            None if !record.state.is_empty() => {
                warn!("the state of the run (test:state) is none; it is ignored");
                return false;
            }
            phase => phase.unwrap_or_default(),
        };
        if record.spec.is_empty() {
            // No run, or a store that has forgotten it; whatever is made here is nobody's.
            self.seen_revision = record.revision;
            self.desired_run = None;
            self.failed_run = None;
            self.abandon_run();
            return true;
        }
        let order: RunSpec = match serde_json::from_str(&record.spec) {
            Ok(order) => order,
            Err(error) => {
                warn!(%error, "the order of the run cannot be read; it is ignored");
                return false;
            }
        };
        self.seen_revision = record.revision;
        if self.desired_run.as_ref().is_some_and(|(_, _, known)| known.run != order.run) {
            // Another run, even if a store that has forgotten everything gives it the same number.
            self.abandon_run();
            self.failed_run = None;
        }
        self.desired_run = Some((record.epoch, phase, order));
        self.apply_record(run).await;
        true
    }

    async fn apply_record(&mut self, run: &C::Run) {
        let Some((epoch, phase, order)) = self.desired_run.clone() else { return };
        if self.run_state.epoch().is_some_and(|mine| mine != epoch) {
            self.abandon_run();
        }
        self.run_hooks(run, epoch, phase, &order);
        let can_begin = self.failed_epoch() != Some(epoch) && !self.leaving;
        match (phase, &mut self.run_state) {
            (RunPhase::Preparing | RunPhase::Running, WorkerRunState::Idle) if can_begin => {
                self.prepare_run(run, epoch, order.bundle);
            }
            (RunPhase::Running, WorkerRunState::Active(job)) => {
                job.set_paused(order.paused.is_some());
                if let Some(start) = order.start_at_ms {
                    // Once, before its first user.
                    if let Some(hooks) = job.hooks.take() {
                        hooks::apply_set_up_data(run, epoch, hooks).await;
                    }
                    job.start(self.clock.instant(start), &order.profile);
                }
                self.share_leases.mark_changed();
            }
            // It is at its end here, too, or will be in a moment: by its own clock, so that nothing that is due is cut off.
            (RunPhase::Stopping, WorkerRunState::Active(job)) if order.is_complete() && job.has_known_end() => {
                self.share_leases.mark_changed();
            }
            (RunPhase::Stopping | RunPhase::Idle, WorkerRunState::Active(job)) => {
                job.stop(order.stop.as_ref().is_some_and(|stop| stop.abort));
            }
            (RunPhase::Stopping | RunPhase::Idle, WorkerRunState::Preparing { epoch, .. }) => {
                self.run_state = WorkerRunState::Done { epoch: *epoch };
            }
            _ => {}
        }
    }

    /// Does what this worker was told to do once for the whole run; it is told in the record, so it hears of it again and again.
    fn run_hooks(&mut self, run: &C::Run, epoch: u64, phase: RunPhase, order: &RunSpec) {
        let Some((_, hooks)) = self.hooks.as_ref().filter(|(of, _)| *of == epoch) else { return };
        let told = |asked: &Option<HookAssignment>| asked.as_ref().is_some_and(|asked| asked.instance == self.instance);
        if phase == RunPhase::Preparing && told(&order.set_up) && self.started_hooks.insert((epoch, HookKind::SetUp)) {
            self.background_tasks.spawn(hooks::set_up(run.clone(), epoch, hooks.clone()));
        }
        if phase == RunPhase::Stopping
            && told(&order.tear_down)
            && self.started_hooks.insert((epoch, HookKind::TearDown))
        {
            self.background_tasks.spawn(hooks::tear_down(run.clone(), epoch, hooks.clone()));
        }
    }

    /// Ends what nobody wants any more.
    fn abandon_run(&mut self) {
        if let WorkerRunState::Active(job) = &mut self.run_state {
            warn!(epoch = job.epoch, "the run is not wanted any more; its load ends");
            job.stop(true);
        }
        self.run_state = WorkerRunState::Idle;
    }

    fn failed_epoch(&self) -> Option<u64> {
        self.failed_run.as_ref().map(|failed| failed.epoch)
    }

    fn prepare_run(&mut self, run: &C::Run, epoch: u64, bundle: String) {
        let WorkerConfig { ttl, max_unshipped_deltas: most_waiting, .. } = self.config;
        let part = WorkerRunConfig {
            epoch,
            instance: self.instance,
            member: self.member_id(),
            ttl,
            max_unshipped_deltas: most_waiting,
        };
        self.run_state =
            WorkerRunState::prepare(self.driver_factory.clone(), (run.clone(), self.cell.pools()), part, bundle);
    }

    async fn handle_prepared(&mut self, made: Result<WorkerRun, String>, run: &C::Run) {
        let WorkerRunState::Preparing { epoch, .. } = self.run_state else { return };
        match made {
            Ok(job) => {
                info!(epoch, "users are built");
                self.hooks = job.hooks.clone().map(|hooks| (epoch, hooks));
                self.started_hooks.retain(|(of, _)| *of == epoch);
                self.run_state = WorkerRunState::Active(Box::new(job));
                self.share_leases.mark_changed();
            }
            Err(message) => {
                warn!(epoch, message, "this run cannot be carried out here");
                self.failed_run = Some(FailedRun { epoch, message });
                self.run_state = WorkerRunState::Idle;
            }
        }
        // At once, not at the next beat: everybody waits for it.
        self.apply_record(run).await;
        self.report_now(run).await;
    }

    /// Notices what has become of the job: it is done, or has ended before it was told to, and then others are to have its load.
    async fn check_run(&mut self, run: &C::Run) {
        if let WorkerRunState::Active(job) = &mut self.run_state
            && job.is_lost_by_store()
        {
            job.stop(true);
            // Another run may have its number by now, and nothing is to be said of that one.
            if !self.read_record(run).await {
                return;
            }
        }
        let WorkerRunState::Active(job) = &self.run_state else { return };
        let (epoch, done) = (job.epoch, job.is_done());
        if let Some(why) = job.early_end_reason().filter(|_| self.failed_epoch() != Some(epoch)) {
            warn!(epoch, why, "this worker ends its part of the run, and sits out the rest of it");
            self.failed_run = Some(FailedRun { epoch, message: why.to_owned() });
            self.report_now(run).await;
        }
        if done {
            self.finish_run(run).await;
        }
    }

    /// Everything is shipped: says so.
    async fn finish_run(&mut self, run: &C::Run) {
        let WorkerRunState::Active(mut job) = std::mem::replace(&mut self.run_state, WorkerRunState::Idle) else {
            return;
        };
        // Of a run that nobody wants any more its threads have not ended.
        job.stop(true);
        self.run_state = WorkerRunState::Done { epoch: job.epoch };
        if let Some(end) = job.load_end() {
            let note = RunNote::LoadEnd { instance: self.instance, at: end };
            if let Err(error) = run.set_notes(job.epoch, &[note.encode()]).await {
                debug!(%error, "could not say when the load was over");
            }
        }
        self.background_tasks.spawn_blocking(move || job.join());
        self.report_now(run).await;
    }

    /// Reports without waiting for the beat.
    async fn report_now(&mut self, run: &C::Run) {
        let report = self.build_report();
        if let Err(error) = run.report(&self.config.id, &report.encode(), self.config.ttl).await {
            debug!(%error, "a report was not heard");
        }
    }
}

/// Waits until this worker is to leave.
async fn stop_requested(stop: &CancellationToken, at_once: bool) {
    if !at_once {
        stop.cancelled().await;
    }
}
