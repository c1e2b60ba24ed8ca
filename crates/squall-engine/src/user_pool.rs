//! What the conductor and the virtual users of one thread share: who is idle, who sleeps, what is waiting to be started. Only
//! ever touched by its own thread, so plain cells do. Decides nothing.

use squall_metrics::SourceId;
use squall_model::{LoadModel, Pause, TaskIndex, TaskSpec};
use std::{
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    future::poll_fn,
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use crate::{
    RequestsPerIteration, ThreadRecorder,
    engine::EngineConfig,
    number_quota::{NumberQuota, QuotaOutcome},
    task_chooser::TaskCycle,
    user_slot::{DueStart, UserSignal, UserSlot},
};

/// Starts that wait for a free user; past this many they are dropped, and counted. 56 bytes each.
const MAX_QUEUED_STARTS: usize = 1_000_000;

pub(crate) struct UserPool {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) source: SourceId,
    pub(crate) recorder: ThreadRecorder,
    /// `None` if tasks have conditions: each user then chooses for itself.
    pub(crate) task_cycle: Option<TaskCycle>,
    pub(crate) run_start: Instant,
    /// One for every iteration of a closed model with a limit.
    pub(crate) iteration_quota: Option<NumberQuota>,
    /// When an open model's last iteration began.
    pub(crate) last_iteration_start: Cell<Instant>,
    /// When the last iteration of a limited run ended.
    pub(crate) last_iteration_end: Cell<Instant>,
    pub(crate) draining: Cell<bool>,
    pub(crate) user_count: Cell<u64>,
    /// Users that have come through their own start: of this thread in an open model, whose starts are its own; of all in a closed one.
    pub(crate) on_start_tracker: Arc<OnStartTracker>,
    /// Users of an open model that have no task to take a start with yet.
    pub(crate) users_without_task: Cell<u64>,
    /// Users of an open model that are to go when they are free: others may have as many now.
    surplus_users: Cell<u64>,
    /// Users that were given a start and have not noticed yet.
    pub(crate) users_assigned: Cell<u64>,
    pub(crate) activity: Arc<ThreadActivity>,
    /// Iterations this thread has begun.
    pub(crate) iterations_begun: Cell<u64>,
    /// Iterations of a closed model that all threads have begun, where it matters which comes next.
    iterations_begun_by_all: Option<Arc<AtomicU64>>,
    /// Starts of an open model that were given to users or queued for them, and not given up.
    starts_handed_out: Cell<u64>,
    pub(crate) requests_per_iteration: Option<RequestsPerIteration>,
    idle: RefCell<Vec<Rc<UserSlot>>>,
    start_queue: RefCell<VecDeque<DueStart>>,
    sleepers: RefCell<BinaryHeap<Reverse<SleepingUser>>>,
    last_sleep_id: Cell<u64>,
    /// Who waits for a ticket.
    quota_waiters: RefCell<Vec<Rc<UserSlot>>>,
    scheduler_waker: RefCell<Option<Waker>>,
    wake_requested: Cell<bool>,
    /// The conductor waits for the backlog to be empty.
    pub(crate) wake_when_queue_empty: Cell<bool>,
    /// The conductor will look around by then anyway.
    pub(crate) scheduler_wakes_at: Cell<Instant>,
}

/// How many users of one thread are in an iteration. Written by that thread alone, read by anybody; on a cache line of its own,
/// so that a thread that counts does not slow down its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadActivity(AtomicU64, AtomicU64);

impl ThreadActivity {
    pub(crate) fn busy_users(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only for the thread that counts: two writers would lose counts.
    pub(crate) fn set_busy_users(&self, users: u64) {
        self.0.store(users, Ordering::Relaxed);
    }

    /// When its load was over, in nanoseconds of the run; known when the thread has said its last.
    pub(crate) fn load_end(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    pub(crate) fn set_load_end(&self, at: Duration) {
        self.1.store(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Who has come through their own start.
#[derive(Debug, Default)]
pub(crate) struct OnStartTracker(Mutex<OnStartState>);

#[derive(Debug, Default)]
struct OnStartState {
    /// Users that have, and are here.
    started_users: u64,
    /// When one first failed of those that were tried since the last success.
    failing_since: Option<Instant>,
}

impl OnStartTracker {
    pub(crate) fn user_started(&self) {
        let mut starts = self.lock_state();
        *starts = OnStartState { started_users: starts.started_users + 1, failing_since: None };
    }

    pub(crate) fn user_left(&self) {
        self.lock_state().started_users -= 1;
    }

    pub(crate) fn start_failed(&self, now: Instant) {
        self.lock_state().failing_since.get_or_insert(now);
    }

    /// Whether starts have failed for so long, and nobody is here whose start has not, that nobody's will succeed.
    fn all_failing_for(&self, now: Instant, patience: Duration) -> bool {
        let starts = self.lock_state();
        starts.started_users == 0
            && starts.failing_since.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    fn lock_state(&self) -> MutexGuard<'_, OnStartState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What threads of an engine have in common, or is known outside them.
pub(crate) struct CrossThreadState {
    pub(crate) activity: Arc<ThreadActivity>,
    pub(crate) requests_per_iteration: Option<RequestsPerIteration>,
    pub(crate) iterations_begun_by_all: Option<Arc<AtomicU64>>,
    pub(crate) on_start_tracker: Arc<OnStartTracker>,
}

struct SleepingUser {
    due: Instant,
    sleep_id: u64,
    slot: Rc<UserSlot>,
}

impl UserPool {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        source: SourceId,
        probe: ThreadRecorder,
        start: Instant,
        tickets: Option<NumberQuota>,
        CrossThreadState {
            activity: busy,
            requests_per_iteration: requests,
            iterations_begun_by_all: begun_by_all,
            on_start_tracker: through,
        }: CrossThreadState,
    ) -> UserPool {
        let unconditional = config.tasks.iter().all(TaskSpec::is_unconditional);
        UserPool {
            task_cycle: unconditional.then(|| TaskCycle::new(&config.tasks, config.seed)),
            config,
            source,
            recorder: probe,
            run_start: start,
            iteration_quota: tickets,
            last_iteration_start: Cell::new(start),
            last_iteration_end: Cell::new(start),
            draining: Cell::new(false),
            user_count: Cell::new(0),
            on_start_tracker: through,
            users_without_task: Cell::new(0),
            surplus_users: Cell::new(0),
            users_assigned: Cell::new(0),
            activity: busy,
            iterations_begun: Cell::new(0),
            iterations_begun_by_all: begun_by_all,
            starts_handed_out: Cell::new(0),
            requests_per_iteration: requests,
            idle: RefCell::default(),
            start_queue: RefCell::default(),
            sleepers: RefCell::default(),
            last_sleep_id: Cell::new(0),
            quota_waiters: RefCell::default(),
            scheduler_waker: RefCell::default(),
            wake_requested: Cell::new(false),
            wake_when_queue_empty: Cell::new(false),
            scheduler_wakes_at: Cell::new(start),
        }
    }

    /// Which of its engine's threads this is.
    pub(crate) fn pause(&self) -> Pause {
        match &self.config.load.model {
            LoadModel::Closed { pause, .. } => *pause,
            LoadModel::Open { .. } => Pause::NONE,
        }
    }

    /// Takes one iteration from the limit, if there is one, and waits for it if more may come; says since when it could be had, if it
    /// was waited for. `None`: the user is to leave.
    pub(crate) async fn acquire_iteration(&self, slot: &Rc<UserSlot>) -> Option<Option<Instant>> {
        let Some(tickets) = &self.iteration_quota else { return Some(None) };
        let mut waited = None;
        loop {
            match tickets.try_acquire() {
                QuotaOutcome::Number(_) => return Some(waited),
                QuotaOutcome::Exhausted => return None,
                QuotaOutcome::Pending if self.draining.get() => return None,
                QuotaOutcome::Pending => self.quota_waiters.borrow_mut().push(slot.clone()),
            }
            if slot.receive().await == UserSignal::Leave {
                return None;
            }
            waited = Some(Instant::now());
        }
    }

    /// There may be tickets for those who found none.
    pub(crate) fn wake_quota_waiters(&self) {
        self.quota_waiters.borrow_mut().drain(..).for_each(|slot| slot.send(UserSignal::Wake));
    }

    /// One more user is here.
    pub(crate) fn user_joined(&self) {
        self.user_count.set(self.user_count.get() + 1);
        self.recorder.record_users(self.user_count.get());
    }

    /// A user is gone.
    pub(crate) fn user_left(&self) {
        self.user_count.set(self.user_count.get() - 1);
    }

    /// Whoever is here beyond `most` goes, when its iteration is over.
    pub(crate) fn limit_users(&self, most: u64) {
        self.surplus_users.set(self.user_count.get().saturating_sub(most));
        let mut idle = self.idle.borrow_mut();
        let first = idle.len().saturating_sub(self.surplus_users.get() as usize);
        idle.drain(first..).for_each(|slot| slot.send(UserSignal::Wake));
    }

    /// Whether the user that asks is one too many, and goes.
    pub(crate) fn retire_if_surplus(&self) -> bool {
        let surplus = self.surplus_users.get();
        self.surplus_users.set(surplus.saturating_sub(1));
        surplus > 0
    }

    /// Whether it is of no use to wait for users any longer.
    pub(crate) fn users_cannot_start(&self, now: Instant) -> bool {
        self.on_start_tracker.all_failing_for(now, self.config.start_failure_timeout)
    }

    pub(crate) fn quota_is_exhausted(&self) -> bool {
        self.iteration_quota.as_ref().is_some_and(NumberQuota::is_exhausted)
    }

    /// Gives a start that is due to an idle user; the most recently used first, so that no more connections are kept busy than
    /// needed. `false` if nobody is idle.
    fn assign_to_idle(&self, assignment: DueStart) -> bool {
        let Some(slot) = self.idle.borrow_mut().pop() else { return false };
        self.users_assigned.set(self.users_assigned.get() + 1);
        slot.send(UserSignal::Start(assignment));
        true
    }

    /// Gives a start to an idle user, or queues it for the next who is.
    pub(crate) fn dispatch_start(&self, assignment: DueStart) {
        self.starts_handed_out.set(self.starts_handed_out.get() + 1);
        if !self.assign_to_idle(assignment) {
            self.enqueue_start(assignment);
        }
    }

    pub(crate) fn mark_idle(&self, slot: &Rc<UserSlot>) {
        self.idle.borrow_mut().push(slot.clone());
    }

    /// Queues a start for the next user that becomes free.
    fn enqueue_start(&self, assignment: DueStart) {
        let mut backlog = self.start_queue.borrow_mut();
        if backlog.len() >= MAX_QUEUED_STARTS {
            self.starts_handed_out.set(self.starts_handed_out.get() - 1);
            self.recorder.record_dropped([assignment.intended]);
        } else {
            backlog.push_back(assignment);
        }
    }

    pub(crate) fn dequeue_start(&self) -> Option<DueStart> {
        // Of a process that has lost its place the conductor gives up what waits.
        if self.queued_starts() == 0 || !self.may_start() {
            return None;
        }
        let queued = self.start_queue.borrow_mut().pop_front()?;
        if self.wake_when_queue_empty.get() && self.queued_starts() == 0 {
            self.wake_scheduler();
        }
        Some(DueStart { free_since: Instant::now(), ..queued })
    }

    fn may_start(&self) -> bool {
        self.config.send_budget.as_ref().is_none_or(|leash| leash.may_start(Instant::now()))
    }

    /// Gives what waited for a pause to end to those who are idle.
    pub(crate) fn assign_queued_to_idle(&self) {
        while self.queued_starts() > 0 && !self.idle.borrow().is_empty() {
            let Some(queued) = self.dequeue_start() else { return };
            self.assign_to_idle(queued);
        }
    }

    pub(crate) fn queued_starts(&self) -> usize {
        self.start_queue.borrow().len()
    }

    /// Gives up what still waits for a user, but for the first `kept`.
    pub(crate) fn drop_queued_after(&self, kept: usize) {
        let mut backlog = self.start_queue.borrow_mut();
        let kept = kept.min(backlog.len());
        let dropped = backlog.split_off(kept);
        self.starts_handed_out.set(self.starts_handed_out.get() - dropped.len() as u64);
        self.recorder.record_dropped(dropped.into_iter().map(|start| start.intended));
    }

    /// Gives up everything that still waits for a user.
    pub(crate) fn drop_queued(&self) {
        self.drop_queued_after(0);
    }

    /// Sleeps until `due` or until told to leave.
    pub(crate) async fn sleep(&self, slot: &Rc<UserSlot>, due: Instant) -> UserSignal {
        if self.draining.get() {
            return UserSignal::Leave;
        }
        let sleep = self.last_sleep_id.get() + 1;
        self.last_sleep_id.set(sleep);
        slot.sleep_id.set(sleep);
        self.sleepers.borrow_mut().push(Reverse(SleepingUser { due, sleep_id: sleep, slot: slot.clone() }));
        if due + self.config.limits.slack < self.scheduler_wakes_at.get() {
            self.wake_scheduler();
        }
        let signal = slot.receive().await;
        slot.sleep_id.set(0);
        signal
    }

    /// Wakes everybody whose sleep is over; returns when the next one is.
    pub(crate) fn wake_sleepers(&self, now: Instant) -> Option<Instant> {
        let mut sleepers = self.sleepers.borrow_mut();
        while let Some(Reverse(first)) = sleepers.peek() {
            if first.due > now {
                return Some(first.due);
            }
            let Reverse(SleepingUser { sleep_id: sleep, slot, .. }) = sleepers.pop().expect("it was just seen");
            if slot.sleep_id.get() == sleep {
                slot.send(UserSignal::Wake);
            }
        }
        None
    }

    /// Tells everybody who waits to leave; those in an iteration see it when they come back.
    pub(crate) fn drain_users(&self) {
        self.draining.set(true);
        for slot in self.idle.borrow_mut().drain(..).chain(self.quota_waiters.borrow_mut().drain(..)) {
            slot.send(UserSignal::Leave);
        }
        for Reverse(sleeper) in self.sleepers.borrow_mut().drain() {
            if sleeper.slot.sleep_id.get() == sleeper.sleep_id {
                sleeper.slot.send(UserSignal::Leave);
            }
        }
    }

    /// No iteration will begin but those that were given: says how many requests there will be at most, if that is known.
    pub(crate) fn set_final_request_limit(&self) {
        if let Some(requests) = self.requests_per_iteration {
            let iterations = self.starts_handed_out.get() + self.iterations_begun.get();
            // Those that wait for a user have made none of their requests.
            let not_over = self.user_count.get() + self.queued_starts() as u64;
            self.recorder.set_final_limit(|begun| requests.upper_bound(iterations, not_over, begun));
        }
    }

    /// The task of the next iteration of a closed model, `None` if users choose for themselves. Threads take turns on one cycle: each
    /// with its own would be off by up to one iteration per thread, all to the same side.
    pub(crate) fn next_task(&self) -> Option<TaskIndex> {
        let cycle = self.task_cycle.as_ref()?;
        let number = self
            .iterations_begun_by_all
            .as_ref()
            .map_or(self.iterations_begun.get(), |all| all.fetch_add(1, Ordering::Relaxed));
        Some(cycle.task(number))
    }

    pub(crate) fn task_of(&self, number: u64) -> Option<TaskIndex> {
        self.task_cycle.as_ref().map(|cycle| cycle.task(number))
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.run_start)
    }

    /// Makes the conductor look around at once.
    pub(crate) fn wake_scheduler(&self) {
        self.wake_requested.set(true);
        if let Some(waker) = self.scheduler_waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(crate) async fn wait_for_wake(&self) {
        poll_fn(|cx| {
            if self.wake_requested.replace(false) {
                return Poll::Ready(());
            }
            *self.scheduler_waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl PartialEq for SleepingUser {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.sleep_id) == (other.due, other.sleep_id)
    }
}

impl Eq for SleepingUser {}

impl PartialOrd for SleepingUser {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SleepingUser {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sleep_id).cmp(&(other.due, other.sleep_id))
    }
}
