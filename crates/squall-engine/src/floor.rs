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
    Probe, Requests,
    chooser::Cycle,
    engine::EngineConfig,
    slot::{Assignment, Signal, Slot},
    tickets::{Taken, Tickets},
};

/// Starts that wait for a free user; past this many they are dropped, and counted. 56 bytes each.
const LONGEST_BACKLOG: usize = 1_000_000;

pub(crate) struct Floor {
    pub(crate) config: Arc<EngineConfig>,
    pub(crate) source: SourceId,
    pub(crate) probe: Probe,
    /// `None` if tasks have conditions: each user then chooses for itself.
    pub(crate) cycle: Option<Cycle>,
    pub(crate) start: Instant,
    /// One for every iteration of a closed model with a limit.
    pub(crate) tickets: Option<Tickets>,
    /// When an open model's last iteration began.
    pub(crate) last_begun: Cell<Instant>,
    /// When the last iteration of a limited run ended.
    pub(crate) last_end: Cell<Instant>,
    pub(crate) leaving: Cell<bool>,
    pub(crate) users: Cell<u64>,
    /// Users that have come through their own start: of this thread in an open model, whose starts are its own; of all in a closed one.
    pub(crate) through: Arc<Through>,
    /// Users of an open model that have no task to take a start with yet.
    pub(crate) unready: Cell<u64>,
    /// Users of an open model that are to go when they are free: others may have as many now.
    surplus: Cell<u64>,
    /// Users that were given a start and have not noticed yet.
    pub(crate) assigned: Cell<u64>,
    pub(crate) busy: Arc<Busy>,
    /// Iterations this thread has begun.
    pub(crate) begun: Cell<u64>,
    /// Iterations of a closed model that all threads have begun, where it matters which comes next.
    begun_by_all: Option<Arc<AtomicU64>>,
    /// Starts of an open model that were given to users or queued for them, and not given up.
    given: Cell<u64>,
    pub(crate) requests: Option<Requests>,
    idle: RefCell<Vec<Rc<Slot>>>,
    backlog: RefCell<VecDeque<Assignment>>,
    sleepers: RefCell<BinaryHeap<Reverse<Sleeper>>>,
    sleeps: Cell<u64>,
    /// Who waits for a ticket.
    thirsty: RefCell<Vec<Rc<Slot>>>,
    conductor: RefCell<Option<Waker>>,
    nudged: Cell<bool>,
    /// The conductor waits for the backlog to be empty.
    pub(crate) last_ones: Cell<bool>,
    /// The conductor will look around by then anyway.
    pub(crate) armed_until: Cell<Instant>,
}

/// How many users of one thread are in an iteration. Written by that thread alone, read by anybody; on a cache line of its own,
/// so that a thread that counts does not slow down its neighbour.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Busy(AtomicU64, AtomicU64);

impl Busy {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Only for the thread that counts: two writers would lose counts.
    pub(crate) fn set(&self, users: u64) {
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
pub(crate) struct Through(Mutex<Starts>);

#[derive(Debug, Default)]
struct Starts {
    /// Users that have, and are here.
    here: u64,
    /// When one first failed of those that were tried since the last success.
    failing_since: Option<Instant>,
}

impl Through {
    pub(crate) fn enter(&self) {
        let mut starts = self.starts();
        *starts = Starts { here: starts.here + 1, failing_since: None };
    }

    pub(crate) fn leave(&self) {
        self.starts().here -= 1;
    }

    pub(crate) fn failed(&self, now: Instant) {
        self.starts().failing_since.get_or_insert(now);
    }

    /// Whether starts have failed for so long, and nobody is here whose start has not, that nobody's will succeed.
    fn in_vain(&self, now: Instant, patience: Duration) -> bool {
        let starts = self.starts();
        starts.here == 0 && starts.failing_since.is_some_and(|since| now.saturating_duration_since(since) >= patience)
    }

    fn starts(&self) -> MutexGuard<'_, Starts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What threads of an engine have in common, or is known outside them.
pub(crate) struct Common {
    pub(crate) busy: Arc<Busy>,
    pub(crate) requests: Option<Requests>,
    pub(crate) begun_by_all: Option<Arc<AtomicU64>>,
    pub(crate) through: Arc<Through>,
}

struct Sleeper {
    due: Instant,
    sleep: u64,
    slot: Rc<Slot>,
}

impl Floor {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        source: SourceId,
        probe: Probe,
        start: Instant,
        tickets: Option<Tickets>,
        Common { busy, requests, begun_by_all, through }: Common,
    ) -> Floor {
        let unconditional = config.tasks.iter().all(TaskSpec::is_unconditional);
        Floor {
            cycle: unconditional.then(|| Cycle::new(&config.tasks, config.seed)),
            config,
            source,
            probe,
            start,
            tickets,
            last_begun: Cell::new(start),
            last_end: Cell::new(start),
            leaving: Cell::new(false),
            users: Cell::new(0),
            through,
            unready: Cell::new(0),
            surplus: Cell::new(0),
            assigned: Cell::new(0),
            busy,
            begun: Cell::new(0),
            begun_by_all,
            given: Cell::new(0),
            requests,
            idle: RefCell::default(),
            backlog: RefCell::default(),
            sleepers: RefCell::default(),
            sleeps: Cell::new(0),
            thirsty: RefCell::default(),
            conductor: RefCell::default(),
            nudged: Cell::new(false),
            last_ones: Cell::new(false),
            armed_until: Cell::new(start),
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
    pub(crate) async fn take_ticket(&self, slot: &Rc<Slot>) -> Option<Option<Instant>> {
        let Some(tickets) = &self.tickets else { return Some(None) };
        let mut waited = None;
        loop {
            match tickets.take() {
                Taken::Number(_) => return Some(waited),
                Taken::Over => return None,
                Taken::Later if self.leaving.get() => return None,
                Taken::Later => self.thirsty.borrow_mut().push(slot.clone()),
            }
            if slot.receive().await == Signal::Leave {
                return None;
            }
            waited = Some(Instant::now());
        }
    }

    /// There may be tickets for those who found none.
    pub(crate) fn wake_thirsty(&self) {
        self.thirsty.borrow_mut().drain(..).for_each(|slot| slot.send(Signal::Due));
    }

    /// One more user is here.
    pub(crate) fn welcome(&self) {
        self.users.set(self.users.get() + 1);
        self.probe.users(self.users.get());
    }

    /// A user is gone.
    pub(crate) fn farewell(&self) {
        self.users.set(self.users.get() - 1);
    }

    /// Whoever is here beyond `most` goes, when its iteration is over.
    pub(crate) fn keep_at_most(&self, most: u64) {
        self.surplus.set(self.users.get().saturating_sub(most));
        let mut idle = self.idle.borrow_mut();
        let first = idle.len().saturating_sub(self.surplus.get() as usize);
        idle.drain(first..).for_each(|slot| slot.send(Signal::Due));
    }

    /// Whether the user that asks is one too many, and goes.
    pub(crate) fn dismisses(&self) -> bool {
        let surplus = self.surplus.get();
        self.surplus.set(surplus.saturating_sub(1));
        surplus > 0
    }

    /// Whether it is of no use to wait for users any longer.
    pub(crate) fn waits_in_vain(&self, now: Instant) -> bool {
        self.through.in_vain(now, self.config.patience)
    }

    pub(crate) fn tickets_are_over(&self) -> bool {
        self.tickets.as_ref().is_some_and(Tickets::is_over)
    }

    /// Gives a start that is due to an idle user; the most recently used first, so that no more connections are kept busy than
    /// needed. `false` if nobody is idle.
    fn assign(&self, assignment: Assignment) -> bool {
        let Some(slot) = self.idle.borrow_mut().pop() else { return false };
        self.assigned.set(self.assigned.get() + 1);
        slot.send(Signal::Start(assignment));
        true
    }

    /// Gives a start to an idle user, or queues it for the next who is.
    pub(crate) fn give(&self, assignment: Assignment) {
        self.given.set(self.given.get() + 1);
        if !self.assign(assignment) {
            self.queue(assignment);
        }
    }

    pub(crate) fn rest(&self, slot: &Rc<Slot>) {
        self.idle.borrow_mut().push(slot.clone());
    }

    /// Queues a start for the next user that becomes free.
    fn queue(&self, assignment: Assignment) {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.len() >= LONGEST_BACKLOG {
            self.given.set(self.given.get() - 1);
            self.probe.dropped([assignment.intended]);
        } else {
            backlog.push_back(assignment);
        }
    }

    pub(crate) fn take_queued(&self) -> Option<Assignment> {
        // Of a process that has lost its place the conductor gives up what waits.
        if self.queued() == 0 || !self.lets_begin() {
            return None;
        }
        let queued = self.backlog.borrow_mut().pop_front()?;
        if self.last_ones.get() && self.queued() == 0 {
            self.nudge();
        }
        Some(Assignment { free_since: Instant::now(), ..queued })
    }

    fn lets_begin(&self) -> bool {
        self.config.leash.as_ref().is_none_or(|leash| leash.lets_begin(Instant::now()))
    }

    /// Gives what waited for a pause to end to those who are idle.
    pub(crate) fn serve_idle(&self) {
        while self.queued() > 0 && !self.idle.borrow().is_empty() {
            let Some(queued) = self.take_queued() else { return };
            self.assign(queued);
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.backlog.borrow().len()
    }

    /// Gives up what still waits for a user, but for the first `kept`.
    pub(crate) fn drop_queued_after(&self, kept: usize) {
        let mut backlog = self.backlog.borrow_mut();
        let kept = kept.min(backlog.len());
        let dropped = backlog.split_off(kept);
        self.given.set(self.given.get() - dropped.len() as u64);
        self.probe.dropped(dropped.into_iter().map(|start| start.intended));
    }

    /// Gives up everything that still waits for a user.
    pub(crate) fn drop_queued(&self) {
        self.drop_queued_after(0);
    }

    /// Sleeps until `due` or until told to leave.
    pub(crate) async fn sleep(&self, slot: &Rc<Slot>, due: Instant) -> Signal {
        if self.leaving.get() {
            return Signal::Leave;
        }
        let sleep = self.sleeps.get() + 1;
        self.sleeps.set(sleep);
        slot.sleep.set(sleep);
        self.sleepers.borrow_mut().push(Reverse(Sleeper { due, sleep, slot: slot.clone() }));
        if due + self.config.slack < self.armed_until.get() {
            self.nudge();
        }
        let signal = slot.receive().await;
        slot.sleep.set(0);
        signal
    }

    /// Wakes everybody whose sleep is over; returns when the next one is.
    pub(crate) fn wake_sleepers(&self, now: Instant) -> Option<Instant> {
        let mut sleepers = self.sleepers.borrow_mut();
        while let Some(Reverse(first)) = sleepers.peek() {
            if first.due > now {
                return Some(first.due);
            }
            let Reverse(Sleeper { sleep, slot, .. }) = sleepers.pop().expect("it was just seen");
            if slot.sleep.get() == sleep {
                slot.send(Signal::Due);
            }
        }
        None
    }

    /// Tells everybody who waits to leave; those in an iteration see it when they come back.
    pub(crate) fn send_home(&self) {
        self.leaving.set(true);
        for slot in self.idle.borrow_mut().drain(..).chain(self.thirsty.borrow_mut().drain(..)) {
            slot.send(Signal::Leave);
        }
        for Reverse(sleeper) in self.sleepers.borrow_mut().drain() {
            if sleeper.slot.sleep.get() == sleeper.sleep {
                sleeper.slot.send(Signal::Leave);
            }
        }
    }

    /// No iteration will begin but those that were given: says how many requests there will be at most, if that is known.
    pub(crate) fn seal(&self) {
        if let Some(requests) = self.requests {
            let iterations = self.given.get() + self.begun.get();
            // Those that wait for a user have made none of their requests.
            let not_over = self.users.get() + self.queued() as u64;
            self.probe.seal(|begun| requests.at_most(iterations, not_over, begun));
        }
    }

    /// The task of the next iteration of a closed model, `None` if users choose for themselves. Threads take turns on one cycle: each
    /// with its own would be off by up to one iteration per thread, all to the same side.
    pub(crate) fn next_task(&self) -> Option<TaskIndex> {
        let cycle = self.cycle.as_ref()?;
        let number = self.begun_by_all.as_ref().map_or(self.begun.get(), |all| all.fetch_add(1, Ordering::Relaxed));
        Some(cycle.task(number))
    }

    pub(crate) fn task_of(&self, number: u64) -> Option<TaskIndex> {
        self.cycle.as_ref().map(|cycle| cycle.task(number))
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start)
    }

    /// Makes the conductor look around at once.
    pub(crate) fn nudge(&self) {
        self.nudged.set(true);
        if let Some(waker) = self.conductor.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(crate) async fn wait_for_nudge(&self) {
        poll_fn(|cx| {
            if self.nudged.replace(false) {
                return Poll::Ready(());
            }
            *self.conductor.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl PartialEq for Sleeper {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.sleep) == (other.due, other.sleep)
    }
}

impl Eq for Sleeper {}

impl PartialOrd for Sleeper {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Sleeper {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sleep).cmp(&(other.due, other.sleep))
    }
}
