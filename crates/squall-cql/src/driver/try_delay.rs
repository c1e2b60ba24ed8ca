//! The pause between two tries of an operation. It tries nothing.

use crate::DelayPolicy;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

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
