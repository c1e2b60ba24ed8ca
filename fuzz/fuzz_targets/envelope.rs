//! Feeds any bytes to the decoders of commands, run specs and bundles. An accepted value survives
//! encoding and decoding.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run envelope -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_model::{Bundle, CommandEnvelope, CommandType, RunSpec, ShareSet};
use std::time::Duration;

fuzz_target!(|input: &[u8]| {
    if let Ok(envelope) = CommandEnvelope::decode(input) {
        // Compares only some fields, because the last digit of a fraction may differ.
        let again = CommandEnvelope::decode(envelope.encode().as_bytes()).expect("what was read can be written");
        assert_eq!((again.kind, again.epoch, &again.command_id), (envelope.kind, envelope.epoch, &envelope.command_id));
        let names = envelope.payload.contains_key("user_id") || envelope.payload.contains_key("user_ids");
        assert!(names || !matches!(envelope.kind, CommandType::AddUser | CommandType::RemoveUser));
    }
    if let Ok(mut order) = serde_json::from_slice::<RunSpec>(input) {
        // `squall test` applies these changes to any spec in the store.
        let at = Duration::from_secs(1);
        let _ = (order.profile.level(at), order.profile.area(at), order.profile.time_of_area(10.0));
        let _ = order.ramp_level(at, 5.0, at);
        let _ = order.pause(at).and_then(|()| order.resume(2 * at));
        let text = serde_json::to_vec(&order).expect("what was read can be written");
        assert!(serde_json::from_slice::<RunSpec>(&text).is_ok());
    }
    if let Ok(bundle) = serde_json::from_slice::<Bundle>(input) {
        let _ = bundle.plan.duration();
    }
    if let Ok(text) = std::str::from_utf8(input)
        && let Some(set) = ShareSet::from_hex(text)
    {
        assert_eq!(set.to_hex(), text.to_lowercase());
    }
});
