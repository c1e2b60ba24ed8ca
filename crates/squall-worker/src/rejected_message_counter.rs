//! When to say that messages were refused: anybody can publish to a worker, and a flood must not fill its log. Logs nothing itself.

use std::time::{Duration, Instant};

/// At most one line in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Messages that were refused and not yet told of.
#[derive(Debug, Default)]
pub(crate) struct RejectedMessageCounter {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl RejectedMessageCounter {
    pub(crate) fn add(&mut self) {
        self.unlogged += 1;
    }

    /// How many are to be told of at `now`: the first at once, then what has come in the meantime.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let early = self.last_logged.is_some_and(|told| now.saturating_duration_since(told) < LOG_INTERVAL);
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
    fn the_first_is_told_and_then_as_many_as_came_in_ten_seconds() {
        let (mut refusals, start) = (RejectedMessageCounter::default(), Instant::now());
        assert_eq!(refusals.take_due(start), None, "nothing was refused");
        let mut told = Vec::new();
        for _ in 0..200 {
            refusals.add();
            told.extend(refusals.take_due(start));
        }
        assert_eq!(told, [1]);
        assert_eq!(refusals.take_due(start + LOG_INTERVAL / 2), None);
        assert_eq!(refusals.take_due(start + LOG_INTERVAL), Some(199));
        assert_eq!(refusals.take_due(start + 2 * LOG_INTERVAL), None, "nothing new");
    }
}
