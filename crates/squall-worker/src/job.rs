//! One run as one worker carries it out: its engine, its leash, its shipper. Told what to do; knows nothing of the record.

use squall_coord::RunStore;
use squall_engine::{Driver, Duty, Engine, EngineConfig, EngineError, Leash, Lender, Ration, Tickets};
use squall_metrics::{Delta, Fold, RecorderConfig, SourceId};
use squall_model::{Bundle, ITERATIONS, Load, LoadModel, Profile, ShareSet, Stock};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::{
    hooks::Hooks,
    rationing::Rationing,
    shipper::{Parcel, Shipper},
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
    /// The pools that it declares.
    pub stock: Vec<Stock>,
    /// What it has to be supplied with, because the whole fleet uses it once.
    pub rations: Vec<Ration>,
    /// What it does once for the whole run.
    pub hooks: Option<Arc<dyn Hooks>>,
}

/// How long giving back what was borrowed may take at the end.
const GIVING_BACK: Duration = Duration::from_secs(2);

/// Deltas that may wait for the store before this worker gives up its load.
const MOST_WAITING: usize = 120;

/// At first nobody knows how fast users are: a thread of a closed model may send this much before it must have announced more.
const FIRST_ALLOWANCE: u64 = 200_000;
/// Requests that one iteration is thought to make at first.
const FIRST_PER_ITERATION: f64 = 8.0;
const FIRST_SECONDS: u32 = 3;
/// Later it may send this many times its best second, and some.
const ALLOWANCE: u64 = 4;
const LEAST_ALLOWANCE: u64 = 200;

/// A run under way here.
pub(crate) struct Job {
    pub(crate) epoch: u64,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    engine: Engine,
    fold: Fold,
    shipper: Shipper,
    rationing: Rationing,
    /// The run has so many iterations and no more, and users take them as they can.
    limited: bool,
    leash: Leash,
    lender: Lender,
    /// Serves the line that the users borrow by.
    lending: JoinHandle<()>,
    threads: Vec<Sent>,
    /// What each may send at first.
    first: u64,
    started: bool,
    profile: Profile,
    shares: ShareSet,
    stopping: bool,
    ended: bool,
}

/// What one thread has sent.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    total: u64,
    best_second: u64,
}

impl Job {
    /// Builds the engine; no load is made before [`Job::start`].
    pub(crate) async fn prepare<D: Driver, R: RunStore>(
        opened: Opened<D>,
        bundle: &Bundle,
        (epoch, instance): (u64, u64),
        run: R,
        (lender, lending): (Lender, JoinHandle<()>),
    ) -> Result<Job, EngineError> {
        let (plan, limits) = (&bundle.plan, &bundle.limits);
        let mut config = EngineConfig::new(plan.load.clone(), plan.tasks.clone());
        config.threads = limits.threads.or(opened.threads).unwrap_or(config.threads).clamp(1, 1024);
        let leash = Leash::new(config.threads);
        let first = first_allowance(&plan.load.model);
        (0..config.threads).for_each(|thread| leash.most(thread, first));
        config.instance = instance;
        config.shares = ShareSet::NONE;
        config.seed = plan.seed;
        config.max_users = limits.max_users.max(config.threads);
        (config.grace, config.slack, config.late_after) = (limits.grace, limits.slack, limits.late_after);
        config.recorder = RecorderConfig { phases: limits.phases, ..RecorderConfig::default() };
        config.leash = Some(leash.clone());
        config.lender = Some(lender.clone());
        let (tickets, iterations) = iterations(&plan.load).unzip();
        let limited = tickets.is_some();
        config.tickets = tickets;
        let threads = vec![Sent::default(); config.threads];
        let engine = Engine::prepare(opened.driver, config).await?;
        let source = SourceId { instance, thread: 0 };
        let rations = opened.rations.into_iter().chain(iterations).collect();
        Ok(Job {
            epoch,
            hooks: opened.hooks,
            fold: Fold::new(source, engine.sources().to_vec()),
            engine,
            rationing: Rationing::start(&run, epoch, &source_name(source), rations),
            limited,
            shipper: Shipper::start(run, epoch, source_name(source), leash.clone()),
            leash,
            lender,
            lending,
            threads,
            first,
            started: false,
            profile: plan.load.model.profile().clone(),
            shares: ShareSet::NONE,
            stopping: false,
            ended: false,
        })
    }

    /// How many requests this worker may send before anything of it is in the store.
    pub(crate) fn first_announcement(&self) -> u64 {
        self.leash.announced()
    }

    /// Lets the engine start at `at`, which may be long ago: the run then goes on where it is.
    pub(crate) fn start(&mut self, at: Instant) {
        if !self.started {
            self.started = true;
            self.engine.start(at);
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    /// Holds `shares` and follows `profile` from now on; gives the time of the run at which that is. `left`: before when the last
    /// holders of shares that are new here have started everything.
    pub(crate) fn set_duty(&mut self, shares: ShareSet, profile: &Profile, left: BTreeMap<u32, Duration>) -> Duration {
        (self.shares, self.profile) = (shares, profile.clone());
        self.engine.set_duty(Duty { left: Arc::new(left), ..Duty::new(shares, profile.clone(), Duration::ZERO) })
    }

    pub(crate) fn shares(&self) -> ShareSet {
        self.shares
    }

    pub(crate) fn profile(&self) -> &Profile {
        &self.profile
    }

    /// This worker's place is certain until `until`.
    pub(crate) fn trust_until(&self, until: Instant) {
        self.leash.until(until);
    }

    /// This worker's place was lost: what its users have borrowed may be others' by now.
    pub(crate) fn lapse(&self) {
        self.lender.lapse();
    }

    pub(crate) fn stop(&mut self, abort: bool) {
        self.stopping = true;
        match abort {
            true => self.engine.stop().abort(),
            false => self.engine.stop().drain(),
        }
    }

    /// Passes the next delta on; never ready when there are no more.
    pub(crate) async fn pump(&mut self) -> Result<(), EngineError> {
        if self.ended {
            return std::future::pending().await;
        }
        match self.engine.next_delta().await {
            Some(delta) => self.take(delta),
            None => {
                self.ended = true;
                self.rationing.close();
            }
        }
        Ok(())
    }

    fn take(&mut self, delta: Delta) {
        if let Some(sent) = self.threads.get_mut(delta.source.thread as usize) {
            sent.total += delta.engine.sent;
            sent.best_second = sent.best_second.max(delta.engine.sent);
        }
        let folded = match self.fold.merge(delta) {
            Ok(folded) => folded,
            Err(error) => {
                warn!(%error, "a thread's delta was refused");
                return;
            }
        };
        for delta in folded {
            let announced =
                self.threads.iter().map(|sent| sent.total + sent.allowance(delta.second, self.first)).collect();
            self.shipper.ship(Parcel { delta, announced });
        }
        if self.shipper.waiting() > MOST_WAITING && !self.stopping {
            warn!("the store has been away for too long; this worker ends its load");
            self.stop(false);
        }
    }

    /// Whether everything that was measured is in the store, and what was drawn and not used; or nobody wants it any more.
    pub(crate) fn is_done(&self) -> bool {
        self.shipper.is_done() && self.rationing.is_done() || self.shipper.is_stale()
    }

    /// When the last iteration ended here, where the run has so many and no more.
    pub(crate) fn last_end(&self) -> Option<Duration> {
        self.limited.then(|| self.engine.last_end())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.shipper.waiting()
    }

    pub(crate) fn thread_count(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn sent(&self) -> u64 {
        self.threads.iter().map(|sent| sent.total).sum()
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

impl Sent {
    fn allowance(self, second: u32, first: u64) -> u64 {
        let seen = self.best_second * ALLOWANCE + LEAST_ALLOWANCE;
        if second < FIRST_SECONDS { seen.max(first) } else { seen }
    }
}

/// The iterations of a closed run that is limited. An open one has its limit in its schedule.
fn iterations(load: &Load) -> Option<(Tickets, Ration)> {
    let limit = load.iterations.filter(|_| matches!(load.model, LoadModel::Closed { .. }))?;
    let (tickets, supply) = Tickets::supplied();
    Some((tickets, Ration { name: ITERATIONS.to_owned(), limit, supply }))
}

/// What a thread may send before anybody knows how fast it is: an open model is as fast as its clock.
fn first_allowance(model: &LoadModel) -> u64 {
    match model {
        LoadModel::Closed { .. } => FIRST_ALLOWANCE,
        LoadModel::Open { rate, .. } => {
            let seconds = f64::from(FIRST_SECONDS) + 1.0;
            LEAST_ALLOWANCE + (rate.peak() * seconds * FIRST_PER_ITERATION).ceil() as u64
        }
    }
}

/// A source as the store names it.
pub(crate) fn source_name(source: SourceId) -> String {
    format!("{:016x}.{}", source.instance, source.thread)
}
