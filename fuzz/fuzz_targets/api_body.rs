//! Bodies of the API from any bytes, as every type there is: they are refused in words, or what they hold is within its limits and can be
//! handed on as the fleet does.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run api_body -- -max_total_time=30`
#![no_main]

use inputs::{ChangeUsers, Input, MOST_USERS, NewTest, Nothing, Rate, Scale, StartTest, Stock, Stop, parse};
use libfuzzer_sys::fuzz_target;
use squall_model::Bundle;
use std::time::Duration;

// The module's own source rather than its crate: it needs nothing of servers and stores, which take minutes to build.
#[allow(dead_code)]
#[path = "../../crates/squall-web/src/inputs.rs"]
mod inputs;

fuzz_target!(|input: &[u8]| {
    let mut taken = 0;
    if let Some(start) = taken_or_refused_in_words::<StartTest>(input, &mut taken) {
        assert!(start.target_users <= MOST_USERS);
        // What it becomes: words of a command line.
        assert!(start.init_params.values().all(|value| serde_json::to_string(value).is_ok()));
    }
    if let Some(change) = taken_or_refused_in_words::<ChangeUsers>(input, &mut taken) {
        assert!(change.target_users <= MOST_USERS);
    }
    if let Some(scale) = taken_or_refused_in_words::<Scale>(input, &mut taken) {
        assert!(scale.users <= MOST_USERS);
    }
    if let Some(rate) = taken_or_refused_in_words::<Rate>(input, &mut taken) {
        assert!(rate.rate.is_finite() && rate.rate >= 0.0);
    }
    if let Some(stock) = taken_or_refused_in_words::<Stock>(input, &mut taken) {
        assert!(stock.count <= 100_000);
    }
    if let Some(test) = taken_or_refused_in_words::<NewTest>(input, &mut taken) {
        stored_and_read(&test.bundle);
    }
    let nothing = taken_or_refused_in_words::<Nothing>(input, &mut taken).is_some();
    let stop = taken_or_refused_in_words::<Stop>(input, &mut taken).is_some();
    assert!(stop || !nothing, "a stop may be asked for without saying how");
    // A body that is none names fields that only its own path knows.
    assert!(taken < 8);
});

fn taken_or_refused_in_words<T: Input>(input: &[u8], taken: &mut usize) -> Option<T> {
    match parse::<T>(input) {
        Ok(body) => {
            *taken += 1;
            Some(body)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// A bundle goes into the store as text and is read by leader and workers, who then ask how long it lasts.
fn stored_and_read(bundle: &Bundle) {
    let text = serde_json::to_vec(bundle).expect("what was read can be written");
    let again: Bundle = serde_json::from_slice(&text).expect("what was written can be read");
    let (profile, at) = (again.plan.load.model.profile(), Duration::from_secs(1));
    let _ = (again.plan.duration(), profile.level(at), profile.area(at), profile.time_of_area(10.0));
}
