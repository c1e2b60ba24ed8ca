//! Feeds any text to the reader of user profiles. The reader must not panic, and must name an
//! existing line of the file in each error.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run cql_profile -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_cql::UserProfile;

fuzz_target!(|text: &str| {
    if let Err(error) = UserProfile::parse("p.yaml", text) {
        assert!(!error.lines.is_empty());
        let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
        for line in &error.lines {
            let number: usize = line.split(':').nth(1).and_then(|number| number.parse().ok()).expect("p.yaml:line:");
            assert!((1..=lines + 1).contains(&number), "{line} of {lines}");
        }
    }
});
