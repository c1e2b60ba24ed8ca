//! The engine of one process: one thread and one runtime per core, each with its share of the run. It makes load, ships deltas
//! and obeys orders; what the numbers mean is decided elsewhere.

use squall_metrics::{Delta, RecorderConfig, SourceId};
use squall_model::{Load, LoadModel, Profile, ShareSet, TaskSpec};
use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    task::{Context, Poll, ready},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::LocalSet,
};

use crate::{
    Curfew, Driver, DriverError, Leash, Lender, Probe,
    alarm::Alarm,
    conductor::{Conductor, Told},
    deal::deal,
    floor::{Busy, Common, Floor, Through},
    tickets::Tickets,
};

/// What an engine needs to know.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Which life of which worker this is; 0 for a local run.
    pub instance: u64,
    /// What this process holds of the run to begin with; all of it in a local run.
    pub shares: ShareSet,
    /// Threads, among which the shares are divided; at least 1.
    pub threads: usize,
    /// Threads of this process that belong to other engines and are numbered before these.
    pub first_thread: u32,
    pub load: Load,
    pub tasks: Vec<TaskSpec>,
    pub seed: u64,
    /// Most users that an open model of the whole run may bring in: each share has those of its number. At least one per thread; starts
    /// that find none wait, and count as late.
    pub max_users: usize,
    /// How long users may finish what they are doing when the load is over.
    pub grace: Duration,
    /// Least distance between two wake-ups of a thread's clock; a start may be this much late when starts are dense.
    pub slack: Duration,
    /// A start later than this counts as late.
    pub late_after: Duration,
    /// How long a run of so many iterations goes on while the users' own start fails and nobody comes through it.
    pub patience: Duration,
    pub recorder: RecorderConfig,
    /// What holds a member of a fleet back; shares may then come and go until the load's end.
    pub leash: Option<Leash>,
    /// Where users borrow things, if there is anything to borrow.
    pub lender: Option<Lender>,
    /// One for every iteration of a closed model with a limit, where others make the same run; else its shares' part of the limit.
    pub tickets: Option<Tickets>,
}

impl EngineConfig {
    /// A local run of `load` over `tasks` with the usual limits.
    pub fn new(load: Load, tasks: Vec<TaskSpec>) -> EngineConfig {
        EngineConfig {
            instance: 0,
            shares: ShareSet::ALL,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            first_thread: 0,
            load,
            tasks,
            seed: 0,
            max_users: 10_000,
            grace: Duration::from_secs(10),
            slack: Duration::from_micros(600),
            late_after: Duration::from_millis(10),
            patience: Duration::from_secs(30),
            recorder: RecorderConfig::default(),
            leash: None,
            lender: None,
            tickets: None,
        }
    }
}

/// Why an engine cannot run, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("cannot start an engine thread")]
    Thread(#[source] io::Error),
    #[error("cannot use the system's timer")]
    Timer(#[source] io::Error),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("a virtual user's code panicked; the lines above say where")]
    UserPanicked,
    #[error("an engine thread panicked; the lines above say where")]
    ThreadPanicked,
}

/// What all threads are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Prepare,
    Start(Instant),
    /// Since then.
    Drain(Instant),
    Abort,
}

/// What this process is to do of a run; may change while it goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct Duty {
    pub shares: ShareSet,
    /// The rate or the number of users of the whole run; the same up to `at` as it was.
    pub profile: Profile,
    /// The time of the run from which this holds, or as soon as it can; [`Engine::set_duty`] says which.
    pub at: Duration,
    /// The time before which the last holder of a share has started everything, for shares that come from elsewhere; what was due
    /// since then is started at once. A share that is not named is taken up when the duty takes effect.
    pub left: Arc<BTreeMap<u32, Duration>>,
}

impl Duty {
    /// A duty whose shares were held by nobody else.
    pub fn new(shares: ShareSet, profile: Profile, at: Duration) -> Duty {
        Duty { shares, profile, at, left: Arc::default() }
    }

    /// What one thread does of it.
    fn part(&self, shares: ShareSet) -> Duty {
        Duty { shares, ..self.clone() }
    }
}

/// How a thread's share ended.
#[derive(Debug, Clone, Copy)]
pub struct ThreadEnd {
    /// How long load was made.
    pub active: Duration,
    /// Until the last answer was in.
    pub elapsed: Duration,
    /// Something was still under way when the grace was over, or the run was aborted.
    pub cut_off: bool,
}

/// A prepared or running engine.
pub struct Engine {
    orders: watch::Sender<Order>,
    /// One for each thread: every change reaches every thread, in order.
    duties: Vec<mpsc::UnboundedSender<Duty>>,
    /// What each thread has of the shares.
    parts: Mutex<Vec<ShareSet>>,
    turn: Turn,
    /// How long the load lasts.
    load: Arc<Mutex<Duration>>,
    words: mpsc::UnboundedReceiver<Word>,
    /// Why a thread has failed, if one has.
    failure: Option<String>,
    threads: Vec<JoinHandle<Result<ThreadEnd, EngineError>>>,
    sources: Vec<SourceId>,
    busy: InFlight,
}

/// What a thread says.
pub(crate) enum Word {
    Delta(Box<Delta>),
    /// It has ended before its time; perhaps without a last delta.
    Failed(String),
}

/// How many iterations are under way right now. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Vec<Arc<Busy>>);

impl InFlight {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|thread| thread.get()).sum()
    }
}

/// The instant of the start, once it is known. A duty is given, and a thread looks at its duties and the time, only while holding it:
/// so a thread that has walked past an instant cannot be given a duty from before it, however long anybody is stalled in between.
pub(crate) type Turn = Arc<Mutex<Option<Instant>>>;

/// Of several engines together.
impl FromIterator<InFlight> for InFlight {
    fn from_iter<I: IntoIterator<Item = InFlight>>(parts: I) -> InFlight {
        InFlight(parts.into_iter().flat_map(|part| part.0).collect())
    }
}

/// Tells a running engine to stop. Cloning shares it.
#[derive(Clone)]
pub struct EngineStop {
    orders: watch::Sender<Order>,
}

impl EngineStop {
    /// No further starts; what is under way is finished within the grace.
    pub fn drain(&self) {
        self.orders.send_if_modified(|order| {
            let running = matches!(order, Order::Prepare | Order::Start(_));
            if running {
                *order = Order::Drain(Instant::now());
            }
            running
        });
    }

    /// Everything under way is cut off and recorded as aborted.
    pub fn abort(&self) {
        self.orders.send_replace(Order::Abort);
    }
}

impl Engine {
    /// Starts the threads and lets each build its share of the driver; no load is made before [`Engine::start`].
    pub async fn prepare<D: Driver>(driver: D, config: EngineConfig) -> Result<Engine, EngineError> {
        let (orders, _) = watch::channel(Order::Prepare);
        let first = Duty::new(config.shares, config.load.model.profile().clone(), Duration::ZERO);
        let parts = deal(first.shares, &vec![ShareSet::NONE; config.threads.max(1)]);
        let load = Arc::new(Mutex::new(first.profile.duration()));
        let curfew = Curfew { orders: orders.subscribe(), load: load.clone(), grace: config.grace };
        let (words_tx, words) = mpsc::unbounded_channel();
        let (ready_tx, mut ready) = mpsc::unbounded_channel();
        let shared = Shared {
            driver: Arc::new(driver),
            tickets: tickets(&config),
            // One task is no choice, and one thread counts by itself.
            begun: (config.tasks.len() > 1 && config.threads > 1).then(Arc::default),
            through: matches!(config.load.model, LoadModel::Closed { .. }).then(Arc::default),
            config: Arc::new(config),
            ready: ready_tx,
            words: words_tx,
            turn: Turn::default(),
        };
        let turn = shared.turn.clone();
        let (mut threads, mut duties) = (Vec::new(), Vec::new());
        let (mut sources, mut busy) = (Vec::new(), InFlight::default());
        for (index, part) in (0..).zip(&parts) {
            sources.push(SourceId { instance: shared.config.instance, thread: shared.config.first_thread + index });
            let (duty_tx, duty) = mpsc::unbounded_channel();
            // Cannot fail: its receiver is in hand.
            let _ = duty_tx.send(first.part(*part));
            duties.push(duty_tx);
            busy.0.push(Arc::default());
            let seat = ThreadSeat { index, busy: busy.0[index as usize].clone() };
            let (shared, orders, curfew) = (shared.clone(), orders.subscribe(), curfew.clone());
            let thread = std::thread::Builder::new().name(format!("squall-{index}"));
            let life = move || {
                let watch =
                    Watch { words: shared.words.clone(), failure: Some(EngineError::ThreadPanicked.to_string()) };
                watch.over(thread_main(seat, shared, orders, duty, &curfew))
            };
            threads.push(thread.spawn(life).map_err(EngineError::Thread)?);
        }
        drop(shared);
        // Every thread says once that it is ready, or ends; then its sender is gone.
        let mut count = 0;
        while count < threads.len() && ready.recv().await.is_some() {
            count += 1;
        }
        let parts = Mutex::new(parts);
        let failure = None;
        let engine = Engine { orders, duties, parts, turn, load, words, failure, threads, sources, busy };
        if count < engine.threads.len() {
            engine.stop().abort();
            engine.join()?;
            return Err(EngineError::ThreadPanicked);
        }
        Ok(engine)
    }

    /// Lets all threads start at the instant `at`.
    pub fn start(&self, at: Instant) {
        self.orders.send_if_modified(|order| {
            let prepared = *order == Order::Prepare;
            if prepared {
                *self.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
                *order = Order::Start(at);
            }
            prepared
        });
    }

    /// Changes what this process does, and says from which time of the run on: what was due before is or will be started as it was,
    /// what is due from then on as it is now. That is not before a time given in `left`, which may come from a faster clock.
    pub fn set_duty(&self, mut duty: Duty) -> Duration {
        let start = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(elapsed) = start.and_then(|start| Instant::now().checked_duration_since(start)) {
            duty.at = duty.at.max(elapsed + Duration::from_nanos(1));
        }
        duty.at = duty.left.values().copied().fold(duty.at, Duration::max);
        *self.load.lock().unwrap_or_else(PoisonError::into_inner) = duty.profile.duration();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        *parts = deal(duty.shares, &parts);
        for (thread, part) in self.duties.iter().zip(&*parts) {
            // A thread that has ended has nothing left to change.
            let _ = thread.send(duty.part(*part));
        }
        duty.at
    }

    pub fn stop(&self) -> EngineStop {
        EngineStop { orders: self.orders.clone() }
    }

    /// How many iterations are under way, at any moment.
    pub fn in_flight(&self) -> InFlight {
        self.busy.clone()
    }

    /// When the load was over here: the last iteration of a limited closed run ended, or the last start of an open one was made. Known
    /// when all deltas are there.
    pub fn load_end(&self) -> Duration {
        Duration::from_nanos(self.busy.0.iter().map(|thread| thread.load_end()).max().unwrap_or(0))
    }

    /// Who will send deltas.
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The next delta; `None` when all threads have ended. A thread that fails ends the others: a run that goes on without some of its
    /// users, and waits for what they have measured, says nothing.
    pub async fn next_delta(&mut self) -> Option<Delta> {
        poll_fn(|cx| self.poll_delta(cx)).await
    }

    /// The same for whoever waits for several.
    pub(crate) fn poll_delta(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delta>> {
        loop {
            match ready!(self.words.poll_recv(cx)) {
                Some(Word::Delta(delta)) => return Poll::Ready(Some(*delta)),
                Some(Word::Failed(why)) => {
                    self.stop().abort();
                    self.failure.get_or_insert(why);
                }
                None => return Poll::Ready(None),
            }
        }
    }

    /// Why it has ended before its time; known when all deltas are there. One that a thread had not sent may then be missing.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Waits for all threads. The longest of them counts.
    pub fn join(self) -> Result<ThreadEnd, EngineError> {
        let mut whole = ThreadEnd { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false };
        let ends: Vec<_> =
            self.threads.into_iter().map(|t| t.join().unwrap_or(Err(EngineError::ThreadPanicked))).collect();
        for end in ends {
            let end = end?;
            whole.active = whole.active.max(end.active);
            whole.elapsed = whole.elapsed.max(end.elapsed);
            whole.cut_off |= end.cut_off;
        }
        Ok(whole)
    }
}

struct Shared<D> {
    driver: Arc<D>,
    config: Arc<EngineConfig>,
    tickets: Option<Tickets>,
    /// Iterations of a closed model that were begun, where it matters which comes next.
    begun: Option<Arc<AtomicU64>>,
    /// Users that have come through their own start; each thread's own in an open model.
    through: Option<Arc<Through>>,
    ready: mpsc::UnboundedSender<()>,
    words: mpsc::UnboundedSender<Word>,
    turn: Turn,
}

impl<D> Clone for Shared<D> {
    fn clone(&self) -> Self {
        let Shared { driver, config, tickets, begun, through, ready, words, turn } = self;
        let (driver, config, tickets, turn) = (driver.clone(), config.clone(), tickets.clone(), turn.clone());
        let (begun, through, ready, words) = (begun.clone(), through.clone(), ready.clone(), words.clone());
        Shared { driver, config, tickets, begun, through, ready, words, turn }
    }
}

/// An open model's limit is in its schedule; a closed model's users share one stock, so that it is exact.
fn tickets(config: &EngineConfig) -> Option<Tickets> {
    let closed = matches!(config.load.model, LoadModel::Closed { .. });
    let limit = config.load.iterations.filter(|_| closed)?;
    Some(config.tickets.clone().unwrap_or_else(|| Tickets::fixed(dealt(config, limit))))
}

/// This process's part of `limit` iterations, which are dealt to the users in turn: a process without users would never use its own.
fn dealt(config: &EngineConfig, limit: u64) -> u64 {
    let users = (config.load.model.profile().peak().ceil() as u64).max(1);
    let mine = (0..users.min(limit)).filter(|user| config.shares.contains(*user));
    mine.map(|user| limit / users + u64::from(user < limit % users)).sum()
}

/// What is one thread's alone.
struct ThreadSeat {
    index: u32,
    busy: Arc<Busy>,
}

/// Sees to it that a thread's failure is heard, also where its code panics.
struct Watch {
    /// Held until then, so that nobody thinks before that all have ended well.
    words: mpsc::UnboundedSender<Word>,
    /// What is said if it ends now.
    failure: Option<String>,
}

impl Watch {
    fn over<T>(mut self, end: Result<T, EngineError>) -> Result<T, EngineError> {
        self.failure = end.as_ref().err().map(EngineError::to_string);
        end
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(why) = self.failure.take() {
            // The engine is gone only if the whole run was given up; there is nobody left to tell.
            let _ = self.words.send(Word::Failed(why));
        }
    }
}

fn thread_main<D: Driver>(
    seat: ThreadSeat,
    shared: Shared<D>,
    orders: watch::Receiver<Order>,
    duty: mpsc::UnboundedReceiver<Duty>,
    curfew: &Curfew,
) -> Result<ThreadEnd, EngineError> {
    let driver = shared.driver.clone();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    driver.host(curfew, builder.enable_all(), |builder| {
        let runtime = builder.build().map_err(EngineError::Thread)?;
        let local = LocalSet::new();
        let end = runtime.block_on(local.run_until(thread_run(seat, shared, orders, duty)));
        // Tasks that were aborted hold flights that record themselves when dropped; the conductor has waited for those.
        drop(local);
        // A name server that never answers keeps a blocking thread for many seconds; nobody waits for its answer any more.
        runtime.shutdown_background();
        end
    })
}

async fn thread_run<D: Driver>(
    ThreadSeat { index, busy }: ThreadSeat,
    shared: Shared<D>,
    mut orders: watch::Receiver<Order>,
    duty: mpsc::UnboundedReceiver<Duty>,
) -> Result<ThreadEnd, EngineError> {
    let Shared { driver, config, tickets, begun: begun_by_all, through, ready, words, turn } = shared;
    let thread = config.first_thread + index;
    let leash = config.leash.clone().map(|leash| (thread as usize, leash));
    let probe = Probe::leashed(config.recorder, Instant::now(), leash, config.lender.clone());
    let driver_thread = driver.thread(probe.clone())?;
    // Before the first connection anywhere: users may take every descriptor there is.
    let alarm = Alarm::new().map_err(EngineError::Timer)?;
    let _ = ready.send(());
    drop(ready);
    let start = match orders.wait_for(|order| *order != Order::Prepare).await.as_deref() {
        Ok(Order::Start(at)) => *at,
        _ => return Ok(ThreadEnd { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false }),
    };
    orders.mark_unchanged();
    // Of a run that began before anybody told this process, it has missed nothing that it could have done.
    let first_look = start.max(Instant::now());
    tokio::time::sleep_until(start.into()).await;
    probe.measure_from(start + config.load.warm_up);
    let source = SourceId { instance: config.instance, thread };
    let news = tickets.as_ref().map(Tickets::news);
    let common = Common { busy, requests: driver.requests(), begun_by_all, through: through.unwrap_or_default() };
    let floor = Rc::new(Floor::new(config, source, probe, start, tickets, common));
    floor.armed_until.set(first_look);
    Conductor::new(floor, driver_thread, alarm, Told { orders, duty, turn, tickets: news }, words).run().await
}
