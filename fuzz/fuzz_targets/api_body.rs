//! Feeds any bytes to every request body type of the API. The API rejects a body with an error
//! text, or the body's values are within their limits and can be stored.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run api_body -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use requests::{
    ApiRequestBody, ChangeRateRequest, ChangeUsersRequest, CreateTestRequest, EmptyRequest, FillPoolRequest, MAX_USERS,
    ScaleUsersRequest, StartTestRequest, StopTestRequest, parse_body,
};
use squall_model::Bundle;
use std::time::Duration;

// Includes the module's source instead of the crate: servers and stores would take minutes to build.
#[allow(dead_code)]
#[path = "../../crates/squall-web/src/requests.rs"]
mod requests;

fuzz_target!(|input: &[u8]| {
    let mut accepted = 0;
    if let Some(start) = parsed_or_explained::<StartTestRequest>(input, &mut accepted) {
        assert!(start.target_users <= MAX_USERS);
        // The API turns each value into a command-line argument.
        assert!(start.init_params.values().all(|value| serde_json::to_string(value).is_ok()));
    }
    if let Some(change) = parsed_or_explained::<ChangeUsersRequest>(input, &mut accepted) {
        assert!(change.target_users <= MAX_USERS);
    }
    if let Some(scale) = parsed_or_explained::<ScaleUsersRequest>(input, &mut accepted) {
        assert!(scale.users <= MAX_USERS);
    }
    if let Some(rate) = parsed_or_explained::<ChangeRateRequest>(input, &mut accepted) {
        assert!(rate.rate.is_finite() && rate.rate >= 0.0);
    }
    if let Some(stock) = parsed_or_explained::<FillPoolRequest>(input, &mut accepted) {
        assert!(stock.count <= 100_000);
    }
    if let Some(test) = parsed_or_explained::<CreateTestRequest>(input, &mut accepted) {
        store_and_read(&test.bundle);
    }
    let nothing = parsed_or_explained::<EmptyRequest>(input, &mut accepted).is_some();
    let stop = parsed_or_explained::<StopTestRequest>(input, &mut accepted).is_some();
    assert!(stop || !nothing, "an empty body is a valid stop request");
    // Each type rejects the fields of the other types.
    assert!(accepted < 8);
});

fn parsed_or_explained<T: ApiRequestBody>(input: &[u8], accepted: &mut usize) -> Option<T> {
    match parse_body::<T>(input) {
        Ok(body) => {
            *accepted += 1;
            Some(body)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// The store keeps a bundle as text. The leader and the workers read it and ask for its duration.
fn store_and_read(bundle: &Bundle) {
    let text = serde_json::to_vec(bundle).expect("what was read can be written");
    let again: Bundle = serde_json::from_slice(&text).expect("what was written can be read");
    let (profile, at) = (again.plan.load.model.profile(), Duration::from_secs(1));
    let _ = (again.plan.duration(), profile.level(at), profile.area(at), profile.time_of_area(10.0));
}
