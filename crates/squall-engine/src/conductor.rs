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
    alarm::Alarm,
    driver::{DriverThread, Seat},
    engine::{Duty, EngineError, Order, ThreadEnd, Turn, Word},
    floor::Floor,
    life,
    schedule::Schedule,
    slot::{Assignment, Signal, Slot},
};

/// How often the number of users is brought up to a profile that is not level.
const USER_TICK: Duration = Duration::from_millis(20);

pub(crate) struct Conductor<T> {
    floor: Rc<Floor>,
    driver: Rc<T>,
    alarm: Alarm,
    told: Told,
    /// This thread's part of the process's shares, by its last duty.
    assigned: ShareSet,
    /// What it makes the load of; nothing while it is fenced.
    shares: ShareSet,
    /// The leash has ended.
    fenced: bool,
    profile: Profile,
    /// Changes of duty whose time has not come.
    ahead: VecDeque<Duty>,
    /// One message a second: what is not fetched is as long as the run is old, in seconds.
    words: mpsc::UnboundedSender<Word>,
    lives: JoinSet<()>,
    work: Work,
    /// Its shares' part of the most users that an open model may have.
    most: u64,
    spawned: u64,
    seq: u64,
    second: u32,
}

enum Work {
    Open {
        schedule: Schedule,
        limited: bool,
    },
    /// The users of a closed model that are here, by their number in the run.
    Closed {
        slots: BTreeMap<u64, Rc<Slot>>,
        desired: u64,
    },
}

/// What a conductor hears from outside its thread.
pub(crate) struct Told {
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) duty: mpsc::UnboundedReceiver<Duty>,
    pub(crate) turn: Turn,
    /// There are more iterations to begin, or no more; if they are limited.
    pub(crate) tickets: Option<watch::Receiver<u64>>,
}

/// How many users an open model may bring in at each look at the schedule, however few it has.
const FEWEST_AT_ONCE: u64 = 8;

/// What comes in this soon after the last second belongs to it, which is so much longer: a run of 4 s has 4 seconds, not a fifth with
/// the last answers.
const TAIL: Duration = Duration::from_millis(10);

/// How often the conductor of a closed model looks at the time, whose users need nobody to start them.
const LOOK: Duration = Duration::from_millis(100);

/// What fell due while nobody held a share is made up for if that was not longer, times without any load not counted.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// A conductor that is this late has not been running, nor have its users.
const STANDSTILL: Duration = Duration::from_millis(100);

/// Why no more starts are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Done,
    Drained,
    Aborted,
}

impl<T: DriverThread> Conductor<T> {
    pub(crate) fn new(
        floor: Rc<Floor>,
        driver: T,
        alarm: Alarm,
        told: Told,
        words: mpsc::UnboundedSender<Word>,
    ) -> Conductor<T> {
        let config = &floor.config;
        // The first duty says what is held; before it nothing is.
        let (shares, profile) = (ShareSet::NONE, config.load.model.profile().clone());
        let work = match &config.load.model {
            LoadModel::Open { .. } => {
                Work::Open { schedule: schedule(&floor, &profile, shares), limited: config.load.iterations.is_some() }
            }
            LoadModel::Closed { .. } => Work::Closed { slots: BTreeMap::new(), desired: 0 },
        };
        let (driver, lives, ahead) = (Rc::new(driver), JoinSet::new(), VecDeque::new());
        Conductor {
            floor,
            driver,
            alarm,
            told,
            assigned: shares,
            shares,
            fenced: false,
            profile,
            ahead,
            words,
            lives,
            work,
            most: 1,
            spawned: 0,
            seq: 0,
            second: 0,
        }
    }

    /// Runs the thread's share to its end. What was measured is shipped also where it fails.
    pub(crate) async fn run(mut self) -> Result<ThreadEnd, EngineError> {
        let end = self.carry_out().await;
        if end.is_err() {
            self.floor.send_home();
            self.floor.seal();
            self.cut_off().await;
            self.floor.drop_queued();
        }
        self.ship(true);
        end
    }

    async fn carry_out(&mut self) -> Result<ThreadEnd, EngineError> {
        let over = self.make_load().await?;
        let drained = self.floor.elapsed(Instant::now());
        match over {
            Over::Done => {
                self.serve_queue();
                self.drop_late_queue();
            }
            // Its load is others' now; what was due before is its own.
            Over::Drained if self.shares.is_empty() => self.serve_queue(),
            Over::Drained | Over::Aborted => self.floor.drop_queued(),
        }
        self.floor.send_home();
        self.floor.seal();
        let cut_off = over == Over::Aborted || !self.drain(over).await?;
        if cut_off {
            self.cut_off().await;
        }
        // Also where everybody went home: users that never managed to start leave their starts behind.
        self.floor.drop_queued();
        let elapsed = self.floor.elapsed(Instant::now());
        let active = self.active(over, drained);
        self.floor.busy.set_load_end(match self.floor.tickets {
            Some(_) => self.floor.elapsed(self.floor.last_end.get()),
            // Whoever gave its shares away made what was due before afterwards.
            None if over == Over::Drained => active.max(self.floor.elapsed(self.floor.last_begun.get())),
            None => active,
        });
        Ok(ThreadEnd { active, elapsed, cut_off })
    }

    async fn cut_off(&mut self) {
        self.lives.abort_all();
        while self.lives.join_next().await.is_some() {}
    }

    async fn make_load(&mut self) -> Result<Over, EngineError> {
        loop {
            let now = self.hear_duties();
            self.notice_standstill(now);
            let mut next = self.next_second();
            if let Work::Closed { .. } = self.work {
                next = next.min(now + LOOK);
            }
            let mut sooner = |due: Option<Instant>| next = due.map_or(next, |due| next.min(due));
            sooner(self.floor.wake_sleepers(now));
            self.floor.serve_idle();
            sooner(self.start_what_is_due(now));
            if self.is_done(now) {
                return Ok(Over::Done);
            }
            self.ship_if_due(now, Duration::ZERO);
            if self.users_to_bring_in() > 0 {
                next = now;
            }
            let until = next.max(now + self.floor.config.slack);
            if let Some(over) = self.wait(until).await? {
                self.start_what_was_due();
                return Ok(over);
            }
        }
    }

    /// In a closed model nothing is due that could be late; that the thread itself was late to its alarm is all there is to see.
    fn notice_standstill(&self, now: Instant) {
        let due = self.floor.armed_until.get();
        let late = now.saturating_duration_since(due);
        if late >= STANDSTILL && matches!(self.work, Work::Closed { .. }) {
            self.floor.probe.stood_still(due, late);
        }
    }

    /// Starts what was due before a drain was asked for, even if this thread comes to it only now: it is made or counted as dropped.
    fn start_what_was_due(&mut self) {
        let order = *self.told.orders.borrow();
        if let (Order::Drain(at), Work::Open { .. }) = (order, &self.work) {
            let now = self.hear_duties().min(at);
            self.start_what_is_due(now);
        }
    }

    /// Waits until `until`, an order, or a nudge.
    async fn wait(&mut self, until: Instant) -> Result<Option<Over>, EngineError> {
        self.floor.armed_until.set(until);
        let delay = until.saturating_duration_since(Instant::now());
        tokio::select! {
            biased;
            changed = self.told.orders.changed() => {
                let order = if changed.is_err() { Order::Abort } else { *self.told.orders.borrow_and_update() };
                return Ok(match order {
                    Order::Prepare | Order::Start(_) => None,
                    Order::Drain(_) => Some(Over::Drained),
                    Order::Abort => Some(Over::Aborted),
                });
            }
            Some(duty) = self.told.duty.recv() => self.ahead.push_back(duty),
            () = news(&mut self.told.tickets) => self.floor.wake_thirsty(),
            ended = self.lives.join_next(), if !self.lives.is_empty() => check_life(ended)?,
            () = self.floor.wait_for_nudge() => {}
            rung = self.alarm.after(delay) => rung.map_err(EngineError::Timer)?,
        }
        Ok(None)
    }

    /// Waits for users to come home; `false` if the grace was over or an abort came first. A run of so many iterations makes them all: its
    /// grace begins when the last of them has ended, its time is over, or somebody wants it to end.
    async fn drain(&mut self, over: Over) -> Result<bool, EngineError> {
        let mut all = over == Over::Done && self.floor.config.load.iterations.is_some();
        let end = self.floor.start + self.profile.duration();
        let mut deadline = Instant::now() + self.floor.config.grace;
        // What a leaver could not begin by then is given up, so that what it has begun can end.
        let last_begin = Instant::now() + self.floor.config.grace / 2;
        while !self.lives.is_empty() {
            let now = Instant::now();
            if over == Over::Drained && now >= last_begin {
                self.floor.drop_queued();
            }
            if all && self.floor.busy.get() > 0 && now < end {
                deadline = now + self.floor.config.grace;
            }
            self.drop_late_queue();
            self.ship_if_due(now, TAIL);
            // Users that are still starting may go to sleep for a retry.
            self.floor.send_home();
            let until =
                (self.next_second() + TAIL).min(deadline).min(if now < last_begin { last_begin } else { deadline });
            let told = if now < deadline { self.wait(until).await? } else { Some(Over::Aborted) };
            match told {
                Some(Over::Aborted) => return Ok(self.lives.is_empty()),
                Some(_) => all = false,
                None => {}
            }
        }
        Ok(true)
    }

    /// The present, and every duty that was given before it.
    fn hear_duties(&mut self) -> Instant {
        let turn = self.told.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        while let Ok(duty) = self.told.duty.try_recv() {
            self.ahead.push_back(duty);
        }
        drop(turn);
        now
    }

    /// This process's place is no longer certain: others may be making its load already.
    fn leave_everything(&mut self, now: Instant) {
        self.fenced = true;
        if self.shares.is_empty() {
            return;
        }
        self.floor.drop_queued();
        self.hold(ShareSet::NONE, self.floor.elapsed(now));
    }

    /// Its place is certain again: what it still holds is taken up where the run is. What was due in between is missed, because nobody
    /// here knows who held it.
    fn come_back(&mut self, now: Instant) {
        self.fenced = false;
        while let Some(duty) = self.next_duty(now) {
            self.assigned = duty.shares;
            self.profile = duty.profile.clone();
        }
        self.hold(self.assigned, self.floor.elapsed(now));
    }

    /// Makes the load of `shares` from the time `from` on.
    fn hold(&mut self, shares: ShareSet, from: Duration) {
        self.shares = shares;
        if !shares.is_empty() {
            // Who holds nothing any more may still need users for what was due before.
            self.most = shares.count_below(self.floor.config.max_users as u64).max(1);
            if let Work::Open { .. } = self.work {
                self.floor.keep_at_most(self.most);
            }
        }
        match &mut self.work {
            Work::Open { schedule, .. } => schedule.change(shares, self.profile.clone(), from),
            Work::Closed { slots, desired } => {
                let lost = slots.extract_if(.., |user, _| !shares.contains(*user));
                lost.for_each(|(_, slot)| slot.send(Signal::Leave));
                // Users gained are those of the level already reached.
                *desired = 0;
            }
        }
    }

    /// Starts everything due; returns when to look again.
    fn start_what_is_due(&mut self, now: Instant) -> Option<Instant> {
        if self.floor.config.leash.as_ref().is_some_and(|leash| !leash.holds_at(now)) {
            self.leave_everything(now);
            return None;
        }
        if self.fenced {
            self.come_back(now);
        }
        while let Some(duty) = self.next_duty(now) {
            // What is due at the change belongs to whoever holds it from then on.
            self.start_due_before(self.floor.start + duty.at);
            self.change_duty(&duty);
        }
        let next_due = self.start_due_before(now + Duration::from_nanos(1));
        let change = self.ahead.front().map(|duty| self.floor.start + duty.at);
        match (next_due, change) {
            (Some(due), Some(change)) => Some(due.min(change)),
            (due, change) => due.or(change),
        }
    }

    /// The next duty that has taken effect by `now`.
    fn next_duty(&mut self, now: Instant) -> Option<Duty> {
        if self.ahead.front().is_none_or(|duty| self.floor.start + duty.at > now) {
            return None;
        }
        self.ahead.pop_front()
    }

    fn change_duty(&mut self, duty: &Duty) {
        self.assigned = duty.shares;
        let gained = self.assigned.without(self.shares);
        self.profile = duty.profile.clone();
        self.hold(self.assigned, duty.at);
        if let Work::Open { .. } = self.work {
            self.catch_up(gained, duty);
        }
    }

    /// Starts what fell due on gained shares between their last holder and this one, unless nobody has held them for so long that it would
    /// be a load of its own, which nobody has ordered.
    fn catch_up(&self, gained: ShareSet, duty: &Duty) {
        let mut by_time: BTreeMap<Duration, ShareSet> = BTreeMap::new();
        for share in gained.iter() {
            let recent = |left: &&Duration| **left < duty.at && self.profile.loaded(**left, duty.at) <= LONGEST_GAP;
            if let Some(left) = duty.left.get(&share).filter(recent) {
                by_time.entry(*left).or_default().insert(share);
            }
        }
        let now = Instant::now();
        for (left, shares) in by_time {
            let mut missed = schedule(&self.floor, &self.profile, shares);
            missed.change(shares, self.profile.clone(), left);
            while let Some(start) = missed.next().filter(|start| start.at < duty.at) {
                let intended = self.floor.start + start.at;
                // The gap between two holders is the fleet's, and the report shows it; it is no lag of this engine. Where there was no
                // holder before, the load began too late.
                let behind = if left.is_zero() { now.saturating_duration_since(intended) } else { Duration::ZERO };
                self.floor.give(Assignment { number: start.number, intended, behind, free_since: now });
            }
        }
    }

    /// Starts everything due before `end`; returns when to look again.
    fn start_due_before(&mut self, end: Instant) -> Option<Instant> {
        match &mut self.work {
            Work::Open { schedule, .. } => {
                let (now, mut next_due) = (Instant::now(), self.floor.start + schedule.end());
                while let Some(next) = schedule.peek() {
                    let intended = self.floor.start + next.at;
                    if intended >= end {
                        next_due = intended;
                        break;
                    }
                    schedule.next();
                    self.floor.give(Assignment::seen(next.number, intended, now));
                }
                self.bring_in_users();
                // Behind the end only the queue is waited for.
                Some(next_due).filter(|due| *due >= end)
            }
            Work::Closed { .. } => self.adjust_users(end),
        }
    }

    /// Brings in users for starts that found nobody idle, but only a few at a time: after a hiccup of the generator those who are
    /// busy will be back within a slice, and opening a connection for each late start would only prolong it.
    fn bring_in_users(&mut self) {
        for _ in 0..self.users_to_bring_in() {
            let user = self.next_open_user();
            let seat = seat(&self.floor, user);
            self.floor.welcome();
            self.lives.spawn_local(life::open(self.floor.clone(), self.driver.clone(), seat, Rc::default()));
        }
    }

    fn users_to_bring_in(&self) -> u64 {
        let users = self.floor.users.get();
        // Who was brought in and has not begun yet will take a queued start each.
        let wanted = (self.floor.queued() as u64).saturating_sub(self.starting());
        wanted.min(FEWEST_AT_ONCE.max(users / 8)).min(self.most.saturating_sub(users))
    }

    /// Users of an open model that are on their way to their first start, if any start is queued.
    fn starting(&self) -> u64 {
        let elsewhere = self.floor.busy.get() + self.floor.unready.get() + self.floor.assigned.get();
        self.floor.users.get().saturating_sub(elsewhere)
    }

    /// The schedule is over: what still waits for a user gets one, if there may be one more.
    fn serve_queue(&mut self) {
        while self.users_to_bring_in() > 0 {
            self.bring_in_users();
        }
    }

    /// What waits for a user that is not even on its way would be load after the end of the run, and is dropped. A run of so many
    /// iterations makes them all, however long it takes.
    fn drop_late_queue(&mut self) {
        if let Work::Open { limited: false, .. } = self.work {
            self.floor.drop_queued_after(self.starting() as usize);
        }
    }

    /// A number for a new open-model user that no other thread or worker with other shares gives out.
    fn next_open_user(&mut self) -> u64 {
        let number = self.shares.next(self.spawned).unwrap_or(self.spawned);
        self.spawned = number + 1;
        number
    }

    /// Brings the number of closed-model users to what the profile says.
    fn adjust_users(&mut self, now: Instant) -> Option<Instant> {
        let Work::Closed { slots, desired } = &mut self.work else { return None };
        let elapsed = self.floor.elapsed(now);
        let before = std::mem::replace(desired, (self.profile.level(elapsed) + 1e-9).floor() as u64);
        for (_, slot) in slots.split_off(desired) {
            slot.send(Signal::Leave);
        }
        let mut from = before;
        while let Some(user) = self.shares.next(from).filter(|user| user < desired) {
            from = user + 1;
            slots.entry(user).or_insert_with(|| {
                let (slot, floor) = (Rc::new(Slot::default()), self.floor.clone());
                floor.welcome();
                let life = life::closed(floor, self.driver.clone(), seat(&self.floor, user), slot.clone());
                self.lives.spawn_local(life);
                slot
            });
        }
        let level_until = self.profile.level_until(elapsed);
        Some(level_until.map_or(now + USER_TICK, |at| self.floor.start + at))
    }

    fn is_done(&mut self, now: Instant) -> bool {
        let elapsed = self.floor.elapsed(now);
        match &mut self.work {
            Work::Open { schedule, limited } => {
                // A member of a fleet may yet be given shares that have something left.
                let alone = self.floor.config.leash.is_none();
                if schedule.peek().is_some() {
                    return false;
                }
                // A run of so many iterations makes them all, unless nobody can.
                let waits = self.floor.queued() > 0 && elapsed < self.profile.duration();
                let waits = *limited && waits && !self.floor.waits_in_vain(now);
                self.floor.last_ones.set(waits);
                !waits && (*limited && alone || elapsed >= schedule.end())
            }
            Work::Closed { .. } => {
                let in_vain = self.floor.tickets.is_some() && self.floor.waits_in_vain(now);
                elapsed >= self.profile.duration() || self.floor.tickets_are_over() || in_vain
            }
        }
    }

    /// How long load was made; `drained` is when a run that was ended early was told so.
    fn active(&self, over: Over, drained: Duration) -> Duration {
        match (&self.work, over) {
            (_, Over::Drained | Over::Aborted) => drained,
            // Starts that had to wait for a user may have begun later: a rate over less time would be one that nobody saw.
            (Work::Open { schedule, .. }, Over::Done) => {
                let last = self.floor.elapsed(self.floor.last_begun.get());
                if last > schedule.end() + self.floor.config.late_after { last } else { schedule.end() }
            }
            (Work::Closed { .. }, Over::Done) if self.floor.tickets_are_over() => {
                self.floor.elapsed(self.floor.last_end.get())
            }
            // Earlier if nobody came through.
            (Work::Closed { .. }, Over::Done) => self.profile.duration().min(drained),
        }
    }

    fn next_second(&self) -> Instant {
        self.floor.start + Duration::from_secs(u64::from(self.second) + 1)
    }

    fn ship_if_due(&mut self, now: Instant, after: Duration) {
        if now >= self.next_second() + after {
            self.ship(false);
            self.second = self.floor.elapsed(now).as_secs() as u32;
        }
    }

    fn ship(&mut self, last: bool) {
        let (metrics, errors, engine) = self.floor.probe.harvest(self.floor.users.get(), self.floor.busy.get());
        let (source, seq, second) = (self.floor.source, self.seq, self.second);
        self.seq += 1;
        let delta = Delta { source, seq, second, metrics, errors, engine, last };
        // The collector is gone only if the whole run was given up; there is nobody left to tell.
        let _ = self.words.send(Word::Delta(Box::new(delta)));
    }
}

/// The starts of `shares` from the beginning of the run.
fn schedule(floor: &Floor, profile: &Profile, shares: ShareSet) -> Schedule {
    let config = &floor.config;
    let arrivals = match &config.load.model {
        LoadModel::Open { arrivals, .. } => *arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    Schedule::new(profile.clone(), arrivals, shares, config.load.iterations, config.seed)
}

fn seat(floor: &Floor, user: u64) -> Seat {
    Seat { user, seed: fastrand::Rng::with_seed(floor.config.seed ^ user.rotate_left(17)).u64(..) }
}

async fn news(tickets: &mut Option<watch::Receiver<u64>>) {
    let told = match tickets {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !told {
        std::future::pending().await
    }
}

/// A panic in a user's code is a bug of ours or the driver's; the run ends with it instead of going on with fewer users.
fn check_life(ended: Option<Result<(), tokio::task::JoinError>>) -> Result<(), EngineError> {
    match ended {
        Some(Err(error)) if error.is_panic() => Err(EngineError::UserPanicked),
        _ => Ok(()),
    }
}
