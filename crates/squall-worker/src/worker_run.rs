//! One run as one worker carries it out: its engine, its send budget and its delta shipper. It
//! knows nothing of the run record: the worker starts and stops it and assigns its shares.

use squall_coord::RunStore;
use squall_engine::{
    Driver, EngineConfig, EngineError, EngineGroup, EngineSpec, NumberQuota, ResourceClient, SendPermit,
    ShareAssignment, SharedCounter,
};
use squall_metrics::{Delta, SourceId, ThreadMerger};
use squall_model::{
    Bundle, EngineLimits, ITERATIONS_COUNTER, Load, LoadModel, Plan, PoolContents, Profile, ShareSet,
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
    hooks::ScenarioHooks,
    run_builder::WorkerRunConfig,
    send_budget_reporter::{LoadStart, SendBudgetReporter},
    worker_load_phase::{LoadEvent, StopMode, WorkerLoadPhase},
};

/// Makes drivers from bundles.
pub trait DriverFactory: Send + Sync + 'static {
    type Driver: Driver;

    /// Reads a bundle from the store. The message of an error is for people. May block.
    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<Self::Driver>, String>;
}

/// A bundle that a worker can run.
pub struct RunnableBundle<D> {
    pub driver: D,
    /// Engine threads that suit the driver; `None` leaves the number to the engine.
    pub threads: Option<usize>,
    /// The plan of the driver's scenario, if the bundle's plan stands for several scenarios.
    pub plan: Option<Plan>,
    /// Other scenarios on the same timeline.
    pub additional: Vec<AdditionalScenario<D>>,
    /// The pools that the scenarios declare.
    pub pools: Vec<PoolContents>,
    /// Numbers that the whole fleet uses once each, such as rows of data.
    pub shared_counters: Vec<SharedCounter>,
    /// Code that runs once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
}

/// A scenario with its own load and tasks that runs beside the first one.
pub struct AdditionalScenario<D> {
    pub driver: D,
    pub threads: Option<usize>,
    pub plan: Plan,
    /// Whether the scenario ends when all scenarios that are not in the background have ended.
    pub background: bool,
}

/// How long returning the leased resources may take at the end of a run.
const RESOURCE_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

const NOTE_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Requests of a thread of a closed model in the worker's first announcement, when the thread's
/// pace is unknown.
const INITIAL_BUDGET: u64 = 1000;
/// Users that pause get less: the requests that their pauses allow in this time, about as long as a
/// worker may work without the store.
const INITIAL_BUDGET_SECONDS: f64 = 5.0;
/// Requests of every thread beyond those that the load model predicts.
const MIN_INITIAL_BUDGET: u64 = 64;

/// Longer than any run.
const UNBOUNDED_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How a run's number of iterations is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IterationLimit {
    Unlimited,
    /// By the schedule of an open load, or only in an additional scenario.
    Scheduled,
    /// Users of a closed load draw iterations from a shared counter, so no worker knows when the
    /// load ends.
    Drawn,
}

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
    max_unshipped_deltas: usize,
    counter_supplier: CounterSupplier,
    iteration_limit: IterationLimit,
    send_permit: SendPermit,
    /// Announce the send budget, and note the final send limit when the load ends. Dropping the set ends
    /// them.
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
        let WorkerRunConfig { epoch, instance, ttl, max_unshipped_deltas, .. } = *run_config;
        let is_single = opened.additional.is_empty();
        let requests_per_iteration =
            opened.driver.requests_per_iteration().filter(|_| is_single).map(|requests| requests.direct);
        let plan = opened.plan.as_ref().unwrap_or(&bundle.plan);
        let mut config = engine_config(bundle, plan, opened.threads, instance);
        let (quota, iterations) = iteration_quota(&plan.load).unzip();
        let plans = opened.additional.iter().map(|scenario| &scenario.plan).chain([plan]);
        let iteration_limit = IterationLimit::of(quota.is_some(), plans);
        config.iteration_quota = quota;
        let mut engines = vec![EngineSpec { driver: opened.driver, config, background: false }];
        engines.extend(opened.additional.into_iter().map(|scenario| scenario.engine_spec(bundle, instance)));
        let budgets: Vec<u64> = engines.iter().flat_map(|engine| initial_budgets(&engine.config)).collect();
        let send_permit = SendPermit::new(budgets.len());
        for EngineSpec { config, .. } in &mut engines {
            config.send_permit = Some(send_permit.clone());
            config.resources = Some(resources.clone());
        }
        let profiles = engines.iter().map(|engine| engine.config.load.model.profile().clone()).collect();
        let engine = EngineGroup::prepare(engines).await?;
        let source = SourceId { instance, thread: 0 };
        let source_name = SourceName::Thread { instance, thread: source.thread }.to_string();
        let counters = opened.shared_counters.into_iter().chain(iterations).collect();
        let mut reporting_tasks: JoinSet<()> =
            [note_final_send_limit(run_store.clone(), epoch, instance, send_permit.clone())].into_iter().collect();
        let load_start = LoadStart::default();
        let mut reporter = SendBudgetReporter::new(
            run_store.clone(),
            (epoch, instance),
            send_permit.clone(),
            (budgets, requests_per_iteration),
            ttl,
            load_start.clone(),
        );
        // An error says that the run is over; the worker learns that from the record.
        if reporter.report_first_budget().await.is_ok() {
            reporting_tasks.spawn(reporter.run());
        }
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
            self.merger.flush_incomplete().into_iter().for_each(|delta| self.shipper.ship(delta));
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
        merged.into_iter().for_each(|delta| self.shipper.ship(delta));
        if self.shipper.unshipped() > self.max_unshipped_deltas {
            self.apply_event(LoadEvent::BacklogFull);
        }
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
        let is_shipped = self.shipper.unshipped() == 0 || self.is_lost_by_store();
        self.phase.has_ended() && is_shipped && self.counter_supplier.is_done() || self.shipper.is_stale()
    }

    /// The time of the run at which the load ended here, if the run limits its iterations.
    pub(crate) fn load_end(&self) -> Option<Duration> {
        (self.iteration_limit != IterationLimit::Unlimited).then(|| self.engine.load_end())
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

/// Notes the worker's final send limit once its load is over: the most requests that it sends in total.
/// If it dies while it drains, no more than these are missing.
async fn note_final_send_limit<R: RunStore>(run_store: R, epoch: u64, instance: u64, send_permit: SendPermit) {
    let note = RunNote::FinalSendLimit { instance, requests: send_permit.final_send_limit_total().await }.encode();
    while let Err(error) = run_store.set_notes(epoch, std::slice::from_ref(&note)).await {
        debug!(%error, "the worker could not note its final send limit; it tries again");
        tokio::time::sleep(NOTE_RETRY_INTERVAL).await;
    }
}

/// The quota of a closed load with an iteration limit. An open load has its limit in its schedule.
fn iteration_quota(load: &Load) -> Option<(NumberQuota, SharedCounter)> {
    let limit = load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))?;
    let (quota, refill) = NumberQuota::with_refill();
    Some((quota, SharedCounter { name: ITERATIONS_COUNTER.to_owned(), limit, refill }))
}

impl IterationLimit {
    fn of<'a>(has_quota: bool, mut plans: impl Iterator<Item = &'a Plan>) -> IterationLimit {
        if has_quota {
            IterationLimit::Drawn
        } else if plans.any(|plan| plan.load.iterations.is_some()) {
            IterationLimit::Scheduled
        } else {
            IterationLimit::Unlimited
        }
    }
}

/// Requests that each thread may send before its pace is known. The clock sets the pace of an open
/// model.
fn initial_budgets(config: &EngineConfig) -> Vec<u64> {
    let budget = match &config.load.model {
        LoadModel::Closed { users, pause } if !pause.is_none() => {
            let per_user = 1.0 + INITIAL_BUDGET_SECONDS / pause.pick(0.5).as_secs_f64();
            let per_thread = users.peak() / config.threads as f64 * per_user;
            (MIN_INITIAL_BUDGET + per_thread.ceil() as u64).min(INITIAL_BUDGET)
        }
        LoadModel::Closed { .. } => INITIAL_BUDGET,
        LoadModel::Open { rate, .. } => MIN_INITIAL_BUDGET + (rate.peak() / config.threads as f64).ceil() as u64,
    };
    vec![budget; config.threads]
}

/// The engine settings for `plan`, without send budget and resources.
fn engine_config(bundle: &Bundle, plan: &Plan, threads: Option<usize>, instance: u64) -> EngineConfig {
    let limits = EngineLimits { threads: bundle.limits.threads.or(threads), ..bundle.limits.clone() };
    let mut config = EngineConfig::with_limits(plan.load.clone(), plan.tasks.clone(), limits);
    config.threads = config.threads.min(1024);
    config.instance = instance;
    config.shares = ShareSet::NONE;
    config.seed = bundle.plan.seed;
    config
}

impl<D> AdditionalScenario<D> {
    fn engine_spec(self, bundle: &Bundle, instance: u64) -> EngineSpec<D> {
        let AdditionalScenario { driver, threads, mut plan, background } = self;
        if background && let LoadModel::Closed { users, .. } = &mut plan.load.model {
            // It ends with the other scenarios, and a pause may extend those beyond any planned
            // time.
            let unbounded = Profile::constant(users.peak(), UNBOUNDED_DURATION);
            *users = unbounded.unwrap_or_else(|_| users.clone());
        }
        let mut config = engine_config(bundle, &plan, threads, instance);
        if background {
            config.threads = 1;
        }
        EngineSpec { driver, config, background }
    }
}
