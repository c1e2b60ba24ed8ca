//! The loop of a worker: reports once a beat, reads the record when it has changed, takes and gives back shares, passes deltas on.

use squall_coord::{FleetStores, MemberId, LeaseEvent, WorkerReport, ReportOutcome, RunStore, Membership, MembershipConfig, MembershipConfigError, MembershipHandle};
use squall_model::{CommandEnvelope, HookAssignment, RunSpec, RunPhase};
use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    clock::StoreClock,
    handover::Holding,
    hooks::{self, Hooks},
    job::{Host, Job},
    machine::Machine,
    place::Place,
    refusals::Refusals,
    share_units,
    stage::{Part, Progress, Stage},
};

/// How a worker behaves.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Its name in the fleet. Two live workers must not share one.
    pub id: String,
    /// Time between beats; never more than a third of `ttl`.
    pub beat: Duration,
    /// How long it lives without one.
    pub ttl: Duration,
    /// Deltas, one a second, that may wait for a store that is away before it ends its part of the run.
    pub most_waiting: usize,
}

impl WorkerConfig {
    pub fn new(id: impl Into<String>) -> WorkerConfig {
        let (beat, ttl) = (Duration::from_millis(1150), Duration::from_millis(3500));
        WorkerConfig { id: id.into(), beat, ttl, most_waiting: 120 }
    }
}

/// What a worker last said of itself, for those who look at it from outside.
#[derive(Debug, Clone, Default)]
pub struct WorkerStatus {
    pub report: WorkerReport,
    /// When the store last heard it.
    pub heard: Option<Instant>,
}

/// Why a worker cannot work.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(transparent)]
    Timings(#[from] MembershipConfigError),
    #[error("another worker that is alive is called `{0}`: give this one another --id")]
    NameTaken(String),
}

/// The load ends this much before others could take it over.
const MARGIN: Duration = Duration::from_millis(100);

/// How long a worker that leaves waits for its last deltas to be in.
const LONGEST_GOODBYE: Duration = Duration::from_secs(30);

/// One process of a fleet.
pub struct Worker<C: FleetStores, H: Host> {
    cell: C,
    host: Arc<H>,
    config: WorkerConfig,
    /// Of this life of the worker.
    instance: u64,
    clock: StoreClock,
    machine: Machine,
    seen_revision: u64,
    order: Option<(u64, RunPhase, RunSpec)>,
    stage: Stage,
    holding: Holding,
    failed: Option<(u64, String)>,
    /// What the scenario of a run does once, and what of it was begun here.
    hooks: Option<(u64, Arc<dyn Hooks>)>,
    begun: BTreeSet<(u64, &'static str)>,
    /// What goes on beside the loop, and is waited for before it leaves.
    beside: JoinSet<()>,
    stale_commands: u64,
    bad_commands: u64,
    refusals: Refusals,
    leaving: bool,
    /// Another life has this worker's name.
    name_taken: bool,
    status: watch::Sender<WorkerStatus>,
    /// Its place in the fleet was certain at the last beat.
    trusted: bool,
    /// The record has been looked at: whether a run is on is known.
    informed: bool,
    /// It has to be looked at again, whatever its revision: a store that has forgotten everything counts those anew.
    unsure: bool,
}

impl<C: FleetStores, H: Host> Worker<C, H> {
    pub fn new(cell: C, host: H, config: WorkerConfig) -> Worker<C, H> {
        // The random part of a unique name is as good a source as any.
        let name = MemberId::unique();
        let instance = u64::from_str_radix(&name.as_str()[..15], 16).unwrap_or(1);
        Worker {
            cell,
            host: Arc::new(host),
            config,
            instance,
            clock: StoreClock::default(),
            machine: Machine::new(),
            seen_revision: 0,
            order: None,
            stage: Stage::Idle,
            holding: Holding::default(),
            failed: None,
            hooks: None,
            begun: BTreeSet::new(),
            beside: JoinSet::new(),
            stale_commands: 0,
            bad_commands: 0,
            refusals: Refusals::default(),
            leaving: false,
            name_taken: false,
            status: watch::Sender::default(),
            trusted: false,
            informed: false,
            unsure: false,
        }
    }

    /// How it is, as it goes on.
    pub fn status(&self) -> watch::Receiver<WorkerStatus> {
        self.status.subscribe()
    }

    /// Works until `stop`, then drains: shares go to others, what is under way is finished, everything measured is shipped.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), WorkerError> {
        let beat = self.config.beat.min(self.config.ttl / 3);
        let seat = MembershipConfig { heartbeat_interval: beat, ttl: self.config.ttl, ..MembershipConfig::new(self.member(), share_units()) };
        // Timings that do not fit are refused before anybody hears of this worker.
        Membership::new(self.cell.workers(), seat.clone())?;
        let run = self.cell.run();
        self.claim(&run, &stop).await?;
        let mut place: Option<Place> = None;
        let mut commands = run.subscribe(&self.config.id);
        let mut beats = tokio::time::interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut goodbye = None;
        info!(worker = self.config.id, instance = format!("{:016x}", self.instance), "ready");
        loop {
            tokio::select! {
                () = stopping(&stop, self.name_taken), if !self.leaving => {
                    info!(worker = self.config.id, "leaving");
                    self.leaving = true;
                    goodbye = Some(Instant::now() + LONGEST_GOODBYE);
                }
                Some(notice) = Place::next_notice(&mut place) => self.hear(notice),
                _ = beats.tick() => self.beat(&run, place.as_ref()).await,
                Some(message) = commands.recv() => if self.wakes(&message) { self.read(&run).await; },
                Some(_) = self.beside.join_next() => {}
                progress = self.stage.progress() => match progress {
                    Progress::Prepared(made) => self.prepared(*made, &run).await,
                    Progress::Pumped => self.look_at_job(&run).await,
                },
            }
            if let Some(Place { handle, .. }) = &mut place {
                // Looked at before the notices: by then everything that was lost before it has been told.
                let until = handle.validity.expires_at().into_std();
                while let Ok(notice) = handle.events.try_recv() {
                    self.hear(notice);
                }
                if self.holding.is_due() {
                    self.change_duty(&run, handle).await;
                    if self.order.as_ref().is_some_and(|(_, phase, _)| *phase == RunPhase::Preparing) {
                        // The start waits until every share is held.
                        self.tell(&run).await;
                    }
                }
                // Who has just come and holds nothing yet is not held back: its first shares are to be taken up where they were left.
                if let Stage::Working(job) = &self.stage
                    && (!job.shares().is_empty() || until > Instant::now())
                {
                    job.trust_until(until - MARGIN);
                }
            }
            self.sit_or_leave(&mut place, &seat)?;
            if self.leaving && self.has_left(goodbye) && self.beside.is_empty() {
                place.iter().for_each(Place::leave);
                if place.as_ref().is_none_or(Place::has_ended) {
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
    async fn claim(&mut self, run: &C::Run, stop: &CancellationToken) -> Result<(), WorkerError> {
        let mut last = None;
        loop {
            let report = self.report();
            let Ok(ReportOutcome::NameTaken(heard)) = run.report(&self.config.id, &report, self.config.ttl).await else {
                // A store that does not answer is the beats' to wait for.
                return Ok(());
            };
            match last.replace(heard.clone()) {
                None => info!(worker = self.config.id, "waits until the last worker of this name is forgotten"),
                Some(before) if before != heard => return Err(WorkerError::NameTaken(self.config.id.clone())),
                Some(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(self.config.beat) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// Takes a place among those who make the load, or gives it up: shares held by somebody who makes nothing of them are load that
    /// nobody makes.
    fn sit_or_leave(&self, place: &mut Option<Place>, seat: &MembershipConfig) -> Result<(), MembershipConfigError> {
        match place {
            Some(taken) if !self.leaving && taken.has_ended() => *place = None,
            // Who leaves keeps its place until its users are done: what they have borrowed is theirs until then.
            Some(taken) if self.leaving || self.sits_out() && self.is_working() => taken.retire(),
            // Nobody comes back from retirement but by a new place.
            Some(taken) if self.sits_out() || taken.is_retiring() && !self.is_working() => taken.leave(),
            None if !self.leaving && !self.sits_out() && self.is_prepared() => {
                *place = Some(Place::take(self.cell.workers(), seat.clone())?);
            }
            _ => {}
        }
        Ok(())
    }

    fn is_working(&self) -> bool {
        matches!(self.stage, Stage::Working(_))
    }

    /// Whether it cannot carry out the run that is on, or not any more.
    fn sits_out(&self) -> bool {
        let on = self.order.as_ref().filter(|(_, phase, _)| *phase != RunPhase::Idle);
        on.is_some_and(|(epoch, _, _)| self.failed_in() == Some(*epoch))
    }

    /// Whether it could make load at once: who comes in the middle of a run builds its users first.
    fn is_prepared(&self) -> bool {
        let is_on = self.order.as_ref().is_some_and(|(_, phase, _)| *phase != RunPhase::Idle);
        self.informed && (!is_on || matches!(self.stage, Stage::Working(_) | Stage::Done { .. }))
    }

    /// The worker's name is for people; its place in the fleet belongs to this life of it.
    fn member(&self) -> MemberId {
        MemberId::new(format!("{}.{:016x}", self.config.id, self.instance))
    }

    /// Whether a worker that is leaving has nothing left to do.
    fn has_left(&mut self, goodbye: Option<Instant>) -> bool {
        if goodbye.is_some_and(|at| Instant::now() > at) {
            warn!("leaving although not everything is shipped");
            return true;
        }
        match &mut self.stage {
            Stage::Working(job) => {
                if self.holding.shares().is_empty() {
                    job.stop(false);
                }
                job.is_done()
            }
            Stage::Idle | Stage::Preparing { .. } | Stage::Done { .. } => true,
        }
    }

    fn hear(&mut self, notice: LeaseEvent) {
        self.unsure = true;
        if self.holding.hear(notice) {
            // Whoever lost a share has lost its place, and with it what its users had borrowed.
            self.stage.lapse();
        }
    }

    /// Tells the engine what it holds now, and gives back what was asked for.
    async fn change_duty(&mut self, run: &C::Run, handle: &MembershipHandle) {
        let job = match &mut self.stage {
            Stage::Working(job) => Some(&mut **job),
            Stage::Idle | Stage::Preparing { .. } | Stage::Done { .. } => None,
        };
        let profile = self.order.as_ref().map(|(_, _, order)| &order.profile);
        let back = self.holding.hand_over(job, profile, run).await;
        back.into_iter().for_each(|lease| handle.release(lease));
    }

    async fn beat(&mut self, run: &C::Run, place: Option<&Place>) {
        let asked = Instant::now();
        if let Some(messages) = self.refusals.due(asked) {
            warn!(messages, "more messages were refused");
        }
        self.trusted = place.is_some_and(|place| place.handle.validity.is_valid());
        if !self.trusted {
            self.stage.lapse();
        }
        let report = self.report();
        match run.report(&self.config.id, &report, self.config.ttl).await {
            Ok(ReportOutcome::NameTaken(_)) => {
                warn!(worker = self.config.id, "was away too long: another worker has its name now");
                self.name_taken = true;
            }
            Ok(ReportOutcome::Accepted(heard)) => {
                self.clock.learn(asked, heard.now_ms);
                self.status.send_modify(|status| status.heard = Some(asked));
                let is_another = self.order.as_ref().is_some_and(|(epoch, ..)| *epoch != heard.epoch);
                if heard.revision != self.seen_revision || is_another || std::mem::take(&mut self.unsure) {
                    self.read(run).await;
                }
                self.informed |= heard.revision == self.seen_revision;
            }
            Err(error) => debug!(%error, "a beat was not heard"),
        }
        self.look_at_job(run).await;
    }

    fn report(&mut self) -> WorkerReport {
        let vitals = self.machine.look();
        let healthy = if (self.trusted || self.sits_out()) && !self.leaving { "healthy" } else { "unhealthy" };
        let (ready, done, waiting, sent, threads) = match &self.stage {
            Stage::Working(job) => (job.epoch, 0, job.waiting(), job.sent(), job.thread_count()),
            Stage::Done { epoch } => (*epoch, *epoch, 0, 0, 0),
            Stage::Idle | Stage::Preparing { .. } => (0, 0, 0, 0, 0),
        };
        let mut report: WorkerReport = [
            ("status", healthy.to_owned()),
            ("cpu_percent", format!("{:.1}", vitals.cpu_percent)),
            ("cpu_s", format!("{:.3}", vitals.cpu_s)),
            ("rss_bytes", vitals.rss_bytes.to_string()),
            ("max_rss_bytes", vitals.max_rss_bytes.to_string()),
            ("memory_percent", format!("{:.2}", vitals.memory_percent)),
            ("total_ram_bytes", vitals.total_ram_bytes.to_string()),
            ("instance", format!("{:016x}", self.instance)),
            ("revision", self.seen_revision.to_string()),
            ("ready", ready.to_string()),
            ("done", done.to_string()),
            ("shares", self.holding.shares().len().to_string()),
            ("held", self.holding.shares().to_hex()),
            ("waiting", waiting.to_string()),
            ("sent", sent.to_string()),
            ("threads", threads.to_string()),
            ("stale_commands", self.stale_commands.to_string()),
            ("bad_commands", self.bad_commands.to_string()),
        ]
        .into_iter()
        .map(|(field, value)| (field.to_owned(), value))
        .collect();
        if let Some((epoch, message)) = &self.failed {
            report.insert("failed".into(), epoch.to_string());
            report.insert("message".into(), message.chars().take(2000).collect());
        }
        self.status.send_modify(|status| status.report.clone_from(&report));
        report
    }

    /// Whether a message is worth reading the record for.
    fn wakes(&mut self, message: &[u8]) -> bool {
        if message.is_empty() {
            return true;
        }
        match CommandEnvelope::decode(message) {
            Ok(envelope) if self.order.as_ref().is_some_and(|(epoch, _, _)| envelope.epoch < *epoch) => {
                self.stale_commands += 1;
                debug!(epoch = envelope.epoch, "a command of an earlier run was ignored");
                false
            }
            Ok(_) => true,
            Err(error) => {
                self.bad_commands += 1;
                self.refusals.add();
                if let Some(messages) = self.refusals.due(Instant::now()) {
                    warn!(%error, messages, "a message was refused");
                }
                false
            }
        }
    }

    /// Reads the record and does what it says; says whether it could.
    async fn read(&mut self, run: &C::Run) -> bool {
        let asked = Instant::now();
        let record = match run.read_record().await {
            Ok(record) => record,
            Err(error) => {
                debug!(%error, "the record could not be read");
                return false;
            }
        };
        self.clock.learn(asked, record.now_ms);
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
            self.order = None;
            self.failed = None;
            self.give_up();
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
        if self.order.as_ref().is_some_and(|(_, _, known)| known.run != order.run) {
            // Another run, even if a store that has forgotten everything gives it the same number.
            self.give_up();
            self.failed = None;
        }
        self.order = Some((record.epoch, phase, order));
        self.obey(run).await;
        true
    }

    async fn obey(&mut self, run: &C::Run) {
        let Some((epoch, phase, order)) = self.order.clone() else { return };
        if self.stage.epoch().is_some_and(|mine| mine != epoch) {
            self.give_up();
        }
        self.run_hooks(run, epoch, phase, &order);
        let can_begin = self.failed_in() != Some(epoch) && !self.leaving;
        match (phase, &mut self.stage) {
            (RunPhase::Preparing | RunPhase::Running, Stage::Idle) if can_begin => {
                self.prepare(run, epoch, order.bundle);
            }
            (RunPhase::Running, Stage::Working(job)) => {
                job.pause(order.paused.is_some());
                if let Some(start) = order.start_at_ms {
                    // Once, before its first user.
                    if let Some(hooks) = job.hooks.take() {
                        hooks::share(run, epoch, hooks).await;
                    }
                    job.start(self.clock.instant(start), &order.profile);
                }
                self.holding.look_again();
            }
            // It is at its end here, too, or will be in a moment: by its own clock, so that nothing that is due is cut off.
            (RunPhase::Stopping, Stage::Working(job)) if order.is_complete() && job.ends_by_itself() => {
                self.holding.look_again();
            }
            (RunPhase::Stopping | RunPhase::Idle, Stage::Working(job)) => {
                job.stop(order.stop.as_ref().is_some_and(|stop| stop.abort));
            }
            (RunPhase::Stopping | RunPhase::Idle, Stage::Preparing { epoch, .. }) => {
                self.stage = Stage::Done { epoch: *epoch };
            }
            _ => {}
        }
    }

    /// Does what this worker was told to do once for the whole run; it is told in the record, so it hears of it again and again.
    fn run_hooks(&mut self, run: &C::Run, epoch: u64, phase: RunPhase, order: &RunSpec) {
        let Some((_, hooks)) = self.hooks.as_ref().filter(|(of, _)| *of == epoch) else { return };
        let told = |asked: &Option<HookAssignment>| asked.as_ref().is_some_and(|asked| asked.instance == self.instance);
        if phase == RunPhase::Preparing && told(&order.set_up) && self.begun.insert((epoch, hooks::SET_UP)) {
            self.beside.spawn(hooks::set_up(run.clone(), epoch, hooks.clone()));
        }
        if phase == RunPhase::Stopping && told(&order.tear_down) && self.begun.insert((epoch, hooks::TEAR_DOWN)) {
            self.beside.spawn(hooks::tear_down(run.clone(), epoch, hooks.clone()));
        }
    }

    /// Ends what nobody wants any more.
    fn give_up(&mut self) {
        if let Stage::Working(job) = &mut self.stage {
            warn!(epoch = job.epoch, "the run is not wanted any more; its load ends");
            job.stop(true);
        }
        self.stage = Stage::Idle;
    }

    fn failed_in(&self) -> Option<u64> {
        self.failed.as_ref().map(|(epoch, _)| *epoch)
    }

    fn prepare(&mut self, run: &C::Run, epoch: u64, bundle: String) {
        let WorkerConfig { ttl, most_waiting, .. } = self.config;
        let part = Part { epoch, instance: self.instance, member: self.member(), ttl, most_waiting };
        self.stage = Stage::prepare(self.host.clone(), (run.clone(), self.cell.pools()), part, bundle);
    }

    async fn prepared(&mut self, made: Result<Job, String>, run: &C::Run) {
        let Stage::Preparing { epoch, .. } = self.stage else { return };
        match made {
            Ok(job) => {
                info!(epoch, "users are built");
                self.hooks = job.hooks.clone().map(|hooks| (epoch, hooks));
                self.begun.retain(|(of, _)| *of == epoch);
                self.stage = Stage::Working(Box::new(job));
                self.holding.look_again();
            }
            Err(message) => {
                warn!(epoch, message, "this run cannot be carried out here");
                self.failed = Some((epoch, message));
                self.stage = Stage::Idle;
            }
        }
        // At once, not at the next beat: everybody waits for it.
        self.obey(run).await;
        self.tell(run).await;
    }

    /// Notices what has become of the job: it is done, or has ended before it was told to, and then others are to have its load.
    async fn look_at_job(&mut self, run: &C::Run) {
        if let Stage::Working(job) = &mut self.stage
            && job.is_forgotten()
        {
            job.stop(true);
            // Another run may have its number by now, and nothing is to be said of that one.
            if !self.read(run).await {
                return;
            }
        }
        let Stage::Working(job) = &self.stage else { return };
        let (epoch, done) = (job.epoch, job.is_done());
        if let Some(why) = job.broken_off().filter(|_| self.failed_in() != Some(epoch)) {
            warn!(epoch, why, "this worker ends its part of the run, and sits out the rest of it");
            self.failed = Some((epoch, why.to_owned()));
            self.tell(run).await;
        }
        if done {
            self.finish(run).await;
        }
    }

    /// Everything is shipped: says so.
    async fn finish(&mut self, run: &C::Run) {
        let Stage::Working(mut job) = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        // Of a run that nobody wants any more its threads have not ended.
        job.stop(true);
        self.stage = Stage::Done { epoch: job.epoch };
        if let Some(end) = job.load_end() {
            let note = (format!("ended:{:016x}", self.instance), end.as_nanos().to_string());
            if let Err(error) = run.set_notes(job.epoch, &[note]).await {
                debug!(%error, "could not say when the load was over");
            }
        }
        self.beside.spawn_blocking(move || job.join());
        self.tell(run).await;
    }

    /// Reports without waiting for the beat.
    async fn tell(&mut self, run: &C::Run) {
        let report = self.report();
        if let Err(error) = run.report(&self.config.id, &report, self.config.ttl).await {
            debug!(%error, "a report was not heard");
        }
    }
}

/// Waits until this worker is to leave.
async fn stopping(stop: &CancellationToken, at_once: bool) {
    if !at_once {
        stop.cancelled().await;
    }
}
