//! Converts the store's clock to local instants. The offset comes from the response with the
//! shortest round trip, because that one is the most exact. The worker calls it after
//! every worker report.

use std::time::{Duration, Instant};

/// Converts the store's milliseconds into this machine's instants.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StoreClock {
    best_reading: Option<ClockReading>,
}

#[derive(Debug, Clone, Copy)]
struct ClockReading {
    at: Instant,
    now_ms: u64,
    round_trip: Duration,
}

/// Clocks drift: after this time any response replaces a quicker one.
const MAX_READING_AGE: Duration = Duration::from_secs(60);

impl StoreClock {
    /// Takes a response with the store's time `now_ms` to a request that was sent at `sent_at`.
    pub(crate) fn record_reading(&mut self, sent_at: Instant, now_ms: u64) {
        let round_trip = sent_at.elapsed();
        let better =
            self.best_reading.is_none_or(|best| round_trip <= best.round_trip || best.at.elapsed() > MAX_READING_AGE);
        if better {
            // The store read its clock during the round trip; its middle is the best guess.
            self.best_reading = Some(ClockReading { at: sent_at + round_trip / 2, now_ms, round_trip });
        }
    }

    /// The instant at which the store's clock shows `ms`; now, without any reading.
    pub(crate) fn instant(&self, ms: u64) -> Instant {
        let Some(ClockReading { at, now_ms, .. }) = self.best_reading else { return Instant::now() };
        match ms.checked_sub(now_ms) {
            Some(ahead) => at + Duration::from_millis(ahead),
            None => at.checked_sub(Duration::from_millis(now_ms - ms)).unwrap_or(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_response_does_not_replace_a_quick_one() {
        let mut clock = StoreClock::default();
        let sent_at = Instant::now();
        clock.record_reading(sent_at, 1_000_000);
        // A slow response with a wrong clock.
        clock.record_reading(sent_at.checked_sub(Duration::from_secs(1)).unwrap(), 5_000_000);
        let actual = clock.instant(1_002_000);
        let expected = sent_at + Duration::from_secs(2);
        let difference = actual.max(expected) - actual.min(expected);
        assert!(difference < Duration::from_millis(100), "{difference:?}");
        assert!(clock.instant(999_000) < sent_at);
    }
}
