//! The pause between two tries of an operation, and when no further try is made. It tries nothing.

use crate::DelayPolicy;
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The pause when a connection is missing, broken or full. Without it, users would repeat failing tries as
/// fast as the processor can.
pub(super) const NO_CONNECTION_PAUSE: Duration = Duration::from_millis(100);

impl DelayPolicy {
    /// The pause after the try with this number, counted from 1, of `tries`.
    pub(super) fn pause(self, number: u32, tries: u32) -> Duration {
        match self {
            DelayPolicy::None => Duration::ZERO,
            DelayPolicy::Constant(pause) => pause,
            DelayPolicy::Linear { min, max } => {
                let steps = tries.saturating_sub(2).max(1);
                min + (max - min) * number.saturating_sub(1).min(steps) / steps
            }
            DelayPolicy::Exponential { min, max } => {
                let factor = 1_u32.checked_shl(number.saturating_sub(1)).unwrap_or(u32::MAX);
                min.max(Duration::from_millis(1)).saturating_mul(factor).min(max)
            }
        }
    }
}

/// Until when an operation of a run with a length is tried again: one more try after the end can succeed, and
/// a database that hangs does not prolong the run by all of the tries.
#[derive(Debug)]
pub(super) struct LastTry {
    load_began: OnceLock<Instant>,
    /// From the start of the load; `None` for a run without a length.
    after: Option<Duration>,
}

impl LastTry {
    pub(super) fn new(length: Option<Duration>, request_timeout: Duration) -> LastTry {
        LastTry { load_began: OnceLock::new(), after: length.map(|length| length.saturating_add(request_timeout)) }
    }

    /// The first user is made when the load begins.
    pub(super) fn load_began(&self, at: Instant) {
        self.load_began.get_or_init(|| at);
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        let began = self.load_began.get();
        began.zip(self.after).is_some_and(|(began, after)| now.saturating_duration_since(*began) > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_tried_again_until_one_timeout_after_the_load() {
        let (began, second) = (Instant::now(), Duration::from_secs(1));
        let last = LastTry::new(Some(10 * second), 12 * second);
        assert!(!last.is_over(began + 60 * second), "no user was made");
        last.load_began(began);
        last.load_began(began + 30 * second);
        assert_eq!([21, 22, 23].map(|at| last.is_over(began + at * second)), [false, false, true]);
        let endless = LastTry::new(None, second);
        endless.load_began(began);
        assert!(!endless.is_over(began + 3600 * second));
    }

    #[test]
    fn pauses_grow_from_min_to_max() {
        let (min, max) = (Duration::from_millis(10), Duration::from_millis(100));
        let pauses = |policy: DelayPolicy| [1, 2, 5, 9].map(|number| policy.pause(number, 10).as_millis());
        assert_eq!(pauses(DelayPolicy::None), [0; 4]);
        assert_eq!(pauses(DelayPolicy::Constant(max)), [100; 4]);
        assert_eq!(pauses(DelayPolicy::Linear { min, max }), [10, 21, 55, 100]);
        assert_eq!(pauses(DelayPolicy::Exponential { min, max }), [10, 20, 100, 100]);
        assert_eq!(DelayPolicy::Exponential { min, max }.pause(u32::MAX, 10), max);
    }
}
