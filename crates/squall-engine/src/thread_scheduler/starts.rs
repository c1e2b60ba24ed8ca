//! Makes the due starts of a thread and keeps as many users as they need: an open model gets users for
//! queued starts, a closed model the number that its profile asks for.

use squall_model::{Arrivals, LoadModel, Profile, ShareSet};
use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use super::{LoadModelState, ThreadScheduler};
use crate::{
    driver::{DriverThread, UserIdentity, UserStart},
    schedule::Schedule,
    thread_state::ThreadState,
    user_growth::ThreadUsers,
    user_mailbox::{DueStart, UserMailbox, UserSignal},
    user_task::{self, OpenUserStart},
};

/// How often the number of closed-model users is adjusted while the profile rises or falls.
const USER_ADJUST_INTERVAL: Duration = Duration::from_millis(20);

/// What happens to a due start that finds the queue full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FullQueue {
    /// It stays in the schedule of a run with an iteration limit.
    KeepsStarts,
    /// It is dropped and counted, because the schedule changes or ends.
    DropsStarts,
}

impl<T: DriverThread> ThreadScheduler<T> {
    /// Makes all starts due before `end`, as far as the queue takes them if `full_queue` says so; returns when
    /// to wake next.
    pub(super) fn make_starts_before(&mut self, end: Instant, full_queue: FullQueue) -> Option<Instant> {
        let now = Instant::now();
        let keeps_starts = full_queue == FullQueue::KeepsStarts && self.makes_all_starts(now);
        match &mut self.load_state {
            LoadModelState::Open { schedule, kept_until, .. } => {
                let run_start = self.state.run_start;
                let mut next_due = run_start + schedule.end();
                while let Some(next) = schedule.peek() {
                    let intended = run_start + next.at;
                    if intended >= end {
                        next_due = intended;
                        break;
                    }
                    if keeps_starts && self.state.starts.is_full() {
                        *kept_until = Some(end);
                        break;
                    }
                    schedule.next();
                    let observed = DueStart::observed(next.number, intended, now);
                    // The engine was in time for a start that the full queue has kept back.
                    let kept = kept_until.is_some_and(|until| intended < until);
                    let scheduler_lag = if kept { Duration::ZERO } else { observed.scheduler_lag };
                    self.state.dispatch_start(DueStart { scheduler_lag, ..observed });
                }
                let users = self.growth.users_to_start(self.thread_users(), now);
                self.spawn_users(users);
                // After the schedule's end, only queued starts are left to wait for.
                Some(next_due).filter(|due| *due >= end)
            }
            LoadModelState::Closed { .. } => self.adjust_users(end),
        }
    }

    /// Whether this thread waits until every start has begun: a run with an iteration limit makes all of
    /// them, unless no user can start or its profile is over.
    pub(super) fn makes_all_starts(&self, now: Instant) -> bool {
        matches!(self.load_state, LoadModelState::Open { limited: true, .. })
            && self.state.elapsed(now) < self.profile.duration()
            && !self.state.users_cannot_start(now)
    }

    /// Creates users for queued starts, a few at a time. After a short stall of the generator, busy
    /// users are soon free again; a new connection for each late start would prolong the stall.
    fn spawn_users(&mut self, count: u64) {
        for _ in 0..count {
            let user = self.allocate_user_number();
            let identity = user_identity(&self.state, user);
            let added = self.growth.is_beyond_first(self.state.counters.users.get());
            self.state.user_joined();
            let start = OpenUserStart { identity, added_because_busy: added };
            let task = user_task::run_open_user(self.state.clone(), self.driver.clone(), start, Rc::default());
            self.user_tasks.spawn_local(task);
        }
    }

    pub(super) fn thread_users(&self) -> ThreadUsers {
        let ThreadState { counters, starts, .. } = &*self.state;
        ThreadUsers {
            alive: counters.users.get(),
            starting: counters.starting_users(),
            queued: starts.len() as u64,
            oldest_since: starts.oldest_since(),
        }
    }

    /// Creates users for all queued starts, up to the limit. Called when the schedule is over.
    pub(super) fn spawn_users_for_queue(&mut self) {
        loop {
            match self.growth.users_for_queue(self.thread_users()) {
                0 => return,
                users => self.spawn_users(users),
            }
        }
    }

    /// Drops queued starts for which no user is starting: they would be load after the end of the run.
    /// A run with an iteration limit keeps them. Where users are costly to start, no user starts for
    /// the last ones: each user that is alive may take one.
    pub(super) fn drop_late_starts(&mut self) {
        if let LoadModelState::Open { limited: false, .. } = self.load_state {
            let counters = &self.state.counters;
            let kept = match self.state.cross_thread.user_start {
                UserStart::Free => counters.starting_users(),
                UserStart::OnStart | UserStart::OnStartAtOnce => counters.users.get(),
            };
            self.state.drop_queued_after(kept as usize);
        }
    }

    /// A number for a new open-model user. Threads and workers with other shares never use it.
    fn allocate_user_number(&mut self) -> u64 {
        let number = self.active_shares.next_number(self.next_user).unwrap_or(self.next_user);
        self.next_user = number + 1;
        number
    }

    /// Brings the number of closed-model users to the level of the profile.
    fn adjust_users(&mut self, now: Instant) -> Option<Instant> {
        let LoadModelState::Closed { mailboxes, desired } = &mut self.load_state else { return None };
        let elapsed = self.state.elapsed(now);
        let previous = std::mem::replace(desired, (self.profile.level(elapsed) + 1e-9).floor() as u64);
        for (_, mailbox) in mailboxes.split_off(desired) {
            mailbox.send(UserSignal::Leave);
        }
        let mut from = previous;
        while let Some(user) = self.active_shares.next_number(from).filter(|user| user < desired) {
            from = user + 1;
            mailboxes.entry(user).or_insert_with(|| {
                let (mailbox, state) = (Rc::new(UserMailbox::default()), self.state.clone());
                state.user_joined();
                let identity = user_identity(&state, user);
                let task = user_task::run_closed_user(state, self.driver.clone(), identity, mailbox.clone());
                self.user_tasks.spawn_local(task);
                mailbox
            });
        }
        let level_until = self.profile.level_until(elapsed);
        Some(level_until.map_or(now + USER_ADJUST_INTERVAL, |at| self.state.run_start + at))
    }
}

/// The starts of `shares` from the beginning of the run.
pub(super) fn schedule_for(state: &ThreadState, profile: &Profile, shares: ShareSet) -> Schedule {
    let config = &state.config;
    let arrivals = match &config.load.model {
        LoadModel::Open { arrivals, .. } => *arrivals,
        LoadModel::Closed { .. } => Arrivals::Even,
    };
    Schedule::new(profile.clone(), arrivals, shares, config.load.iterations, config.seed)
}

fn user_identity(state: &ThreadState, user: u64) -> UserIdentity {
    UserIdentity { number: user, seed: fastrand::Rng::with_seed(state.config.seed ^ user.rotate_left(17)).u64(..) }
}
