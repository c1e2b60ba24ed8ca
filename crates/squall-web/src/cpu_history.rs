//! The CPU use of the generator in each second of a run: that of the busiest worker. The measurements
//! of a run have none, so seconds in which this process did not watch the run are unknown.

use std::{collections::BTreeMap, time::Duration};

/// A worker reports its use once a second, and on a busy machine later: what it last reported holds for
/// so many seconds more.
const HOLDS_S: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct CpuHistory(BTreeMap<u32, u16>);

impl CpuHistory {
    /// Keeps the highest use, in percent, that was seen in the second under way at `elapsed`.
    pub(crate) fn note(&mut self, elapsed: Duration, percents: impl Iterator<Item = f64>) {
        let Some(highest) = percents.reduce(f64::max) else { return };
        let seen = self.0.entry(elapsed.as_secs() as u32 + 1).or_default();
        *seen = (*seen).max(highest.round() as u16);
    }

    /// The highest use from second `first` to `last`; `None` if it is not known.
    pub(crate) fn highest(&self, first: u32, last: u32) -> Option<u16> {
        let earlier = || self.0.range(first.saturating_sub(HOLDS_S)..first).next_back().map(|(_, percent)| *percent);
        self.0.range(first..=last).map(|(_, percent)| *percent).max().or_else(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_worker_counts_and_an_unseen_second_is_unknown() {
        let mut cpu = CpuHistory::default();
        cpu.note(Duration::from_millis(200), [40.0, 61.4].into_iter());
        cpu.note(Duration::from_millis(700), [12.0].into_iter());
        cpu.note(Duration::from_millis(2100), std::iter::empty());
        assert_eq!((cpu.highest(1, 1), cpu.highest(4, 4), cpu.highest(1, 9)), (Some(61), Some(61), Some(61)));
        assert_eq!(cpu.highest(5, 9), None);
    }
}
