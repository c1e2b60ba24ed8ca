//! One run as one worker carries it out: its engine, its send budget and its delta shipper. It
//! knows nothing of the run record: the worker starts and stops it and assigns its shares.

use squall_coord::RunStore;
use squall_engine::{
    Driver, EngineError, EngineGroup, PlannedScenario, ResourceClient, SendPermit, ShareAssignment, SharedCounter,
};
use squall_metrics::{Delta, SourceId, ThreadMerger};
use squall_model::{
    Bundle, PoolContents, Profile, ShareSet,
    protocol::{ResumePoints, RunNote, SourceName},
};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info, warn};

use crate::{
    counter_supplier::CounterSupplier,
    delta_shipper::DeltaShipper,
    event_writer::EventWriter,
    hooks::ScenarioHooks,
    run_builder::WorkerRunConfig,
    run_engines::{IterationLimit, RunEngines},
    send_budget_reporter::{LoadStart, SendBudgetReporter},
    worker_load_phase::{LoadEvent, StopMode, WorkerLoadPhase},
};

/// Makes drivers from bundles.
pub trait DriverFactory: Send + Sync + 'static {
    type Driver: Driver;

    /// Reads a bundle from the store. May block.
    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<Self::Driver>, OpenBundleError>;
}

/// Why a bundle cannot be opened on this worker.
#[derive(Debug, thiserror::Error)]
pub enum OpenBundleError {
    /// The scenario cannot be loaded here. The message is for people.
    #[error("{0}")]
    Scenario(String),
    #[error("this worker reads the scenario differently: is it of another version?")]
    OtherTasks,
}

/// A bundle that a worker can run.
pub struct RunnableBundle<D> {
    /// The scenarios that run together; at least one. Only the first may be limited in its number
    /// of iterations by a shared counter.
    pub scenarios: Vec<PlannedScenario<D>>,
    /// The pools that the scenarios declare.
    pub pools: Vec<PoolContents>,
    /// Numbers that the whole fleet uses once each, such as rows of data.
    pub shared_counters: Vec<SharedCounter>,
    /// Code that runs once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
}

/// How long returning the leased resources may take at the end of a run.
const RESOURCE_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

const NOTE_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A run in this worker.
pub(crate) struct WorkerRun {
    pub(crate) epoch: u64,
    pub(crate) hooks: Option<Arc<dyn ScenarioHooks>>,
    engine: EngineGroup,
    phase: WorkerLoadPhase,
    /// When the load starts; unset until the record says so.
    load_start: LoadStart,
    merger: ThreadMerger,
    shipper: DeltaShipper,
    event_writer: Option<EventWriter>,
    max_unshipped_deltas: usize,
    counter_supplier: CounterSupplier,
    iteration_limit: IterationLimit,
    send_permit: SendPermit,
    /// Announce the send budget, and note the final send limit when the load ends. Dropping the set
    /// ends them.
    _reporting_tasks: JoinSet<()>,
    resources: ResourceClient,
    /// Serves the requests of `resources`.
    resource_task: JoinHandle<()>,
    /// The profile in the record.
    profile: Profile,
    /// The profile of each scenario. The first follows the record, unless the record's stands for
    /// several scenarios.
    profiles: Vec<Profile>,
    multi_scenario: bool,
    shares: ShareSet,
    /// Every share that this worker ever took over in the run. The store has a note for each.
    pub(crate) shares_ever_taken: ShareSet,
}

impl WorkerRun {
    /// Builds the engine. It makes no load before [`WorkerRun::start`].
    pub(crate) async fn prepare<D: Driver, R: RunStore>(
        opened: RunnableBundle<D>,
        bundle: &Bundle,
        run_config: &WorkerRunConfig,
        run_store: R,
        (resources, resource_task): (ResourceClient, JoinHandle<()>),
    ) -> Result<WorkerRun, EngineError> {
        let WorkerRunConfig { epoch, instance, max_unshipped_deltas, .. } = *run_config;
        let engines = RunEngines::new(opened.scenarios, bundle, instance, &resources);
        let (profiles, iteration_limit) = (engines.profiles(), engines.iteration_limit);
        let RunEngines { specs, send_permit, initial_budgets, requests_per_iteration, iteration_counter, .. } = engines;
        let engine = EngineGroup::prepare(specs).await?;
        let source = SourceId { instance, thread: 0 };
        let source_name = SourceName::Thread { instance, thread: source.thread }.to_string();
        let counters = opened.shared_counters.into_iter().chain(iteration_counter).collect();
        let load_start = LoadStart::default();
        let budgets = (initial_budgets, requests_per_iteration);
        let reporting_tasks = start_reporting(&run_store, run_config, &send_permit, budgets, &load_start).await;
        Ok(WorkerRun {
            epoch,
            hooks: opened.hooks,
            merger: ThreadMerger::new(source, engine.sources()),
            engine,
            phase: WorkerLoadPhase::Running,
            load_start,
            counter_supplier: CounterSupplier::start(&run_store, epoch, &source_name, counters),
            iteration_limit,
            _reporting_tasks: reporting_tasks,
            event_writer: run_config.writes_events_as.clone().map(|id| EventWriter::start(run_store.clone(), id)),
            shipper: DeltaShipper::start(run_store, epoch, source_name, max_unshipped_deltas),
            max_unshipped_deltas,
            send_permit,
            resources,
            resource_task,
            profile: bundle.plan.load.model.profile().clone(),
            profiles,
            multi_scenario: bundle.has_multiple_scenarios(),
            shares: ShareSet::NONE,
            shares_ever_taken: ShareSet::NONE,
        })
    }

    /// Starts the engine at `at`, once. `at` may be long ago: the engine then continues at the
    /// current time of the run. A pause lengthens the profile; with the planned profile the engine
    /// would take a paused run for finished, so it gets the current `profile`.
    pub(crate) fn start(&mut self, at: Instant, profile: &Profile) {
        if self.is_started() {
            return;
        }
        if self.profile != *profile {
            self.set_shares(self.shares, profile, &BTreeMap::new());
        }
        self.load_start.set(at).expect("only this method sets the start, and it returns early if it is set");
        self.engine.start(at);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.load_start.get().is_some()
    }

    /// Whether the load ends at a time that this worker knows.
    pub(crate) fn ends_by_schedule(&self) -> bool {
        self.is_started() && self.iteration_limit != IterationLimit::Drawn
    }

    /// Holds `shares` and follows `profile` from now on. `resume_points` says how far the last
    /// holders of new shares got. Returns how far this worker got with its previous shares.
    pub(crate) fn set_shares(
        &mut self,
        shares: ShareSet,
        profile: &Profile,
        resume_points: &BTreeMap<u32, ResumePoints>,
    ) -> ResumePoints {
        (self.shares, self.profile) = (shares, profile.clone());
        if !self.multi_scenario {
            self.profiles[0].clone_from(profile);
        }
        let assignments = self.profiles.iter().enumerate().map(|(scenario, profile)| {
            let of_scenario = |(share, points): (&u32, &ResumePoints)| Some((*share, points.of_scenario(scenario)?));
            ShareAssignment {
                resume_from: Arc::new(resume_points.iter().filter_map(of_scenario).collect()),
                ..ShareAssignment::new(shares, profile.clone(), Duration::ZERO)
            }
        });
        ResumePoints::new(self.engine.set_assignments(assignments))
    }

    pub(crate) fn shares(&self) -> ShareSet {
        self.shares
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Lets the users send until `deadline`, shortly before the membership can expire and other
    /// workers take the shares over.
    pub(crate) fn set_membership_deadline(&self, deadline: Instant) {
        self.send_permit.set_valid_until(deadline);
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.send_permit.set_paused(paused);
    }

    /// Marks the users' resources as possibly reassigned, because the worker lost its membership.
    pub(crate) fn invalidate_resources(&self) {
        self.resources.invalidate_leases();
    }

    pub(crate) fn stop(&mut self, mode: StopMode) {
        self.apply_event(LoadEvent::Stop(mode));
    }

    fn apply_event(&mut self, event: LoadEvent) {
        let phase = std::mem::replace(&mut self.phase, WorkerLoadPhase::Running);
        let (next, stop) = phase.step(event);
        self.phase = next;
        match stop {
            Some(StopMode::Abort) => self.engine.stop_handle().abort(),
            Some(StopMode::Drain) => self.engine.stop_handle().drain(),
            None => {}
        }
    }

    /// Ships the engine's next delta; never ready after the last one. Cancel-safe.
    pub(crate) async fn forward_next_delta(&mut self) {
        if self.phase.has_ended() {
            return std::future::pending().await;
        }
        match self.engine.next_delta().await {
            Some(delta) => self.merge_and_ship(delta),
            None => self.handle_engine_end(),
        }
    }

    fn handle_engine_end(&mut self) {
        self.counter_supplier.close();
        let failure = self.engine.failure().map(str::to_owned);
        if failure.is_some() {
            self.merger.flush_incomplete().into_iter().for_each(|delta| self.ship(delta));
        }
        self.apply_event(failure.map_or(LoadEvent::EngineEnded, LoadEvent::EngineFailed));
    }

    fn merge_and_ship(&mut self, delta: Delta) {
        let merged = match self.merger.merge(delta) {
            Ok(merged) => merged,
            Err(error) => {
                warn!(%error, "the worker refused the delta of an engine thread");
                return;
            }
        };
        merged.into_iter().for_each(|delta| self.ship(delta));
        if self.shipper.unshipped() > self.max_unshipped_deltas {
            self.apply_event(LoadEvent::BacklogFull);
        }
    }

    fn ship(&mut self, delta: Delta) {
        if let Some(event_writer) = &mut self.event_writer {
            event_writer.write(&delta);
        }
        self.shipper.ship(delta);
    }

    /// Why the load ends before the record says so, if it does.
    pub(crate) fn early_end_reason(&self) -> Option<&str> {
        let lost = self.is_lost_by_store().then_some("the store has lost what was measured here");
        self.phase.early_end_reason().or(lost)
    }

    /// Whether the store has lost shipped deltas that this worker cannot ship again. No report
    /// would count further requests.
    pub(crate) fn is_lost_by_store(&self) -> bool {
        self.shipper.is_lost_by_store()
    }

    /// Whether the store has every delta and every unused number back, or no run wants them.
    pub(crate) fn is_done(&self) -> bool {
        let is_written = self.event_writer.as_ref().is_none_or(EventWriter::is_done);
        let is_shipped = is_written && self.shipper.unshipped() == 0 || self.is_lost_by_store();
        self.phase.has_ended() && is_shipped && self.counter_supplier.is_done() || self.shipper.is_stale()
    }

    /// The time of the run at which the load ended here, if the run limits its iterations.
    pub(crate) fn load_end(&self) -> Option<Duration> {
        (self.iteration_limit != IterationLimit::Unlimited).then(|| self.engine.load_end())
    }

    /// The users that have started (`true`) or left since the last call, by number.
    pub(crate) fn take_user_changes(&self) -> BTreeMap<u64, bool> {
        self.engine.take_user_changes()
    }

    pub(crate) fn unshipped_deltas(&self) -> usize {
        self.shipper.unshipped()
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.send_permit.requests_charged().len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.send_permit.requests_charged().iter().sum()
    }

    /// Waits for the engine's threads, which have delivered their last delta, and for the return of
    /// leased resources. Blocks.
    pub(crate) fn join(self) {
        if let Err(error) = self.engine.join() {
            warn!(%error, "an engine thread failed");
        } else {
            info!(epoch = self.epoch, "the worker has finished the run");
        }
        // The resource task returns every lease when its last client is dropped.
        drop(self.resources);
        let (mut resource_task, runtime) = (self.resource_task, tokio::runtime::Handle::current());
        let returned =
            runtime.block_on(async { tokio::time::timeout(RESOURCE_RELEASE_TIMEOUT, &mut resource_task).await });
        if returned.is_err() {
            // Code of a user keeps a lease; the store returns it when the run is over.
            resource_task.abort();
        }
    }
}

/// Announces the first send budget, and starts the tasks that announce the next ones and note the
/// final send limit.
async fn start_reporting<R: RunStore>(
    run_store: &R,
    run_config: &WorkerRunConfig,
    send_permit: &SendPermit,
    budgets: (Vec<u64>, Option<u64>),
    load_start: &LoadStart,
) -> JoinSet<()> {
    let WorkerRunConfig { epoch, instance, ttl, .. } = *run_config;
    let mut tasks = JoinSet::new();
    tasks.spawn(note_final_send_limit(run_store.clone(), epoch, instance, send_permit.clone()));
    let mut reporter = SendBudgetReporter::new(
        run_store.clone(),
        (epoch, instance),
        send_permit.clone(),
        budgets,
        ttl,
        load_start.clone(),
    );
    // An error says that the run is over; the worker learns that from the record.
    if reporter.report_first_budget().await.is_ok() {
        tasks.spawn(reporter.run());
    }
    tasks
}

/// Notes the worker's final send limit once its load is over: the most requests that it sends in
/// total. If it dies while it drains, no more than these are missing.
async fn note_final_send_limit<R: RunStore>(run_store: R, epoch: u64, instance: u64, send_permit: SendPermit) {
    let note = RunNote::FinalSendLimit { instance, requests: send_permit.final_send_limit_total().await }.encode();
    while let Err(error) = run_store.set_notes(epoch, std::slice::from_ref(&note)).await {
        debug!(%error, "the worker could not note its final send limit; it tries again");
        tokio::time::sleep(NOTE_RETRY_INTERVAL).await;
    }
}
