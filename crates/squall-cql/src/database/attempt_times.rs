//! Adds up the driver's own times of answered requests. bench/cql compares them with the recorded service
//! times; a run measures them only if it is asked to.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// The answered requests of all sessions of a target.
#[derive(Debug, Default)]
pub struct AttemptTimes {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl AttemptTimes {
    pub(super) fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The sum of all times.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}
