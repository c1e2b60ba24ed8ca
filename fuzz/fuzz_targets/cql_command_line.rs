//! Feeds any text to the cassandra-stress command line. The parser must not panic, must explain what
//! it refuses, and must be able to describe what it accepts.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run cql_command_line -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_cql::{CqlCommand, Sampler, parse_command_line, print_distribution, settings_dump};

fuzz_target!(|text: &str| {
    match parse_command_line(&[text]) {
        Ok(CqlCommand::Stress(settings)) => {
            assert!(!settings_dump(&settings).is_empty());
            let mut sizes = Sampler::new(settings.columns.size.clone());
            assert!((0..10).all(|_| sizes.draw() >= 0), "{:?}", settings.columns.size);
        }
        Ok(CqlCommand::Print(distribution)) => assert!(!print_distribution(&distribution).is_empty()),
        Ok(CqlCommand::Help(text)) => assert!(!text.is_empty()),
        Ok(CqlCommand::Version) => {}
        Err(error) => assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
    }
});
