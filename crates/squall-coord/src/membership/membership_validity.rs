//! How long the users of leases may trust their membership, without a call to the store.
//! It counts from the moment before the last successful heartbeat was sent, so it never exceeds the
//! store's own expiry. Users of leases read it through [`super::MembershipHandle`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Until when this member may use its leases: until its membership can expire. Clones share it.
#[derive(Clone, Debug)]
pub struct MembershipValidity {
    start: Instant,
    /// Microseconds after `start`; 0 means that it is not a member.
    valid_micros: Arc<AtomicU64>,
}

impl MembershipValidity {
    pub(super) fn new() -> Self {
        // One second ago, so that 0 is in the past.
        let now = Instant::now();
        Self { start: now.checked_sub(Duration::from_secs(1)).unwrap_or(now), valid_micros: Arc::default() }
    }

    /// Whether leases may still be used.
    pub fn is_valid(&self) -> bool {
        Instant::now() < self.expires_at()
    }

    /// When leases become invalid unless another heartbeat succeeds.
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
