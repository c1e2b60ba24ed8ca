//! Divides the connections of a run among its engine threads. It opens none.

use std::{
    num::NonZeroUsize,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The connections to each node. Each thread has at least one.
#[derive(Debug)]
pub(super) struct ThreadConnections {
    all: usize,
    threads: usize,
    /// The threads that have got theirs.
    begun: AtomicUsize,
}

impl ThreadConnections {
    pub(super) fn new(all: usize, threads: usize) -> ThreadConnections {
        ThreadConnections { all, threads: threads.max(1), begun: AtomicUsize::new(0) }
    }

    /// The connections of the next thread.
    pub(super) fn take(&self) -> NonZeroUsize {
        let thread = self.begun.fetch_add(1, Ordering::Relaxed) % self.threads;
        let rest = usize::from(thread < self.all % self.threads);
        NonZeroUsize::new(self.all / self.threads + rest).unwrap_or(NonZeroUsize::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_share_all_connections() {
        let shared = |all, threads| -> Vec<usize> {
            let connections = ThreadConnections::new(all, threads);
            (0..threads).map(|_| connections.take().get()).collect()
        };
        assert_eq!(shared(8, 3), [3, 3, 2]);
        assert_eq!(shared(8, 4), [2, 2, 2, 2]);
        assert_eq!(shared(2, 3), [1, 1, 1]);
    }
}
