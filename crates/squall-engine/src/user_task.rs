//! The life of a virtual user: start, iterations, stop. An open-model user waits to be given starts; a closed-model user gives
//! them to itself. Neither knows the profile: the conductor says when to come and go.

use fastrand::Rng;
use squall_model::TaskIndex;
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{
    driver::{DriverThread, Iteration, UserIdentity, VirtualUser},
    task_chooser::UserTaskChooser,
    user_pool::UserPool,
    user_slot::{DueStart, UserSignal, UserSlot},
};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// A user that runs whatever start it is given.
pub(crate) async fn run_open_user<T: DriverThread>(
    floor: Rc<UserPool>,
    driver: Rc<T>,
    seat: UserIdentity,
    slot: Rc<UserSlot>,
) {
    let mut being = UserInstance::new(&floor, driver, seat);
    let mut choice = OptionalTaskChooser::new(&floor, seat);
    if run_on_start(&floor, &slot, &mut being.user).await {
        // Who has no task yet (`every`) takes no start: it would keep one that another user, or a new one, could begin in time.
        while choice.wait_until_ready(&floor, &slot).await {
            let Some(assignment) = next_start(&floor, &slot).await else { break };
            if !being.recreate_if_leases_lost(&floor, &slot).await {
                floor.recorder.record_dropped([assignment.intended]);
                return floor.user_left();
            }
            let DueStart { number, intended, .. } = assignment;
            let started = Instant::now();
            let Some(task) = floor.task_of(number).or_else(|| choice.pick(&floor, started)) else {
                floor.recorder.record_dropped([intended]);
                break;
            };
            let late = started.saturating_duration_since(intended) > floor.config.limits.late_after;
            floor.recorder.record_iteration(intended, assignment.lag(started), late);
            floor.last_iteration_start.set(started);
            choice.run_iteration(&floor, &mut being.user, Iteration { number, task, intended, started }).await;
        }
        being.user.stop().await;
        floor.on_start_tracker.user_left();
    }
    floor.user_left();
}

/// A user that starts its next iteration when the last has ended and it has paused.
pub(crate) async fn run_closed_user<T: DriverThread>(
    floor: Rc<UserPool>,
    driver: Rc<T>,
    seat: UserIdentity,
    slot: Rc<UserSlot>,
) {
    let mut being = UserInstance::new(&floor, driver, seat);
    let mut choice = OptionalTaskChooser::new(&floor, seat);
    let mut random = Rng::with_seed(seat.seed);
    let pause = floor.pause();
    if run_on_start(&floor, &slot, &mut being.user).await {
        let mut intended = Instant::now();
        let mut number = 0;
        while !floor.draining.get() && !slot.must_leave() {
            if !being.recreate_if_leases_lost(&floor, &slot).await {
                return floor.user_left();
            }
            let mut chosen = None;
            if floor.task_cycle.is_none() {
                let Some((task, ready)) = choice.wait_for_task(&floor, &slot).await else { break };
                (chosen, intended) = (Some(task), intended.max(ready));
            }
            let Some(waited) = floor.acquire_iteration(&slot).await else { break };
            intended = waited.map_or(intended, |had| intended.max(had));
            // Only now: others may have begun while this user waited.
            let Some(task) = chosen.or_else(|| floor.next_task()) else { break };
            floor.iterations_begun.set(floor.iterations_begun.get() + 1);
            let started = Instant::now();
            if pause.is_none() {
                intended = started;
            }
            let lag = started.saturating_duration_since(intended);
            floor.recorder.record_iteration(intended, lag, lag > floor.config.limits.late_after);
            choice.run_iteration(&floor, &mut being.user, Iteration { number, task, intended, started }).await;
            number += 1;
            if !pause.is_none() {
                intended = Instant::now() + pause.pick(random.f64());
                if floor.sleep(&slot, intended).await == UserSignal::Leave {
                    break;
                }
            }
        }
        being.user.stop().await;
        floor.on_start_tracker.user_left();
    }
    floor.user_left();
}

/// A user, and since when what it has borrowed is its own.
struct UserInstance<T: DriverThread> {
    driver: Rc<T>,
    identity: UserIdentity,
    user: T::User,
    lease_generation: u64,
}

impl<T: DriverThread> UserInstance<T> {
    fn new(floor: &UserPool, driver: Rc<T>, seat: UserIdentity) -> UserInstance<T> {
        let (lapse, user) = (floor.recorder.lease_generation(), driver.user(seat));
        UserInstance { driver, identity: seat, user, lease_generation: lapse }
    }

    /// Begins anew if this process has lost its place meanwhile: what the user had borrowed may be another's. `false` if the run ended
    /// before it had.
    async fn recreate_if_leases_lost(&mut self, floor: &UserPool, slot: &Rc<UserSlot>) -> bool {
        let lapses = floor.recorder.lease_generation();
        if lapses == self.lease_generation {
            return true;
        }
        self.user.stop().await;
        floor.on_start_tracker.user_left();
        (self.user, self.lease_generation) = (self.driver.user(self.identity), lapses);
        run_on_start(floor, slot, &mut self.user).await
    }
}

async fn next_start(floor: &UserPool, slot: &Rc<UserSlot>) -> Option<DueStart> {
    loop {
        if floor.retire_if_surplus() {
            return None;
        }
        if let Some(queued) = floor.dequeue_start() {
            return Some(queued);
        }
        if floor.draining.get() {
            return None;
        }
        floor.mark_idle(slot);
        match slot.receive().await {
            UserSignal::Start(assignment) => {
                floor.users_assigned.set(floor.users_assigned.get() - 1);
                return Some(assignment);
            }
            // Somebody may have queued a start after this user was told; take it along.
            UserSignal::Leave | UserSignal::Wake => continue,
        }
    }
}

/// Runs the user's own start until it succeeds; `false` if the run ended before.
async fn run_on_start<U: VirtualUser>(floor: &UserPool, slot: &Rc<UserSlot>, user: &mut U) -> bool {
    let mut retry = FIRST_RETRY;
    while user.start().await.is_err() {
        floor.on_start_tracker.start_failed(Instant::now());
        if floor.sleep(slot, Instant::now() + retry).await == UserSignal::Leave {
            return false;
        }
        retry = (retry * 2).min(MAX_RETRY_DELAY);
    }
    floor.on_start_tracker.user_started();
    true
}

/// A user's own choice of tasks; boxed because most plans need none.
struct OptionalTaskChooser(Option<Box<UserTaskChooser>>);

impl OptionalTaskChooser {
    fn new(floor: &UserPool, seat: UserIdentity) -> OptionalTaskChooser {
        OptionalTaskChooser(
            floor.task_cycle.is_none().then(|| Box::new(UserTaskChooser::new(&floor.config.tasks, seat.seed))),
        )
    }

    /// Sleeps until a task is ready; `false` if the run ended before.
    async fn wait_until_ready(&self, floor: &UserPool, slot: &Rc<UserSlot>) -> bool {
        let Some(choice) = &self.0 else { return true };
        loop {
            let ready_at = match choice.ready_tasks(&floor.config.tasks, Instant::now()) {
                Ok(_) => return true,
                Err(None) => return false,
                Err(Some(at)) => at,
            };
            floor.users_without_task.set(floor.users_without_task.get() + 1);
            let signal = floor.sleep(slot, ready_at).await;
            floor.users_without_task.set(floor.users_without_task.get() - 1);
            if signal == UserSignal::Leave {
                return false;
            }
        }
    }

    fn pick(&mut self, floor: &UserPool, now: Instant) -> Option<TaskIndex> {
        self.0.as_mut()?.pick(&floor.config.tasks, now).ok()
    }

    /// Sleeps until a task is ready; also says since when it was.
    async fn wait_for_task(&mut self, floor: &UserPool, slot: &Rc<UserSlot>) -> Option<(TaskIndex, Instant)> {
        let choice = self.0.as_mut()?;
        let mut ready = floor.run_start;
        loop {
            match choice.pick(&floor.config.tasks, Instant::now()) {
                Ok(task) => return Some((task, ready)),
                Err(None) => return None,
                Err(Some(at)) => ready = at,
            }
            if floor.sleep(slot, ready).await == UserSignal::Leave {
                return None;
            }
        }
    }

    async fn run_iteration<U: VirtualUser>(&mut self, floor: &UserPool, user: &mut U, iteration: Iteration) {
        floor.activity.set_busy_users(floor.activity.busy_users() + 1);
        let completed = user.iterate(iteration).await;
        floor.activity.set_busy_users(floor.activity.busy_users() - 1);
        if floor.iteration_quota.is_some() {
            floor.last_iteration_end.set(Instant::now());
        }
        if let Some(choice) = self.0.as_mut().filter(|_| completed) {
            choice.mark_completed(iteration.task);
        }
        // Iterations that never wait must not keep the thread from its conductor and the other users.
        tokio::task::coop::consume_budget().await;
    }
}
