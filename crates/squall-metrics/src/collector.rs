//! Merges every delta exactly once. A second of the run is closed, and becomes visible, when all sources have reported it.
//! Decides nothing about the run; it only adds up.

use std::collections::BTreeMap;

use crate::{Delta, RunView, SourceId, view::PendingSecond};

/// Adds deltas up to a [`RunView`].
pub struct Collector {
    view: RunView,
    sources: BTreeMap<SourceId, Progress>,
    pending: BTreeMap<u32, PendingSecond>,
}

struct Progress {
    next_seq: u64,
    /// Seconds below this are complete from this source.
    complete_below: u32,
}

/// Why a delta was not merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("delta {seq} was merged already")]
    Duplicate { seq: u64 },
    #[error("delta {seq} came before delta {expected}")]
    Gap { seq: u64, expected: u64 },
    #[error("a delta came from a source that nobody announced")]
    UnknownSource,
}

impl Collector {
    /// `window_s`: how many of the latest seconds stay available with full histograms, for sliding windows.
    pub fn new(sources: impl IntoIterator<Item = SourceId>, window_s: u32) -> Collector {
        let progress = |id| (id, Progress { next_seq: 0, complete_below: 0 });
        Collector {
            view: RunView::new(window_s),
            sources: sources.into_iter().map(progress).collect(),
            pending: BTreeMap::new(),
        }
    }

    /// Merges `delta`; returns how many seconds were closed by it.
    pub fn merge(&mut self, delta: Delta) -> Result<usize, Refused> {
        let progress = self.sources.get_mut(&delta.source).ok_or(Refused::UnknownSource)?;
        match delta.seq.cmp(&progress.next_seq) {
            std::cmp::Ordering::Less => return Err(Refused::Duplicate { seq: delta.seq }),
            std::cmp::Ordering::Greater => return Err(Refused::Gap { seq: delta.seq, expected: progress.next_seq }),
            std::cmp::Ordering::Equal => {}
        }
        progress.next_seq += 1;
        progress.complete_below = if delta.last { u32::MAX } else { delta.second + 1 };
        let second = delta.second;
        self.pending.entry(second).or_default().merge(delta);
        Ok(self.close_complete())
    }

    /// Closes what is left, for a run whose sources ended without saying so.
    pub fn finish(mut self) -> RunView {
        for (second, pending) in std::mem::take(&mut self.pending) {
            self.view.close(second, pending);
        }
        self.view
    }

    pub fn view(&self) -> &RunView {
        &self.view
    }

    /// Whether every source has said its last.
    pub fn is_complete(&self) -> bool {
        self.sources.values().all(|p| p.complete_below == u32::MAX)
    }

    fn close_complete(&mut self) -> usize {
        let complete_below = self.sources.values().map(|p| p.complete_below).min().unwrap_or(0);
        let rest = self.pending.split_off(&complete_below);
        let ready = std::mem::replace(&mut self.pending, rest);
        let closed = ready.len();
        ready.into_iter().for_each(|(second, pending)| self.view.close(second, pending));
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineDelta, MetricKey, Outcome, Recorder, RecorderConfig, Sample};
    use std::time::Duration;

    fn source(thread: u32) -> SourceId {
        SourceId { instance: 0, thread }
    }

    fn delta(thread: u32, seq: u64, second: u32, requests: u64) -> Delta {
        let mut recorder = Recorder::new(RecorderConfig::default());
        let metric = recorder.metric(MetricKey::request("browse"));
        for i in 0..requests {
            recorder.sent();
            let outcome = Outcome::of_status(if i == 0 { 500 } else { 200 });
            let service = Duration::from_millis(10 * (i + 1));
            let wait = Duration::ZERO;
            recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 1, bytes_out: 1, warm_up: false });
        }
        recorder.users(4);
        let (metrics, errors, engine) = recorder.harvest(3, 1);
        Delta { source: source(thread), seq, second, metrics, errors, engine, last: false }
    }

    #[test]
    fn a_second_closes_when_all_sources_have_reported_it() {
        let mut collector = Collector::new([source(0), source(1)], 10);
        assert_eq!(collector.merge(delta(0, 0, 0, 5)), Ok(0));
        assert_eq!(collector.view().all.requests, 0);
        assert_eq!(collector.merge(delta(1, 0, 0, 3)), Ok(1));
        assert_eq!((collector.view().all.requests, collector.view().all.errors), (8, 2));
        let second = &collector.view().timeline[0];
        assert_eq!((second.requests, second.users, second.busy), (8, 6, 2));
        assert_eq!(collector.view().engine.peak_users, 8);
    }

    #[test]
    fn a_delta_is_merged_exactly_once_and_in_order() {
        let mut collector = Collector::new([source(0)], 10);
        collector.merge(delta(0, 0, 0, 5)).unwrap();
        assert_eq!(collector.merge(delta(0, 0, 0, 5)), Err(Refused::Duplicate { seq: 0 }));
        assert_eq!(collector.merge(delta(0, 2, 2, 5)), Err(Refused::Gap { seq: 2, expected: 1 }));
        assert_eq!(collector.merge(delta(7, 0, 0, 5)), Err(Refused::UnknownSource));
        assert_eq!(collector.view().all.requests, 5);
    }

    #[test]
    fn sources_that_end_early_do_not_hold_up_the_others() {
        let mut collector = Collector::new([source(0), source(1)], 10);
        collector.merge(Delta { last: true, ..delta(0, 0, 0, 1) }).unwrap();
        for second in 0..4 {
            collector.merge(delta(1, u64::from(second), second, 2)).unwrap();
        }
        assert_eq!(collector.view().timeline.len(), 4);
        assert!(!collector.is_complete());
    }

    #[test]
    fn windows_cover_the_latest_seconds_only() {
        let mut collector = Collector::new([source(0)], 3);
        for second in 0..5 {
            collector.merge(delta(0, u64::from(second), second, u64::from(second) + 1)).unwrap();
        }
        let window = collector.view().window(Some("browse"), 2).expect("two seconds were kept");
        assert_eq!(window.requests, 4 + 5);
        assert!(collector.view().window(None, 4).is_none(), "only three seconds are kept");
        assert!(collector.view().window(Some("nobody"), 2).is_some_and(|w| w.requests == 0));
    }

    #[test]
    fn a_silent_second_keeps_its_place_in_the_timeline() {
        let mut collector = Collector::new([source(0)], 3);
        collector.merge(delta(0, 0, 0, 1)).unwrap();
        collector.merge(delta(0, 1, 3, 1)).unwrap();
        let seconds: Vec<_> = collector.view().timeline.iter().map(|s| (s.t_s, s.requests)).collect();
        assert_eq!(seconds, [(1, 1), (2, 0), (3, 0), (4, 1)]);
    }

    #[test]
    fn accounting_adds_up_over_sources() {
        let mut collector = Collector::new([source(0), source(1)], 1);
        collector.merge(delta(0, 0, 0, 5)).unwrap();
        let engine = EngineDelta { sent: 2, recorded: 2, warm_up: 2, ..EngineDelta::default() };
        let (metrics, errors) = (Vec::new(), Vec::new());
        let warm = Delta { source: source(1), seq: 0, second: 0, metrics, errors, engine, last: true };
        collector.merge(warm).unwrap();
        let accounting = collector.finish().accounting();
        assert_eq!((accounting.sent, accounting.recorded, accounting.reported, accounting.warm_up), (7, 7, 7, 2));
    }
}
