//! Tracks whether any user gets through its `on_start`, so that a run ends if `on_start` fails for all
//! users. It does not retry; the user tasks do.

use std::{
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
    /// The first failure since the last success.
    failing_since: Option<Instant>,
}

impl OnStartTracker {
    pub(crate) fn user_started(&self) {
        let mut state = self.lock_state();
        *state = OnStartState { started_users: state.started_users + 1, failing_since: None };
    }

    pub(crate) fn user_left(&self) {
        self.lock_state().started_users -= 1;
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
