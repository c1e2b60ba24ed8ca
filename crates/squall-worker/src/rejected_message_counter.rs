//! Limits how often a worker logs refused messages: any client of the store can publish to a
//! worker, and a flood must not fill its log. It logs nothing itself; the worker does.

use std::time::{Duration, Instant};

/// At most one log line in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counts refused messages that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct RejectedMessageCounter {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl RejectedMessageCounter {
    pub(crate) fn add(&mut self) {
        self.unlogged += 1;
    }

    /// The number of messages to log at `now`: the first at once, later ones together once per
    /// interval.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let early = self.last_logged.is_some_and(|logged_at| now.saturating_duration_since(logged_at) < LOG_INTERVAL);
        if early || self.unlogged == 0 {
            return None;
        }
        self.last_logged = Some(now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_refusal_is_logged_at_once_and_later_ones_together() {
        let (mut refusals, start) = (RejectedMessageCounter::default(), Instant::now());
        assert_eq!(refusals.take_due(start), None, "nothing was refused");
        let mut logged = Vec::new();
        for _ in 0..200 {
            refusals.add();
            logged.extend(refusals.take_due(start));
        }
        assert_eq!(logged, [1]);
        assert_eq!(refusals.take_due(start + LOG_INTERVAL / 2), None);
        assert_eq!(refusals.take_due(start + LOG_INTERVAL), Some(199));
        assert_eq!(refusals.take_due(start + 2 * LOG_INTERVAL), None, "nothing new");
    }
}
