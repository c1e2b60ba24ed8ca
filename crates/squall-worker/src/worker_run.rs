//! One run as one worker carries it out: its engine, its leash, its shipper. Told what to do; knows nothing of the record.

use squall_coord::RunStore;
use squall_engine::{
    Driver, EngineConfig, EngineError, EngineGroup, EngineSpec, NumberQuota, ResourceClient, SendBudget,
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
    send_budget_reporter::{LoadStart, SendBudgetReporter},
};

/// Makes drivers of bundles: what a worker can run.
pub trait DriverFactory: Send + Sync + 'static {
    type Driver: Driver;

    /// Reads what has travelled here. The message of a refusal is for people. May block.
    fn open_bundle(&self, bundle: &Bundle) -> Result<RunnableBundle<Self::Driver>, String>;
}

/// A bundle that can be run.
pub struct RunnableBundle<D> {
    pub driver: D,
    /// Engine threads that suit it; `None` leaves it to the engine.
    pub threads: Option<usize>,
    /// Its own plan, where the bundle's stands for several scenarios.
    pub plan: Option<Plan>,
    /// What else runs on the same timeline: other scenarios, and what follows them.
    pub additional: Vec<AdditionalScenario<D>>,
    /// The pools that it declares.
    pub pools: Vec<PoolContents>,
    /// What it has to be supplied with, because the whole fleet uses it once.
    pub shared_counters: Vec<SharedCounter>,
    /// What it does once for the whole run.
    pub hooks: Option<Arc<dyn ScenarioHooks>>,
}

/// Something that runs beside a scenario, by a load and tasks of its own.
pub struct AdditionalScenario<D> {
    pub driver: D,
    pub threads: Option<usize>,
    pub plan: Plan,
    /// It ends when what does not follow has.
    pub background: bool,
}

/// How long giving back what was borrowed may take at the end.
const RESOURCE_RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

const NOTE_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// At first nobody knows how fast users are: a thread of a closed model may send this much before it must have announced more, and less
/// where few users pause for long.
const INITIAL_BUDGET: u64 = 1000;
/// What they do in this time by their pauses; about as long as a worker may go on alone.
const INITIAL_BUDGET_SECONDS: f64 = 5.0;
/// Of every thread, beyond what is known to be due.
const MIN_INITIAL_BUDGET: u64 = 64;

/// Longer than any run goes on.
const UNBOUNDED_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A run under way here.
pub(crate) struct WorkerRun {
    pub(crate) epoch: u64,
    pub(crate) hooks: Option<Arc<dyn ScenarioHooks>>,
    engine: EngineGroup,
    merger: ThreadMerger,
    shipper: DeltaShipper,
    counter_supplier: CounterSupplier,
    /// The run has so many iterations and no more, and users take them as they can.
    has_iteration_quota: bool,
    /// It has so many, whoever takes them.
    has_iteration_limit: bool,
    send_budget: SendBudget,
    /// Say what may be sent, and when the load here is over how much will have been; they end with this.
    _reporting_tasks: JoinSet<()>,
    resources: ResourceClient,
    /// Serves the line that the users borrow by.
    resource_task: JoinHandle<()>,
    started: bool,
    load_start: LoadStart,
    /// That the record says.
    profile: Profile,
    /// Of each scenario; the first follows the record's, unless that stands for several.
    profiles: Vec<Profile>,
    multi_scenario: bool,
    shares: ShareSet,
    /// Shares that were ever taken over here; the store knows of each.
    pub(crate) shares_ever_taken: ShareSet,
    stopping: bool,
    /// No more deltas will come.
    deltas_ended: bool,
    /// Why it has ended before anybody told it to, if it has.
    early_end_reason: Option<String>,
    max_unshipped_deltas: usize,
}

impl WorkerRun {
    /// Builds the engine; no load is made before [`WorkerRun::start`].
    pub(crate) async fn prepare<D: Driver, R: RunStore>(
        opened: RunnableBundle<D>,
        bundle: &Bundle,
        (epoch, instance): (u64, u64),
        run: R,
        (ttl, most_waiting): (Duration, usize),
        (lender, lending): (ResourceClient, JoinHandle<()>),
    ) -> Result<WorkerRun, EngineError> {
        let alone = opened.additional.is_empty();
        let each = opened.driver.requests_per_iteration().filter(|_| alone).map(|requests| requests.direct);
        let plan = opened.plan.as_ref().unwrap_or(&bundle.plan);
        let mut config = engine_config(bundle, plan, opened.threads, instance);
        let (tickets, iterations) = iteration_quota(&plan.load).unzip();
        let limited = tickets.is_some();
        let beside = opened.additional.iter().map(|beside| &beside.plan);
        let counted = beside.chain([plan]).any(|plan| plan.load.iterations.is_some());
        config.iteration_quota = tickets;
        let mut voices = vec![EngineSpec { driver: opened.driver, config, background: false }];
        voices.extend(opened.additional.into_iter().map(|beside| beside.engine_spec(bundle, instance)));
        let first: Vec<u64> = voices.iter().flat_map(|voice| initial_budgets(&voice.config)).collect();
        let leash = SendBudget::new(first.len());
        for EngineSpec { config, .. } in &mut voices {
            config.send_budget = Some(leash.clone());
            config.resources = Some(lender.clone());
        }
        let profiles = voices.iter().map(|voice| voice.config.load.model.profile().clone()).collect();
        let engine = EngineGroup::prepare(voices).await?;
        let source = SourceId { instance, thread: 0 };
        let source_name = SourceName::Thread { instance, thread: source.thread }.to_string();
        let rations = opened.shared_counters.into_iter().chain(iterations).collect();
        let mut announcing: JoinSet<()> =
            [note_max_sent(run.clone(), epoch, instance, leash.clone())].into_iter().collect();
        let starts = LoadStart::default();
        let mut announcer =
            SendBudgetReporter::new(run.clone(), (epoch, instance), leash.clone(), (first, each), ttl, starts.clone());
        // Nobody wants this job if it is stale, and then it hears that in other ways.
        if announcer.report_first_budget().await.is_ok() {
            announcing.spawn(announcer.run());
        }
        Ok(WorkerRun {
            epoch,
            hooks: opened.hooks,
            merger: ThreadMerger::new(source, engine.sources()),
            engine,
            counter_supplier: CounterSupplier::start(&run, epoch, &source_name, rations),
            has_iteration_quota: limited,
            has_iteration_limit: counted,
            _reporting_tasks: announcing,
            shipper: DeltaShipper::start(run, epoch, source_name, most_waiting),
            send_budget: leash,
            resources: lender,
            resource_task: lending,
            started: false,
            load_start: starts,
            profile: bundle.plan.load.model.profile().clone(),
            profiles,
            multi_scenario: bundle.has_multiple_scenarios(),
            shares: ShareSet::NONE,
            shares_ever_taken: ShareSet::NONE,
            stopping: false,
            deltas_ended: false,
            early_end_reason: None,
            max_unshipped_deltas: most_waiting,
        })
    }

    /// Lets the engine start at `at`, which may be long ago: the run then goes on where it is, by the `profile` that it has now. An engine
    /// that knew only the planned one might take a run that was paused for over.
    pub(crate) fn start(&mut self, at: Instant, profile: &Profile) {
        if !self.started {
            if self.profile != *profile {
                self.assign_shares(self.shares, profile, &BTreeMap::new());
            }
            self.started = true;
            // Nobody else says when it begins.
            let _ = self.load_start.set(at);
            self.engine.start(at);
        }
    }

    /// Whether its load is over at a time that is known here.
    pub(crate) fn has_known_end(&self) -> bool {
        self.started && !self.has_iteration_quota
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Holds `shares` and follows `profile` from now on; gives the time of the run at which that is. `left`: before when the last
    /// holders of shares that are new here have started everything.
    pub(crate) fn assign_shares(
        &mut self,
        shares: ShareSet,
        profile: &Profile,
        left: &BTreeMap<u32, ResumePoints>,
    ) -> ResumePoints {
        (self.shares, self.profile) = (shares, profile.clone());
        if !self.multi_scenario {
            self.profiles[0].clone_from(profile);
        }
        let duties = self.profiles.iter().enumerate().map(|(voice, profile)| {
            let left = left.iter().filter_map(|(share, places)| Some((*share, places.of_scenario(voice)?)));
            ShareAssignment {
                resume_from: Arc::new(left.collect()),
                ..ShareAssignment::new(shares, profile.clone(), Duration::ZERO)
            }
        });
        ResumePoints::new(self.engine.set_assignments(duties))
    }

    pub(crate) fn shares(&self) -> ShareSet {
        self.shares
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// This worker's place is certain until `until`.
    pub(crate) fn set_lease_deadline(&self, until: Instant) {
        self.send_budget.set_valid_until(until);
    }

    /// Whether the run is paused.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.send_budget.set_paused(paused);
    }

    /// This worker's place was lost: what its users have borrowed may be others' by now.
    pub(crate) fn invalidate_resources(&self) {
        self.resources.invalidate_leases();
    }

    pub(crate) fn stop(&mut self, abort: bool) {
        self.stopping = true;
        match abort {
            true => self.engine.stop_handle().abort(),
            false => self.engine.stop_handle().drain(),
        }
    }

    /// Passes the next delta on; never ready when there are no more.
    pub(crate) async fn forward_next_delta(&mut self) {
        if self.deltas_ended {
            return std::future::pending().await;
        }
        match self.engine.next_delta().await {
            Some(delta) => self.merge_and_ship(delta),
            None => self.handle_engine_end(),
        }
    }

    fn handle_engine_end(&mut self) {
        self.deltas_ended = true;
        self.counter_supplier.close();
        if let Some(why) = self.engine.failure() {
            self.early_end_reason = Some(why.to_owned());
            self.merger.flush_incomplete().into_iter().for_each(|delta| self.shipper.ship(delta));
        }
    }

    fn merge_and_ship(&mut self, delta: Delta) {
        let folded = match self.merger.merge(delta) {
            Ok(folded) => folded,
            Err(error) => {
                warn!(%error, "a thread's delta was refused");
                return;
            }
        };
        folded.into_iter().for_each(|delta| self.shipper.ship(delta));
        if self.shipper.unshipped() > self.max_unshipped_deltas && !self.stopping {
            self.early_end_reason = Some("the store was away for too long".to_owned());
            self.stop(false);
        }
    }

    /// Why it ends, or has ended, before anybody told it to.
    pub(crate) fn early_end_reason(&self) -> Option<&str> {
        let forgotten = self.is_lost_by_store().then_some("the store has lost what was measured here");
        self.early_end_reason.as_deref().or(forgotten)
    }

    /// Whether the store has lost what was measured here: nobody would count what is sent from now on.
    pub(crate) fn is_lost_by_store(&self) -> bool {
        self.shipper.is_lost_by_store()
    }

    /// Whether everything that was measured is in the store, and what was drawn and not used; or nobody wants it any more.
    pub(crate) fn is_done(&self) -> bool {
        let shipped = self.shipper.unshipped() == 0 || self.is_lost_by_store();
        self.deltas_ended && shipped && self.counter_supplier.is_done() || self.shipper.is_stale()
    }

    /// When the load was over here, where the run has so many iterations and no more.
    pub(crate) fn load_end(&self) -> Option<Duration> {
        self.has_iteration_limit.then(|| self.engine.load_end())
    }

    pub(crate) fn unshipped_deltas(&self) -> usize {
        self.shipper.unshipped()
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.send_budget.requests_begun().len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.send_budget.requests_begun().iter().sum()
    }

    /// Waits for the engine's threads, which have said their last. May block.
    pub(crate) fn join(self) {
        if let Err(error) = self.engine.join() {
            warn!(%error, "the engine ended badly");
        } else {
            info!(epoch = self.epoch, "run is over");
        }
        // Nobody holds the line any more: what was borrowed goes back now.
        drop(self.resources);
        let (mut lending, here) = (self.resource_task, tokio::runtime::Handle::current());
        if here.block_on(async { tokio::time::timeout(RESOURCE_RELEASE_TIMEOUT, &mut lending).await }).is_err() {
            // A user's code keeps something; it goes back when the run is over for everybody.
            lending.abort();
        }
    }
}

/// Says how many requests this worker will have sent at most, once its load is over: should it die while it drains, no more is missing.
async fn note_max_sent<R: RunStore>(run: R, epoch: u64, instance: u64, leash: SendBudget) {
    let note = RunNote::MaxSent { instance, requests: leash.final_limit_total().await }.encode();
    while let Err(error) = run.set_notes(epoch, std::slice::from_ref(&note)).await {
        debug!(%error, "could not say yet how much was sent");
        tokio::time::sleep(NOTE_RETRY_INTERVAL).await;
    }
}

/// The iterations of a closed run that is limited. An open one has its limit in its schedule.
fn iteration_quota(load: &Load) -> Option<(NumberQuota, SharedCounter)> {
    let limit = load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))?;
    let (tickets, supply) = NumberQuota::with_refill();
    Some((tickets, SharedCounter { name: ITERATIONS_COUNTER.to_owned(), limit, refill: supply }))
}

/// What each thread may send before anybody knows how fast it is: an open model is as fast as its clock.
fn initial_budgets(config: &EngineConfig) -> Vec<u64> {
    let first = match &config.load.model {
        LoadModel::Closed { users, pause } if !pause.is_none() => {
            let each = 1.0 + INITIAL_BUDGET_SECONDS / pause.pick(0.5).as_secs_f64();
            let of_thread = users.peak() / config.threads as f64 * each;
            (MIN_INITIAL_BUDGET + of_thread.ceil() as u64).min(INITIAL_BUDGET)
        }
        LoadModel::Closed { .. } => INITIAL_BUDGET,
        LoadModel::Open { rate, .. } => MIN_INITIAL_BUDGET + (rate.peak() / config.threads as f64).ceil() as u64,
    };
    vec![first; config.threads]
}

/// How the engine of `plan` is to work here; leash and lender come later.
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
        let AdditionalScenario { driver, threads, mut plan, background: follows } = self;
        if follows && let LoadModel::Closed { users, .. } = &mut plan.load.model {
            // It ends with the others, however long somebody lets those go on.
            let longest = Profile::constant(users.peak(), UNBOUNDED_DURATION);
            *users = longest.unwrap_or_else(|_| users.clone());
        }
        let mut config = engine_config(bundle, &plan, threads, instance);
        if follows {
            config.threads = 1;
        }
        EngineSpec { driver, config, background: follows }
    }
}
