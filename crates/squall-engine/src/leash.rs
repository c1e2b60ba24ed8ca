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
use tokio::sync::watch;

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
    /// The same for good: its load is over.
    sealed: Box<[AtomicU64]>,
    seals: watch::Sender<usize>,
}

impl Leash {
    /// For `threads` engine threads; at first without limits.
    pub fn new(threads: usize) -> Leash {
        let endless = || (0..threads.max(1)).map(|_| AtomicU64::new(u64::MAX)).collect();
        let (until, seals) = (AtomicU64::new(u64::MAX), watch::Sender::default());
        let shared = Shared { base: Instant::now(), until, most: endless(), sealed: endless(), seals };
        Leash { shared: Arc::new(shared) }
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

    /// `thread` itself says that its load is over and that it will have sent `most` requests in all.
    pub(crate) fn seal(&self, thread: usize, most: u64) {
        self.shared.sealed[thread].store(most, Ordering::Relaxed);
        self.shared.seals.send_modify(|seals| *seals += 1);
    }

    /// Waits until every thread has said so; gives the requests that all together will have sent at most.
    pub async fn sealed(&self) -> u64 {
        let mut seals = self.shared.seals.subscribe();
        // Cannot fail: the sender is here.
        let _ = seals.wait_for(|seals| *seals >= self.shared.sealed.len()).await;
        self.shared.sealed.iter().map(|most| most.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
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
        let limits = [&self.shared.most, &self.shared.sealed];
        limits.into_iter().all(|limit| sent < limit[thread].load(Ordering::Relaxed))
    }
}
