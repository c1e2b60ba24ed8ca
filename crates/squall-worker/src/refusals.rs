//! When to say that messages were refused: anybody can publish to a worker, and a flood must not fill its log. Logs nothing itself.

use std::time::{Duration, Instant};

/// At most one line in this time.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Messages that were refused and not yet told of.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    told: Option<Instant>,
    untold: u64,
}

impl Refusals {
    pub(crate) fn add(&mut self) {
        self.untold += 1;
    }

    /// How many are to be told of at `now`: the first at once, then what has come in the meantime.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        let early = self.told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY);
        if early || self.untold == 0 {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_as_many_as_came_in_ten_seconds() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.due(start), None, "nothing was refused");
        let mut told = Vec::new();
        for _ in 0..200 {
            refusals.add();
            told.extend(refusals.due(start));
        }
        assert_eq!(told, [1]);
        assert_eq!(refusals.due(start + TELL_EVERY / 2), None);
        assert_eq!(refusals.due(start + TELL_EVERY), Some(199));
        assert_eq!(refusals.due(start + 2 * TELL_EVERY), None, "nothing new");
    }
}
