//! Deltas and checkpoints from any bytes: they are refused or harmless. What is let in reads the same when it is written again,
//! and can be merged and shown.
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
    // Codes that found no room in the table of names are `OTHER` by now: the second reading is the one to compare.
    let again = decode_delta(&encode_delta(&delta)).expect("what was read can be written");
    assert_eq!(again, delta);
    let recorded = delta.engine.recorded;
    let mut collector = Collector::new([delta.source], 2);
    // Seconds without anything take their place in the timeline; a million of them would only make this slow.
    let next = Delta { seq: 0, second: delta.second % 1000, ..delta };
    collector.merge(next).expect("it is the first");
    let bytes = collector.save();
    let restored = Collector::restore(&bytes, 2).expect("it was just saved");
    assert_eq!(restored.save(), bytes);
    assert_eq!(restored.finish().engine.recorded, recorded);
}

/// The checksum is made to fit: without it no input would get far.
fn checkpoint(input: &[u8]) {
    assert!(Collector::restore(input, 2).is_err() || input.len() > 8);
    let whole = [input, &xxh64(input, 0).to_le_bytes()].concat();
    let Ok(collector) = Collector::restore(&whole, 2) else { return };
    let bytes = collector.save();
    assert_eq!(Collector::restore(&bytes, 2).expect("what was read can be written").save(), bytes);
    let _ = (collector.view().accounting(), collector.view().window(None, 1), collector.is_complete());
}
