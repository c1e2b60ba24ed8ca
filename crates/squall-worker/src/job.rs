//! One run as one worker carries it out: its engine, its leash, its shipper. Told what to do; knows nothing of the record.

use squall_coord::RunStore;
use squall_engine::{EngineGroup, Driver, ShareAssignment, EngineConfig, EngineError, SendBudget, ResourceClient, SharedCounter, NumberQuota, EngineSpec};
use squall_metrics::{Delta, ThreadMerger, RecorderConfig, SourceId};
use squall_model::{Bundle, ITERATIONS_COUNTER, Load, LoadModel, Plan, Profile, ShareSet, PoolContents};
use std::{
    collections::BTreeMap,
    fmt,
    num::ParseIntError,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info, warn};

use crate::{
    announcer::{Announcer, Starts},
    hooks::Hooks,
    rationing::Rationing,
    shipper::Shipper,
};

/// Makes drivers of bundles: what a worker can run.
pub trait Host: Send + Sync + 'static {
    type Driver: Driver;

    /// Reads what has travelled here. The message of a refusal is for people. May block.
    fn open(&self, bundle: &Bundle) -> Result<Opened<Self::Driver>, String>;
}

/// A bundle that can be run.
pub struct Opened<D> {
    pub driver: D,
    /// Engine threads that suit it; `None` leaves it to the engine.
    pub threads: Option<usize>,
    /// Its own plan, where the bundle's stands for several scenarios.
    pub plan: Option<Plan>,
    /// What else runs on the same timeline: other scenarios, and what follows them.
    pub beside: Vec<Beside<D>>,
    /// The pools that it declares.
    pub stock: Vec<PoolContents>,
    /// What it has to be supplied with, because the whole fleet uses it once.
    pub rations: Vec<SharedCounter>,
    /// What it does once for the whole run.
    pub hooks: Option<Arc<dyn Hooks>>,
}

/// Something that runs beside a scenario, by a load and tasks of its own.
pub struct Beside<D> {
    pub driver: D,
    pub threads: Option<usize>,
    pub plan: Plan,
    /// It ends when what does not follow has.
    pub follows: bool,
}

/// How long giving back what was borrowed may take at the end.
const GIVING_BACK: Duration = Duration::from_secs(2);

const SEAL_AGAIN: Duration = Duration::from_millis(200);

/// At first nobody knows how fast users are: a thread of a closed model may send this much before it must have announced more, and less
/// where few users pause for long.
const FIRST_ALLOWANCE: u64 = 1000;
/// What they do in this time by their pauses; about as long as a worker may go on alone.
const FIRST_SECONDS: f64 = 5.0;
/// Of every thread, beyond what is known to be due.
const LEAST_ALLOWANCE: u64 = 64;

/// Longer than any run goes on.
const LONGEST_FOLLOWING: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A run under way here.
pub(crate) struct Job {
    pub(crate) epoch: u64,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    engine: EngineGroup,
    fold: ThreadMerger,
    shipper: Shipper,
    rationing: Rationing,
    /// The run has so many iterations and no more, and users take them as they can.
    limited: bool,
    /// It has so many, whoever takes them.
    counted: bool,
    leash: SendBudget,
    /// Say what may be sent, and when the load here is over how much will have been; they end with this.
    _announcing: JoinSet<()>,
    lender: ResourceClient,
    /// Serves the line that the users borrow by.
    lending: JoinHandle<()>,
    started: bool,
    starts: Starts,
    /// That the record says.
    profile: Profile,
    /// Of each scenario; the first follows the record's, unless that stands for several.
    profiles: Vec<Profile>,
    several: bool,
    shares: ShareSet,
    /// Shares that were ever taken over here; the store knows of each.
    pub(crate) taken: ShareSet,
    stopping: bool,
    /// No more deltas will come.
    ended: bool,
    /// Why it has ended before anybody told it to, if it has.
    broken: Option<String>,
    most_waiting: usize,
}

impl Job {
    /// Builds the engine; no load is made before [`Job::start`].
    pub(crate) async fn prepare<D: Driver, R: RunStore>(
        opened: Opened<D>,
        bundle: &Bundle,
        (epoch, instance): (u64, u64),
        run: R,
        (ttl, most_waiting): (Duration, usize),
        (lender, lending): (ResourceClient, JoinHandle<()>),
    ) -> Result<Job, EngineError> {
        let alone = opened.beside.is_empty();
        let each = opened.driver.requests_per_iteration().filter(|_| alone).map(|requests| requests.direct);
        let plan = opened.plan.as_ref().unwrap_or(&bundle.plan);
        let mut config = config(bundle, plan, opened.threads, instance);
        let (tickets, iterations) = iterations(&plan.load).unzip();
        let limited = tickets.is_some();
        let beside = opened.beside.iter().map(|beside| &beside.plan);
        let counted = beside.chain([plan]).any(|plan| plan.load.iterations.is_some());
        config.iteration_quota = tickets;
        let mut voices = vec![EngineSpec { driver: opened.driver, config, background: false }];
        voices.extend(opened.beside.into_iter().map(|beside| beside.voice(bundle, instance)));
        let first: Vec<u64> = voices.iter().flat_map(|voice| first_allowances(&voice.config)).collect();
        let leash = SendBudget::new(first.len());
        for EngineSpec { config, .. } in &mut voices {
            config.send_budget = Some(leash.clone());
            config.resources = Some(lender.clone());
        }
        let profiles = voices.iter().map(|voice| voice.config.load.model.profile().clone()).collect();
        let engine = EngineGroup::prepare(voices).await?;
        let source = SourceId { instance, thread: 0 };
        let rations = opened.rations.into_iter().chain(iterations).collect();
        let mut announcing: JoinSet<()> =
            [note_seal(run.clone(), epoch, instance, leash.clone())].into_iter().collect();
        let starts = Starts::default();
        let mut announcer =
            Announcer::new(run.clone(), (epoch, instance), leash.clone(), (first, each), ttl, starts.clone());
        // Nobody wants this job if it is stale, and then it hears that in other ways.
        if announcer.begin().await.is_ok() {
            announcing.spawn(announcer.serve());
        }
        Ok(Job {
            epoch,
            hooks: opened.hooks,
            fold: ThreadMerger::new(source, engine.sources()),
            engine,
            rationing: Rationing::start(&run, epoch, &source_name(source), rations),
            limited,
            counted,
            _announcing: announcing,
            shipper: Shipper::start(run, epoch, source_name(source), most_waiting),
            leash,
            lender,
            lending,
            started: false,
            starts,
            profile: bundle.plan.load.model.profile().clone(),
            profiles,
            several: bundle.has_multiple_scenarios(),
            shares: ShareSet::NONE,
            taken: ShareSet::NONE,
            stopping: false,
            ended: false,
            broken: None,
            most_waiting,
        })
    }

    /// Lets the engine start at `at`, which may be long ago: the run then goes on where it is, by the `profile` that it has now. An engine
    /// that knew only the planned one might take a run that was paused for over.
    pub(crate) fn start(&mut self, at: Instant, profile: &Profile) {
        if !self.started {
            if self.profile != *profile {
                self.set_duty(self.shares, profile, &BTreeMap::new());
            }
            self.started = true;
            // Nobody else says when it begins.
            let _ = self.starts.set(at);
            self.engine.start(at);
        }
    }

    /// Whether its load is over at a time that is known here.
    pub(crate) fn ends_by_itself(&self) -> bool {
        self.started && !self.limited
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Holds `shares` and follows `profile` from now on; gives the time of the run at which that is. `left`: before when the last
    /// holders of shares that are new here have started everything.
    pub(crate) fn set_duty(&mut self, shares: ShareSet, profile: &Profile, left: &BTreeMap<u32, Places>) -> Places {
        (self.shares, self.profile) = (shares, profile.clone());
        if !self.several {
            self.profiles[0].clone_from(profile);
        }
        let duties = self.profiles.iter().enumerate().map(|(voice, profile)| {
            let left = left.iter().filter_map(|(share, places)| Some((*share, places.of(voice)?)));
            ShareAssignment { resume_from: Arc::new(left.collect()), ..ShareAssignment::new(shares, profile.clone(), Duration::ZERO) }
        });
        Places(self.engine.set_assignments(duties))
    }

    pub(crate) fn shares(&self) -> ShareSet {
        self.shares
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// This worker's place is certain until `until`.
    pub(crate) fn trust_until(&self, until: Instant) {
        self.leash.set_valid_until(until);
    }

    /// Whether the run is paused.
    pub(crate) fn pause(&self, paused: bool) {
        self.leash.set_paused(paused);
    }

    /// This worker's place was lost: what its users have borrowed may be others' by now.
    pub(crate) fn lapse(&self) {
        self.lender.invalidate_leases();
    }

    pub(crate) fn stop(&mut self, abort: bool) {
        self.stopping = true;
        match abort {
            true => self.engine.stop_handle().abort(),
            false => self.engine.stop_handle().drain(),
        }
    }

    /// Passes the next delta on; never ready when there are no more.
    pub(crate) async fn pump(&mut self) {
        if self.ended {
            return std::future::pending().await;
        }
        match self.engine.next_delta().await {
            Some(delta) => self.take(delta),
            None => self.end(),
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.rationing.close();
        if let Some(why) = self.engine.failure() {
            self.broken = Some(why.to_owned());
            self.fold.flush_incomplete().into_iter().for_each(|delta| self.shipper.ship(delta));
        }
    }

    fn take(&mut self, delta: Delta) {
        let folded = match self.fold.merge(delta) {
            Ok(folded) => folded,
            Err(error) => {
                warn!(%error, "a thread's delta was refused");
                return;
            }
        };
        folded.into_iter().for_each(|delta| self.shipper.ship(delta));
        if self.shipper.waiting() > self.most_waiting && !self.stopping {
            self.broken = Some("the store was away for too long".to_owned());
            self.stop(false);
        }
    }

    /// Why it ends, or has ended, before anybody told it to.
    pub(crate) fn broken_off(&self) -> Option<&str> {
        let forgotten = self.is_forgotten().then_some("the store has lost what was measured here");
        self.broken.as_deref().or(forgotten)
    }

    /// Whether the store has lost what was measured here: nobody would count what is sent from now on.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.shipper.is_forgotten()
    }

    /// Whether everything that was measured is in the store, and what was drawn and not used; or nobody wants it any more.
    pub(crate) fn is_done(&self) -> bool {
        let shipped = self.shipper.waiting() == 0 || self.is_forgotten();
        self.ended && shipped && self.rationing.is_done() || self.shipper.is_stale()
    }

    /// When the load was over here, where the run has so many iterations and no more.
    pub(crate) fn load_end(&self) -> Option<Duration> {
        self.counted.then(|| self.engine.load_end())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.shipper.waiting()
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.leash.requests_begun().len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.leash.requests_begun().iter().sum()
    }

    /// Waits for the engine's threads, which have said their last. May block.
    pub(crate) fn join(self) {
        if let Err(error) = self.engine.join() {
            warn!(%error, "the engine ended badly");
        } else {
            info!(epoch = self.epoch, "run is over");
        }
        // Nobody holds the line any more: what was borrowed goes back now.
        drop(self.lender);
        let (mut lending, here) = (self.lending, tokio::runtime::Handle::current());
        if here.block_on(async { tokio::time::timeout(GIVING_BACK, &mut lending).await }).is_err() {
            // A user's code keeps something; it goes back when the run is over for everybody.
            lending.abort();
        }
    }
}

/// Says how many requests this worker will have sent at most, once its load is over: should it die while it drains, no more is missing.
async fn note_seal<R: RunStore>(run: R, epoch: u64, instance: u64, leash: SendBudget) {
    let note = (format!("sealed:{instance:016x}"), leash.final_limit_total().await.to_string());
    while let Err(error) = run.set_notes(epoch, std::slice::from_ref(&note)).await {
        debug!(%error, "could not say yet how much was sent");
        tokio::time::sleep(SEAL_AGAIN).await;
    }
}

/// The iterations of a closed run that is limited. An open one has its limit in its schedule.
fn iterations(load: &Load) -> Option<(NumberQuota, SharedCounter)> {
    let limit = load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))?;
    let (tickets, supply) = NumberQuota::with_refill();
    Some((tickets, SharedCounter { name: ITERATIONS_COUNTER.to_owned(), limit, refill: supply }))
}

/// What each thread may send before anybody knows how fast it is: an open model is as fast as its clock.
fn first_allowances(config: &EngineConfig) -> Vec<u64> {
    let first = match &config.load.model {
        LoadModel::Closed { users, pause } if !pause.is_none() => {
            let each = 1.0 + FIRST_SECONDS / pause.pick(0.5).as_secs_f64();
            let of_thread = users.peak() / config.threads as f64 * each;
            (LEAST_ALLOWANCE + of_thread.ceil() as u64).min(FIRST_ALLOWANCE)
        }
        LoadModel::Closed { .. } => FIRST_ALLOWANCE,
        LoadModel::Open { rate, .. } => LEAST_ALLOWANCE + (rate.peak() / config.threads as f64).ceil() as u64,
    };
    vec![first; config.threads]
}

/// How the engine of `plan` is to work here; leash and lender come later.
fn config(bundle: &Bundle, plan: &Plan, threads: Option<usize>, instance: u64) -> EngineConfig {
    let limits = &bundle.limits;
    let mut config = EngineConfig::new(plan.load.clone(), plan.tasks.clone());
    config.threads = limits.threads.or(threads).unwrap_or(config.threads).clamp(1, 1024);
    config.instance = instance;
    config.shares = ShareSet::NONE;
    config.seed = bundle.plan.seed;
    config.max_users = limits.max_users;
    if matches!(plan.load.model, LoadModel::Open { .. }) {
        // Each thread has at least one.
        config.threads = config.threads.min(limits.max_users.max(1));
    }
    (config.grace, config.slack, config.late_after) = (limits.grace, limits.slack, limits.late_after);
    config.recorder = RecorderConfig { phases: limits.phases, ..RecorderConfig::default() };
    config
}

impl<D> Beside<D> {
    fn voice(self, bundle: &Bundle, instance: u64) -> EngineSpec<D> {
        let Beside { driver, threads, mut plan, follows } = self;
        if follows && let LoadModel::Closed { users, .. } = &mut plan.load.model {
            // It ends with the others, however long somebody lets those go on.
            let longest = Profile::constant(users.peak(), LONGEST_FOLLOWING);
            *users = longest.unwrap_or_else(|_| users.clone());
        }
        let mut config = config(bundle, &plan, threads, instance);
        if follows {
            config.threads = 1;
        }
        EngineSpec { driver, config, background: follows }
    }
}

/// Before when the last holder of a share has started everything, for each scenario of the run; as it is noted in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places(Vec<Duration>);

impl Places {
    /// Nobody has begun.
    pub(crate) const BEGINNING: Places = Places(Vec::new());

    fn of(&self, voice: usize) -> Option<Duration> {
        if self.0.is_empty() { Some(Duration::ZERO) } else { self.0.get(voice).copied() }
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos: Vec<String> = self.0.iter().map(|place| place.as_nanos().to_string()).collect();
        f.write_str(&nanos.join(","))
    }
}

impl FromStr for Places {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Places, ParseIntError> {
        let places = text.split(',').map(|nanos| nanos.parse().map(Duration::from_nanos));
        Ok(Places(places.collect::<Result<_, _>>()?))
    }
}

/// A source as the store names it.
pub(crate) fn source_name(source: SourceId) -> String {
    format!("{:016x}.{}", source.instance, source.thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_noted_for_each_scenario() {
        let places = Places(vec![Duration::from_nanos(7), Duration::from_secs(2)]);
        assert_eq!(places.to_string(), "7,2000000000");
        assert_eq!(places.to_string().parse(), Ok(places.clone()));
        assert_eq!((places.of(1), places.of(2)), (Some(Duration::from_secs(2)), None));
        assert_eq!(Places::BEGINNING.of(5), Some(Duration::ZERO));
        assert!("taken".parse::<Places>().is_err() && "".parse::<Places>().is_err() && "7,".parse::<Places>().is_err());
    }
}
