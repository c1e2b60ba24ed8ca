//! How a worker follows the run record: it feeds events to the state of its part in the run and
//! performs the effects. It decides no transition: `worker_run_state` does. The worker's main loop
//! calls it.

use squall_coord::{FleetStores, RunRecord, RunStore};
use squall_model::{
    HookAssignment, RunPhase, error_chain,
    protocol::{GivenUpRun, RunNote},
};
use std::time::Instant;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::Worker;
use crate::{
    desired_run::{DesiredRun, RecordError},
    hooks::{self, HookKind, RunHooks},
    run_builder::{BuildRunError, WorkerRunConfig, build_run},
    vikhry_run::VikhryRun,
    worker_load_phase::StopMode,
    worker_run::{DriverFactory, WorkerRun},
    worker_run_state::{RunEffect, RunEvent, WorkerRunState},
};

/// Why a worker takes no part in a test of vikhry's orchestrator.
const NO_SCENARIO: &str = "vikhry's orchestrator stores no scenario and this worker has none: \
                           start the worker with --scenario FILE";

/// What a worker's part in a run did by itself.
pub(super) enum RunProgress {
    BuildEnded(Box<Result<WorkerRun, BuildRunError>>),
    DeltaForwarded,
}

impl<C: FleetStores, F: DriverFactory> Worker<C, F> {
    /// Reads the record and follows it; `false` if the worker could not.
    pub(super) async fn read_record(&mut self, run_store: &C::Run) -> bool {
        let sent_at = Instant::now();
        let record = match run_store.read_record().await {
            Ok(record) => record,
            Err(error) => {
                debug!(%error, "the worker could not read the run record");
                return false;
            }
        };
        self.clock.record_reading(sent_at, record.now_ms);
        let desired = match DesiredRun::parse(&record) {
            Ok(desired) => desired,
            Err(RecordError::OtherProtocol(error)) => {
                (self.seen_epoch, self.seen_revision) = (record.epoch, record.revision);
                self.refuse_run(run_store, GivenUpRun { epoch: record.epoch, message: error.to_string() }).await;
                return true;
            }
            Err(error) => {
                warn!(error = error_chain(&error), "the worker ignores an invalid run record");
                return false;
            }
        };
        (self.seen_epoch, self.seen_revision) = (record.epoch, record.revision);
        if let Some(run) = self.vikhry_run.take_if(|run| record.epoch < run.epoch()) {
            warn!(
                known = run.epoch(),
                found = record.epoch,
                "the store has lost its data: the epoch of vikhry's tests went back; the worker takes the next start"
            );
        }
        if desired.is_none() && self.is_start_without_scenario(&record) {
            let refused = GivenUpRun { epoch: record.epoch, message: NO_SCENARIO.to_owned() };
            self.refuse_run(run_store, refused).await;
            return true;
        }
        if desired.as_ref().is_some_and(|desired| desired.spec.stop.is_none()) {
            // The start command was of Squall's orchestrator.
            self.vikhry_run = None;
        }
        // The specification of an earlier run stays in the record when a test of vikhry's ends.
        let is_vikhry = self.vikhry_run.as_ref().is_some_and(|run| desired.is_none() || run.has_begun_in(record.epoch));
        let desired = if is_vikhry { self.desired_vikhry_run(run_store, &record).await } else { desired };
        // vikhry's orchestrator assigns users, not shares.
        self.share_leases.set_holds_all(is_vikhry);
        // The run id decides, not the epoch: a store that lost its data may give another run the
        // same epoch.
        let run_id = |run: &Option<DesiredRun>| run.as_ref().map(|run| run.spec.run_id.clone());
        let is_withdrawn =
            desired.is_none() || self.desired_run.is_some() && run_id(&self.desired_run) != run_id(&desired);
        (self.desired_run, self.refused_run) = (desired, None);
        if is_withdrawn {
            self.apply_event(run_store, RunEvent::Withdrawn).await;
        }
        self.apply_record(run_store).await;
        true
    }

    /// Whether vikhry's orchestrator has started the test of `record`, for which the worker has no
    /// scenario.
    fn is_start_without_scenario(&self, record: &RunRecord) -> bool {
        let is_on = [RunPhase::Preparing, RunPhase::Running].iter().any(|phase| phase.name() == record.state);
        is_on && record.epoch > 0 && record.epoch == self.start_without_scenario
    }

    /// The run that vikhry's orchestrator wants, if it has given this worker a test.
    async fn desired_vikhry_run(&mut self, run_store: &C::Run, record: &RunRecord) -> Option<DesiredRun> {
        let run = self.vikhry_run.as_mut().filter(|run| run.epoch() == record.epoch)?;
        if let Some(bundle) = run.unstored_bundle() {
            let bytes = serde_json::to_vec(bundle).expect("a bundle is text and numbers");
            let name = run_store.put_bundle(&bytes).await.ok()?;
            run.begin(name, record);
        }
        run.desired(record)
    }

    /// Takes no part in a run that this worker cannot carry out: gives the membership up, so that the
    /// shares go to other workers, and reports why.
    async fn refuse_run(&mut self, run_store: &C::Run, refused: GivenUpRun) {
        let is_new = self.refused_run.as_ref() != Some(&refused);
        if is_new {
            warn!(epoch = refused.epoch, reason = refused.message, "the worker takes no part in the run");
        }
        (self.desired_run, self.refused_run) = (None, Some(refused));
        self.apply_event(run_store, RunEvent::Withdrawn).await;
        if is_new {
            self.report_now(run_store).await;
        }
    }

    /// Derives the worker's instruction from the record and applies it.
    async fn apply_record(&mut self, run_store: &C::Run) {
        let Some(desired) = self.desired_run.clone() else { return };
        self.run_hooks(run_store, &desired);
        let ends_by_schedule = self.run_state.worker_run().is_some_and(|worker_run| worker_run.ends_by_schedule());
        let instruction = desired.instruction(ends_by_schedule);
        let instruction = if self.lifecycle.is_leaving() { instruction.while_leaving() } else { instruction };
        self.apply_event(run_store, RunEvent::RecordRead { epoch: desired.epoch, instruction }).await;
    }

    /// Steps the state of the run and performs the effects.
    async fn apply_event(&mut self, run_store: &C::Run, event: RunEvent<Box<WorkerRun>>) {
        let state = std::mem::replace(&mut self.run_state, WorkerRunState::Idle);
        let (next, effects) = state.step(event);
        self.run_state = next;
        for effect in effects {
            self.perform(run_store, effect).await;
        }
    }

    async fn perform(&mut self, run_store: &C::Run, effect: RunEffect<Box<WorkerRun>>) {
        match effect {
            RunEffect::Build { epoch } => self.build(run_store, epoch),
            RunEffect::CancelBuild => self.build_tasks = JoinSet::new(),
            RunEffect::ApplySpec => self.apply_spec(run_store).await,
            RunEffect::PassSharesToEngine => self.share_leases.mark_changed(),
            RunEffect::StopRun => self.stop_worker_run(),
            RunEffect::ReportEarlyEnd => {
                if let Some(given_up) = self.run_state.given_up_run() {
                    let (epoch, reason) = (given_up.epoch, given_up.message);
                    warn!(epoch, reason, "the worker ends its part of the run early; other workers take its shares");
                }
                self.report_now(run_store).await;
            }
            RunEffect::Abandon(mut worker_run) => {
                warn!(epoch = worker_run.epoch, "the run was withdrawn; the worker ends its load");
                worker_run.stop(StopMode::Abort);
            }
            RunEffect::Finish(worker_run) => self.finish(worker_run, run_store).await,
        }
    }

    fn build(&mut self, run_store: &C::Run, epoch: u64) {
        let Some(bundle) = self.desired_run.as_ref().map(|desired| desired.spec.bundle.clone()) else { return };
        let config = WorkerRunConfig {
            epoch,
            instance: self.instance,
            member: self.member_id(),
            ttl: self.config.ttl,
            max_unshipped_deltas: self.config.max_unshipped_deltas,
            user_ids: self.vikhry_run.as_ref().filter(|_| self.share_leases.holds_all()).map(VikhryRun::user_ids),
            run_probes: self.config.run_probes || !self.share_leases.holds_all(),
            writes_events_as: self.share_leases.holds_all().then(|| self.config.id.clone()),
        };
        // In a task of its own: reading a scenario may take long, and reports must not wait for it.
        self.build_tasks = JoinSet::new();
        let stores = (run_store.clone(), self.stores.pools());
        self.build_tasks.spawn(build_run(self.driver_factory.clone(), stores, config, bundle));
    }

    /// Applies pause, start and profile of the run spec to the worker's run.
    async fn apply_spec(&mut self, run_store: &C::Run) {
        let (Some(desired), Some(worker_run)) = (&self.desired_run, self.run_state.worker_run_mut()) else { return };
        worker_run.set_paused(desired.spec.paused.is_some());
        if let Some(start_at_ms) = desired.spec.start_at_ms {
            if let Some(hooks) = worker_run.hooks.as_ref().filter(|_| !worker_run.is_started()) {
                hooks::apply_set_up_data(run_store, desired.epoch, hooks.clone()).await;
            }
            worker_run.start(self.clock.instant(start_at_ms), &desired.spec.profile);
        }
        self.share_leases.mark_changed();
    }

    fn stop_worker_run(&mut self) {
        let stop = self.desired_run.as_ref().and_then(|desired| desired.spec.stop.as_ref());
        let mode = if stop.is_some_and(|stop| stop.abort) { StopMode::Abort } else { StopMode::Drain };
        if let Some(worker_run) = self.run_state.worker_run_mut() {
            worker_run.stop(mode);
        }
    }

    /// Runs the hooks that the record assigns to this worker, each once. The record repeats the
    /// assignment at every reading.
    fn run_hooks(&mut self, run_store: &C::Run, desired: &DesiredRun) {
        let Some(run_hooks) = self.hooks.as_mut().filter(|hooks| hooks.epoch == desired.epoch) else { return };
        let is_mine = |assigned: &Option<HookAssignment>| {
            assigned.as_ref().is_some_and(|assigned| assigned.instance == self.instance)
        };
        if desired.phase == RunPhase::Preparing
            && is_mine(&desired.spec.set_up)
            && run_hooks.started.insert(HookKind::SetUp)
        {
            self.background_tasks.spawn(hooks::set_up(run_store.clone(), desired.epoch, run_hooks.hooks.clone()));
        }
        if desired.phase == RunPhase::Stopping
            && is_mine(&desired.spec.tear_down)
            && run_hooks.started.insert(HookKind::TearDown)
        {
            self.background_tasks.spawn(hooks::tear_down(run_store.clone(), desired.epoch, run_hooks.hooks.clone()));
        }
    }

    pub(super) async fn handle_build_end(&mut self, result: Result<WorkerRun, BuildRunError>, run_store: &C::Run) {
        let event = match result {
            Ok(worker_run) => {
                info!(epoch = worker_run.epoch, "the worker has built its users");
                self.hooks = RunHooks::of_run(self.hooks.take(), worker_run.epoch, worker_run.hooks.clone());
                RunEvent::Built(Box::new(worker_run))
            }
            Err(error) => {
                let reason = error_chain(&error);
                warn!(epoch = self.run_state.epoch(), reason, "the run cannot be carried out here");
                RunEvent::BuildFailed(reason)
            }
        };
        self.apply_event(run_store, event).await;
        // Not with the next regular report: the leader waits for every worker.
        self.apply_record(run_store).await;
        self.report_now(run_store).await;
    }

    /// Notices that the worker's run has ended early or is done.
    pub(super) async fn check_run(&mut self, run_store: &C::Run) {
        if let Some(worker_run) = self.run_state.worker_run_mut().filter(|worker_run| worker_run.is_lost_by_store()) {
            worker_run.stop(StopMode::Abort);
            // Another run may have the same epoch by now, and this failure does not concern it.
            if !self.read_record(run_store).await {
                return;
            }
        }
        let Some(worker_run) = self.run_state.worker_run() else { return };
        let (reason, is_done) = (worker_run.early_end_reason().map(str::to_owned), worker_run.is_done());
        if let Some(reason) = reason {
            self.apply_event(run_store, RunEvent::EndedEarly(reason)).await;
        }
        if is_done {
            self.apply_event(run_store, RunEvent::Shipped).await;
        }
    }

    /// Notes the end of the load and waits for its threads in the background.
    async fn finish(&mut self, mut worker_run: Box<WorkerRun>, run_store: &C::Run) {
        // The threads of a run that the record no longer asks for still run.
        worker_run.stop(StopMode::Abort);
        if let Some(users) = &mut self.active_users {
            users.end_all(worker_run.epoch);
        }
        if let Some(at) = worker_run.load_end() {
            let note = RunNote::LoadEnd { instance: self.instance, at };
            if let Err(error) = run_store.set_notes(worker_run.epoch, &[note.encode()]).await {
                debug!(%error, "the worker could not note the end of its load");
            }
        }
        self.background_tasks.spawn_blocking(move || worker_run.join());
        self.show_active_users(run_store).await;
        self.report_now(run_store).await;
    }
}

/// Waits for the next progress of a run; never ready without a run. Cancel-safe.
pub(super) async fn next_progress(
    build_tasks: &mut JoinSet<Result<WorkerRun, BuildRunError>>,
    run_state: &mut WorkerRunState<Box<WorkerRun>>,
) -> RunProgress {
    if let Some(worker_run) = run_state.worker_run_mut() {
        worker_run.forward_next_delta().await;
        return RunProgress::DeltaForwarded;
    }
    match build_tasks.join_next().await {
        Some(result) => {
            let panicked = |_| Err(BuildRunError::BuildPanicked);
            RunProgress::BuildEnded(Box::new(result.unwrap_or_else(panicked)))
        }
        None => std::future::pending().await,
    }
}
