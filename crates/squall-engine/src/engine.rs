//! The engine of one process: one thread and one runtime per core, each with a part of the process's
//! shares. It makes load, sends deltas and obeys commands. It does not judge the numbers; the
//! orchestrator does.

use squall_metrics::{Delta, SourceId};
use squall_model::{LoadModel, Profile, ShareSet};
use std::{
    collections::BTreeMap,
    future::poll_fn,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, watch};

use crate::{
    Driver, DriverError, Schedule, ShareAssignment, ThreadDeadline, UserStart,
    engine_config::EngineConfig,
    engine_thread::{EngineContext, ThreadContext, run_thread},
    load_end::{LateStarts, LoadEnd},
    on_start_tracker::OnStartTracker,
    thread_counters::ThreadActivity,
    thread_progress::{GivenUpThread, ThreadProgress, ThreadReporting},
    thread_shares::assign_to_first_threads,
    user_growth::threads_with_first_users,
};

/// Why an engine cannot run, or why it ended early.
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

/// The latest command to all threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineCommand {
    Prepare,
    /// Start at this instant.
    Start(Instant),
    /// Make no start that is due after this instant.
    Drain(Instant),
    Abort,
}

/// The end of a thread's load, or of all threads together.
#[derive(Debug, Clone, Copy)]
pub struct LoadOutcome {
    /// How long the engine made load.
    pub active: Duration,
    /// The time from the start to the end of the last iteration.
    pub elapsed: Duration,
    /// Whether iterations were aborted, because the grace period was over or the run was aborted.
    pub cut_off: bool,
    /// The most requests that were sent and are in no delta, because the code of their thread blocked
    /// it beyond the end of the run.
    pub lost_at_most: u64,
}

impl LoadOutcome {
    /// The outcome of an engine that made no load.
    pub const NONE: LoadOutcome =
        LoadOutcome { active: Duration::ZERO, elapsed: Duration::ZERO, cut_off: false, lost_at_most: 0 };

    /// Adds the outcome of threads that ran at the same time.
    pub fn include(&mut self, other: LoadOutcome) {
        self.active = self.active.max(other.active);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.cut_off |= other.cut_off;
        self.lost_at_most += other.lost_at_most;
    }
}

/// A prepared or running engine.
pub struct Engine {
    commands: watch::Sender<EngineCommand>,
    /// One channel for each thread: every assignment reaches every thread, in order.
    assignments: Vec<mpsc::UnboundedSender<ShareAssignment>>,
    thread_shares: Mutex<Vec<ShareSet>>,
    start_time: StartTimeLock,
    load_end: Arc<LoadEnd>,
    /// The load of the latest assignment, for the last delta of a thread that is given up.
    profile: Mutex<Profile>,
    config: Arc<EngineConfig>,
    user_start: UserStart,
    messages: mpsc::UnboundedReceiver<ThreadMessage>,
    /// Why the first failed thread has failed.
    failure: Option<String>,
    threads: Vec<JoinHandle<Result<LoadOutcome, EngineError>>>,
    sources: Vec<SourceId>,
    busy_users: BusyUsers,
    /// `None` in an open model.
    on_start_tracker: Option<Arc<OnStartTracker>>,
    /// One for each thread.
    progress: Vec<ThreadProgress>,
}

/// A message of a thread to the engine.
pub(crate) enum ThreadMessage {
    Delta(Box<Delta>),
    /// The thread has ended early, with this reason. Its last delta may be missing.
    Failed {
        thread: u32,
        reason: String,
    },
    /// The thread does not end, because this code blocks it and cannot be interrupted.
    GivenUp {
        thread: u32,
        blocking_code: String,
    },
}

/// The number of users in an iteration. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct BusyUsers(Vec<Arc<ThreadActivity>>);

impl BusyUsers {
    pub fn count(&self) -> u64 {
        self.0.iter().map(|thread| thread.busy_users()).sum()
    }
}

/// The busy users of several engines together.
impl FromIterator<BusyUsers> for BusyUsers {
    fn from_iter<I: IntoIterator<Item = BusyUsers>>(engines: I) -> BusyUsers {
        BusyUsers(engines.into_iter().flat_map(|engine| engine.0).collect())
    }
}

/// The instant of the start, once it is known. The engine sends assignments, and a thread reads its
/// assignments together with the clock, only while holding this lock. Therefore a thread never receives
/// an assignment that takes effect before an instant whose starts it has already made.
pub(crate) type StartTimeLock = Arc<Mutex<Option<Instant>>>;

/// Stops a running engine. Clones stop the same engine.
#[derive(Clone)]
pub struct EngineStopHandle {
    commands: watch::Sender<EngineCommand>,
    load_end: Arc<LoadEnd>,
}

impl EngineStopHandle {
    /// Makes no further starts. Iterations in progress may finish within the grace period.
    pub fn drain(&self) {
        self.commands.send_if_modified(|command| {
            let running = matches!(command, EngineCommand::Prepare | EngineCommand::Start(_));
            if running {
                let now = Instant::now();
                self.load_end.drain(now);
                *command = EngineCommand::Drain(now);
            }
            running
        });
    }

    /// Aborts all iterations in progress and records their requests as aborted.
    pub fn abort(&self) {
        self.load_end.abort();
        self.commands.send_replace(EngineCommand::Abort);
    }
}

impl Engine {
    /// Starts the threads, and each builds its part of the driver. No load is made before
    /// [`Engine::start`].
    pub async fn prepare<D: Driver>(driver: D, config: EngineConfig) -> Result<Engine, EngineError> {
        let (commands, _) = watch::channel(EngineCommand::Prepare);
        let first = ShareAssignment::new(config.shares, config.load.model.profile().clone(), Duration::ZERO);
        let no_shares = vec![ShareSet::NONE; config.threads.max(1)];
        let user_start = driver.user_start();
        let thread_shares = divide_shares(&first, &no_shares, &config, user_start);
        let (messages_tx, messages) = mpsc::unbounded_channel();
        let (ready_tx, mut ready) = mpsc::unbounded_channel();
        let late_starts = LateStarts {
            grace: config.limits.grace,
            limited: config.load.iterations.is_some(),
            in_fleet: config.send_permit.is_some(),
        };
        let (iteration_quota, config) = (config.effective_quota(), Arc::new(config));
        let mut engine = Engine {
            commands,
            assignments: Vec::new(),
            thread_shares: Mutex::new(thread_shares),
            start_time: StartTimeLock::default(),
            load_end: Arc::new(LoadEnd::new(first.profile.duration(), late_starts)),
            profile: Mutex::new(first.profile.clone()),
            config: config.clone(),
            user_start,
            messages,
            failure: None,
            threads: Vec::new(),
            sources: Vec::new(),
            busy_users: BusyUsers::default(),
            on_start_tracker: matches!(config.load.model, LoadModel::Closed { .. }).then(Arc::default),
            progress: Vec::new(),
        };
        let context = EngineContext {
            driver: Arc::new(driver),
            iteration_quota,
            // One task needs no order of tasks, and one thread counts by itself.
            iterations_begun: (config.tasks.len() > 1 && config.threads > 1).then(Arc::default),
            on_start_tracker: engine.on_start_tracker.clone(),
            config,
            ready: ready_tx,
            messages: messages_tx,
            start_time: engine.start_time.clone(),
            load_end: engine.load_end.clone(),
        };
        engine.spawn_threads(context, &first)?;
        // Each thread sends once when it is ready. A thread that fails drops its sender instead.
        let mut ready_threads = 0;
        while ready_threads < engine.threads.len() && ready.recv().await.is_some() {
            ready_threads += 1;
        }
        if ready_threads < engine.threads.len() {
            engine.stop_handle().abort();
            engine.join()?;
            return Err(EngineError::ThreadPanicked);
        }
        Ok(engine)
    }

    fn spawn_threads<D: Driver>(
        &mut self,
        context: EngineContext<D>,
        first: &ShareAssignment,
    ) -> Result<(), EngineError> {
        let thread_shares = lock(&self.thread_shares).clone();
        for (index, shares) in (0..).zip(thread_shares) {
            let (instance, first_thread) = (context.config.instance, context.config.first_thread);
            let source = SourceId { instance, thread: first_thread + index };
            self.sources.push(source);
            let activity: Arc<ThreadActivity> = Arc::default();
            self.progress.push(ThreadProgress::new(source, activity.clone()));
            self.busy_users.0.push(activity.clone());
            let (assignments_tx, assignments) = mpsc::unbounded_channel();
            // Cannot fail: the receiver is still here.
            let _ = assignments_tx.send(first.for_thread(shares));
            self.assignments.push(assignments_tx);
            let thread = ThreadContext { index, activity, commands: self.commands.subscribe(), assignments };
            let deadline = ThreadDeadline {
                thread: index,
                commands: self.commands.subscribe(),
                load_end: self.load_end.clone(),
                grace: context.config.limits.grace,
                messages: context.messages.downgrade(),
            };
            let context = context.clone();
            let builder = std::thread::Builder::new().name(format!("squall-{index}"));
            let spawned = builder.spawn(move || run_thread(thread, context, &deadline));
            self.threads.push(spawned.map_err(EngineError::Thread)?);
        }
        Ok(())
    }

    /// Starts all threads at the instant `at`.
    pub fn start(&self, at: Instant) {
        self.commands.send_if_modified(|command| {
            let prepared = *command == EngineCommand::Prepare;
            if prepared {
                *lock(&self.start_time) = Some(at);
                *command = EngineCommand::Start(at);
            }
            prepared
        });
    }

    /// Changes the shares and the profile of this process. Returns the run time at which the change
    /// takes effect: starts due before it follow the previous assignment, later ones the new one. That
    /// time is in the future, and not before any time in `resume_from`, which may come from a faster
    /// clock.
    pub fn set_assignment(&self, mut assignment: ShareAssignment) -> Duration {
        let start = lock(&self.start_time);
        if let Some(elapsed) = start.and_then(|start| Instant::now().checked_duration_since(start)) {
            assignment.effective_at = assignment.effective_at.max(elapsed + Duration::from_nanos(1));
        }
        let resume_times = assignment.resume_from.values().copied();
        assignment.effective_at = resume_times.fold(assignment.effective_at, Duration::max);
        self.load_end.set_duration(assignment.profile.duration());
        *lock(&self.profile) = assignment.profile.clone();
        let mut thread_shares = lock(&self.thread_shares);
        *thread_shares = divide_shares(&assignment, &thread_shares, &self.config, self.user_start);
        for (thread, shares) in self.assignments.iter().zip(&*thread_shares) {
            // Fails only for a thread that has ended, which needs no assignment.
            let _ = thread.send(assignment.for_thread(*shares));
        }
        assignment.effective_at
    }

    pub fn stop_handle(&self) -> EngineStopHandle {
        EngineStopHandle { commands: self.commands.clone(), load_end: self.load_end.clone() }
    }

    /// The number of users in an iteration, for reading at any time.
    pub fn busy_users(&self) -> BusyUsers {
        self.busy_users.clone()
    }

    /// The users of a closed model that have started (`true`) or left (`false`) since the last call, by
    /// number. A user has started when its `on_start` has succeeded.
    pub fn take_user_changes(&self) -> BTreeMap<u64, bool> {
        self.on_start_tracker.as_ref().map(|tracker| tracker.take_changes()).unwrap_or_default()
    }

    /// The run time at which the load ended: the end of the last iteration of a limited closed run, or
    /// the end of an open run's schedule, or its last start if that is later. Valid after the last
    /// delta.
    pub fn load_end(&self) -> Duration {
        self.busy_users.0.iter().map(|thread| thread.load_end()).max().unwrap_or_default()
    }

    /// The sources of this engine's deltas, one per thread.
    pub fn sources(&self) -> &[SourceId] {
        &self.sources
    }

    /// The next delta; `None` when all threads have ended. A thread that fails ends the other threads,
    /// because a run without some of its users measures a different load.
    pub async fn next_delta(&mut self) -> Option<Delta> {
        poll_fn(|cx| self.poll_delta(cx)).await
    }

    /// As [`Engine::next_delta`], for a caller that polls several engines.
    pub(crate) fn poll_delta(&mut self, cx: &mut Context<'_>) -> Poll<Option<Delta>> {
        loop {
            // A thread that was given up keeps its sender, so the channel does not close.
            if self.progress.iter().all(|thread| thread.state != ThreadReporting::Running) && self.has_given_up() {
                return Poll::Ready(None);
            }
            match ready!(self.messages.poll_recv(cx)) {
                Some(ThreadMessage::Delta(delta)) => {
                    let index = (delta.source.thread - self.config.first_thread) as usize;
                    if self.progress[index].accept(&delta) {
                        return Poll::Ready(Some(*delta));
                    }
                }
                Some(ThreadMessage::Failed { thread, reason }) => {
                    self.progress[thread as usize].state = ThreadReporting::Ended;
                    self.stop_handle().abort();
                    self.failure.get_or_insert(reason);
                }
                Some(ThreadMessage::GivenUp { thread, blocking_code }) => {
                    if self.progress[thread as usize].state == ThreadReporting::Running {
                        return Poll::Ready(Some(self.give_up(thread as usize, &blocking_code)));
                    }
                }
                None => return Poll::Ready(None),
            }
        }
    }

    fn has_given_up(&self) -> bool {
        self.progress.iter().any(|thread| thread.state == ThreadReporting::GivenUp)
    }

    /// Ends the run of a thread that does not end. Returns its last delta.
    #[cold]
    fn give_up(&mut self, thread: usize, blocking_code: &str) -> Delta {
        let elapsed = self.elapsed();
        let stopped = match *self.commands.borrow() {
            EngineCommand::Drain(at) => lock(&self.start_time).map(|start| at.saturating_duration_since(start)),
            EngineCommand::Abort => Some(elapsed),
            EngineCommand::Prepare | EngineCommand::Start(_) => None,
        };
        let due_starts = self.due_starts(thread, stopped.unwrap_or(Duration::MAX));
        self.progress[thread].give_up(&GivenUpThread { blocking_code, elapsed, due_starts })
    }

    /// The starts of an open model that a thread had to make before `end`, without those of the
    /// warm-up.
    fn due_starts(&self, thread: usize, end: Duration) -> u64 {
        let (load, shares) = (&self.config.load, lock(&self.thread_shares)[thread]);
        let LoadModel::Open { arrivals, .. } = &load.model else { return 0 };
        let profile = lock(&self.profile).clone();
        let schedule = Schedule::new(profile, *arrivals, shares, load.iterations, self.config.seed);
        let starts = schedule.skip_while(|start| start.at < load.warm_up).take_while(|start| start.at < end);
        starts.count() as u64
    }

    fn elapsed(&self) -> Duration {
        lock(&self.start_time).map_or(Duration::ZERO, |start| start.elapsed())
    }

    /// Why a thread has failed, if one has. Valid after the last delta.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Waits for all threads except those that were given up. Returns the longest times of any thread.
    pub fn join(self) -> Result<LoadOutcome, EngineError> {
        let elapsed = self.elapsed();
        let active = elapsed.min(self.load_end.duration());
        let mut all = LoadOutcome::NONE;
        let mut first_error = None;
        for (thread, progress) in self.threads.into_iter().zip(self.progress) {
            let outcome = match progress.state {
                ThreadReporting::GivenUp => {
                    let lost_at_most = progress.unreported_requests();
                    Ok(LoadOutcome { active, elapsed, cut_off: true, lost_at_most })
                }
                _ => thread.join().unwrap_or(Err(EngineError::ThreadPanicked)),
            };
            match outcome {
                Ok(outcome) => all.include(outcome),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(all), Err)
    }
}

/// Gives each thread its part of the assigned shares; `previous` is the part that it had.
fn divide_shares(
    assignment: &ShareAssignment,
    previous: &[ShareSet],
    config: &EngineConfig,
    user_start: UserStart,
) -> Vec<ShareSet> {
    let count = match &config.load.model {
        LoadModel::Open { .. } => {
            threads_with_first_users(user_start, assignment.shares, &assignment.profile, &config.limits)
        }
        LoadModel::Closed { .. } => previous.len(),
    };
    assign_to_first_threads(assignment.shares, previous, count)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
