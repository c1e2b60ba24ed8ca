//! Tests of how deltas are merged into the view of a run.

use super::*;
use crate::{EngineDelta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample};
use std::time::Duration;

fn source(thread: u32) -> SourceId {
    SourceId { instance: 0, thread }
}

fn delta(thread: u32, seq: u64, second: u32, requests: u64) -> Delta {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("browse"));
    for i in 0..requests {
        recorder.count_begun();
        let outcome = Outcome::of_status(if i == 0 { 500 } else { 200 });
        let service = Duration::from_millis(10 * (i + 1));
        let wait = Duration::ZERO;
        recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 1, bytes_out: 1, due_in_warm_up: false });
    }
    recorder.record_users(4);
    let (metrics, errors, engine) = recorder.harvest(3, 1);
    Delta { source: source(thread), seq, second, metrics, errors, engine, last: false }
}

#[test]
fn second_closes_when_all_sources_have_reported_it() {
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
fn deltas_are_merged_once_and_in_order() {
    let mut collector = Collector::new([source(0)], 10);
    collector.merge(delta(0, 0, 0, 5)).unwrap();
    assert_eq!(collector.merge(delta(0, 0, 0, 5)), Err(MergeError::Duplicate { seq: 0 }));
    assert_eq!(collector.merge(delta(0, 2, 2, 5)), Err(MergeError::Gap { seq: 2, expected: 1 }));
    assert_eq!(collector.merge(delta(7, 0, 0, 5)), Err(MergeError::UnknownSource));
    assert_eq!(collector.view().all.requests, 5);
}

#[test]
fn ended_source_does_not_delay_later_seconds() {
    let mut collector = Collector::new([source(0), source(1)], 10);
    collector.merge(Delta { last: true, ..delta(0, 0, 0, 1) }).unwrap();
    for second in 0..4 {
        collector.merge(delta(1, u64::from(second), second, 2)).unwrap();
    }
    assert_eq!(collector.view().timeline.len(), 4);
    assert!(!collector.is_complete());
}

#[test]
fn window_covers_only_the_latest_seconds() {
    let mut collector = Collector::new([source(0)], 3);
    for second in 0..5 {
        collector.merge(delta(0, u64::from(second), second, u64::from(second) + 1)).unwrap();
    }
    let window = collector.view().window(Some("browse"), 2).expect("two seconds were kept");
    assert_eq!(window.requests, 4 + 5);
    assert!(collector.view().window(None, 4).is_none(), "only three seconds are kept");
    assert!(collector.view().window(Some("unknown"), 2).is_some_and(|w| w.requests == 0));
}

/// Each of the seconds must have a whole window, however many close at once.
#[test]
fn seconds_that_close_at_once_have_a_whole_window_each() {
    let mut collector = Collector::new([source(0), source(1)], 3);
    for second in 0..9 {
        collector.merge(delta(0, u64::from(second), second, 1)).unwrap();
    }
    for second in 0..2 {
        collector.merge(delta(1, u64::from(second), second, 1)).unwrap();
    }
    assert_eq!(collector.mark_lost(source(1)), 7);
    for after in 0..7 {
        let window = collector.view().window_before(None, 3, after).expect("a window that ended then");
        // Both sources in the first two seconds, one afterwards.
        assert_eq!(window.requests, [3, 3, 3, 3, 3, 4, 5][after], "{after}");
    }
    collector.merge(delta(0, 9, 9, 1)).unwrap();
    assert!(collector.view().window(None, 4).is_none(), "only three seconds are kept");
}

/// Each source keeps to the limit of metrics, but all sources together may not.
#[test]
fn metrics_of_all_sources_together_are_limited() {
    let of = |thread: u32, second: u32| {
        let mut recorder = MetricRecorder::new(RecorderConfig::default());
        for name in 0..300 {
            let metric = recorder.metric(MetricKey::request(format!("/{thread}/{name}")));
            recorder.count_begun();
            let (wait, service, outcome) = (Duration::ZERO, Duration::from_millis(1), Outcome::of_status(200));
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 0,
                bytes_out: 0,
                due_in_warm_up: false,
            });
        }
        let (metrics, errors, engine) = recorder.harvest(0, 0);
        Delta { source: source(thread), seq: u64::from(second), second, metrics, errors, engine, last: false }
    };
    let mut collector = Collector::new([source(0), source(1)], 1);
    for second in 0..2 {
        collector.merge(of(0, second)).unwrap();
        collector.merge(of(1, second)).unwrap();
    }
    let view = collector.finish();
    assert_eq!((view.metrics.len(), view.all.requests), (500, 1200));
    let other = view.metric("(other)").expect("what goes beyond");
    assert_eq!((other.requests, other.timeline[1].requests), (2 * 101, 101));
    assert!(view.engine.metrics_refused > 0 && view.accounting().balances());
}

#[test]
fn empty_second_has_a_row_in_the_timeline() {
    let mut collector = Collector::new([source(0)], 3);
    collector.merge(delta(0, 0, 0, 1)).unwrap();
    collector.merge(delta(0, 1, 3, 1)).unwrap();
    let seconds: Vec<_> = collector.view().timeline.iter().map(|s| (s.t_s, s.requests)).collect();
    assert_eq!(seconds, [(1, 1), (2, 0), (3, 0), (4, 1)]);
}

/// A chart of users must not fall to zero in the last second of every run.
#[test]
fn second_in_which_all_users_leave_shows_their_peak() {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    recorder.record_users(10);
    let mut collector = Collector::new([source(0)], 1);
    for (second, users) in [(0, 10), (1, 10), (2, 0), (3, 0)] {
        let (metrics, errors, engine) = recorder.harvest(users, 0);
        let (seq, last) = (u64::from(second), second == 3);
        collector.merge(Delta { source: source(0), seq, second, metrics, errors, engine, last }).unwrap();
    }
    let users: Vec<u64> = collector.view().timeline.iter().map(|second| second.users).collect();
    assert_eq!(users, [10, 10, 10, 0]);
    assert_eq!(collector.view().engine.users, 0, "no user is left");
}

#[test]
fn accounting_balances_over_sources() {
    let mut collector = Collector::new([source(0), source(1)], 1);
    collector.merge(delta(0, 0, 0, 5)).unwrap();
    let engine = EngineDelta { begun: 2, recorded: 2, warm_up_requests: 2, ..EngineDelta::default() };
    let (metrics, errors) = (Vec::new(), Vec::new());
    let warm = Delta { source: source(1), seq: 0, second: 0, metrics, errors, engine, last: true };
    collector.merge(warm).unwrap();
    assert_eq!(collector.view().timeline[0].warm_up_requests, 2);
    let accounting = collector.finish().accounting();
    assert_eq!((accounting.sent, accounting.recorded, accounting.reported, accounting.warm_up), (7, 7, 7, 2));
}
