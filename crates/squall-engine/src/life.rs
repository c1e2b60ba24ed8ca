//! The life of a virtual user: start, iterations, stop. An open-model user waits to be given starts; a closed-model user gives
//! them to itself. Neither knows the profile: the conductor says when to come and go.

use fastrand::Rng;
use squall_model::TaskIndex;
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{
    chooser::UserChoice,
    driver::{DriverThread, Iteration, Seat, VirtualUser},
    floor::Floor,
    slot::{Assignment, Signal, Slot},
};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A user that runs whatever start it is given.
pub(crate) async fn open<T: DriverThread>(floor: Rc<Floor>, driver: Rc<T>, seat: Seat, slot: Rc<Slot>) {
    let mut being = Being::new(&floor, driver, seat);
    let mut choice = Choice::new(&floor, seat);
    if start(&floor, &slot, &mut being.user).await {
        // Who has no task yet (`every`) takes no start: it would keep one that another user, or a new one, could begin in time.
        while choice.is_ready(&floor, &slot).await {
            let Some(assignment) = next_assignment(&floor, &slot).await else { break };
            if !being.renew(&floor, &slot).await {
                floor.probe.dropped([assignment.intended]);
                return floor.farewell();
            }
            let Assignment { number, intended, .. } = assignment;
            let started = Instant::now();
            let Some(task) = floor.task_of(number).or_else(|| choice.pick(&floor, started)) else {
                floor.probe.dropped([intended]);
                break;
            };
            let late = started.saturating_duration_since(intended) > floor.config.late_after;
            floor.probe.iteration(intended, assignment.lag(started), late);
            floor.last_begun.set(started);
            choice.run(&floor, &mut being.user, Iteration { number, task, intended, started }).await;
        }
        being.user.stop().await;
        floor.through.leave();
    }
    floor.farewell();
}

/// A user that starts its next iteration when the last has ended and it has paused.
pub(crate) async fn closed<T: DriverThread>(floor: Rc<Floor>, driver: Rc<T>, seat: Seat, slot: Rc<Slot>) {
    let mut being = Being::new(&floor, driver, seat);
    let mut choice = Choice::new(&floor, seat);
    let mut random = Rng::with_seed(seat.seed);
    let pause = floor.pause();
    if start(&floor, &slot, &mut being.user).await {
        let mut intended = Instant::now();
        let mut number = 0;
        while !floor.leaving.get() && !slot.must_leave() {
            if !being.renew(&floor, &slot).await {
                return floor.farewell();
            }
            let mut chosen = None;
            if floor.cycle.is_none() {
                let Some((task, ready)) = choice.wait_for_task(&floor, &slot).await else { break };
                (chosen, intended) = (Some(task), intended.max(ready));
            }
            let Some(waited) = floor.take_ticket(&slot).await else { break };
            intended = waited.map_or(intended, |had| intended.max(had));
            // Only now: others may have begun while this user waited.
            let Some(task) = chosen.or_else(|| floor.next_task()) else { break };
            floor.begun.set(floor.begun.get() + 1);
            let started = Instant::now();
            if pause.is_none() {
                intended = started;
            }
            let lag = started.saturating_duration_since(intended);
            floor.probe.iteration(intended, lag, lag > floor.config.late_after);
            choice.run(&floor, &mut being.user, Iteration { number, task, intended, started }).await;
            number += 1;
            if !pause.is_none() {
                intended = Instant::now() + pause.pick(random.f64());
                if floor.sleep(&slot, intended).await == Signal::Leave {
                    break;
                }
            }
        }
        being.user.stop().await;
        floor.through.leave();
    }
    floor.farewell();
}

/// A user, and since when what it has borrowed is its own.
struct Being<T: DriverThread> {
    driver: Rc<T>,
    seat: Seat,
    user: T::User,
    lapse: u64,
}

impl<T: DriverThread> Being<T> {
    fn new(floor: &Floor, driver: Rc<T>, seat: Seat) -> Being<T> {
        let (lapse, user) = (floor.probe.lapses(), driver.user(seat));
        Being { driver, seat, user, lapse }
    }

    /// Begins anew if this process has lost its place meanwhile: what the user had borrowed may be another's. `false` if the run ended
    /// before it had.
    async fn renew(&mut self, floor: &Floor, slot: &Rc<Slot>) -> bool {
        let lapses = floor.probe.lapses();
        if lapses == self.lapse {
            return true;
        }
        self.user.stop().await;
        floor.through.leave();
        (self.user, self.lapse) = (self.driver.user(self.seat), lapses);
        start(floor, slot, &mut self.user).await
    }
}

async fn next_assignment(floor: &Floor, slot: &Rc<Slot>) -> Option<Assignment> {
    loop {
        if floor.dismisses() {
            return None;
        }
        if let Some(queued) = floor.take_queued() {
            return Some(queued);
        }
        if floor.leaving.get() {
            return None;
        }
        floor.rest(slot);
        match slot.receive().await {
            Signal::Start(assignment) => {
                floor.assigned.set(floor.assigned.get() - 1);
                return Some(assignment);
            }
            // Somebody may have queued a start after this user was told; take it along.
            Signal::Leave | Signal::Due => continue,
        }
    }
}

/// Runs the user's own start until it succeeds; `false` if the run ended before.
async fn start<U: VirtualUser>(floor: &Floor, slot: &Rc<Slot>, user: &mut U) -> bool {
    let mut retry = FIRST_RETRY;
    while user.start().await.is_err() {
        floor.through.failed(Instant::now());
        if floor.sleep(slot, Instant::now() + retry).await == Signal::Leave {
            return false;
        }
        retry = (retry * 2).min(LONGEST_RETRY);
    }
    floor.through.enter();
    true
}

/// A user's own choice of tasks; boxed because most plans need none.
struct Choice(Option<Box<UserChoice>>);

impl Choice {
    fn new(floor: &Floor, seat: Seat) -> Choice {
        Choice(floor.cycle.is_none().then(|| Box::new(UserChoice::new(&floor.config.tasks, seat.seed))))
    }

    /// Sleeps until a task is ready; `false` if the run ended before.
    async fn is_ready(&self, floor: &Floor, slot: &Rc<Slot>) -> bool {
        let Some(choice) = &self.0 else { return true };
        loop {
            let ready_at = match choice.ready(&floor.config.tasks, Instant::now()) {
                Ok(_) => return true,
                Err(None) => return false,
                Err(Some(at)) => at,
            };
            floor.unready.set(floor.unready.get() + 1);
            let signal = floor.sleep(slot, ready_at).await;
            floor.unready.set(floor.unready.get() - 1);
            if signal == Signal::Leave {
                return false;
            }
        }
    }

    fn pick(&mut self, floor: &Floor, now: Instant) -> Option<TaskIndex> {
        self.0.as_mut()?.pick(&floor.config.tasks, now).ok()
    }

    /// Sleeps until a task is ready; also says since when it was.
    async fn wait_for_task(&mut self, floor: &Floor, slot: &Rc<Slot>) -> Option<(TaskIndex, Instant)> {
        let choice = self.0.as_mut()?;
        let mut ready = floor.start;
        loop {
            match choice.pick(&floor.config.tasks, Instant::now()) {
                Ok(task) => return Some((task, ready)),
                Err(None) => return None,
                Err(Some(at)) => ready = at,
            }
            if floor.sleep(slot, ready).await == Signal::Leave {
                return None;
            }
        }
    }

    async fn run<U: VirtualUser>(&mut self, floor: &Floor, user: &mut U, iteration: Iteration) {
        floor.busy.set(floor.busy.get() + 1);
        let completed = user.iterate(iteration).await;
        floor.busy.set(floor.busy.get() - 1);
        if floor.tickets.is_some() {
            floor.last_end.set(Instant::now());
        }
        if let Some(choice) = self.0.as_mut().filter(|_| completed) {
            choice.completed(iteration.task);
        }
        // Iterations that never wait must not keep the thread from its conductor and the other users.
        tokio::task::coop::consume_budget().await;
    }
}
