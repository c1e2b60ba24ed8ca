//! The main loop of a worker: writes the worker report, follows the run record, and passes shares
//! to the engine. It decides nothing about the run. `squall worker` and tests start it.

mod run_following;

use squall_coord::{
    FleetStores, LeaseEvent, MemberId, Membership, MembershipConfig, MembershipConfigError, MembershipHandle,
    ReportOutcome, RunStore, unique_id,
};
use squall_model::{
    CommandEnvelope, CommandType, RunPhase,
    protocol::{GivenUpRun, ProtocolVersion, WorkerHealth, WorkerReport, format_instance},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    active_users::ActiveUsers,
    desired_run::{DesiredRun, RecordFreshness},
    hooks::RunHooks,
    lifecycle::{LeaveReason, Lifecycle},
    membership_policy::{MembershipAction, MembershipNeed, MembershipState},
    membership_task::MembershipTask,
    process_monitor::ProcessMonitor,
    rejected_message_counter::RejectedMessageCounter,
    run_builder::BuildRunError,
    share_leases::ShareLeases,
    share_units,
    store_clock::StoreClock,
    vikhry_run::VikhryRun,
    worker_config::{WorkerConfig, WorkerError, WorkerStatus},
    worker_load_phase::StopMode,
    worker_run::{DriverFactory, WorkerRun},
    worker_run_state::WorkerRunState,
};
use run_following::{RunProgress, next_progress};

/// The load ends this long before other workers could take the shares over.
const MEMBERSHIP_SAFETY_MARGIN: Duration = Duration::from_millis(100);

/// One process of a fleet.
pub struct Worker<C: FleetStores, F: DriverFactory> {
    stores: C,
    driver_factory: Arc<F>,
    config: WorkerConfig,
    /// Identifies this instance of the worker.
    instance: u64,
    lifecycle: Lifecycle,
    /// Epoch and revision of the record that `desired_run` was read from.
    seen_epoch: u64,
    seen_revision: u64,
    record_freshness: RecordFreshness,
    desired_run: Option<DesiredRun>,
    /// The latest test of vikhry's orchestrator.
    vikhry_run: Option<VikhryRun>,
    /// The epoch of the latest start command, if the worker has no scenario.
    start_without_scenario: u64,
    /// The run that is on, if this worker cannot take part in it: it has another protocol version, or
    /// is a test of vikhry's orchestrator and the worker has no scenario. `desired_run` is then `None`.
    refused_run: Option<GivenUpRun>,
    run_state: WorkerRunState<Box<WorkerRun>>,
    /// The build of a run's users, while one is being built.
    build_tasks: JoinSet<Result<WorkerRun, BuildRunError>>,
    /// The hooks of the run whose users were built last. They outlive its `WorkerRun`, because the
    /// tear-down comes after it.
    hooks: Option<RunHooks>,
    share_leases: ShareLeases,
    /// The users of the last run that the store shows as active.
    active_users: Option<ActiveUsers>,
    /// Whether the membership was valid when the worker last reported on time.
    membership_valid: bool,
    /// Tasks that the worker waits for before it leaves.
    background_tasks: JoinSet<()>,
    clock: StoreClock,
    process_monitor: ProcessMonitor,
    stale_commands: u64,
    bad_commands: u64,
    rejected_messages: RejectedMessageCounter,
    status: watch::Sender<WorkerStatus>,
}

impl<C: FleetStores, F: DriverFactory> Worker<C, F> {
    pub fn new(stores: C, driver_factory: F, config: WorkerConfig) -> Worker<C, F> {
        // A unique id is random hexadecimal digits.
        let instance = u64::from_str_radix(&unique_id()[..15], 16).unwrap_or(1);
        Worker {
            stores,
            driver_factory: Arc::new(driver_factory),
            config,
            instance,
            lifecycle: Lifecycle::Serving,
            seen_epoch: 0,
            seen_revision: 0,
            record_freshness: RecordFreshness::Unread,
            desired_run: None,
            vikhry_run: None,
            start_without_scenario: 0,
            refused_run: None,
            run_state: WorkerRunState::Idle,
            build_tasks: JoinSet::new(),
            hooks: None,
            share_leases: ShareLeases::default(),
            active_users: None,
            membership_valid: false,
            background_tasks: JoinSet::new(),
            clock: StoreClock::default(),
            process_monitor: ProcessMonitor::new(),
            stale_commands: 0,
            bad_commands: 0,
            rejected_messages: RejectedMessageCounter::default(),
            status: watch::Sender::default(),
        }
    }

    /// The worker's status, updated with every report.
    pub fn status(&self) -> watch::Receiver<WorkerStatus> {
        self.status.subscribe()
    }

    /// Works until `stop`, then drains: other workers take the shares, started iterations finish,
    /// and the store gets every delta.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), WorkerError> {
        let heartbeat_interval = self.config.heartbeat_interval.min(self.config.ttl / 3);
        let membership_config = MembershipConfig {
            heartbeat_interval,
            ttl: self.config.ttl,
            ..MembershipConfig::new(self.member_id(), share_units())
        };
        // Refuses invalid timings before the fleet sees this worker.
        Membership::new(self.stores.workers(), membership_config.clone())?;
        let run_store = self.stores.run();
        self.claim_name(&run_store, &stop).await?;
        let mut membership: Option<MembershipTask> = None;
        let mut commands = run_store.subscribe(&self.config.id);
        let mut reports = tokio::time::interval(heartbeat_interval);
        reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
        info!(worker = self.config.id, instance = format_instance(self.instance), "the worker is ready");
        loop {
            tokio::select! {
                () = stop.cancelled(), if !self.lifecycle.is_leaving() => self.leave(LeaveReason::Stopped),
                Some(event) = MembershipTask::next_event(&mut membership) => self.handle_lease_event(event),
                _ = reports.tick() => self.report_and_follow_record(&run_store, membership.as_ref()).await,
                Some(message) = commands.recv() => if self.accept_command(&message) { self.read_record(&run_store).await; },
                Some(_) = self.background_tasks.join_next() => {}
                progress = next_progress(&mut self.build_tasks, &mut self.run_state) => match progress {
                    RunProgress::BuildEnded(result) => self.handle_build_end(*result, &run_store).await,
                    RunProgress::DeltaForwarded => self.check_run(&run_store).await,
                },
            }
            if let Some(MembershipTask { handle, .. }) = &mut membership {
                self.apply_membership_changes(&run_store, handle).await;
            }
            self.update_membership(&mut membership, &membership_config)?;
            if self.is_drained() && self.background_tasks.is_empty() {
                membership.iter().for_each(MembershipTask::end);
                if membership.as_ref().is_none_or(MembershipTask::is_finished) {
                    break;
                }
            }
        }
        if self.lifecycle.has_lost_its_name() {
            return Err(WorkerError::NameTaken(self.config.id));
        }
        if let Err(error) = run_store.remove_worker(&self.config.id).await {
            debug!(%error, "the worker could not remove its report; the report will expire");
        }
        Ok(())
    }

    /// Claims the worker's name. Waits until the report of the last worker of this name expires,
    /// and fails if that worker reports again.
    async fn claim_name(&mut self, run_store: &C::Run, stop: &CancellationToken) -> Result<(), WorkerError> {
        let mut last = None;
        loop {
            let report = self.build_report().encode();
            let Ok(ReportOutcome::NameTaken(reported_at)) =
                run_store.report(&self.config.id, &report, self.config.ttl).await
            else {
                // If the store is unreachable, the next reports retry.
                return Ok(());
            };
            match last.replace(reported_at.clone()) {
                None => info!(worker = self.config.id, "the worker waits until the last report of its name expires"),
                Some(before) if before != reported_at => return Err(WorkerError::NameTaken(self.config.id.clone())),
                Some(_) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(self.config.heartbeat_interval) => {}
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    fn leave(&mut self, reason: LeaveReason) {
        if !self.lifecycle.is_leaving() {
            info!(worker = self.config.id, ?reason, "the worker is leaving");
        }
        self.lifecycle = self.lifecycle.step(reason, Instant::now());
    }

    /// Passes changed shares to the engine and extends the membership deadline of the worker's run.
    async fn apply_membership_changes(&mut self, run_store: &C::Run, handle: &mut MembershipHandle) {
        // Read before the events: every share that was lost before this deadline then has its event
        // in the queue.
        let expires_at = handle.validity.expires_at().into_std();
        while let Ok(event) = handle.events.try_recv() {
            self.handle_lease_event(event);
        }
        if self.share_leases.has_changes() {
            self.pass_shares_to_engine(run_store, handle).await;
            if self.desired_run.as_ref().is_some_and(|desired| desired.phase == RunPhase::Preparing) {
                // The leader waits until every share is held.
                self.report_now(run_store).await;
            }
        }
        // Without shares, an expired membership sets no deadline: it would fence the engine, and an
        // engine that is unfenced skips the starts since the last holder.
        if let Some(worker_run) = self.run_state.worker_run()
            && (!worker_run.shares().is_empty() || expires_at > Instant::now())
        {
            worker_run.set_membership_deadline(expires_at - MEMBERSHIP_SAFETY_MARGIN);
        }
    }

    /// Joins the members, releases shares or ends the membership, as [`MembershipState::action`]
    /// decides.
    fn update_membership(
        &self,
        membership: &mut Option<MembershipTask>,
        config: &MembershipConfig,
    ) -> Result<(), MembershipConfigError> {
        let state = membership.as_ref().map_or(MembershipState::Absent, MembershipTask::state);
        match state.action(self.membership_need()) {
            Some(MembershipAction::Join) => {
                *membership = Some(MembershipTask::spawn(self.stores.workers(), config.clone())?);
            }
            Some(MembershipAction::ReleaseShares) => membership.iter().for_each(MembershipTask::release_shares),
            Some(MembershipAction::End) => membership.iter().for_each(MembershipTask::end),
            Some(MembershipAction::Forget) => *membership = None,
            None => {}
        }
        Ok(())
    }

    fn membership_need(&self) -> MembershipNeed {
        let run_is_on = self.desired_run.as_ref().is_some_and(DesiredRun::is_on);
        let has_worker_run = self.run_state.worker_run().is_some();
        if self.lifecycle.is_leaving() {
            MembershipNeed::LeaveFleet
        } else if self.has_given_up_run() {
            if has_worker_run { MembershipNeed::KeepResources } else { MembershipNeed::EndMembership }
        } else if self.record_freshness == RecordFreshness::Unread {
            MembershipNeed::Wait
        } else if has_worker_run {
            MembershipNeed::ServeUsers
        } else if !run_is_on || self.run_state.is_prepared() {
            MembershipNeed::Serve
        } else {
            MembershipNeed::Wait
        }
    }

    /// Whether the worker has given up the run that is on.
    fn has_given_up_run(&self) -> bool {
        let desired = self.desired_run.as_ref().filter(|desired| desired.is_on());
        let given_up = desired.zip(self.run_state.given_up_run());
        given_up.is_some_and(|(desired, given_up)| desired.epoch == given_up.epoch) || self.refused_run.is_some()
    }

    /// A worker's name is for people; its membership belongs to this instance.
    fn member_id(&self) -> MemberId {
        MemberId::new(format!("{}.{}", self.config.id, format_instance(self.instance)))
    }

    /// Whether the worker is leaving and has nothing left to do, or its time is up.
    fn is_drained(&mut self) -> bool {
        let Lifecycle::Leaving { deadline, .. } = self.lifecycle else { return false };
        if Instant::now() > deadline {
            warn!("the worker leaves before the store has all its deltas");
            return true;
        }
        let holds_shares = !self.share_leases.shares().is_empty();
        self.run_state.worker_run_mut().is_none_or(|worker_run| {
            if !holds_shares {
                worker_run.stop(StopMode::Drain);
            }
            worker_run.is_done()
        })
    }

    fn handle_lease_event(&mut self, event: LeaseEvent) {
        if self.record_freshness == RecordFreshness::Current {
            self.record_freshness = RecordFreshness::Stale;
        }
        if self.share_leases.apply_event(event) {
            // A worker that lost a share has lost its membership, and with it the resources of its
            // users.
            self.invalidate_resources();
        }
    }

    /// Marks the resources that the users lease as possibly reassigned.
    fn invalidate_resources(&self) {
        if let Some(worker_run) = self.run_state.worker_run() {
            worker_run.invalidate_resources();
        }
    }

    /// Passes the current shares to the engine, and releases those whose return was requested.
    async fn pass_shares_to_engine(&mut self, run_store: &C::Run, handle: &MembershipHandle) {
        let worker_run = self.run_state.worker_run_mut().map(|worker_run| &mut **worker_run);
        let profile = self.desired_run.as_ref().map(|desired| &desired.spec.profile);
        let released = self.share_leases.pass_to_engine(worker_run, profile, run_store).await;
        released.into_iter().for_each(|lease| handle.release(lease));
    }

    /// Writes the worker report, and reads the record if the reply says that it has changed. The
    /// membership sends heartbeats of its own.
    async fn report_and_follow_record(&mut self, run_store: &C::Run, membership: Option<&MembershipTask>) {
        let sent_at = Instant::now();
        if let Some(messages) = self.rejected_messages.take_due(sent_at) {
            warn!(messages, "the worker refused more messages");
        }
        self.membership_valid = membership.is_some_and(|membership| membership.handle.validity.is_valid());
        if !self.membership_valid {
            self.invalidate_resources();
        }
        let report = self.build_report().encode();
        match run_store.report(&self.config.id, &report, self.config.ttl).await {
            Ok(ReportOutcome::NameTaken(_)) => {
                warn!(
                    worker = self.config.id,
                    "another worker took this worker's name while the store was unreachable"
                );
                self.leave(LeaveReason::NameTaken);
            }
            Ok(ReportOutcome::Accepted(receipt)) => {
                self.clock.record_reading(sent_at, receipt.now_ms);
                self.status.send_modify(|status| status.last_acknowledged = Some(sent_at));
                let known_epoch = self.desired_run.as_ref().map(|desired| desired.epoch);
                let known_epoch = known_epoch.or(self.refused_run.as_ref().map(|refused| refused.epoch));
                let is_other_run = known_epoch.is_some_and(|epoch| epoch != receipt.epoch);
                let is_stale = self.record_freshness == RecordFreshness::Stale;
                // vikhry's orchestrator does not count its changes.
                let may_have_changed = is_stale || self.share_leases.holds_all();
                if receipt.revision != self.seen_revision || is_other_run || may_have_changed {
                    self.read_record(run_store).await;
                }
                if receipt.revision == self.seen_revision {
                    self.record_freshness = RecordFreshness::Current;
                }
            }
            Err(error) => debug!(%error, "the store did not accept a report"),
        }
        self.show_active_users(run_store).await;
        self.check_run(run_store).await;
    }

    fn build_report(&mut self) -> WorkerReport {
        let process = self.process_monitor.sample();
        let is_connected = (self.membership_valid || self.has_given_up_run()) && !self.lifecycle.is_leaving();
        let epoch = self.run_state.epoch().filter(|_| self.run_state.is_prepared()).unwrap_or(0);
        let worker_run = self.run_state.worker_run();
        let held = self.share_leases.shares();
        let report = WorkerReport {
            protocol: ProtocolVersion::CURRENT,
            health: if is_connected { WorkerHealth::Healthy } else { WorkerHealth::Unhealthy },
            instance: self.instance,
            cpu_percent: process.cpu_percent,
            cpu_s: process.cpu_s,
            rss_bytes: process.rss_bytes,
            max_rss_bytes: process.max_rss_bytes,
            memory_percent: process.memory_percent,
            total_ram_bytes: process.total_ram_bytes,
            revision: self.seen_revision,
            ready: epoch,
            done: if worker_run.is_some() { 0 } else { epoch },
            share_count: held.len(),
            held,
            waiting: worker_run.map_or(0, |worker_run| worker_run.unshipped_deltas() as u64),
            sent: worker_run.map_or(0, |worker_run| worker_run.sent()),
            threads: worker_run.map_or(0, |worker_run| worker_run.thread_count() as u32),
            stale_commands: self.stale_commands,
            bad_commands: self.bad_commands,
            takes_user_ids: true,
            given_up_run: self.refused_run.clone().or_else(|| self.run_state.given_up_run()),
        };
        self.status.send_modify(|status| status.report.clone_from(&report));
        report
    }

    /// Whether the worker has to read the record because of `message`.
    fn accept_command(&mut self, message: &[u8]) -> bool {
        if message.is_empty() {
            return true;
        }
        match CommandEnvelope::decode(message) {
            // It is about this worker and not about a run, so an old epoch does not matter.
            Ok(command) if command.kind == CommandType::Drain => {
                self.leave(LeaveReason::Stopped);
                false
            }
            Ok(command) if self.desired_run.as_ref().is_some_and(|desired| command.epoch < desired.epoch) => {
                self.stale_commands += 1;
                let known = self.desired_run.as_ref().map_or(0, |desired| desired.epoch);
                match command.kind {
                    CommandType::StartTest => warn!(
                        epoch = command.epoch,
                        known,
                        "the worker ignored the start of an earlier test; if the store has lost its data, start again"
                    ),
                    _ => debug!(epoch = command.epoch, known, "the worker ignored a command of an earlier run"),
                }
                false
            }
            Ok(command) => {
                self.follow_vikhry_command(&command);
                true
            }
            Err(error) => {
                self.bad_commands += 1;
                self.rejected_messages.add();
                if let Some(messages) = self.rejected_messages.take_due(Instant::now()) {
                    warn!(%error, messages, "the worker refused a message");
                }
                false
            }
        }
    }

    /// Applies a command to the test of vikhry's orchestrator, if the worker has a scenario for one.
    fn follow_vikhry_command(&mut self, command: &CommandEnvelope) {
        let Some(scenario) = &self.config.scenario else {
            if command.kind == CommandType::StartTest {
                self.start_without_scenario = command.epoch;
            }
            return;
        };
        let current = self.vikhry_run.as_ref().map_or(0, VikhryRun::epoch);
        if command.kind == CommandType::StartTest && command.epoch > current {
            self.vikhry_run = Some(VikhryRun::start(command, scenario));
        }
        if let Some(run) = self.vikhry_run.as_mut().filter(|run| run.epoch() == command.epoch) {
            for id in run.apply(command) {
                warn!(id, "the worker cannot run a user whose id is not a whole number");
            }
        }
    }

    /// Shows the users that have started or left since the last call.
    async fn show_active_users(&mut self, run_store: &C::Run) {
        if let Some(users) = self.active_users.as_mut().filter(|users| users.epoch() != self.seen_epoch) {
            // The store may still show users of the earlier run, whose load this worker has ended.
            users.end_all(self.seen_epoch);
        }
        if let Some(worker_run) = self.run_state.worker_run() {
            let (epoch, changes) = (worker_run.epoch, worker_run.take_user_changes());
            let changes = match self.vikhry_run.as_mut().filter(|_| self.share_leases.holds_all()) {
                Some(vikhry_run) => vikhry_run.with_ids(changes),
                None => changes,
            };
            let shown = self.active_users.take().filter(|users| users.epoch() == epoch);
            self.active_users.insert(shown.unwrap_or_else(|| ActiveUsers::new(epoch))).add_changes(changes);
        }
        if let Some(users) = self.active_users.as_mut().filter(|users| !users.is_written()) {
            users.write(run_store, &self.config.id).await;
        }
    }

    /// Reports without waiting for the next regular report.
    async fn report_now(&mut self, run_store: &C::Run) {
        let report = self.build_report().encode();
        if let Err(error) = run_store.report(&self.config.id, &report, self.config.ttl).await {
            debug!(%error, "the store did not accept a report");
        }
    }
}
