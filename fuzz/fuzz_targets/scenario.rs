//! Feeds any text to the scenario reader and builds the plan; sends nothing. The reader must not
//! panic, must name an existing line in each error, and must be able to describe and prepare every
//! scenario that it accepts.
//!
//! The bytes after the first form feed are the content of every file that the scenario names.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run scenario -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_engine::{Driver, ThreadRecorder};
use squall_metrics::RecorderConfig;
use squall_scenario::{Scenario, ScenarioFiles, ScenarioOverrides, Sourced, UrlRequest};
use std::{io, path::PathBuf, sync::Once, time::Instant};

fuzz_target!(|input: &[u8]| {
    static ONCE: Once = Once::new();
    ONCE.call_once(no_certificates);
    let (text, content) = match input.iter().position(|byte| *byte == FORM_FEED) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    scenario(text, content);
    template(text);
});

const FORM_FEED: u8 = 0x0c;

fn scenario(text: &str, content: &[u8]) {
    match Scenario::parse("fuzz.toml", text, &mut Memory(content), ScenarioOverrides::default()) {
        Ok(scenario) => use_it(&scenario),
        Err(errors) => {
            assert!(!errors.to_string().is_empty() && !errors.problems.is_empty());
            let lines = text.split('\n').count();
            for problem in &errors.problems {
                assert!(problem.line <= lines, "line {} of {lines}", problem.line);
            }
        }
    }
}

/// Uses the text as the value of flags: URL, body, header and threshold, each of which has its own syntax.
fn template(text: &str) {
    let request = UrlRequest {
        url: "http://127.0.0.1/".to_owned(),
        body: Some(Sourced::from_flag("--body", text)),
        expect_status: Some(Sourced::from_flag("--expect-status", text)),
        ..UrlRequest::default()
    };
    let mut overrides = ScenarioOverrides::default();
    overrides.http.headers.push((Sourced::from_flag("--header", "x-fuzz"), Sourced::from_flag("--header", text)));
    if let Ok(scenario) = Scenario::from_url(request, &mut Memory(&[]), overrides.clone()) {
        use_it(&scenario);
    }
    let request = UrlRequest { url: text.to_owned(), ..UrlRequest::default() };
    overrides.thresholds.push(Sourced::from_flag("--threshold", text));
    if let Ok(scenario) = Scenario::from_url(request, &mut Memory(&[]), overrides) {
        use_it(&scenario);
    }
}

/// Prepares an accepted scenario up to its first request.
fn use_it(scenario: &Scenario) {
    assert!(!scenario.describe().is_empty());
    let probe = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
    scenario.driver().thread(probe).map(drop).expect("an accepted scenario can be prepared");
}

/// Gives every file the same content. Certificates, which other code opens, do not exist.
struct Memory<'i>(&'i [u8]);

impl ScenarioFiles for Memory<'_> {
    fn read(&mut self, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }

    fn locate(&self, _: &str) -> PathBuf {
        PathBuf::from("/nonexistent/file")
    }

    fn env(&mut self, name: &str) -> Option<String> {
        name.starts_with('A').then(|| "value".to_owned())
    }
}

/// Loading the system's certificates takes as long as a thousand cases.
fn no_certificates() {
    // SAFETY: libFuzzer calls this from its only thread.
    unsafe { std::env::set_var("SSL_CERT_FILE", "/dev/null") };
}
