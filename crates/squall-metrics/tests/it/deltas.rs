//! Generates deltas of every shape, as engine threads send them.

use proptest::{collection::vec, prelude::*};
use squall_metrics::{
    Delta, EngineDelta, MetricKey, MetricKind, MetricRecorder, Outcome, OutcomeCategory, OutcomeCode, RecorderConfig,
    Sample, SourceId,
};
use std::time::Duration;

const NAMES: [&str; 5] = ["CONNECT_REFUSED", "ValueError", "OK", "nicht_möglich", "a:b-c d"];

pub(crate) fn source(instance: u64) -> SourceId {
    SourceId { instance, thread: 0 }
}

pub(crate) fn outcome() -> impl Strategy<Value = Outcome> {
    let code = prop_oneof![
        any::<u16>().prop_map(OutcomeCode::Http),
        prop::sample::select(&NAMES[..]).prop_map(OutcomeCode::Named)
    ];
    (prop::sample::select(&OutcomeCategory::ALL[..]), code).prop_map(|(category, code)| Outcome { category, code })
}

pub(crate) fn key() -> impl Strategy<Value = MetricKey> {
    let kind = prop::sample::select(&[MetricKind::Request, MetricKind::Group, MetricKind::Custom][..]);
    let tags = prop::collection::btree_map("[a-z]{0,3}", "\\PC{0,5}", 0..3);
    // Few names, so that deltas of several sources have metrics in common.
    ("[abc]|\\PC{0,8}", kind, prop::option::of("[xy]"), tags).prop_map(|(name, kind, group, tags)| MetricKey {
        name,
        kind,
        group,
        tags,
    })
}

type Event = (usize, (u64, u64), Outcome, u32, bool);

/// A second of `source`, without its number and position in the run.
pub(crate) fn delta(source: SourceId) -> impl Strategy<Value = Delta> {
    let nanos = || (0u32..45, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1));
    let event = (0usize..8, (nanos(), nanos()), outcome(), any::<u32>(), prop::bool::weighted(0.1));
    let engine = vec(0u64..1_000_000, 6);
    (vec(key(), 1..6), vec(event, 0..25), any::<bool>(), engine).prop_map(move |(keys, events, phases, engine)| {
        let mut recorder = MetricRecorder::new(RecorderConfig { phases, ..RecorderConfig::default() });
        events.iter().for_each(|event| record(&mut recorder, &keys, event));
        let (metrics, errors, counted) = recorder.harvest(engine[0], engine[1]);
        let engine = EngineDelta { dropped: engine[2], late: engine[3], metrics_refused: engine[4], ..counted };
        Delta { source, seq: 0, second: 0, metrics, errors, engine, last: false }
    })
}

fn record(recorder: &mut MetricRecorder, keys: &[MetricKey], event: &Event) {
    let (key, (wait, service), outcome, bytes, warm_up) = event;
    let metric = recorder.metric(keys[key % keys.len()].clone());
    let (wait, service) = (Duration::from_nanos(*wait), Duration::from_nanos(*service));
    let bytes = u64::from(*bytes);
    recorder.count_begun();
    recorder.record_iteration(wait, false);
    recorder.record(&Sample {
        metric,
        wait,
        service,
        outcome: *outcome,
        bytes_in: bytes,
        bytes_out: bytes / 2,
        due_in_warm_up: *warm_up,
    });
    recorder.record_phases(metric, &[service; 5]);
    // Few messages, because which ones are kept beyond the limit depends on the order.
    if *key == 0 {
        recorder.note_error(metric, Outcome::ABORTED, ["first", "second"][bytes as usize % 2]);
    }
}

/// All deltas of a source: numbered seconds, some skipped, the last one marked.
pub(crate) fn source_deltas(source: SourceId) -> impl Strategy<Value = Vec<Delta>> {
    vec((delta(source), prop::bool::weighted(0.1)), 1..6).prop_map(|seconds| {
        let count = seconds.len();
        let mut second = 0;
        let numbered = seconds.into_iter().enumerate().map(|(seq, (delta, skip))| {
            second += u32::from(skip);
            let numbered = Delta { seq: seq as u64, second, last: seq + 1 == count, ..delta };
            second += 1;
            numbered
        });
        numbered.collect()
    })
}
