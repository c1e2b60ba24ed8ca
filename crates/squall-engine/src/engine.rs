//! The engine of one process: one thread and one runtime per core, each with its share of the run. It makes load, ships deltas
//! and obeys orders; what the numbers mean is decided elsewhere.

use squall_metrics::{Delta, RecorderConfig, SourceId};
use squall_model::{EngineLimits, Load, LoadModel, Profile, ShareSet, TaskSpec};
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
    Driver, DriverError, ResourceClient, SendBudget, ThreadDeadline, ThreadRecorder,
    number_quota::NumberQuota,
    precise_timer::PreciseTimer,
    thread_scheduler::{SchedulerInputs, ThreadScheduler},
    thread_shares::assign_to_threads,
    user_pool::{CrossThreadState, OnStartTracker, ThreadActivity, UserPool},
};

/// What an engine needs to know.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Which life of which worker this is; 0 for a local run.
    pub instance: u64,
    /// What this process holds of the run to begin with; all of it in a local run.
    pub shares: ShareSet,
    /// Threads of this engine, at least 1. [`EngineConfig::with_limits`] derives it from `limits.threads`.
    pub threads: usize,
    pub limits: EngineLimits,
    /// Threads of this process that belong to other engines and are numbered before these.
    pub first_thread: u32,
    pub load: Load,
    pub tasks: Vec<TaskSpec>,
    pub seed: u64,
    /// How long a run of so many iterations goes on while the users' own start fails and nobody comes through it.
    pub start_failure_timeout: Duration,
    /// The engine sets its `phases` from the limits.
    pub recorder: RecorderConfig,
    /// What holds a member of a fleet back; shares may then come and go until the load's end.
    pub send_budget: Option<SendBudget>,
    /// Where users borrow things, if there is anything to borrow.
    pub resources: Option<ResourceClient>,
    /// One for every iteration of a closed model with a limit, where others make the same run; else its shares' part of the limit.
    pub iteration_quota: Option<NumberQuota>,
}

impl EngineConfig {
    /// A local run of `load` over `tasks` with the default limits.
    pub fn new(load: Load, tasks: Vec<TaskSpec>) -> EngineConfig {
        EngineConfig::with_limits(load, tasks, EngineLimits::default())
    }

    /// A local run of `load` over `tasks` with these limits.
    pub fn with_limits(load: Load, tasks: Vec<TaskSpec>, limits: EngineLimits) -> EngineConfig {
        let per_core = || std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = limits.threads.unwrap_or_else(per_core).max(1);
        if matches!(load.model, LoadModel::Open { .. }) {
            // Each thread of an open model has at least one user, so more threads would exceed `max_users`.
            threads = threads.min(limits.max_users.max(1));
        }
        EngineConfig {
            instance: 0,
            shares: ShareSet::ALL,
            threads,
            limits,
            first_thread: 0,
            load,
            tasks,
            seed: 0,
            start_failure_timeout: Duration::from_secs(30),
            recorder: RecorderConfig::default(),
            send_budget: None,
            resources: None,
            iteration_quota: None,
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
pub(crate) enum EngineCommand {
    Prepare,
    Start(Instant),
    /// Since then.
    Drain(Instant),
    Abort,
}

/// What this process is to do of a run; may change while it goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareAssignment {
    pub shares: ShareSet,
    /// The rate or the number of users of the whole run; the same up to `at` as it was.
    pub profile: Profile,
    /// The time of the run from which this holds, or as soon as it can; [`Engine::set_assignment`] says which.
    pub effective_at: Duration,
    /// The time before which the last holder of a share has started everything, for shares that come from elsewhere; what was due
    /// since then is started at once. A share that is not named is taken up when the duty takes effect.
    pub resume_from: Arc<BTreeMap<u32, Duration>>,
}

impl ShareAssignment {
    /// A duty whose shares were held by nobody else.
    pub fn new(shares: ShareSet, profile: Profile, at: Duration) -> ShareAssignment {
        ShareAssignment { shares, profile, effective_at: at, resume_from: Arc::default() }
    }

    /// What one thread does of it.
    fn for_thread(&self, shares: ShareSet) -> ShareAssignment {
        ShareAssignment { shares, ..self.clone() }
    }
}

/// How a thread's share ended.
#[derive(Debug, Clone, Copy)]
pub struct LoadOutcome {
    /// How long load was made.
    pub active: Duration,
    /// Until the last answer was in.
    pub elapsed: Duration,
    /// Something was still under way when the grace was over, or the run was aborted.
    pub cut_off: bool,
}

/// A prepared or running engine.
pub struct Engine {
    commands: watch::Sender<EngineCommand>,
    /// One for each thread: every change reaches every thread, in order.
    assignments: Vec<mpsc::UnboundedSender<ShareAssignment>>,
    /// What each thread has of the shares.
    thread_shares: Mutex<Vec<ShareSet>>,
    start_time: StartTimeLock,
    /// How long the load lasts.
    load_duration: Arc<Mutex<Duration>>,
    messages: mpsc::UnboundedReceiver<ThreadMessage>,
    /// Why a thread has failed, if one has.
    failure: Option<String>,
    threads: Vec<JoinHandle<Result<LoadOutcome, EngineError>>>,
    sources: Vec<SourceId>,
    in_flight: InFlightIterations,
}

/// What a thread says.
pub(crate) enum ThreadMessage {
    Delta(Box<Delta>),
    /// It has ended before its time; perhaps without a last delta.
    Failed(String),
}

/// How many iterations are under way right now. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct InFlightIterations(Vec<Arc<ThreadActivity>>);

impl InFlightIterations {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|thread| thread.busy_users()).sum()
    }
}

/// The instant of the start, once it is known. A duty is given, and a thread looks at its duties and the time, only while holding it:
/// so a thread that has walked past an instant cannot be given a duty from before it, however long anybody is stalled in between.
pub(crate) type StartTimeLock = Arc<Mutex<Option<Instant>>>;

/// Of several engines together.
impl FromIterator<InFlightIterations> for InFlightIterations {
    fn from_iter<I: IntoIterator<Item = InFlightIterations>>(parts: I) -> InFlightIterations {
        InFlightIterations(parts.into_iter().flat_map(|part| part.0).collect())
    }
}

/// Tells a running engine to stop. Cloning shares it.
#[derive(Clone)]
pub struct EngineStopHandle {
    commands: watch::Sender<EngineCommand>,
}

impl EngineStopHandle {
    /// No further starts; what is under way is finished within the grace.
    pub fn drain(&self) {
        self.commands.send_if_modified(|order| {
            let running = matches!(order, EngineCommand::Prepare | EngineCommand::Start(_));
            if running {
                *order = EngineCommand::Drain(Instant::now());
            }
            running
        });
    }

    /// Everything under way is cut off and recorded as aborted.
    pub fn abort(&self) {
        self.commands.send_replace(EngineCommand::Abort);
    }
}

impl Engine {
    /// Starts the threads and lets each build its share of the driver; no load is made before [`Engine::start`].
    pub async fn prepare<D: Driver>(driver: D, config: EngineConfig) -> Result<Engine, EngineError> {
        let (orders, _) = watch::channel(EngineCommand::Prepare);
        let first = ShareAssignment::new(config.shares, config.load.model.profile().clone(), Duration::ZERO);
        let parts = assign_to_threads(first.shares, &vec![ShareSet::NONE; config.threads.max(1)]);
        let load = Arc::new(Mutex::new(first.profile.duration()));
        let curfew =
            ThreadDeadline { commands: orders.subscribe(), load_duration: load.clone(), grace: config.limits.grace };
        let (words_tx, words) = mpsc::unbounded_channel();
        let (ready_tx, mut ready) = mpsc::unbounded_channel();
        let shared = EngineContext {
            driver: Arc::new(driver),
            iteration_quota: iteration_quota(&config),
            // One task is no choice, and one thread counts by itself.
            iterations_begun: (config.tasks.len() > 1 && config.threads > 1).then(Arc::default),
            on_start_tracker: matches!(config.load.model, LoadModel::Closed { .. }).then(Arc::default),
            config: Arc::new(config),
            ready: ready_tx,
            messages: words_tx,
            start_time: StartTimeLock::default(),
        };
        let turn = shared.start_time.clone();
        let (mut threads, mut duties) = (Vec::new(), Vec::new());
        let (mut sources, mut busy) = (Vec::new(), InFlightIterations::default());
        for (index, part) in (0..).zip(&parts) {
            sources.push(SourceId { instance: shared.config.instance, thread: shared.config.first_thread + index });
            let (duty_tx, duty) = mpsc::unbounded_channel();
            // Cannot fail: its receiver is in hand.
            let _ = duty_tx.send(first.for_thread(*part));
            duties.push(duty_tx);
            busy.0.push(Arc::default());
            let seat = ThreadContext { index, activity: busy.0[index as usize].clone() };
            let (shared, orders, curfew) = (shared.clone(), orders.subscribe(), curfew.clone());
            let thread = std::thread::Builder::new().name(format!("squall-{index}"));
            let life = move || {
                let watch = FailureReporter {
                    messages: shared.messages.clone(),
                    failure: Some(EngineError::ThreadPanicked.to_string()),
                };
                watch.finish(thread_main(seat, shared, orders, duty, &curfew))
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
        let engine = Engine {
            commands: orders,
            assignments: duties,
            thread_shares: parts,
            start_time: turn,
            load_duration: load,
            messages: words,
            failure,
            threads,
            sources,
            in_flight: busy,
        };
        if count < engine.threads.len() {
            engine.stop_handle().abort();
            engine.join()?;
            return Err(EngineError::ThreadPanicked);
        }
        Ok(engine)
    }

    /// Lets all threads start at the instant `at`.
    pub fn start(&self, at: Instant) {
        self.commands.send_if_modified(|order| {
            let prepared = *order == EngineCommand::Prepare;
            if prepared {
                *self.start_time.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
                *order = EngineCommand::Start(at);
            }
            prepared
        });
    }

    /// Changes what this process does, and says from which time of the run on: what was due before is or will be started as it was,
    /// what is due from then on as it is now. That is not before a time given in `left`, which may come from a faster clock.
    pub fn set_assignment(&self, mut duty: ShareAssignment) -> Duration {
        let start = self.start_time.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(elapsed) = start.and_then(|start| Instant::now().checked_duration_since(start)) {
            duty.effective_at = duty.effective_at.max(elapsed + Duration::from_nanos(1));
        }
        duty.effective_at = duty.resume_from.values().copied().fold(duty.effective_at, Duration::max);
        *self.load_duration.lock().unwrap_or_else(PoisonError::into_inner) = duty.profile.duration();
        let mut parts = self.thread_shares.lock().unwrap_or_else(PoisonError::into_inner);
        *parts = assign_to_threads(duty.shares, &parts);
        for (thread, part) in self.assignments.iter().zip(&*parts) {
            // A thread that has ended has nothing left to change.
            let _ = thread.send(duty.for_thread(*part));
        }
        duty.effective_at
    }

    pub fn stop_handle(&self) -> EngineStopHandle {
        EngineStopHandle { commands: self.commands.clone() }
    }

    /// How many iterations are under way, at any moment.
    pub fn in_flight(&self) -> InFlightIterations {
        self.in_flight.clone()
    }

    /// When the load was over here: the last iteration of a limited closed run ended, or the last start of an open one was made. Known
    /// when all deltas are there.
    pub fn load_end(&self) -> Duration {
        Duration::from_nanos(self.in_flight.0.iter().map(|thread| thread.load_end()).max().unwrap_or(0))
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
            match ready!(self.messages.poll_recv(cx)) {
                Some(ThreadMessage::Delta(delta)) => return Poll::Ready(Some(*delta)),
                Some(ThreadMessage::Failed(why)) => {
                    self.stop_handle().abort();
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
    pub fn join(self) -> Result<LoadOutcome, EngineError> {
        let mut whole = LoadOutcome { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false };
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

struct EngineContext<D> {
    driver: Arc<D>,
    config: Arc<EngineConfig>,
    iteration_quota: Option<NumberQuota>,
    /// Iterations of a closed model that were begun, where it matters which comes next.
    iterations_begun: Option<Arc<AtomicU64>>,
    /// Users that have come through their own start; each thread's own in an open model.
    on_start_tracker: Option<Arc<OnStartTracker>>,
    ready: mpsc::UnboundedSender<()>,
    messages: mpsc::UnboundedSender<ThreadMessage>,
    start_time: StartTimeLock,
}

impl<D> Clone for EngineContext<D> {
    fn clone(&self) -> Self {
        let EngineContext {
            driver,
            config,
            iteration_quota: tickets,
            iterations_begun: begun,
            on_start_tracker: through,
            ready,
            messages: words,
            start_time: turn,
        } = self;
        let (driver, config, tickets, turn) = (driver.clone(), config.clone(), tickets.clone(), turn.clone());
        let (begun, through, ready, words) = (begun.clone(), through.clone(), ready.clone(), words.clone());
        EngineContext {
            driver,
            config,
            iteration_quota: tickets,
            iterations_begun: begun,
            on_start_tracker: through,
            ready,
            messages: words,
            start_time: turn,
        }
    }
}

/// An open model's limit is in its schedule; a closed model's users share one stock, so that it is exact.
fn iteration_quota(config: &EngineConfig) -> Option<NumberQuota> {
    let closed = matches!(config.load.model, LoadModel::Closed { .. });
    let limit = config.load.iterations.filter(|_| closed)?;
    Some(config.iteration_quota.clone().unwrap_or_else(|| NumberQuota::fixed(local_iteration_count(config, limit))))
}

/// This process's part of `limit` iterations, which are dealt to the users in turn: a process without users would never use its own.
fn local_iteration_count(config: &EngineConfig, limit: u64) -> u64 {
    let users = (config.load.model.profile().peak().ceil() as u64).max(1);
    let mine = (0..users.min(limit)).filter(|user| config.shares.contains(*user));
    mine.map(|user| limit / users + u64::from(user < limit % users)).sum()
}

/// What is one thread's alone.
struct ThreadContext {
    index: u32,
    activity: Arc<ThreadActivity>,
}

/// Sees to it that a thread's failure is heard, also where its code panics.
struct FailureReporter {
    /// Held until then, so that nobody thinks before that all have ended well.
    messages: mpsc::UnboundedSender<ThreadMessage>,
    /// What is said if it ends now.
    failure: Option<String>,
}

impl FailureReporter {
    fn finish<T>(mut self, end: Result<T, EngineError>) -> Result<T, EngineError> {
        self.failure = end.as_ref().err().map(EngineError::to_string);
        end
    }
}

impl Drop for FailureReporter {
    fn drop(&mut self) {
        if let Some(why) = self.failure.take() {
            // The engine is gone only if the whole run was given up; there is nobody left to tell.
            let _ = self.messages.send(ThreadMessage::Failed(why));
        }
    }
}

fn thread_main<D: Driver>(
    seat: ThreadContext,
    shared: EngineContext<D>,
    orders: watch::Receiver<EngineCommand>,
    duty: mpsc::UnboundedReceiver<ShareAssignment>,
    curfew: &ThreadDeadline,
) -> Result<LoadOutcome, EngineError> {
    let driver = shared.driver.clone();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    driver.run_thread(curfew, builder.enable_all(), |builder| {
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
    ThreadContext { index, activity: busy }: ThreadContext,
    shared: EngineContext<D>,
    mut orders: watch::Receiver<EngineCommand>,
    duty: mpsc::UnboundedReceiver<ShareAssignment>,
) -> Result<LoadOutcome, EngineError> {
    let EngineContext {
        driver,
        config,
        iteration_quota: tickets,
        iterations_begun: begun_by_all,
        on_start_tracker: through,
        ready,
        messages: words,
        start_time: turn,
    } = shared;
    let thread = config.first_thread + index;
    let leash = config.send_budget.clone().map(|leash| (thread as usize, leash));
    let recorder_config = RecorderConfig { phases: config.limits.phases, ..config.recorder };
    let probe = ThreadRecorder::with_limits(recorder_config, Instant::now(), leash, config.resources.clone());
    let driver_thread = driver.thread(probe.clone())?;
    // Before the first connection anywhere: users may take every descriptor there is.
    let alarm = PreciseTimer::new().map_err(EngineError::Timer)?;
    let _ = ready.send(());
    drop(ready);
    let start = match orders.wait_for(|order| *order != EngineCommand::Prepare).await.as_deref() {
        Ok(EngineCommand::Start(at)) => *at,
        _ => return Ok(LoadOutcome { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false }),
    };
    orders.mark_unchanged();
    // Of a run that began before anybody told this process, it has missed nothing that it could have done.
    let first_look = start.max(Instant::now());
    tokio::time::sleep_until(start.into()).await;
    probe.measure_from(start + config.load.warm_up);
    let source = SourceId { instance: config.instance, thread };
    let news = tickets.as_ref().map(NumberQuota::subscribe);
    let common = CrossThreadState {
        activity: busy,
        requests_per_iteration: driver.requests_per_iteration(),
        iterations_begun_by_all: begun_by_all,
        on_start_tracker: through.unwrap_or_default(),
    };
    let floor = Rc::new(UserPool::new(config, source, probe, start, tickets, common));
    floor.scheduler_wakes_at.set(first_look);
    ThreadScheduler::new(
        floor,
        driver_thread,
        alarm,
        SchedulerInputs { commands: orders, assignments: duty, start_time: turn, quota_changes: news },
        words,
    )
    .run()
    .await
}
