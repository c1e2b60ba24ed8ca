//! The task of one virtual user: start, iterations, stop. An open-model user waits for starts; a
//! closed-model user starts its own iterations. Neither knows the profile: the scheduler creates and
//! dismisses users.

use fastrand::Rng;
use squall_model::TaskIndex;
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{
    driver::{DriverThread, Iteration, UserIdentity, VirtualUser},
    task_chooser::UserTaskChooser,
    thread_counters::{decrement, increment},
    thread_state::ThreadState,
    user_mailbox::{DueStart, UserMailbox, UserSignal},
};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A user of an open model that the scheduler starts.
#[derive(Clone, Copy)]
pub(crate) struct OpenUserStart {
    pub(crate) identity: UserIdentity,
    /// Whether it runs its `on_start` because all users were busy. The report shows these.
    pub(crate) added_because_busy: bool,
}

/// Runs a user that takes one due start after another.
pub(crate) async fn run_open_user<T: DriverThread>(
    state: Rc<ThreadState>,
    driver: Rc<T>,
    OpenUserStart { identity, added_because_busy }: OpenUserStart,
    mailbox: Rc<UserMailbox>,
) {
    let created = Instant::now();
    let mut driver_user = DriverUser::new(&state, driver, identity);
    let mut chooser = OptionalTaskChooser::new(&state, identity);
    if state.may_begin_start(created) && run_on_start(&state, &mailbox, &mut driver_user.user, identity).await {
        if added_because_busy {
            state.record_added_user(created);
        }
        // A user whose tasks all wait for their `every` takes no start: another user can begin it in time.
        while chooser.wait_until_ready(&state, &mailbox).await {
            let Some(start) = next_start(&state, &mailbox).await else { break };
            if !driver_user.recreate_if_leases_lost(&state, &mailbox).await {
                state.recorder.record_dropped([start.intended]);
                return decrement(&state.counters.users);
            }
            let DueStart { number, intended, .. } = start;
            let taken = Instant::now();
            if !state.may_begin_start(taken) {
                state.recorder.record_dropped([intended]);
                continue;
            }
            let Some(task) = state.task_of(number).or_else(|| chooser.pick(&state, taken)) else {
                state.recorder.record_dropped([intended]);
                break;
            };
            let without_thread = StartWithoutThread::new(&state, intended);
            if !acquire_thread(&state, &mut driver_user.user, task, ThreadState::may_begin_start).await {
                continue;
            }
            without_thread.acquired();
            let started = Instant::now();
            let late = started.saturating_duration_since(intended) > state.config.limits.late_after;
            // The wait for a thread is not the engine's lag, as the wait for a user is not.
            state.recorder.record_iteration(intended, start.lag(taken), late);
            state.counters.last_iteration_start.set(started);
            chooser.run_iteration(&state, &mut driver_user.user, Iteration { number, task, intended, started }).await;
        }
        driver_user.user.on_stop().await;
        state.cross_thread.on_start_tracker.user_left(identity.number);
    }
    decrement(&state.counters.users);
}

/// Runs a user that starts its next iteration when the previous one and the pause have ended.
pub(crate) async fn run_closed_user<T: DriverThread>(
    state: Rc<ThreadState>,
    driver: Rc<T>,
    identity: UserIdentity,
    mailbox: Rc<UserMailbox>,
) {
    let mut driver_user = DriverUser::new(&state, driver, identity);
    let mut chooser = OptionalTaskChooser::new(&state, identity);
    let mut random = Rng::with_seed(identity.seed);
    let pause = state.pause();
    if state.may_iterate(Instant::now()) && run_on_start(&state, &mailbox, &mut driver_user.user, identity).await {
        let mut intended = Instant::now();
        let mut number = 0;
        while !state.users.is_draining() && !mailbox.must_leave() && state.may_iterate(Instant::now()) {
            if !driver_user.recreate_if_leases_lost(&state, &mailbox).await {
                return decrement(&state.counters.users);
            }
            let mut chosen = None;
            if state.task_cycle.is_none() {
                let Some((task, ready)) = chooser.wait_for_task(&state, &mailbox).await else { break };
                (chosen, intended) = (Some(task), intended.max(ready));
            }
            let Some(available_since) = state.acquire_iteration(&mailbox).await else { break };
            intended = available_since.map_or(intended, |since| intended.max(since));
            // After the wait for the quota, because other users advance the task cycle meanwhile.
            let Some(task) = chosen.or_else(|| state.next_task()) else { break };
            // An iteration of the quota is missing if it does not begin; others are not planned one by one.
            let without_thread = state.iteration_quota.as_ref().map(|_| StartWithoutThread::new(&state, intended));
            if !acquire_thread(&state, &mut driver_user.user, task, ThreadState::may_iterate).await {
                break;
            }
            without_thread.into_iter().for_each(StartWithoutThread::acquired);
            increment(&state.counters.iterations_begun);
            let started = Instant::now();
            if pause.is_none() {
                intended = started;
            }
            let lag = started.saturating_duration_since(intended);
            state.recorder.record_iteration(intended, lag, lag > state.config.limits.late_after);
            chooser.run_iteration(&state, &mut driver_user.user, Iteration { number, task, intended, started }).await;
            number += 1;
            if !pause.is_none() {
                intended = Instant::now() + pause.pick(random.f64());
                if state.sleep(&mailbox, intended).await == UserSignal::Leave {
                    break;
                }
            }
        }
        driver_user.user.on_stop().await;
        state.cross_thread.on_start_tracker.user_left(identity.number);
    }
    decrement(&state.counters.users);
}

/// A driver's user, with the generation of leases that it was created in.
struct DriverUser<T: DriverThread> {
    driver: Rc<T>,
    identity: UserIdentity,
    user: T::User,
    lease_generation: u64,
}

impl<T: DriverThread> DriverUser<T> {
    fn new(state: &ThreadState, driver: Rc<T>, identity: UserIdentity) -> DriverUser<T> {
        let (lease_generation, user) = (state.recorder.lease_generation(), driver.user(identity));
        DriverUser { driver, identity, user, lease_generation }
    }

    /// Replaces the user by a new one if this process has lost its membership since: its leased
    /// resources may belong to another user. `false` if the run ended before the new user started.
    async fn recreate_if_leases_lost(&mut self, state: &ThreadState, mailbox: &Rc<UserMailbox>) -> bool {
        let generation = state.recorder.lease_generation();
        if generation == self.lease_generation {
            return true;
        }
        self.user.on_stop().await;
        state.cross_thread.on_start_tracker.user_left(self.identity.number);
        (self.user, self.lease_generation) = (self.driver.user(self.identity), generation);
        run_on_start(state, mailbox, &mut self.user, self.identity).await
    }
}

/// The next start for an open-model user: a queued one, or one that arrives while the user is idle.
async fn next_start(state: &ThreadState, mailbox: &Rc<UserMailbox>) -> Option<DueStart> {
    loop {
        if state.users.retire_if_surplus() {
            return None;
        }
        if let Some(queued) = state.dequeue_start() {
            return Some(queued);
        }
        if state.users.is_draining() {
            return None;
        }
        state.users.add_idle(mailbox);
        match mailbox.receive().await {
            UserSignal::Start(start) => {
                decrement(&state.counters.users_assigned);
                return Some(start);
            }
            // The scheduler may have queued a start since it sent the signal; the user takes it first.
            UserSignal::Leave | UserSignal::Wake => continue,
        }
    }
}

/// Waits for the thread that an iteration of `task` needs. `false` if the load is over before.
async fn acquire_thread<U: VirtualUser>(
    state: &ThreadState,
    user: &mut U,
    task: TaskIndex,
    may_begin: fn(&ThreadState, Instant) -> bool,
) -> bool {
    // Most users need none and are ready at once. The end of the load is then not polled.
    tokio::select! {
        biased;
        () = user.acquire_thread(task) => true,
        () = state.load_over(may_begin) => false,
    }
}

/// A start that waits for a thread. Dropping it drops the start, because an abort ends the wait too.
struct StartWithoutThread<'s> {
    state: &'s ThreadState,
    intended: Instant,
}

impl StartWithoutThread<'_> {
    fn new(state: &ThreadState, intended: Instant) -> StartWithoutThread<'_> {
        increment(&state.counters.users_without_thread);
        StartWithoutThread { state, intended }
    }

    fn acquired(self) {
        decrement(&self.state.counters.users_without_thread);
        std::mem::forget(self);
    }
}

impl Drop for StartWithoutThread<'_> {
    fn drop(&mut self) {
        decrement(&self.state.counters.users_without_thread);
        self.state.recorder.record_dropped([self.intended]);
        self.state.record_start_without_thread(self.intended);
    }
}

/// Runs the user's own start until it succeeds; `false` if the run ended before.
async fn run_on_start<U: VirtualUser>(
    state: &ThreadState,
    mailbox: &Rc<UserMailbox>,
    user: &mut U,
    identity: UserIdentity,
) -> bool {
    let mut retry = FIRST_RETRY;
    while user.on_start().await.is_err() {
        state.cross_thread.on_start_tracker.start_failed(Instant::now());
        if state.sleep(mailbox, Instant::now() + retry).await == UserSignal::Leave {
            return false;
        }
        retry = (retry * 2).min(MAX_RETRY_DELAY);
    }
    state.cross_thread.on_start_tracker.user_started(identity.number);
    true
}

/// A user's own choice of tasks; `None` if the thread's task cycle chooses. Boxed, because most plans
/// need none.
struct OptionalTaskChooser(Option<Box<UserTaskChooser>>);

impl OptionalTaskChooser {
    fn new(state: &ThreadState, identity: UserIdentity) -> OptionalTaskChooser {
        let chooser = || Box::new(UserTaskChooser::new(&state.config.tasks, identity.seed));
        OptionalTaskChooser(state.task_cycle.is_none().then(chooser))
    }

    /// Sleeps until a task is ready; `false` if the run ended before.
    async fn wait_until_ready(&self, state: &ThreadState, mailbox: &Rc<UserMailbox>) -> bool {
        let Some(chooser) = &self.0 else { return true };
        loop {
            let ready_at = match chooser.ready_tasks(&state.config.tasks, Instant::now()) {
                Ok(_) => return true,
                Err(None) => return false,
                Err(Some(at)) => at,
            };
            increment(&state.counters.users_without_task);
            let signal = state.sleep(mailbox, ready_at).await;
            decrement(&state.counters.users_without_task);
            if signal == UserSignal::Leave {
                return false;
            }
        }
    }

    fn pick(&mut self, state: &ThreadState, now: Instant) -> Option<TaskIndex> {
        self.0.as_mut()?.pick(&state.config.tasks, now).ok()
    }

    /// Sleeps until a task is ready; returns the task and the time since when it was ready.
    async fn wait_for_task(&mut self, state: &ThreadState, mailbox: &Rc<UserMailbox>) -> Option<(TaskIndex, Instant)> {
        let chooser = self.0.as_mut()?;
        let mut ready = state.run_start;
        loop {
            match chooser.pick(&state.config.tasks, Instant::now()) {
                Ok(task) => return Some((task, ready)),
                Err(None) => return None,
                Err(Some(at)) => ready = at,
            }
            if state.sleep(mailbox, ready).await == UserSignal::Leave {
                return None;
            }
        }
    }

    async fn run_iteration<U: VirtualUser>(&mut self, state: &ThreadState, user: &mut U, iteration: Iteration) {
        let activity = &state.counters.activity;
        activity.set_busy_users(activity.busy_users() + 1);
        let completed = user.iterate(iteration).await;
        activity.set_busy_users(activity.busy_users() - 1);
        if state.iteration_quota.is_some() {
            state.counters.last_iteration_end.set(Instant::now());
        }
        if let Some(chooser) = self.0.as_mut().filter(|_| completed) {
            chooser.mark_completed(iteration.task);
        }
        // Without this, iterations that never wait would keep the thread from its scheduler and other users.
        tokio::task::coop::consume_budget().await;
    }
}
