//! The store's clock as seen from here: an offset learned from answers, the quickest of which is the most certain.

use std::time::{Duration, Instant};

/// Turns the store's milliseconds into this machine's instants.
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

/// A quick answer is worth more than a fresh one, but clocks drift: after this long any answer is.
const MAX_READING_AGE: Duration = Duration::from_secs(60);

impl StoreClock {
    /// Learns from an answer that was asked for at `asked` and said `now_ms`.
    pub(crate) fn record_reading(&mut self, asked: Instant, now_ms: u64) {
        let round_trip = asked.elapsed();
        let better =
            self.best_reading.is_none_or(|best| round_trip <= best.round_trip || best.at.elapsed() > MAX_READING_AGE);
        if better {
            // The store looked at its clock somewhere on the way; half of it is the best guess.
            self.best_reading = Some(ClockReading { at: asked + round_trip / 2, now_ms, round_trip });
        }
    }

    /// The instant at which the store's clock shows `ms`; now, if nothing is known of it.
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
    fn the_quickest_answer_counts() {
        let mut clock = StoreClock::default();
        let asked = Instant::now();
        clock.record_reading(asked, 1_000_000);
        // A slow answer with a clock that is off changes nothing.
        clock.record_reading(asked.checked_sub(Duration::from_secs(1)).unwrap(), 5_000_000);
        let seen = clock.instant(1_002_000);
        let expected = asked + Duration::from_secs(2);
        let off = seen.max(expected) - seen.min(expected);
        assert!(off < Duration::from_millis(100), "{off:?}");
        assert!(clock.instant(999_000) < asked);
    }
}
