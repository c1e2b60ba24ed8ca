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
    let mut user = driver.user(seat);
    let mut choice = Choice::new(&floor, seat);
    if start(&floor, &slot, &mut user).await {
        while let Some(assignment) = next_assignment(&floor, &slot).await {
            let Assignment { number, mut intended, free_since } = assignment;
            let task = match floor.task_of(number) {
                Some(task) => task,
                None => match choice.wait_for_task(&floor, &slot).await {
                    // A task's own `every` moves the intended start; it is no delay of the target's.
                    Some((task, ready)) => {
                        intended = intended.max(ready);
                        task
                    }
                    None => {
                        floor.probe.dropped(1);
                        break;
                    }
                },
            };
            let started = Instant::now();
            let lag = started.saturating_duration_since(free_since.max(intended));
            let late = started.saturating_duration_since(intended) > floor.config.late_after;
            floor.probe.iteration(intended, lag, late);
            choice.run(&floor, &mut user, Iteration { number, task, intended, started }).await;
        }
        user.stop().await;
    }
    floor.users.set(floor.users.get() - 1);
}

/// A user that starts its next iteration when the last has ended and it has paused.
pub(crate) async fn closed<T: DriverThread>(floor: Rc<Floor>, driver: Rc<T>, seat: Seat, slot: Rc<Slot>) {
    let mut user = driver.user(seat);
    let mut choice = Choice::new(&floor, seat);
    let mut random = Rng::with_seed(seat.seed);
    let pause = floor.pause();
    if start(&floor, &slot, &mut user).await {
        let mut intended = Instant::now();
        let mut number = 0;
        while !floor.leaving.get() && !slot.must_leave() {
            let mut chosen = None;
            if floor.cycle.is_none() {
                let Some((task, ready)) = choice.wait_for_task(&floor, &slot).await else { break };
                (chosen, intended) = (Some(task), intended.max(ready));
            }
            let Some(waited) = floor.take_ticket(&slot).await else { break };
            intended = waited.map_or(intended, |had| intended.max(had));
            // Only now: others may have begun while this user waited.
            let Some(task) = chosen.or_else(|| floor.task_of(floor.begun.get())) else { break };
            floor.begun.set(floor.begun.get() + 1);
            let started = Instant::now();
            if pause.is_none() {
                intended = started;
            }
            let lag = started.saturating_duration_since(intended);
            floor.probe.iteration(intended, lag, lag > floor.config.late_after);
            choice.run(&floor, &mut user, Iteration { number, task, intended, started }).await;
            number += 1;
            if !pause.is_none() {
                intended = Instant::now() + pause.pick(random.f64());
                if floor.sleep(&slot, intended).await == Signal::Leave {
                    break;
                }
            }
        }
        user.stop().await;
    }
    floor.users.set(floor.users.get() - 1);
}

async fn next_assignment(floor: &Floor, slot: &Rc<Slot>) -> Option<Assignment> {
    loop {
        if let Some(queued) = floor.take_queued() {
            return Some(queued);
        }
        if floor.leaving.get() {
            return None;
        }
        floor.rest(slot);
        match slot.receive().await {
            Signal::Start(assignment) => return Some(assignment),
            // Somebody may have queued a start after this user was told; take it along.
            Signal::Leave | Signal::Due => continue,
        }
    }
}

/// Runs the user's own start until it succeeds; `false` if the run ended before.
async fn start<U: VirtualUser>(floor: &Floor, slot: &Rc<Slot>, user: &mut U) -> bool {
    let mut retry = FIRST_RETRY;
    while user.start().await.is_err() {
        if floor.sleep(slot, Instant::now() + retry).await == Signal::Leave {
            return false;
        }
        retry = (retry * 2).min(LONGEST_RETRY);
    }
    true
}

/// A user's own choice of tasks; boxed because most plans need none.
struct Choice(Option<Box<UserChoice>>);

impl Choice {
    fn new(floor: &Floor, seat: Seat) -> Choice {
        Choice(floor.cycle.is_none().then(|| Box::new(UserChoice::new(&floor.config.tasks, seat.seed))))
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
