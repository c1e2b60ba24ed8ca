//! Feeds any bytes to the decoders of deltas and checkpoints. An accepted delta encodes to the same
//! value and can be merged.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run delta -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_metrics::{Collector, Delta, decode_delta, encode_delta};
use xxhash_rust::xxh64::xxh64;

fuzz_target!(|input: &[u8]| {
    delta(input);
    checkpoint(input);
});

fn delta(input: &[u8]) {
    let Ok(delta) = decode_delta(input) else { return };
    // A full code table turns further codes into `OTHER`, so the comparison uses the second decode.
    let again = decode_delta(&encode_delta(&delta)).expect("what was read can be written");
    assert_eq!(again, delta);
    let recorded = delta.engine.recorded;
    let mut collector = Collector::new([delta.source], 2);
    // Empty seconds take a place in the timeline. A million of them would only slow the target down.
    let next = Delta { seq: 0, second: delta.second % 1000, ..delta };
    collector.merge(next).expect("it is the first");
    let bytes = collector.save();
    let restored = Collector::restore(&bytes, 2).expect("it was just saved");
    assert_eq!(restored.save(), bytes);
    assert_eq!(restored.finish().engine.recorded, recorded);
}

/// Appends a matching checksum, because the decoder rejects nearly every input without one.
fn checkpoint(input: &[u8]) {
    assert!(Collector::restore(input, 2).is_err() || input.len() > 8);
    let whole = [input, &xxh64(input, 0).to_le_bytes()].concat();
    let Ok(collector) = Collector::restore(&whole, 2) else { return };
    let bytes = collector.save();
    assert_eq!(Collector::restore(&bytes, 2).expect("what was read can be written").save(), bytes);
    let _ = (collector.view().accounting(), collector.view().window(None, 1), collector.is_complete());
}
