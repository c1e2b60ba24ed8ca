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
pub struct LeaseValidity {
    start: Instant,
    /// Microseconds after `start`; 0: not a member.
    valid_micros: Arc<AtomicU64>,
}

impl LeaseValidity {
    pub(super) fn new() -> Self {
        // A second ago, so that 0 is in the past.
        let now = Instant::now();
        Self { start: now.checked_sub(Duration::from_secs(1)).unwrap_or(now), valid_micros: Arc::default() }
    }

    /// Whether leases may still be used.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.expires_at()
    }

    /// When leases may no longer be used, if no further beat succeeds.
    pub fn expires_at(&self) -> Instant {
        self.start + Duration::from_micros(self.valid_micros.load(Ordering::Acquire))
    }

    pub(super) fn extend(&self, from: Instant, ttl: Duration) {
        let micros = (from + ttl).duration_since(self.start).as_micros();
        self.valid_micros.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn expire(&self) {
        self.valid_micros.store(0, Ordering::Release);
    }
}
