//! Tracks which users get through their `on_start`: a run ends if `on_start` fails for all users, and
//! a worker shows the users that it has started. It does not retry; the user tasks do.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The outcomes of users' `on_start`, on one thread or on all threads of an engine.
#[derive(Debug, Default)]
pub(crate) struct OnStartTracker(Mutex<OnStartState>);

#[derive(Debug, Default)]
struct OnStartState {
    /// Users whose `on_start` succeeded and that have not left.
    started_users: u64,
    /// Users that have started (`true`) or left since the last [`OnStartTracker::take_changes`].
    changes: BTreeMap<u64, bool>,
    /// The first failure since the last success.
    failing_since: Option<Instant>,
}

impl OnStartTracker {
    pub(crate) fn user_started(&self, number: u64) {
        let mut state = self.lock_state();
        (state.started_users, state.failing_since) = (state.started_users + 1, None);
        state.changes.insert(number, true);
    }

    pub(crate) fn user_left(&self, number: u64) {
        let mut state = self.lock_state();
        state.started_users -= 1;
        state.changes.insert(number, false);
    }

    /// The users that have started (`true`) or left (`false`) since the last call, by number.
    pub(crate) fn take_changes(&self) -> BTreeMap<u64, bool> {
        std::mem::take(&mut self.lock_state().changes)
    }

    pub(crate) fn start_failed(&self, now: Instant) {
        self.lock_state().failing_since.get_or_insert(now);
    }

    /// Whether no started user is left and every `on_start` has failed for at least `timeout`.
    pub(crate) fn all_failing_for(&self, now: Instant, timeout: Duration) -> bool {
        let state = self.lock_state();
        state.started_users == 0
            && state.failing_since.is_some_and(|since| now.saturating_duration_since(since) >= timeout)
    }

    fn lock_state(&self) -> MutexGuard<'_, OnStartState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
