//! Deltas as bytes: decoding gives back what was encoded, and anything else is refused.

use crate::deltas::{delta, source};
use proptest::prelude::*;
use squall_metrics::{
    Collector, Delta, EngineDelta, ErrorNote, Histogram, MetricDelta, MetricKey, Outcome, OutcomeCategory, WireError,
    decode_delta, encode_delta,
};
use std::sync::Arc;

/// One request of 1 µs named `a` that failed, and its message.
fn small() -> Delta {
    let key = Arc::new(MetricKey::request("a"));
    let outcome = Outcome::new(OutcomeCategory::Timeout, "TIMEOUT");
    let of = |nanos| {
        let mut histogram = Histogram::default();
        histogram.record(nanos);
        histogram
    };
    let metric = MetricDelta {
        key: key.clone(),
        outcomes: vec![(outcome, 1)],
        bytes_in: 300,
        bytes_out: 2,
        service: of(1000),
        response: of(1000),
        wait: of(0),
        phases: None,
    };
    let errors = vec![ErrorNote { metric: key, outcome, message: "slow".into(), count: 1 }];
    let engine = EngineDelta { begun: 1, recorded: 1, users: 3, ..EngineDelta::default() };
    Delta { source: source(0x0102), seq: 5, second: 6, metrics: vec![metric], errors, engine, last: true }
}

/// The format is public: a change of these bytes must raise the version.
#[test]
fn encoded_delta_has_the_golden_bytes() {
    let mut expected = vec![1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 5, 6, 1];
    expected.extend([1, 0, 1, b'a', 0, 0, 0, 1, 1, 8 | 3, 7]);
    expected.extend(b"TIMEOUT");
    expected.extend([1, 0xac, 2, 2]);
    expected.extend([0xe9, 7, 1, 0, 0xe8, 7, 0xe8, 7, 0, 0xe8, 7]);
    expected.extend([1, 1, 0, 0, 0, 0, 0]);
    expected.extend([1, 0, 8 | 3, 7]);
    expected.extend(b"TIMEOUT");
    expected.extend([4, b's', b'l', b'o', b'w', 1]);
    expected.extend([1, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(encode_delta(&small()), expected);
}

#[test]
fn other_versions_and_trailing_bytes_are_refused() {
    let bytes = encode_delta(&small());
    assert_eq!(decode_delta(&[]), Err(WireError::CutOff));
    assert_eq!(decode_delta(&[&[9], &bytes[1..]].concat()), Err(WireError::Version { found: 9 }));
    assert_eq!(decode_delta(&[&bytes[..], &[0]].concat()), Err(WireError::Trailing { bytes: 1 }));
    // Other text is not a newer version of the format.
    assert_eq!(decode_delta(b"junk"), Err(WireError::Invalid { what: "the first byte is not a version" }));
}

#[test]
fn impossible_counts_are_refused() {
    let check = |change: fn(&mut Delta), expected: &str| {
        let mut delta = small();
        change(&mut delta);
        assert_eq!(decode_delta(&encode_delta(&delta)).expect_err(expected).to_string(), expected);
    };
    check(
        |d| d.metrics[0].outcomes[0].1 = 2,
        "squall does not write such bytes: outcomes and times of a metric differ in number",
    );
    check(|d| d.metrics[0].bytes_in = 1 << 49, "a value is too large: counts");
    check(|d| d.second = u32::MAX, "a value is too large: second");
    check(|d| d.seq = u64::MAX, "a value is too large: sequence number");
}

#[test]
fn announced_list_without_items_takes_no_memory() {
    let head = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_eq!(decode_delta(&[&head[..], &huge].concat()), Err(WireError::CutOff));
    assert_eq!(
        decode_delta(&[&head[..], &[0x80, 0]].concat()),
        Err(WireError::Invalid { what: "a number is not in its shortest form" })
    );
}

#[test]
fn long_texts_are_cut_and_invalid_codes_become_other() {
    let mut delta = small();
    delta.errors[0].message = "ä".repeat(20_000);
    delta.errors[0].outcome = Outcome::new(OutcomeCategory::Exception, "two\nlines");
    let note = &decode_delta(&encode_delta(&delta)).unwrap().errors[0];
    assert_eq!((note.message.len(), note.outcome.code.to_string().as_str()), (16 << 10, "OTHER"));
}

proptest! {
    #[test]
    fn decoded_delta_equals_the_encoded_one(delta in delta(source(7)), seq in 0..1u64 << 62, second in 0..300_000_000u32, last: bool) {
        let delta = Delta { seq, second, last, ..delta };
        prop_assert_eq!(decode_delta(&encode_delta(&delta)), Ok(delta));
    }

    #[test]
    fn truncated_delta_is_refused(delta in delta(source(7)), at: prop::sample::Index) {
        let bytes = encode_delta(&delta);
        prop_assert!(decode_delta(&bytes[..at.index(bytes.len())]).is_err());
    }

    /// Whatever decodes can be merged and shown, and encodes to the same bytes.
    #[test]
    fn damaged_delta_is_refused_or_can_be_merged(
        delta in delta(source(7)),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encode_delta(&delta);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let Ok(read) = decode_delta(&bytes) else { return Ok(()) };
        prop_assert_eq!(decode_delta(&encode_delta(&read)), Ok(read.clone()));
        let mut collector = Collector::new([read.source], 3);
        let requests: u64 = read.metrics.iter().map(|metric| metric.requests()).sum();
        let _ = collector.merge(Delta { second: read.second.min(1000), ..read });
        let shown: u64 = collector.finish().metrics.iter().map(|metric| metric.requests).sum();
        prop_assert!(shown == 0 || shown == requests);
    }

    #[test]
    fn random_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_delta(&bytes);
        bytes.insert(0, 1);
        let _ = decode_delta(&bytes);
        prop_assert!(Collector::restore(&bytes, 1).is_err());
    }
}
