//! Workers that join, leave, stall and send deltas twice: no delta is lost or counted twice, and a
//! restored collector continues exactly.

use crate::deltas::{source, source_deltas};
use proptest::{collection::vec, prelude::*, sample::Index};
use squall_metrics::{
    Collector, Delta, EngineDelta, EngineView, ErrorNote, FailureSpan, MergeError, MetricDelta, MetricKey,
    MetricRecorder, MetricView, Outcome, RecorderConfig, RunSecond, RunView, Sample, SourceId, ThreadMerger, WireError,
};
use std::time::Duration;

const WINDOW: u32 = 3;

fn empty(instance: u64, seq: u64, second: u32, begun: u64) -> Delta {
    let engine = EngineDelta { begun, recorded: begun, users: 10, peak_users: 12, busy: 1, ..EngineDelta::default() };
    Delta { source: source(instance), seq, second, metrics: vec![], errors: vec![], engine, last: false }
}

fn last(delta: Delta) -> Delta {
    Delta { last: true, ..delta }
}

/// A view without the order in which its metrics and failures arrived.
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
    // The threads of a worker are one source after they are merged.
    metrics.iter_mut().flat_map(|metric| metric.failures.values_mut()).for_each(|span| span.instances.clear());
    let mut errors = view.errors.clone();
    errors.sort_by(|a, b| (&a.metric, a.outcome, &a.message).cmp(&(&b.metric, b.outcome, &b.message)));
    // More seconds are kept only while several that closed at once must be judged.
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
    let view = RunView::restore(&collector.view().save()).expect("it was just saved");
    assert_eq!((view.latest().len(), view.save()), (0, collector.view().save()));
    assert_eq!((&view.all, &view.metrics), (&collector.view().all, &collector.view().metrics));
    restored
}

/// A second in which `metric` failed once, or did not.
fn second_of(instance: u64, second: u32, failed: bool) -> Delta {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("pay"));
    for outcome in [Some(Outcome::of_status(200)), failed.then(|| Outcome::of_status(503))].into_iter().flatten() {
        recorder.count_begun();
        let (wait, service) = (Duration::ZERO, Duration::from_millis(1));
        recorder.record(&Sample { metric, wait, service, outcome, bytes_in: 0, bytes_out: 0, due_in_warm_up: false });
    }
    let (metrics, errors, engine) = recorder.harvest(1, 1);
    Delta { source: source(instance), seq: second.into(), second, metrics, errors, engine, last: false }
}

#[test]
fn failure_keeps_its_first_and_last_second_and_its_workers() {
    let mut collector = Collector::new([source(7), source(8), source(9)], WINDOW);
    for second in 0..4 {
        collector.merge(second_of(7, second, second == 1)).unwrap();
        // The latest second waits for this one when the collector is saved.
        collector = reopened(&collector);
        collector.merge(second_of(8, second, second == 2)).unwrap();
        collector.merge(second_of(9, second, false)).unwrap();
    }
    let view = collector.finish();
    let spans: Vec<_> = view.metrics[0].failures.iter().collect();
    let span = FailureSpan { first_s: 2, last_s: 3, instances: [7, 8].into() };
    assert_eq!(spans, [(&Outcome::of_status(503), &span)]);
}

#[test]
fn late_source_delays_open_seconds_but_reopens_none() {
    let mut collector = Collector::new([], WINDOW);
    collector.add_source(source(1));
    assert_eq!(collector.merge(empty(1, 0, 0, 1)), Ok(1));
    assert_eq!(collector.merge(empty(1, 1, 1, 1)), Ok(1));
    collector.add_source(source(2));
    collector.add_source(source(2));
    assert_eq!(collector.merge(empty(1, 2, 2, 1)), Ok(0), "the new one has not reported it");
    assert_eq!(collector.merge(empty(2, 0, 2, 5)), Ok(1));
    assert_eq!(collector.view().timeline.len(), 3);
    assert_eq!(
        (collector.begun_of(source(2)), collector.next_seq(source(2)), collector.next_seq(source(9))),
        (5, 1, 0)
    );
}

#[test]
fn lost_source_delays_no_second_but_its_deltas_count() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    for second in 0..3 {
        collector.merge(empty(1, u64::from(second), second, 1)).unwrap();
    }
    assert_eq!(collector.view().timeline.len(), 1);
    assert_eq!(collector.mark_lost(source(2)), 2);
    // The source was only slow: its second 1 arrives when that is closed, and counts in the next
    // one, without its users.
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Ok(0));
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Err(MergeError::Duplicate { seq: 1 }));
    collector.add_source(source(2));
    assert_eq!(collector.merge(empty(1, 3, 3, 1)), Ok(1), "lost until it is regained");
    let users: Vec<_> = collector.view().timeline.iter().map(|row| row.users).collect();
    assert_eq!(users, [20, 10, 10, 10]);
    assert_eq!((collector.view().engine.begun, collector.begun_of(source(2))), (14, 10));
}

/// After a source returns, seconds must wait for it again.
#[test]
fn restored_source_delays_open_seconds_again() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    for second in 0..3 {
        collector.merge(empty(1, u64::from(second), second, 1)).unwrap();
    }
    assert_eq!(collector.mark_lost(source(2)), 2);
    collector.restore_source(source(2));
    let mut collector = reopened(&collector);
    // Deltas of the time when it was lost belong to closed seconds.
    assert_eq!(collector.merge(empty(2, 1, 1, 5)), Ok(0));
    assert_eq!(collector.merge(empty(1, 3, 3, 1)), Ok(0), "its second 3 is waited for");
    assert_eq!(collector.merge(empty(1, 4, 4, 1)), Ok(0));
    assert_eq!(collector.merge(empty(2, 2, 3, 5)), Ok(1));
    assert_eq!(collector.merge(empty(2, 3, 4, 5)), Ok(1));
    let users: Vec<_> = collector.view().timeline.iter().map(|row| row.users).collect();
    assert_eq!(users, [20, 10, 10, 20, 20]);
    // Seconds do not wait for a source that has sent its last delta, lost or not.
    collector.merge(last(empty(2, 4, 5, 0))).unwrap();
    collector.mark_lost(source(2));
    collector.restore_source(source(2));
    assert_eq!(collector.merge(empty(1, 5, 5, 1)), Ok(1));
    assert_eq!(collector.view().engine.begun, 26);
}

#[test]
fn delta_after_the_last_second_adds_no_row() {
    let mut collector = Collector::new([source(1), source(2)], WINDOW);
    collector.merge(last(empty(1, 0, 0, 1))).unwrap();
    collector.mark_lost(source(2));
    assert!(collector.is_complete());
    collector.merge(empty(2, 0, 0, 5)).unwrap();
    let view = reopened(&collector).finish();
    assert_eq!((view.timeline.len(), view.engine.begun, view.timeline[0].users), (1, 6, 10));
    assert_eq!(view, collector.finish());
}

#[test]
fn delta_far_ahead_of_the_run_is_refused() {
    let mut collector = Collector::new([source(1)], WINDOW);
    let refused = MergeError::TooFarAhead { second: u32::MAX, now: 0 };
    assert_eq!(collector.merge(empty(1, 0, u32::MAX, 1)), Err(refused));
    assert_eq!(collector.merge(empty(1, 0, 0, 1)), Ok(1));
}

#[test]
fn empty_seconds_are_merged_and_released() {
    let threads = [0, 1].map(|thread| SourceId { instance: 0, thread });
    let mut merger = ThreadMerger::new(source(42), threads);
    let mut released = Vec::new();
    for second in 0..3 {
        for thread in threads {
            let delta = empty(0, u64::from(second), second, 0);
            released.extend(merger.merge(Delta { source: thread, last: second == 2, ..delta }).unwrap());
        }
    }
    let seen: Vec<_> = released.iter().map(|d| (d.source, d.seq, d.second, d.engine.users, d.last)).collect();
    let at = |n: u32| (source(42), u64::from(n), n, 20, n == 2);
    assert_eq!(seen, [at(0), at(1), at(2)]);
    assert!(merger.is_complete());
}

/// A thread that has panicked sends no last delta.
#[test]
fn seconds_of_an_ended_thread_are_released_without_last_mark() {
    let threads = [0, 1].map(|thread| SourceId { instance: 0, thread });
    let mut merger = ThreadMerger::new(source(42), threads);
    let mut released = Vec::new();
    for second in 0..3 {
        let delta = Delta { source: threads[0], last: second == 2, ..empty(0, u64::from(second), second, 0) };
        released.extend(merger.merge(delta).unwrap());
    }
    released.extend(merger.merge(Delta { source: threads[1], ..empty(0, 0, 0, 0) }).unwrap());
    assert_eq!(released.len(), 1);
    released.extend(merger.flush_incomplete());
    let seen: Vec<_> = released.iter().map(|d| (d.seq, d.second, d.last)).collect();
    assert_eq!(seen, [(0, 0, false), (1, 1, false), (2, 2, false)]);
    assert!(merger.flush_incomplete().is_empty());
}

#[test]
fn damaged_checkpoint_is_refused() {
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
    assert!(refusal(&collector.view().save()).is_some());
}

fn sources_deltas() -> impl Strategy<Value = Vec<Vec<Delta>>> {
    (1..4u64).prop_flat_map(|n| (0..n).map(|n| source_deltas(source(n))).collect::<Vec<_>>())
}

/// Interleaves the sources in the order that `picks` gives: each time one of those that have deltas
/// left.
fn interleaved(sources_deltas: &[Vec<Delta>], picks: &[Index]) -> Vec<Delta> {
    let mut left: Vec<_> = sources_deltas.iter().map(|deltas| deltas.iter()).collect();
    let mut picks = picks.iter().cycle();
    let mut order = Vec::new();
    while left.iter().any(|deltas| deltas.len() > 0) {
        let open: Vec<usize> = (0..left.len()).filter(|&i| left[i].len() > 0).collect();
        let pick = open[picks.next().expect("the iterator is infinite").index(open.len())];
        order.extend(left[pick].next().cloned());
    }
    order
}

fn sources(sources_deltas: &[Vec<Delta>]) -> Vec<SourceId> {
    sources_deltas.iter().map(|deltas| deltas[0].source).collect()
}

fn in_order_of_seconds(sources_deltas: &[Vec<Delta>]) -> Vec<Delta> {
    let mut all = sources_deltas.concat();
    all.sort_by_key(|delta| (delta.second, delta.source));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn view_is_the_same_for_any_order_repeats_and_restores(sources_deltas in sources_deltas(), picks in vec(any::<Index>(), 1..30), hand_over in vec(prop::bool::weighted(0.3), 1..30)) {
        let mut once = Collector::new(sources(&sources_deltas), WINDOW);
        in_order_of_seconds(&sources_deltas).into_iter().for_each(|delta| _ = once.merge(delta).unwrap());
        let mut collector = Collector::new(sources(&sources_deltas), WINDOW);
        for (delta, hand_over) in interleaved(&sources_deltas, &picks).iter().zip(hand_over.iter().cycle()) {
            merge_twice(&mut collector, delta);
            if *hand_over {
                collector = reopened(&collector);
            }
        }
        prop_assert!(once.is_complete() && collector.is_complete());
        prop_assert_eq!(shape(collector.view()), shape(once.view()));
        prop_assert_eq!(shape(&collector.finish()), shape(&once.finish()));
    }

    /// Sources join with their first delta and may be lost at any time; every delta still counts.
    #[test]
    fn totals_include_all_deltas_when_sources_are_lost(
        sources_deltas in sources_deltas(),
        picks in vec(any::<Index>(), 1..30),
        losses in vec((any::<Index>(), prop::bool::weighted(0.15), prop::bool::weighted(0.3)), 1..30),
    ) {
        let (mut collector, mut successor) = (Collector::new([], WINDOW), Collector::new([], WINDOW));
        let deltas = interleaved(&sources_deltas, &picks);
        for (delta, (source_index, lost, hand_over)) in deltas.iter().zip(losses.iter().cycle()) {
            for collector in [&mut collector, &mut successor] {
                collector.add_source(delta.source);
                merge_twice(collector, delta);
                if *lost {
                    collector.mark_lost(*source_index.get(&sources(&sources_deltas)));
                }
            }
            if *hand_over {
                successor = reopened(&successor);
            }
        }
        let (sent, recorded): (u64, u64) = sources(&sources_deltas).iter().map(|s| (collector.begun_of(*s), collector.recorded_sent_of(*s))).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let view = collector.finish();
        prop_assert_eq!(&successor.finish(), &view);

        let sum = |count: fn(&Delta) -> u64| deltas.iter().map(count).sum::<u64>();
        prop_assert_eq!((view.engine.begun, view.engine.recorded), (sum(|d| d.engine.begun), sum(|d| d.engine.recorded)));
        prop_assert_eq!((view.engine.begun, view.engine.recorded), (sent, recorded));
        prop_assert_eq!(view.engine.dropped, sum(|d| d.engine.dropped));
        let samples: u64 = view.metrics.iter().map(|metric| metric.requests).sum();
        prop_assert_eq!(samples, sum(|d| d.metrics.iter().map(MetricDelta::requests).sum()));
        // The timeline has a row for each second, and its rows add up to the totals.
        prop_assert_eq!(view.timeline.len() as u32, deltas.iter().map(|d| d.second + 1).max().unwrap());
        prop_assert_eq!(view.timeline.iter().map(|row| row.requests).sum::<u64>(), view.all.requests);
        prop_assert_eq!(view.timeline.iter().map(|row| row.late).sum::<u64>(), view.engine.late);
        for metric in &view.metrics {
            prop_assert_eq!(metric.timeline.iter().map(|row| u64::from(row.requests)).sum::<u64>(), metric.requests);
            prop_assert!(metric.timeline.is_sorted_by(|a, b| a.t_s < b.t_s));
        }
        prop_assert!(view.timeline.iter().zip(1..).all(|(row, t_s)| row.t_s == t_s));
    }

    /// Threads merged into one source, then collected, give the same run as the threads themselves.
    #[test]
    fn merging_threads_first_gives_the_same_view(sources_deltas in sources_deltas(), picks in vec(any::<Index>(), 1..30)) {
        let mut direct = Collector::new(sources(&sources_deltas), WINDOW);
        let mut merger = ThreadMerger::new(source(99), sources(&sources_deltas));
        let mut folded = Collector::new([source(99)], WINDOW);
        let mut released = Vec::new();
        for delta in interleaved(&sources_deltas, &picks) {
            direct.merge(delta.clone()).unwrap();
            released.extend(merger.merge(delta).unwrap());
        }
        let lasts: Vec<bool> = released.iter().map(|delta| delta.last).collect();
        prop_assert!(lasts.iter().rposition(|last| *last) == Some(lasts.len() - 1) && lasts.iter().filter(|l| **l).count() == 1);
        for delta in released {
            prop_assert_eq!(folded.merge(squall_metrics::decode_delta(&squall_metrics::encode_delta(&delta)).unwrap()), Ok(1));
        }
        prop_assert_eq!(shape(folded.view()), shape(direct.view()));
    }
}
