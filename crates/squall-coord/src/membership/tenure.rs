//! Tells the users of leases, without asking the store, whether the membership behind them can still be trusted.
//! Refuses to be optimistic: it counts from before the last successful beat was sent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// How long this member may act on what it holds. Clones share it.
#[derive(Clone, Debug)]
pub struct Tenure {
    start: Instant,
    /// Microseconds after `start`; 0: not a member.
    until: Arc<AtomicU64>,
}

impl Tenure {
    pub(super) fn new() -> Self {
        // A second ago, so that 0 is in the past.
        let now = Instant::now();
        Self { start: now.checked_sub(Duration::from_secs(1)).unwrap_or(now), until: Arc::default() }
    }

    /// Whether leases may still be used.
    pub fn valid(&self) -> bool {
        Instant::now() < self.until()
    }

    /// When leases may no longer be used, if no further beat succeeds.
    pub fn until(&self) -> Instant {
        self.start + Duration::from_micros(self.until.load(Ordering::Acquire))
    }

    pub(super) fn extend(&self, from: Instant, ttl: Duration) {
        let micros = (from + ttl).duration_since(self.start).as_micros();
        self.until.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}
