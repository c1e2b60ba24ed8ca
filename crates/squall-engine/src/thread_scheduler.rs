//! The conductor of one thread: walks the schedule in slices, brings users in and sends them home, ships a delta every second.
//! It wakes at most once per slack, however many starts are due, because a wake-up costs more than a request.

use squall_metrics::Delta;
use squall_model::{Arrivals, LoadModel, Profile, ShareSet};
use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::PoisonError,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    driver::{DriverThread, UserIdentity},
    engine::{EngineCommand, EngineError, LoadOutcome, ShareAssignment, StartTimeLock, ThreadMessage},
    precise_timer::PreciseTimer,
    schedule::Schedule,
    user_pool::UserPool,
    user_slot::{DueStart, UserSignal, UserSlot},
    user_task,
};

/// How often the number of users is brought up to a profile that is not level.
const USER_TICK: Duration = Duration::from_millis(20);

pub(crate) struct ThreadScheduler<T> {
    user_pool: Rc<UserPool>,
    driver: Rc<T>,
    timer: PreciseTimer,
    inputs: SchedulerInputs,
    /// This thread's part of the process's shares, by its last duty.
    assigned_shares: ShareSet,
    /// What it makes the load of; nothing while it is fenced.
    active_shares: ShareSet,
    /// The leash has ended.
    fenced: bool,
    profile: Profile,
    /// Changes of duty whose time has not come.
    pending_assignments: VecDeque<ShareAssignment>,
    /// One message a second: what is not fetched is as long as the run is old, in seconds.
    messages: mpsc::UnboundedSender<ThreadMessage>,
    user_tasks: JoinSet<()>,
    load_state: LoadModelState,
    /// Its shares' part of the most users that an open model may have.
    max_users: u64,
    next_user: u64,
    seq: u64,
    second: u32,
}

enum LoadModelState {
    Open {
        schedule: Schedule,
        limited: bool,
    },
    /// The users of a closed model that are here, by their number in the run.
    Closed {
        slots: BTreeMap<u64, Rc<UserSlot>>,
        desired: u64,
    },
}

/// What a conductor hears from outside its thread.
pub(crate) struct SchedulerInputs {
    pub(crate) commands: watch::Receiver<EngineCommand>,
    pub(crate) assignments: mpsc::UnboundedReceiver<ShareAssignment>,
    pub(crate) start_time: StartTimeLock,
    /// There are more iterations to begin, or no more; if they are limited.
    pub(crate) quota_changes: Option<watch::Receiver<u64>>,
}

/// How many users an open model may bring in at each look at the schedule, however few it has.
const MIN_SPAWN_BATCH: u64 = 8;

/// What comes in this soon after the last second belongs to it, which is so much longer: a run of 4 s has 4 seconds, not a fifth with
/// the last answers.
const LAST_SECOND_TOLERANCE: Duration = Duration::from_millis(10);

/// How often the conductor of a closed model looks at the time, whose users need nobody to start them.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What fell due while nobody held a share is made up for if that was not longer, times without any load not counted.
const MAX_CATCH_UP_GAP: Duration = Duration::from_secs(5);

/// A conductor that is this late has not been running, nor have its users.
const STALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Why no more starts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadStopCause {
    Done,
    Drained,
    Aborted,
}

impl<T: DriverThread> ThreadScheduler<T> {
    pub(crate) fn new(
        floor: Rc<UserPool>,
        driver: T,
        alarm: PreciseTimer,
        told: SchedulerInputs,
        words: mpsc::UnboundedSender<ThreadMessage>,
    ) -> ThreadScheduler<T> {
        let config = &floor.config;
        // The first duty says what is held; before it nothing is.
        let (shares, profile) = (ShareSet::NONE, config.load.model.profile().clone());
        let work = match &config.load.model {
            LoadModel::Open { .. } => LoadModelState::Open {
                schedule: schedule_for(&floor, &profile, shares),
                limited: config.load.iterations.is_some(),
            },
            LoadModel::Closed { .. } => LoadModelState::Closed { slots: BTreeMap::new(), desired: 0 },
        };
        let (driver, lives, ahead) = (Rc::new(driver), JoinSet::new(), VecDeque::new());
        ThreadScheduler {
            user_pool: floor,
            driver,
            timer: alarm,
            inputs: told,
            assigned_shares: shares,
            active_shares: shares,
            fenced: false,
            profile,
            pending_assignments: ahead,
            messages: words,
            user_tasks: lives,
            load_state: work,
            max_users: 1,
            next_user: 0,
            seq: 0,
            second: 0,
        }
    }

    /// Runs the thread's share to its end. What was measured is shipped also where it fails.
    pub(crate) async fn run(mut self) -> Result<LoadOutcome, EngineError> {
        let end = self.run_and_drain().await;
        if end.is_err() {
            self.user_pool.drain_users();
            self.user_pool.set_final_request_limit();
            self.abort_user_tasks().await;
            self.user_pool.drop_queued();
        }
        self.ship(true);
        end
    }

    async fn run_and_drain(&mut self) -> Result<LoadOutcome, EngineError> {
        let over = self.generate_load().await?;
        let drained = self.user_pool.elapsed(Instant::now());
        match over {
            ThreadStopCause::Done => {
                self.spawn_users_for_queue();
                self.drop_late_starts();
            }
            // Its load is others' now; what was due before is its own.
            ThreadStopCause::Drained if self.active_shares.is_empty() => self.spawn_users_for_queue(),
            ThreadStopCause::Drained | ThreadStopCause::Aborted => self.user_pool.drop_queued(),
        }
        self.user_pool.drain_users();
        self.user_pool.set_final_request_limit();
        let cut_off = over == ThreadStopCause::Aborted || !self.drain(over).await?;
        if cut_off {
            self.abort_user_tasks().await;
        }
        // Also where everybody went home: users that never managed to start leave their starts behind.
        self.user_pool.drop_queued();
        let elapsed = self.user_pool.elapsed(Instant::now());
        let active = self.active_duration(over, drained);
        self.user_pool.activity.set_load_end(match self.user_pool.iteration_quota {
            Some(_) => self.user_pool.elapsed(self.user_pool.last_iteration_end.get()),
            // Whoever gave its shares away made what was due before afterwards.
            None if over == ThreadStopCause::Drained => {
                active.max(self.user_pool.elapsed(self.user_pool.last_iteration_start.get()))
            }
            None => active,
        });
        Ok(LoadOutcome { active, elapsed, cut_off })
    }

    async fn abort_user_tasks(&mut self) {
        self.user_tasks.abort_all();
        while self.user_tasks.join_next().await.is_some() {}
    }

    async fn generate_load(&mut self) -> Result<ThreadStopCause, EngineError> {
        loop {
            let now = self.receive_assignments();
            self.detect_stall(now);
            let mut next = self.next_second();
            if let LoadModelState::Closed { .. } = self.load_state {
                next = next.min(now + CLOSED_POLL_INTERVAL);
            }
            let mut sooner = |due: Option<Instant>| next = due.map_or(next, |due| next.min(due));
            sooner(self.user_pool.wake_sleepers(now));
            self.user_pool.assign_queued_to_idle();
            sooner(self.start_due(now));
            if self.is_done(now) {
                return Ok(ThreadStopCause::Done);
            }
            self.ship_if_due(now, Duration::ZERO);
            if self.users_to_spawn() > 0 {
                next = now;
            }
            let until = next.max(now + self.user_pool.config.limits.slack);
            if let Some(over) = self.wait_for_event(until).await? {
                self.start_due_before_drain();
                return Ok(over);
            }
        }
    }

    /// In a closed model nothing is due that could be late; that the thread itself was late to its alarm is all there is to see.
    fn detect_stall(&self, now: Instant) {
        let due = self.user_pool.scheduler_wakes_at.get();
        let late = now.saturating_duration_since(due);
        if late >= STALL_THRESHOLD && matches!(self.load_state, LoadModelState::Closed { .. }) {
            self.user_pool.recorder.record_stall(due, late);
        }
    }

    /// Starts what was due before a drain was asked for, even if this thread comes to it only now: it is made or counted as dropped.
    fn start_due_before_drain(&mut self) {
        let order = *self.inputs.commands.borrow();
        if let (EngineCommand::Drain(at), LoadModelState::Open { .. }) = (order, &self.load_state) {
            let now = self.receive_assignments().min(at);
            self.start_due(now);
        }
    }

    /// Waits until `until`, an order, or a nudge.
    async fn wait_for_event(&mut self, until: Instant) -> Result<Option<ThreadStopCause>, EngineError> {
        self.user_pool.scheduler_wakes_at.set(until);
        let delay = until.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            changed = self.inputs.commands.changed() => {
                let order = if changed.is_err() { EngineCommand::Abort } else { *self.inputs.commands.borrow_and_update() };
                return Ok(match order {
                    EngineCommand::Prepare | EngineCommand::Start(_) => None,
                    EngineCommand::Drain(_) => Some(ThreadStopCause::Drained),
                    EngineCommand::Abort => Some(ThreadStopCause::Aborted),
                });
            }
            Some(duty) = self.inputs.assignments.recv() => self.pending_assignments.push_back(duty),
            () = quota_changed(&mut self.inputs.quota_changes) => self.user_pool.wake_quota_waiters(),
            ended = self.user_tasks.join_next(), if !self.user_tasks.is_empty() => check_user_task(ended)?,
            () = self.user_pool.wait_for_wake() => {}
            rung = self.timer.sleep(delay) => rung.map_err(EngineError::Timer)?,
        }
        Ok(None)
    }

    /// Waits for users to come home; `false` if the grace was over or an abort came first. A run of so many iterations makes them all: its
    /// grace begins when the last of them has ended, its time is over, or somebody wants it to end.
    async fn drain(&mut self, over: ThreadStopCause) -> Result<bool, EngineError> {
        let mut all = over == ThreadStopCause::Done && self.user_pool.config.load.iterations.is_some();
        let end = self.user_pool.run_start + self.profile.duration();
        let mut deadline = Instant::now() + self.user_pool.config.limits.grace;
        // What a leaver could not begin by then is given up, so that what it has begun can end.
        let last_begin = Instant::now() + self.user_pool.config.limits.grace / 2;
        while !self.user_tasks.is_empty() {
            let now = Instant::now();
            if over == ThreadStopCause::Drained && now >= last_begin {
                self.user_pool.drop_queued();
            }
            if all && self.user_pool.activity.busy_users() > 0 && now < end {
                deadline = now + self.user_pool.config.limits.grace;
            }
            self.drop_late_starts();
            self.ship_if_due(now, LAST_SECOND_TOLERANCE);
            // Users that are still starting may go to sleep for a retry.
            self.user_pool.drain_users();
            let until = (self.next_second() + LAST_SECOND_TOLERANCE).min(deadline).min(if now < last_begin {
                last_begin
            } else {
                deadline
            });
            let told = if now < deadline { self.wait_for_event(until).await? } else { Some(ThreadStopCause::Aborted) };
            match told {
                Some(ThreadStopCause::Aborted) => return Ok(self.user_tasks.is_empty()),
                Some(_) => all = false,
                None => {}
            }
        }
        Ok(true)
    }

    /// The present, and every duty that was given before it.
    fn receive_assignments(&mut self) -> Instant {
        let turn = self.inputs.start_time.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Ok(duty) = self.inputs.assignments.try_recv() {
            self.pending_assignments.push_back(duty);
        }
        drop(turn);
        now
    }

    /// This process's place is no longer certain: others may be making its load already.
    fn fence(&mut self, now: Instant) {
        self.fenced = true;
        if self.active_shares.is_empty() {
            return;
        }
        self.user_pool.drop_queued();
        self.set_active_shares(ShareSet::NONE, self.user_pool.elapsed(now));
    }

    /// Its place is certain again: what it still holds is taken up where the run is. What was due in between is missed, because nobody
    /// here knows who held it.
    fn unfence(&mut self, now: Instant) {
        self.fenced = false;
        while let Some(duty) = self.next_assignment(now) {
            self.assigned_shares = duty.shares;
            self.profile = duty.profile.clone();
        }
        self.set_active_shares(self.assigned_shares, self.user_pool.elapsed(now));
    }

    /// Makes the load of `shares` from the time `from` on.
    fn set_active_shares(&mut self, shares: ShareSet, from: Duration) {
        self.active_shares = shares;
        if !shares.is_empty() {
            // Who holds nothing any more may still need users for what was due before.
            self.max_users = shares.count_below(self.user_pool.config.limits.max_users as u64).max(1);
            if let LoadModelState::Open { .. } = self.load_state {
                self.user_pool.limit_users(self.max_users);
            }
        }
        match &mut self.load_state {
            LoadModelState::Open { schedule, .. } => schedule.change(shares, self.profile.clone(), from),
            LoadModelState::Closed { slots, desired } => {
                let lost = slots.extract_if(.., |user, _| !shares.contains(*user));
                lost.for_each(|(_, slot)| slot.send(UserSignal::Leave));
                // Users gained are those of the level already reached.
                *desired = 0;
            }
        }
    }

    /// Starts everything due; returns when to look again.
    fn start_due(&mut self, now: Instant) -> Option<Instant> {
        if self.user_pool.config.send_budget.as_ref().is_some_and(|leash| !leash.is_valid_at(now)) {
            self.fence(now);
            return None;
        }
        if self.fenced {
            self.unfence(now);
        }
        while let Some(duty) = self.next_assignment(now) {
            // What is due at the change belongs to whoever holds it from then on.
            self.start_due_before(self.user_pool.run_start + duty.effective_at);
            self.apply_assignment(&duty);
        }
        let next_due = self.start_due_before(now + Duration::from_nanos(1));
        let change = self.pending_assignments.front().map(|duty| self.user_pool.run_start + duty.effective_at);
        match (next_due, change) {
            (Some(due), Some(change)) => Some(due.min(change)),
            (due, change) => due.or(change),
        }
    }

    /// The next duty that has taken effect by `now`.
    fn next_assignment(&mut self, now: Instant) -> Option<ShareAssignment> {
        if self.pending_assignments.front().is_none_or(|duty| self.user_pool.run_start + duty.effective_at > now) {
            return None;
        }
        self.pending_assignments.pop_front()
    }

    fn apply_assignment(&mut self, duty: &ShareAssignment) {
        self.assigned_shares = duty.shares;
        let gained = self.assigned_shares.without(self.active_shares);
        self.profile = duty.profile.clone();
        self.set_active_shares(self.assigned_shares, duty.effective_at);
        if let LoadModelState::Open { .. } = self.load_state {
            self.catch_up(gained, duty);
        }
    }

    /// Starts what fell due on gained shares between their last holder and this one, unless nobody has held them for so long that it would
    /// be a load of its own, which nobody has ordered.
    fn catch_up(&self, gained: ShareSet, duty: &ShareAssignment) {
        let mut by_time: BTreeMap<Duration, ShareSet> = BTreeMap::new();
        for share in gained.iter() {
            let recent = |left: &&Duration| {
                **left < duty.effective_at
                    && self.profile.time_under_load(**left, duty.effective_at) <= MAX_CATCH_UP_GAP
            };
            if let Some(left) = duty.resume_from.get(&share).filter(recent) {
                by_time.entry(*left).or_default().insert(share);
            }
        }
        let now = Instant::now();
        for (left, shares) in by_time {
            let mut missed = schedule_for(&self.user_pool, &self.profile, shares);
            missed.change(shares, self.profile.clone(), left);
            while let Some(start) = missed.next().filter(|start| start.at < duty.effective_at) {
                let intended = self.user_pool.run_start + start.at;
                // The gap between two holders is the fleet's, and the report shows it; it is no lag of this engine. Where there was no
                // holder before, the load began too late.
                let behind = if left.is_zero() { now.saturating_duration_since(intended) } else { Duration::ZERO };
                self.user_pool.dispatch_start(DueStart {
                    number: start.number,
                    intended,
                    scheduler_lag: behind,
                    free_since: now,
                });
            }
        }
    }

    /// Starts everything due before `end`; returns when to look again.
    fn start_due_before(&mut self, end: Instant) -> Option<Instant> {
        match &mut self.load_state {
            LoadModelState::Open { schedule, .. } => {
                let (now, mut next_due) = (Instant::now(), self.user_pool.run_start + schedule.end());
                while let Some(next) = schedule.peek() {
                    let intended = self.user_pool.run_start + next.at;
                    if intended >= end {
                        next_due = intended;
                        break;
                    }
                    schedule.next();
                    self.user_pool.dispatch_start(DueStart::observed(next.number, intended, now));
                }
                self.spawn_users();
                // Behind the end only the queue is waited for.
                Some(next_due).filter(|due| *due >= end)
            }
            LoadModelState::Closed { .. } => self.adjust_users(end),
        }
    }

    /// Brings in users for starts that found nobody idle, but only a few at a time: after a hiccup of the generator those who are
    /// busy will be back within a slice, and opening a connection for each late start would only prolong it.
    fn spawn_users(&mut self) {
        for _ in 0..self.users_to_spawn() {
            let user = self.allocate_user_number();
            let seat = user_identity(&self.user_pool, user);
            self.user_pool.user_joined();
            self.user_tasks.spawn_local(user_task::run_open_user(
                self.user_pool.clone(),
                self.driver.clone(),
                seat,
                Rc::default(),
            ));
        }
    }

    fn users_to_spawn(&self) -> u64 {
        let users = self.user_pool.user_count.get();
        // Who was brought in and has not begun yet will take a queued start each.
        let wanted = (self.user_pool.queued_starts() as u64).saturating_sub(self.starting_users());
        wanted.min(MIN_SPAWN_BATCH.max(users / 8)).min(self.max_users.saturating_sub(users))
    }

    /// Users of an open model that are on their way to their first start, if any start is queued.
    fn starting_users(&self) -> u64 {
        let elsewhere = self.user_pool.activity.busy_users()
            + self.user_pool.users_without_task.get()
            + self.user_pool.users_assigned.get();
        self.user_pool.user_count.get().saturating_sub(elsewhere)
    }

    /// The schedule is over: what still waits for a user gets one, if there may be one more.
    fn spawn_users_for_queue(&mut self) {
        while self.users_to_spawn() > 0 {
            self.spawn_users();
        }
    }

    /// What waits for a user that is not even on its way would be load after the end of the run, and is dropped. A run of so many
    /// iterations makes them all, however long it takes.
    fn drop_late_starts(&mut self) {
        if let LoadModelState::Open { limited: false, .. } = self.load_state {
            self.user_pool.drop_queued_after(self.starting_users() as usize);
        }
    }

    /// A number for a new open-model user that no other thread or worker with other shares gives out.
    fn allocate_user_number(&mut self) -> u64 {
        let number = self.active_shares.next_number(self.next_user).unwrap_or(self.next_user);
        self.next_user = number + 1;
        number
    }

    /// Brings the number of closed-model users to what the profile says.
    fn adjust_users(&mut self, now: Instant) -> Option<Instant> {
        let LoadModelState::Closed { slots, desired } = &mut self.load_state else { return None };
        let elapsed = self.user_pool.elapsed(now);
        let before = std::mem::replace(desired, (self.profile.level(elapsed) + 1e-9).floor() as u64);
        for (_, slot) in slots.split_off(desired) {
            slot.send(UserSignal::Leave);
        }
        let mut from = before;
        while let Some(user) = self.active_shares.next_number(from).filter(|user| user < desired) {
            from = user + 1;
            slots.entry(user).or_insert_with(|| {
                let (slot, floor) = (Rc::new(UserSlot::default()), self.user_pool.clone());
                floor.user_joined();
                let life = user_task::run_closed_user(
                    floor,
                    self.driver.clone(),
                    user_identity(&self.user_pool, user),
                    slot.clone(),
                );
                self.user_tasks.spawn_local(life);
                slot
            });
        }
        let level_until = self.profile.level_until(elapsed);
        Some(level_until.map_or(now + USER_TICK, |at| self.user_pool.run_start + at))
    }

    fn is_done(&mut self, now: Instant) -> bool {
        let elapsed = self.user_pool.elapsed(now);
        match &mut self.load_state {
            LoadModelState::Open { schedule, limited } => {
                // A member of a fleet may yet be given shares that have something left.
                let alone = self.user_pool.config.send_budget.is_none();
                if schedule.peek().is_some() {
                    return false;
                }
                // A run of so many iterations makes them all, unless nobody can.
                let waits = self.user_pool.queued_starts() > 0 && elapsed < self.profile.duration();
                let waits = *limited && waits && !self.user_pool.users_cannot_start(now);
                self.user_pool.wake_when_queue_empty.set(waits);
                !waits && (*limited && alone || elapsed >= schedule.end())
            }
            LoadModelState::Closed { .. } => {
                let in_vain = self.user_pool.iteration_quota.is_some() && self.user_pool.users_cannot_start(now);
                elapsed >= self.profile.duration() || self.user_pool.quota_is_exhausted() || in_vain
            }
        }
    }

    /// How long load was made; `drained` is when a run that was ended early was told so.
    fn active_duration(&self, over: ThreadStopCause, drained: Duration) -> Duration {
        match (&self.load_state, over) {
            (_, ThreadStopCause::Drained | ThreadStopCause::Aborted) => drained,
            // Starts that had to wait for a user may have begun later: a rate over less time would be one that nobody saw.
            (LoadModelState::Open { schedule, .. }, ThreadStopCause::Done) => {
                let last = self.user_pool.elapsed(self.user_pool.last_iteration_start.get());
                if last > schedule.end() + self.user_pool.config.limits.late_after { last } else { schedule.end() }
            }
            (LoadModelState::Closed { .. }, ThreadStopCause::Done) if self.user_pool.quota_is_exhausted() => {
                self.user_pool.elapsed(self.user_pool.last_iteration_end.get())
            }
            // Earlier if nobody came through.
            (LoadModelState::Closed { .. }, ThreadStopCause::Done) => self.profile.duration().min(drained),
        }
    }

    fn next_second(&self) -> Instant {
        self.user_pool.run_start + Duration::from_secs(u64::from(self.second) + 1)
    }

    fn ship_if_due(&mut self, now: Instant, after: Duration) {
        if now >= self.next_second() + after {
            self.ship(false);
            self.second = self.user_pool.elapsed(now).as_secs() as u32;
        }
    }

    fn ship(&mut self, last: bool) {
        let (metrics, errors, engine) =
            self.user_pool.recorder.harvest(self.user_pool.user_count.get(), self.user_pool.activity.busy_users());
        let (source, seq, second) = (self.user_pool.source, self.seq, self.second);
        self.seq += 1;
        let delta = Delta { source, seq, second, metrics, errors, engine, last };
        // The collector is gone only if the whole run was given up; there is nobody left to tell.
        let _ = self.messages.send(ThreadMessage::Delta(Box::new(delta)));
    }
}

/// The starts of `shares` from the beginning of the run.
fn schedule_for(floor: &UserPool, profile: &Profile, shares: ShareSet) -> Schedule {
    let config = &floor.config;
    let arrivals = match &config.load.model {
        LoadModel::Open { arrivals, .. } => *arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    Schedule::new(profile.clone(), arrivals, shares, config.load.iterations, config.seed)
}

fn user_identity(floor: &UserPool, user: u64) -> UserIdentity {
    UserIdentity { number: user, seed: fastrand::Rng::with_seed(floor.config.seed ^ user.rotate_left(17)).u64(..) }
}

async fn quota_changed(tickets: &mut Option<watch::Receiver<u64>>) {
    let told = match tickets {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending().await
    }
}

/// A panic in a user's code is a bug of ours or the driver's; the run ends with it instead of going on with fewer users.
fn check_user_task(ended: Option<Result<(), tokio::task::JoinError>>) -> Result<(), EngineError> {
    match ended {
        Some(Err(error)) if error.is_panic() => Err(EngineError::UserPanicked),
        _ => Ok(()),
    }
}
