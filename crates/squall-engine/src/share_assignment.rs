//! The part of a run that a process or a thread executes. It does not decide who holds which share:
//! the oldest workers assign shares (squall-coord `membership`), and squall-worker passes the
//! shares that it holds to the engine.

use squall_model::{Profile, ShareSet};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The shares and the load profile of a process. Both may change during the run.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareAssignment {
    pub shares: ShareSet,
    /// The rate or the number of users of the whole run. Up to `effective_at` it equals the previous
    /// profile.
    pub profile: Profile,
    /// The run time from which the assignment holds. [`Engine::set_assignment`](crate::Engine::set_assignment)
    /// moves it to the future if it has passed.
    pub effective_at: Duration,
    /// The run time before which all starts of a share have been made: as its last holder noted, or
    /// zero if no worker has held the share. The engine replays the starts due since then, unless
    /// the gap is too long. Shares without an entry begin at `effective_at`.
    pub resume_from: Arc<BTreeMap<u32, Duration>>,
}

impl ShareAssignment {
    /// An assignment that replays nothing: every gained share begins at `effective_at`.
    pub fn new(shares: ShareSet, profile: Profile, effective_at: Duration) -> ShareAssignment {
        ShareAssignment { shares, profile, effective_at, resume_from: Arc::default() }
    }

    /// The part of one thread.
    pub(crate) fn for_thread(&self, shares: ShareSet) -> ShareAssignment {
        ShareAssignment { shares, ..self.clone() }
    }
}
