//! Until when iterations may begin. Users check it themselves before each iteration: code that blocks
//! its thread keeps the scheduler from running, so the scheduler's own drain may come late. It stops
//! nothing; the [`Engine`](crate::Engine) and its stop handles change it.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long after the end of the load a start of an open model may begin that was due before. A start
/// that was due just before the end begins after it, by the delay of its thread.
const LATE_START_TOLERANCE: Duration = Duration::from_millis(250);

/// The end of the load of one engine. All its threads share it.
#[derive(Debug)]
pub(crate) struct LoadEnd {
    /// How long the load lasts, by the latest assignment.
    duration_ns: AtomicU64,
    base: Instant,
    /// When a stop forbids iterations to begin, after `base`; `u64::MAX` without a stop.
    stopped_ns: AtomicU64,
    /// How long starts that were due before a drain may begin after it.
    drain_allowance: Duration,
    /// How long starts that were due before the end may begin after it.
    end_allowance: Duration,
}

/// How an engine treats starts that were due and have not begun when the load ends.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LateStarts {
    pub(crate) grace: Duration,
    /// Whether the run makes a number of iterations, and so begins the last ones after the end.
    pub(crate) limited: bool,
    /// Whether other workers may take the shares of this process. It then still makes the starts that
    /// were due before.
    pub(crate) in_fleet: bool,
}

impl LoadEnd {
    pub(crate) fn new(duration: Duration, late_starts: LateStarts) -> LoadEnd {
        let LateStarts { grace, limited, in_fleet } = late_starts;
        LoadEnd {
            duration_ns: AtomicU64::new(nanos(duration)),
            base: Instant::now(),
            stopped_ns: AtomicU64::new(u64::MAX),
            drain_allowance: if in_fleet { grace / 2 } else { Duration::ZERO },
            end_allowance: if limited { grace } else { LATE_START_TOLERANCE },
        }
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_nanos(self.duration_ns.load(Relaxed))
    }

    pub(crate) fn set_duration(&self, duration: Duration) {
        self.duration_ns.store(nanos(duration), Relaxed);
    }

    /// Notes a drain that was requested at `at`.
    pub(crate) fn drain(&self, at: Instant) {
        self.stop_after(at + self.drain_allowance);
    }

    pub(crate) fn abort(&self) {
        self.stop_after(self.base);
    }

    fn stop_after(&self, at: Instant) {
        self.stopped_ns.fetch_min(nanos(at.saturating_duration_since(self.base)), Relaxed);
    }

    /// Whether a user of a closed model may begin an iteration at `now`.
    pub(crate) fn allows_iteration(&self, now: Instant, run_start: Instant) -> bool {
        nanos(now.saturating_duration_since(run_start)) < self.duration_ns.load(Relaxed) && !self.is_stopped(now)
    }

    /// Whether a start of an open model that was due may begin at `now`.
    pub(crate) fn allows_start(&self, now: Instant, run_start: Instant) -> bool {
        let limit = self.duration_ns.load(Relaxed).saturating_add(nanos(self.end_allowance));
        nanos(now.saturating_duration_since(run_start)) <= limit && !self.is_stopped(now)
    }

    fn is_stopped(&self, now: Instant) -> bool {
        let stopped = self.stopped_ns.load(Relaxed);
        stopped != u64::MAX && nanos(now.saturating_duration_since(self.base)) > stopped
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn iterations_begin_until_the_end_and_due_starts_shortly_after_it() {
        let end = LoadEnd::new(10 * SECOND, LateStarts { grace: 4 * SECOND, ..LateStarts::default() });
        let start = end.base;
        assert!(end.allows_iteration(start + 9 * SECOND, start));
        assert!(!end.allows_iteration(start + 10 * SECOND, start));
        assert!(end.allows_start(start + 10 * SECOND, start));
        assert!(!end.allows_start(start + 11 * SECOND, start));
        end.set_duration(20 * SECOND);
        assert!(end.allows_iteration(start + 19 * SECOND, start));
    }

    #[test]
    fn stops_forbid_starts_at_once_except_for_a_worker_that_gives_its_shares_up() {
        let check = |in_fleet, seconds, expected| {
            let end = LoadEnd::new(60 * SECOND, LateStarts { grace: 4 * SECOND, limited: false, in_fleet });
            end.drain(end.base + 5 * SECOND);
            assert_eq!(end.allows_start(end.base + seconds * SECOND, end.base), expected, "{in_fleet} {seconds}");
        };
        check(false, 5, true);
        check(false, 6, false);
        check(true, 6, true);
        check(true, 8, false);
    }

    #[test]
    fn abort_forbids_every_start() {
        let end = LoadEnd::new(60 * SECOND, LateStarts::default());
        end.drain(end.base + SECOND);
        end.abort();
        assert!(!end.allows_start(end.base + SECOND, end.base));
        assert!(!end.allows_iteration(end.base + SECOND, end.base));
    }
}
