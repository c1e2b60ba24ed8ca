//! Workers that come, go, stall and are heard twice: nothing is lost, nothing counts twice, and a successor goes on exactly.

use crate::deltas::{life, source};
use proptest::{collection::vec, prelude::*, sample::Index};
use squall_metrics::{
    Collector, Delta, EngineDelta, EngineView, ErrorNote, MergeError, MetricDelta, MetricView, RunSecond, RunView,
    SourceId, ThreadMerger, WireError,
};

const WINDOW: u32 = 3;

fn empty(instance: u64, seq: u64, second: u32, sent: u64) -> Delta {
    let engine = EngineDelta { sent, recorded: sent, users: 10, peak_users: 12, busy: 1, ..EngineDelta::default() };
    Delta { source: source(instance), seq, second, metrics: vec![], errors: vec![], engine, last: false }
}

fn last(delta: Delta) -> Delta {
    Delta { last: true, ..delta }
}

/// A view without the order in which its metrics and failures happened to come.
#[derive(Debug, PartialEq)]
struct Shape {
    all: MetricView,
    metrics: Vec<MetricView>,
    timeline: Vec<RunSecond>,
    engine: EngineView,
    errors: Vec<ErrorNote>,
    recent: Vec<Vec<MetricDelta>>,
}

fn shape(view: &RunView) -> Shape {
    let mut metrics = view.metrics.clone();
    metrics.sort_by(|a, b| a.key.cmp(&b.key));
    let mut errors = view.errors.clone();
    errors.sort_by(|a, b| (&a.metric, a.outcome, &a.message).cmp(&(&b.metric, b.outcome, &b.message)));
    // More of them are kept only as long as several that closed at once have to be looked at.
    let recent = view.latest_seconds(WINDOW as usize).map(|second| {
        let mut second = second.to_vec();
        second.sort_by(|a, b| a.key.cmp(&b.key));
        second.iter_mut().for_each(|metric| metric.outcomes.sort());
        second
    });
    let (all, timeline, engine) = (view.all.clone(), view.timeline.clone(), view.engine.clone());
    Shape { all, metrics, timeline, engine, errors, recent: recent.collect() }
}

#[track_caller]
fn merge_twice(collector: &mut Collector, delta: &Delta) {
    collector.merge(delta.clone()).expect("it is the next one");
    assert_eq!(collector.merge(delta.clone()), Err(MergeError::Duplicate { seq: delta.seq }));
}

fn reopened(collector: &Collector) -> Collector {
    let bytes = collector.save();
    let restored = Collector::restore(&bytes, WINDOW).expect("it was just saved");
    assert_eq!(restored.view(), collector.view());
    assert_eq!(restored.save(), bytes, "a saved collector is the same when it is saved again");
    restored
}

#[test]
fn who_joins_late_is_waited_for_but_reopens_nothing() {
    let mut collector = Collector::new([], WINDOW);
    collector.add_source(source(1));
    assert_eq!(collector.merge(empty(1, 0, 0, 1)), Ok(1));
    assert_eq!(collector.merge(empty(1, 1, 1, 1)), Ok(1));
    collector.add_source(source(2));
    collector.add_source(source(2));
    assert_eq!(collector.merge(empty(1, 2, 2, 1)), Ok(0), "the new one has not reported it");
    assert_eq!(collector.merge(empty(2, 0, 2, 5)), Ok(1));
    assert_eq!(collector.view().timeline.len(), 3);
    assert_eq!((collector.sent_of(source(2)), collector.next_seq(source(2)), collector.next_seq(source(9))), (5, 1, 0));
}

#[test]
fn who_is_lost_is_not_waited_for_and_still_counts() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    for second in 0..3 {
        collector.merge(empty(1, u64::from(second), second, 1)).unwrap();
    }
    assert_eq!(collector.view().timeline.len(), 1);
    assert_eq!(collector.mark_lost(source(2)), 2);
    // It was only slow: its second 1 comes when that is closed, and goes out with the next, without its users.
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Ok(0));
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Err(MergeError::Duplicate { seq: 1 }));
    collector.add_source(source(2));
    assert_eq!(collector.merge(empty(1, 3, 3, 1)), Ok(1), "lost until it is regained");
    let users: Vec<_> = collector.view().timeline.iter().map(|row| row.users).collect();
    assert_eq!(users, [20, 10, 10, 10]);
    assert_eq!((collector.view().engine.sent, collector.sent_of(source(2))), (14, 10));
}

/// Found by two readers: after a return the seconds of a report were wrong to its end.
#[test]
fn who_is_regained_is_waited_for_again() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    for second in 0..3 {
        collector.merge(empty(1, u64::from(second), second, 1)).unwrap();
    }
    assert_eq!(collector.mark_lost(source(2)), 2);
    collector.restore_source(source(2));
    let mut collector = reopened(&collector);
    // What it had measured while it was away belongs to seconds that are closed.
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Ok(0));
    assert_eq!(collector.merge(empty(1, 3, 3, 1)), Ok(0), "its second 3 is waited for");
    assert_eq!(collector.merge(empty(1, 4, 4, 1)), Ok(0));
    assert_eq!(collector.merge(empty(2, 2, 3, 5)), Ok(1));
    assert_eq!(collector.merge(empty(2, 3, 4, 5)), Ok(1));
    let users: Vec<_> = collector.view().timeline.iter().map(|row| row.users).collect();
    assert_eq!(users, [20, 10, 10, 20, 20]);
    // Who had said its last is not waited for, lost or not.
    collector.merge(last(empty(2, 4, 5, 0))).unwrap();
    collector.mark_lost(source(2));
    collector.restore_source(source(2));
    assert_eq!(collector.merge(empty(1, 5, 5, 1)), Ok(1));
    assert_eq!(collector.view().engine.sent, 26);
}

#[test]
fn what_comes_after_the_last_second_makes_no_row() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(last(empty(1, 0, 0, 1))).unwrap();
    collector.mark_lost(source(2));
    assert!(collector.is_complete());
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    let view = reopened(&collector).finish();
    assert_eq!((view.timeline.len(), view.engine.sent, view.timeline[0].users), (1, 6, 10));
    assert_eq!(view, collector.finish());
}

#[test]
fn a_second_far_away_is_not_believed() {
    let mut collector = Collector::new([source(1)], WINDOW);
    let refused = MergeError::TooFarAhead { second: u32::MAX, now: 0 };
    assert_eq!(collector.merge(empty(1, 0, u32::MAX, 1)), Err(refused));
    assert_eq!(collector.merge(empty(1, 0, 0, 1)), Ok(1));
}

#[test]
fn seconds_without_anything_are_folded_and_shipped() {
    let threads = [0, 1].map(|thread| SourceId { instance: 0, thread });
    let mut fold = ThreadMerger::new(source(42), threads);
    let mut shipped = Vec::new();
    for second in 0..3 {
        for thread in threads {
            let delta = empty(0, u64::from(second), second, 0);
            shipped.extend(fold.merge(Delta { source: thread, last: second == 2, ..delta }).unwrap());
        }
    }
    let seen: Vec<_> = shipped.iter().map(|d| (d.source, d.seq, d.second, d.engine.users, d.last)).collect();
    let at = |n: u32| (source(42), u64::from(n), n, 20, n == 2);
    assert_eq!(seen, [at(0), at(1), at(2)]);
    assert!(fold.is_complete());
}

/// A thread that has panicked has sent no last delta.
#[test]
fn what_waits_for_a_thread_that_is_gone_is_shipped_and_not_called_the_last() {
    let threads = [0, 1].map(|thread| SourceId { instance: 0, thread });
    let mut fold = ThreadMerger::new(source(42), threads);
    let mut shipped = Vec::new();
    for second in 0..3 {
        let delta = Delta { source: threads[0], last: second == 2, ..empty(0, u64::from(second), second, 0) };
        shipped.extend(fold.merge(delta).unwrap());
    }
    shipped.extend(fold.merge(Delta { source: threads[1], ..empty(0, 0, 0, 0) }).unwrap());
    assert_eq!(shipped.len(), 1);
    shipped.extend(fold.flush_incomplete());
    let seen: Vec<_> = shipped.iter().map(|d| (d.seq, d.second, d.last)).collect();
    assert_eq!(seen, [(0, 0, false), (1, 1, false), (2, 2, false)]);
    assert!(fold.flush_incomplete().is_empty());
}

#[test]
fn damaged_checkpoints_are_refused() {
    let mut collector = Collector::new([source(1)], WINDOW);
    collector.merge(empty(1, 0, 0, 1)).unwrap();
    let bytes = collector.save();
    let refusal = |bytes: &[u8]| Collector::restore(bytes, WINDOW).err();
    assert_eq!(refusal(&bytes), None);
    for at in 1..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert_eq!(refusal(&damaged), Some(WireError::Checksum));
        assert!(refusal(&bytes[..at]).is_some());
    }
    assert_eq!(refusal(&[]), Some(WireError::CutOff));
    assert_eq!(refusal(&squall_metrics::encode_delta(&empty(1, 0, 0, 1))), Some(WireError::Version { found: 1 }));
}

fn lives() -> impl Strategy<Value = Vec<Vec<Delta>>> {
    (1..4u64).prop_flat_map(|n| (0..n).map(|n| life(source(n))).collect::<Vec<_>>())
}

/// Takes the lives apart in the order that `picks` gives: each time one of those that have something left.
fn interleaved(lives: &[Vec<Delta>], picks: &[Index]) -> Vec<Delta> {
    let mut left: Vec<_> = lives.iter().map(|life| life.iter()).collect();
    let mut picks = picks.iter().cycle();
    let mut order = Vec::new();
    while left.iter().any(|life| life.len() > 0) {
        let open: Vec<usize> = (0..left.len()).filter(|&i| left[i].len() > 0).collect();
        let pick = open[picks.next().expect("it never ends").index(open.len())];
        order.extend(left[pick].next().cloned());
    }
    order
}

fn sources(lives: &[Vec<Delta>]) -> Vec<SourceId> {
    lives.iter().map(|life| life[0].source).collect()
}

fn in_time(lives: &[Vec<Delta>]) -> Vec<Delta> {
    let mut all = lives.concat();
    all.sort_by_key(|delta| (delta.second, delta.source));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_order_with_repeats_and_successors_gives_one_view(lives in lives(), picks in vec(any::<Index>(), 1..30), hand_over in vec(prop::bool::weighted(0.3), 1..30)) {
        let mut once = Collector::new(sources(&lives), WINDOW);
        in_time(&lives).into_iter().for_each(|delta| _ = once.merge(delta).unwrap());
        let mut collector = Collector::new(sources(&lives), WINDOW);
        for (delta, hand_over) in interleaved(&lives, &picks).iter().zip(hand_over.iter().cycle()) {
            merge_twice(&mut collector, delta);
            if *hand_over {
                collector = reopened(&collector);
            }
        }
        prop_assert!(once.is_complete() && collector.is_complete());
        prop_assert_eq!(shape(collector.view()), shape(once.view()));
        prop_assert_eq!(shape(&collector.finish()), shape(&once.finish()));
    }

    /// Sources are announced with their first delta and lost at any time; every delta counts all the same.
    #[test]
    fn totals_are_the_sum_whoever_is_lost(
        lives in lives(),
        picks in vec(any::<Index>(), 1..30),
        losses in vec((any::<Index>(), prop::bool::weighted(0.15), prop::bool::weighted(0.3)), 1..30),
    ) {
        let (mut collector, mut successor) = (Collector::new([], WINDOW), Collector::new([], WINDOW));
        let deltas = interleaved(&lives, &picks);
        for (delta, (whom, lost, hand_over)) in deltas.iter().zip(losses.iter().cycle()) {
            for collector in [&mut collector, &mut successor] {
                collector.add_source(delta.source);
                merge_twice(collector, delta);
                if *lost {
                    collector.mark_lost(*whom.get(&sources(&lives)));
                }
            }
            if *hand_over {
                successor = reopened(&successor);
            }
        }
        let (sent, recorded): (u64, u64) = sources(&lives).iter().map(|s| (collector.sent_of(*s), collector.recorded_of(*s))).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let view = collector.finish();
        prop_assert_eq!(&successor.finish(), &view);

        let sum = |count: fn(&Delta) -> u64| deltas.iter().map(count).sum::<u64>();
        prop_assert_eq!((view.engine.sent, view.engine.recorded), (sum(|d| d.engine.sent), sum(|d| d.engine.recorded)));
        prop_assert_eq!((view.engine.sent, view.engine.recorded), (sent, recorded));
        prop_assert_eq!(view.engine.dropped, sum(|d| d.engine.dropped));
        let samples: u64 = view.metrics.iter().map(|metric| metric.requests).sum();
        prop_assert_eq!(samples, sum(|d| d.metrics.iter().map(MetricDelta::requests).sum()));
        // The timeline has a row for each second, and its rows are the totals again.
        prop_assert_eq!(view.timeline.len() as u32, deltas.iter().map(|d| d.second + 1).max().unwrap());
        prop_assert_eq!(view.timeline.iter().map(|row| row.requests).sum::<u64>(), view.all.requests);
        prop_assert_eq!(view.timeline.iter().map(|row| row.late).sum::<u64>(), view.engine.late);
        for metric in &view.metrics {
            prop_assert_eq!(metric.timeline.iter().map(|row| u64::from(row.requests)).sum::<u64>(), metric.requests);
            prop_assert!(metric.timeline.is_sorted_by(|a, b| a.t_s < b.t_s));
        }
        prop_assert!(view.timeline.iter().zip(1..).all(|(row, t_s)| row.t_s == t_s));
    }

    /// Threads folded into one source, then collected, are the same run as the threads themselves.
    #[test]
    fn folding_changes_nothing(lives in lives(), picks in vec(any::<Index>(), 1..30)) {
        let mut direct = Collector::new(sources(&lives), WINDOW);
        let mut fold = ThreadMerger::new(source(99), sources(&lives));
        let mut folded = Collector::new([source(99)], WINDOW);
        let mut shipped = Vec::new();
        for delta in interleaved(&lives, &picks) {
            direct.merge(delta.clone()).unwrap();
            shipped.extend(fold.merge(delta).unwrap());
        }
        let lasts: Vec<bool> = shipped.iter().map(|delta| delta.last).collect();
        prop_assert!(lasts.iter().rposition(|last| *last) == Some(lasts.len() - 1) && lasts.iter().filter(|l| **l).count() == 1);
        for delta in shipped {
            prop_assert_eq!(folded.merge(squall_metrics::decode_delta(&squall_metrics::encode_delta(&delta)).unwrap()), Ok(1));
        }
        prop_assert_eq!(shape(folded.view()), shape(direct.view()));
    }
}
