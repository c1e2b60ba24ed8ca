//! Decides how many users an open model starts. A user that runs an `on_start` is costly: one for
//! each start that finds no free user would be a storm of logins, which makes the target slower and
//! so asks for more users. It starts no users; the thread's scheduler does.

use squall_model::{EngineLimits, Profile, ShareSet};
use std::time::{Duration, Instant};

use crate::UserStart;

/// Users that an open model may create at each wake-up, even if it has few.
const MIN_SPAWN_BATCH: u64 = 8;

/// How long a start waits before users are added that run an `on_start`. Users that are busy only for
/// a moment take it meanwhile.
const WAIT_BEFORE_GROWTH: Duration = Duration::from_millis(250);

/// The users of one thread, as far as its growth depends on them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadUsers {
    pub(crate) alive: u64,
    /// Those that were created and have not taken a start yet. Exact only while starts are queued.
    pub(crate) starting: u64,
    /// Starts that wait for a free user.
    pub(crate) queued: u64,
    /// When the oldest of them was queued.
    pub(crate) oldest_since: Option<Instant>,
}

/// The growth of one thread's users.
pub(crate) struct UserGrowth {
    user_start: UserStart,
    /// This thread's part of the most users.
    limit: u64,
    /// This thread's part of the first users, which start as soon as they are needed.
    first: u64,
    at_once: bool,
    /// The queued starts when growth was last considered.
    considered: Option<(Instant, u64)>,
}

impl UserGrowth {
    pub(crate) fn new(user_start: UserStart) -> UserGrowth {
        UserGrowth { user_start, limit: 1, first: 0, at_once: false, considered: None }
    }

    /// Sets this thread's part of the numbers of users of a run with this rate. A thread whose users
    /// run an `on_start` has at least one first user, because its first starts would wait otherwise.
    /// [`threads_with_first_users`] limits the threads, so that these are not more than the run has.
    pub(crate) fn set_shares(&mut self, shares: ShareSet, rate: &Profile, limits: &EngineLimits) {
        self.limit = shares.count_below(limits.max_users as u64).max(1);
        let first = first_users(self.user_start, shares, rate, limits);
        self.first = if self.user_start == UserStart::Free { first } else { first.max(1) };
        self.at_once = limits.start_users.is_some() || self.user_start == UserStart::OnStartAtOnce;
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether a further user is one beyond the first.
    pub(crate) fn is_beyond_first(&self, alive: u64) -> bool {
        self.user_start != UserStart::Free && alive >= self.first
    }

    /// How many users to start now.
    pub(crate) fn users_to_start(&mut self, users: ThreadUsers, now: Instant) -> u64 {
        let wanted = self.users_for_queue(users);
        if wanted == 0 && self.is_beyond_first(users.alive) {
            return self.users_to_add(users, now);
        }
        self.considered = None;
        wanted
    }

    /// How many users may start for the queued starts without any wait.
    pub(crate) fn users_for_queue(&self, users: ThreadUsers) -> u64 {
        let missing = self.first.saturating_sub(users.alive);
        if self.at_once && missing > 0 {
            return missing.min(self.limit.saturating_sub(users.alive));
        }
        // Each user that is still starting will take one queued start.
        let wanted = users.queued.saturating_sub(users.starting);
        let batch = match self.user_start {
            UserStart::Free => MIN_SPAWN_BATCH.max(users.alive / 8),
            UserStart::OnStart | UserStart::OnStartAtOnce => missing,
        };
        wanted.min(batch).min(self.limit.saturating_sub(users.alive))
    }

    /// Adds as many users as there were at first, if starts have waited and their number does not
    /// shrink. No more users than that run their `on_start` at the same time.
    fn users_to_add(&mut self, users: ThreadUsers, now: Instant) -> u64 {
        let waited = users.oldest_since.is_some_and(|since| now.duration_since(since) >= WAIT_BEFORE_GROWTH);
        let batch = self.first.max(1).saturating_sub(users.starting);
        if !waited || batch == 0 {
            self.considered = None;
            return 0;
        }
        let Some((at, queued)) = self.considered else {
            self.considered = Some((now, users.queued));
            return 0;
        };
        if now.duration_since(at) < WAIT_BEFORE_GROWTH {
            return 0;
        }
        self.considered = Some((now, users.queued));
        let room = self.limit.saturating_sub(users.alive);
        if users.queued < queued { 0 } else { users.queued.saturating_sub(users.starting).min(batch).min(room) }
    }
}

/// How many of a process's threads get a part of `shares`. If users run an `on_start`, no more than the
/// shares have first users, and at least one: each of these threads starts a user.
pub(crate) fn threads_with_first_users(
    user_start: UserStart,
    shares: ShareSet,
    rate: &Profile,
    limits: &EngineLimits,
) -> usize {
    match user_start {
        UserStart::Free => usize::MAX,
        UserStart::OnStart | UserStart::OnStartAtOnce => first_users(user_start, shares, rate, limits).max(1) as usize,
    }
}

/// The part of a run's first users that these shares have. With an `on_start` the run has one for every
/// 100 starts per second, as LoadPilot has.
fn first_users(user_start: UserStart, shares: ShareSet, rate: &Profile, limits: &EngineLimits) -> u64 {
    let users = match (limits.start_users, user_start) {
        (Some(users), _) => users as u64,
        (None, UserStart::Free) => 0,
        (None, UserStart::OnStart | UserStart::OnStartAtOnce) => ((rate.peak() / 100.0) as u64).clamp(5, 100),
    };
    shares.count_below(users.min(limits.max_users as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(user_start: UserStart, rate: f64) -> UserGrowth {
        growth_of(ShareSet::ALL, user_start, rate)
    }

    fn growth_of(shares: ShareSet, user_start: UserStart, rate: f64) -> UserGrowth {
        let rate = Profile::constant(rate, Duration::from_secs(1)).expect("a profile");
        let mut growth = UserGrowth::new(user_start);
        growth.set_shares(shares, &rate, &EngineLimits::default());
        growth
    }

    #[test]
    fn thread_with_high_shares_has_a_first_user_too() {
        let mut last_share = ShareSet::NONE;
        last_share.insert(255);
        let waiting = ThreadUsers { alive: 0, starting: 0, queued: 1, oldest_since: Some(Instant::now()) };
        assert_eq!(growth_of(last_share, UserStart::OnStart, 100.0).users_for_queue(waiting), 1);
    }

    #[test]
    fn threads_without_a_first_user_get_no_shares() {
        let rate = Profile::constant(40.0, Duration::from_secs(1)).expect("a profile");
        let threads = |user_start, shares: ShareSet, start_users| {
            let limits = EngineLimits { start_users, ..EngineLimits::default() };
            threads_with_first_users(user_start, shares, &rate, &limits)
        };
        assert_eq!(threads(UserStart::OnStart, ShareSet::ALL, Some(2)), 2);
        assert_eq!(threads(UserStart::OnStartAtOnce, ShareSet::ALL, None), 5);
        assert_eq!(threads(UserStart::OnStart, ShareSet::ALL.part(1, 2), Some(2)), 1, "one of two workers");
        assert_eq!(threads(UserStart::OnStart, ShareSet::ALL.part(2, 3), Some(2)), 1, "a worker without a first user");
        assert_eq!(threads(UserStart::Free, ShareSet::ALL, Some(2)), usize::MAX);
    }

    #[test]
    fn first_users_are_one_for_every_hundred_starts_per_second() {
        for (rate, expected) in [(1.0, 5), (500.0, 5), (699.0, 6), (1500.0, 15), (10_000.0, 100), (50_000.0, 100)] {
            let idle = ThreadUsers { alive: 0, starting: 0, queued: 0, oldest_since: None };
            assert_eq!(growth(UserStart::OnStartAtOnce, rate).users_for_queue(idle), expected, "{rate}");
            assert_eq!(growth(UserStart::OnStart, rate).users_for_queue(idle), 0, "{rate}");
            let busy = ThreadUsers { queued: 1000, ..idle };
            assert_eq!(growth(UserStart::OnStart, rate).users_for_queue(busy), expected, "{rate}");
        }
    }

    #[test]
    fn users_with_on_start_are_added_only_while_starts_wait_and_do_not_become_fewer() {
        let mut growth = growth(UserStart::OnStart, 100.0);
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let waiting = |alive, starting, queued| ThreadUsers { alive, starting, queued, oldest_since: Some(begin) };
        assert_eq!(growth.users_to_start(waiting(5, 5, 40), at(1000)), 0, "the first users are still starting");
        assert_eq!(growth.users_to_start(waiting(5, 0, 100), at(2000)), 0, "they have just begun");
        assert_eq!(growth.users_to_start(waiting(5, 0, 60), at(2250)), 0, "the queue became shorter");
        assert_eq!(growth.users_to_start(waiting(5, 0, 70), at(2300)), 0, "too soon after the last look");
        assert_eq!(growth.users_to_start(waiting(5, 0, 70), at(2500)), 5);
        assert_eq!(growth.users_to_start(waiting(10, 5, 90), at(2750)), 0, "the added users are starting");
        assert_eq!(growth.users_to_start(waiting(10, 1, 2), at(3000)), 0);
        assert_eq!(growth.users_to_start(waiting(10, 1, 2), at(3250)), 1, "no more than starts wait");
    }

    #[test]
    fn users_without_on_start_are_started_for_each_queued_start() {
        let mut growth = growth(UserStart::Free, 100.0);
        let users = ThreadUsers { alive: 0, starting: 0, queued: 5, oldest_since: Some(Instant::now()) };
        assert_eq!(growth.users_to_start(users, Instant::now()), 5);
        assert!(!growth.is_beyond_first(10_000));
    }
}
