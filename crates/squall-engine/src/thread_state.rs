//! What the scheduler and the user tasks of one thread share. Only that thread uses it, so plain cells
//! are enough. It decides nothing about the load; the scheduler does.

use squall_metrics::{MetricKey, Outcome, OutcomeCategory, SourceId};
use squall_model::{LoadModel, Pause, TaskIndex, TaskSpec, protocol::GroupName};
use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    RequestsPerIteration, ThreadRecorder, UserStart,
    engine_config::EngineConfig,
    load_end::LoadEnd,
    number_quota::{NumberQuota, QuotaOutcome},
    on_start_tracker::OnStartTracker,
    scheduler_waker::SchedulerWaker,
    sleep_queue::SleepQueue,
    start_queue::StartQueue,
    task_chooser::TaskCycle,
    thread_counters::{ThreadActivity, ThreadCounters, increment},
    user_mailbox::{DueStart, UserMailbox, UserSignal},
    user_pool::UserPool,
};

/// How often a start that waits for a thread checks, after the end of the load, whether it may still
/// begin.
const LATE_START_CHECK_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct ThreadState {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) source: SourceId,
    pub(crate) recorder: ThreadRecorder,
    pub(crate) run_start: Instant,
    /// `None` if tasks have conditions: each user then chooses for itself.
    pub(crate) task_cycle: Option<TaskCycle>,
    /// The iterations left of a closed model with a limit.
    pub(crate) iteration_quota: Option<NumberQuota>,
    pub(crate) cross_thread: CrossThreadState,
    pub(crate) users: UserPool,
    pub(crate) starts: StartQueue,
    pub(crate) sleeps: SleepQueue,
    pub(crate) counters: ThreadCounters,
    pub(crate) scheduler: SchedulerWaker,
}

/// What the threads of an engine have in common.
pub(crate) struct CrossThreadState {
    pub(crate) requests_per_iteration: Option<RequestsPerIteration>,
    pub(crate) user_start: UserStart,
    /// Iterations of a closed model that all threads have begun; `None` where the thread's own count
    /// gives the same order of tasks.
    pub(crate) iterations_begun: Option<Arc<AtomicU64>>,
    /// All users of a closed model; only this thread's in an open model, where each thread has starts
    /// of its own.
    pub(crate) on_start_tracker: Arc<OnStartTracker>,
    pub(crate) load_end: Arc<LoadEnd>,
}

impl ThreadState {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        source: SourceId,
        recorder: ThreadRecorder,
        run_start: Instant,
        iteration_quota: Option<NumberQuota>,
        (activity, cross_thread): (Arc<ThreadActivity>, CrossThreadState),
    ) -> ThreadState {
        let unconditional = config.tasks.iter().all(TaskSpec::is_unconditional);
        ThreadState {
            task_cycle: unconditional.then(|| TaskCycle::new(&config.tasks, config.seed)),
            config,
            source,
            recorder,
            run_start,
            iteration_quota,
            cross_thread,
            users: UserPool::default(),
            starts: StartQueue::default(),
            sleeps: SleepQueue::default(),
            counters: ThreadCounters::new(activity, run_start),
            scheduler: SchedulerWaker::new(run_start),
        }
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.run_start)
    }

    /// Whether a user of a closed model may begin an iteration now.
    pub(crate) fn may_iterate(&self, now: Instant) -> bool {
        self.cross_thread.load_end.allows_iteration(now, self.run_start)
    }

    /// Whether a due start of an open model may begin now.
    pub(crate) fn may_begin_start(&self, now: Instant) -> bool {
        self.cross_thread.load_end.allows_start(now, self.run_start)
    }

    /// Waits until the load is over and `may_begin` allows no iteration that was due before.
    pub(crate) async fn load_over(&self, may_begin: fn(&ThreadState, Instant) -> bool) {
        self.users.drain_began().await;
        while may_begin(self, Instant::now()) {
            tokio::time::sleep(LATE_START_CHECK_INTERVAL).await;
        }
    }

    /// The pause of a closed-model user between two iterations; none in an open model.
    pub(crate) fn pause(&self) -> Pause {
        match &self.config.load.model {
            LoadModel::Closed { pause, .. } => *pause,
            LoadModel::Open { .. } => Pause::NONE,
        }
    }

    pub(crate) fn user_joined(&self) {
        increment(&self.counters.users);
        self.recorder.record_users(self.counters.users.get());
    }

    /// Records a user whose `on_start` ran from `created` to now because all users were busy.
    #[cold]
    pub(crate) fn record_added_user(&self, created: Instant) {
        let metric = self.recorder.metric(MetricKey::group(GroupName::AddedUser.to_string()));
        self.recorder.record_span(metric, created, Instant::now(), Outcome::new(OutcomeCategory::Ok, "OK"));
    }

    /// Records a start, due at `intended`, that did not happen because no thread was free for its code.
    #[cold]
    pub(crate) fn record_start_without_thread(&self, intended: Instant) {
        let metric = self.recorder.metric(MetricKey::group(GroupName::NoThread.to_string()));
        let outcome = Outcome::new(OutcomeCategory::Exception, "NO_THREAD");
        self.recorder.record_span(metric, intended, Instant::now(), outcome);
    }

    /// Whether users have failed to start for so long that the run should not wait for them.
    pub(crate) fn users_cannot_start(&self, now: Instant) -> bool {
        self.cross_thread.on_start_tracker.all_failing_for(now, self.config.on_start_failure_timeout)
    }

    pub(crate) fn quota_is_exhausted(&self) -> bool {
        self.iteration_quota.as_ref().is_some_and(NumberQuota::is_exhausted)
    }

    /// Takes one iteration from the quota, if there is one, and waits for a refill if one may come.
    /// Returns the end of that wait, if the user waited. `None`: the user must leave.
    pub(crate) async fn acquire_iteration(&self, mailbox: &Rc<UserMailbox>) -> Option<Option<Instant>> {
        let Some(quota) = &self.iteration_quota else { return Some(None) };
        let mut available_since = None;
        loop {
            match quota.try_acquire() {
                QuotaOutcome::Number(_) => return Some(available_since),
                QuotaOutcome::Exhausted => return None,
                QuotaOutcome::Pending if self.users.is_draining() => return None,
                QuotaOutcome::Pending => self.users.add_quota_waiter(mailbox),
            }
            if mailbox.receive().await == UserSignal::Leave {
                return None;
            }
            available_since = Some(Instant::now());
        }
    }

    /// Hands a start to an idle user, or queues it for the next user that becomes free.
    pub(crate) fn dispatch_start(&self, start: DueStart) {
        increment(&self.counters.starts_handed_out);
        if !self.assign_to_idle(start) && !self.starts.push(start) {
            self.record_dropped_starts([start]);
        }
    }

    fn assign_to_idle(&self, start: DueStart) -> bool {
        let assigned = self.users.assign(start);
        if assigned {
            increment(&self.counters.users_assigned);
        }
        assigned
    }

    /// The oldest queued start, for a user that is free now. `None` also while the process is fenced:
    /// the scheduler then drops the queue.
    pub(crate) fn dequeue_start(&self) -> Option<DueStart> {
        if self.starts.is_empty() || !self.may_start() {
            return None;
        }
        let start = self.starts.pop()?;
        if self.starts.wake_when_empty.get() && self.starts.is_empty() {
            self.scheduler.wake();
        }
        // A person has paused the run, so the start was not late meanwhile.
        let paused =
            self.config.send_permit.as_ref().map_or(Duration::ZERO, |permit| permit.paused_after(start.intended));
        Some(DueStart { intended: start.intended + paused, free_since: Instant::now(), ..start })
    }

    fn may_start(&self) -> bool {
        self.config.send_permit.as_ref().is_none_or(|permit| permit.may_start(Instant::now()))
    }

    /// Hands queued starts to idle users. Both exist together after a pause of the run.
    pub(crate) fn assign_queued_to_idle(&self) {
        while !self.starts.is_empty() && self.users.has_idle() {
            let Some(start) = self.dequeue_start() else { return };
            self.assign_to_idle(start);
        }
    }

    /// Drops all queued starts but the oldest `kept`.
    pub(crate) fn drop_queued_after(&self, kept: usize) {
        self.record_dropped_starts(self.starts.remove_after(kept));
    }

    pub(crate) fn drop_queued(&self) {
        self.drop_queued_after(0);
    }

    fn record_dropped_starts(&self, starts: impl IntoIterator<Item = DueStart, IntoIter: ExactSizeIterator>) {
        let starts = starts.into_iter();
        let handed_out = &self.counters.starts_handed_out;
        handed_out.set(handed_out.get() - starts.len() as u64);
        self.recorder.record_dropped(starts.map(|start| start.intended));
    }

    /// Sleeps until `due`, or until the user must leave.
    pub(crate) async fn sleep(&self, mailbox: &Rc<UserMailbox>, due: Instant) -> UserSignal {
        if self.users.is_draining() {
            return UserSignal::Leave;
        }
        self.sleeps.push(mailbox, due);
        if due + self.config.limits.slack < self.scheduler.next_wake.get() {
            self.scheduler.wake();
        }
        let signal = mailbox.receive().await;
        mailbox.sleep_id.set(0);
        signal
    }

    /// Makes all waiting and sleeping users leave. Users in an iteration leave after it.
    pub(crate) fn drain_users(&self) {
        self.users.drain();
        self.sleeps.dismiss_all();
    }

    /// Tells the recorder how many requests this thread makes at most, if the driver knows. The caller
    /// guarantees that no further iteration begins except for starts already handed out.
    pub(crate) fn set_final_request_limit(&self) {
        if let Some(requests) = self.cross_thread.requests_per_iteration {
            let iterations = self.counters.starts_handed_out.get() + self.counters.iterations_begun.get();
            // Queued starts have made none of their requests.
            let unfinished = self.counters.users.get() + self.starts.len() as u64;
            self.recorder.set_final_send_limit(|begun| requests.upper_bound(iterations, unfinished, begun));
        }
    }

    /// The task of the next iteration of a closed model; `None` if users choose for themselves.
    /// Threads share one cycle: with a cycle each, the numbers of tasks would be off by up to one
    /// iteration per thread, all in the same direction.
    pub(crate) fn next_task(&self) -> Option<TaskIndex> {
        let cycle = self.task_cycle.as_ref()?;
        let number = match &self.cross_thread.iterations_begun {
            Some(all_threads) => all_threads.fetch_add(1, Ordering::Relaxed),
            None => self.counters.iterations_begun.get(),
        };
        Some(cycle.task(number))
    }

    /// The task of start `number` of an open model; `None` if users choose for themselves.
    pub(crate) fn task_of(&self, number: u64) -> Option<TaskIndex> {
        self.task_cycle.as_ref().map(|cycle| cycle.task(number))
    }
}
