//! The counts of one engine thread: its users, iterations and starts. It decides nothing; the
//! scheduler and the user tasks of the thread update it.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Counts that only the thread itself changes.
pub(crate) struct ThreadCounters {
    /// What other threads may read.
    pub(crate) activity: Arc<ThreadActivity>,
    pub(crate) users: Cell<u64>,
    /// Open-model users whose tasks are all waiting for their interval, so they cannot take a start.
    pub(crate) users_without_task: Cell<u64>,
    /// Users that have taken a start and wait for a thread to run it.
    pub(crate) users_without_thread: Cell<u64>,
    /// Users that were handed a start and have not run since.
    pub(crate) users_assigned: Cell<u64>,
    /// Iterations that closed-model users of this thread have begun.
    pub(crate) iterations_begun: Cell<u64>,
    /// Starts of an open model that were handed to users or queued for them, without dropped ones.
    pub(crate) starts_handed_out: Cell<u64>,
    /// When the last iteration of an open model began.
    pub(crate) last_iteration_start: Cell<Instant>,
    /// When the last iteration of a run with an iteration limit ended.
    pub(crate) last_iteration_end: Cell<Instant>,
}

impl ThreadCounters {
    pub(crate) fn new(activity: Arc<ThreadActivity>, run_start: Instant) -> ThreadCounters {
        ThreadCounters {
            activity,
            users: Cell::new(0),
            users_without_task: Cell::new(0),
            users_without_thread: Cell::new(0),
            users_assigned: Cell::new(0),
            iterations_begun: Cell::new(0),
            starts_handed_out: Cell::new(0),
            last_iteration_start: Cell::new(run_start),
            last_iteration_end: Cell::new(run_start),
        }
    }

    /// Open-model users that were spawned and are on their way to their first start. The number is
    /// exact only while starts are queued, because then no user is idle.
    pub(crate) fn starting_users(&self) -> u64 {
        let waiting = self.users_without_task.get() + self.users_without_thread.get();
        let past_start = self.activity.busy_users() + waiting + self.users_assigned.get();
        self.users.get().saturating_sub(past_start)
    }
}

pub(crate) fn increment(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub(crate) fn decrement(counter: &Cell<u64>) {
    counter.set(counter.get() - 1);
}

/// The counts of one thread that other threads read. Only the thread itself writes them. Each has a
/// cache line of its own, so that one thread's writes do not slow down another thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadActivity {
    busy_users: AtomicU64,
    load_end_ns: AtomicU64,
    requests_begun: AtomicU64,
    iterations: AtomicU64,
    dropped: AtomicU64,
}

impl ThreadActivity {
    /// How many users are in an iteration.
    pub(crate) fn busy_users(&self) -> u64 {
        self.busy_users.load(Ordering::Relaxed)
    }

    /// Only the thread itself may call this: two writers would lose counts.
    pub(crate) fn set_busy_users(&self, users: u64) {
        self.busy_users.store(users, Ordering::Relaxed);
    }

    /// How many requests have begun, including those that failed before they were sent.
    pub(crate) fn requests_begun(&self) -> u64 {
        self.requests_begun.load(Ordering::Relaxed)
    }

    /// How many iterations have begun, without those of the warm-up.
    pub(crate) fn iterations(&self) -> u64 {
        self.iterations.load(Ordering::Relaxed)
    }

    /// How many starts were dropped, without those of the warm-up.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn count_request(&self) {
        add(&self.requests_begun, 1);
    }

    pub(crate) fn count_iteration(&self) {
        add(&self.iterations, 1);
    }

    pub(crate) fn count_dropped(&self, starts: u64) {
        add(&self.dropped, starts);
    }

    /// The run time at which the thread's load ended. It is set before the thread sends its last delta.
    pub(crate) fn load_end(&self) -> Duration {
        Duration::from_nanos(self.load_end_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn set_load_end(&self, at: Duration) {
        self.load_end_ns.store(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Adds to a counter that has one writer. A read and a write cost less than an atomic addition.
#[inline]
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
