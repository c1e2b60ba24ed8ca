//! How far a process may go on alone. A member of a fleet makes load only while its place is certain, and never more requests than
//! it has announced; then, if it is killed or cut off, nobody else makes the same load, and what it may have sent is known to the
//! request. A local run has no leash.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// The limits of one process, shared by its threads. Cloning shares it. Holds nothing back until it is first set.
#[derive(Debug, Clone)]
pub struct Leash {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    base: Instant,
    /// Nanoseconds after `base`.
    until: AtomicU64,
    /// Requests that each thread may have sent in all.
    most: Box<[AtomicU64]>,
}

impl Leash {
    /// For `threads` engine threads; at first without limits.
    pub fn new(threads: usize) -> Leash {
        let most = (0..threads.max(1)).map(|_| AtomicU64::new(u64::MAX)).collect();
        Leash { shared: Arc::new(Shared { base: Instant::now(), until: AtomicU64::new(u64::MAX), most }) }
    }

    /// Lets the process go on until `until`, which may also be sooner than before.
    pub fn until(&self, until: Instant) {
        let nanos = until.saturating_duration_since(self.shared.base).as_nanos();
        self.shared.until.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Lets `thread` send up to `most` requests in all.
    pub fn most(&self, thread: usize, most: u64) {
        self.shared.most[thread].store(most, Ordering::Relaxed);
    }

    /// Requests that all threads together may have sent.
    pub fn announced(&self) -> u64 {
        self.shared.most.iter().map(|most| most.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }

    /// Whether load may be made at `now`.
    #[inline]
    pub(crate) fn holds_at(&self, now: Instant) -> bool {
        let until = self.shared.until.load(Ordering::Relaxed);
        until == u64::MAX || now.saturating_duration_since(self.shared.base).as_nanos() < u128::from(until)
    }

    #[inline]
    pub(crate) fn allows(&self, thread: usize, sent: u64) -> bool {
        sent < self.shared.most[thread].load(Ordering::Relaxed)
    }
}
