//! The whole way of a scenario file, from any text to a plan, without its last step: nothing is sent. It must not panic; whatever it
//! refuses it must be able to say, with a line that exists; whatever it accepts it must be able to describe and to run.
//!
//! The text may bring the files that it names: what follows the first form feed is the content of each of them.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run scenario -- -max_total_time=30`
#![no_main]

use libfuzzer_sys::fuzz_target;
use squall_engine::{Driver, ThreadRecorder};
use squall_metrics::RecorderConfig;
use squall_scenario::{ScenarioFiles, Sourced, ScenarioOverrides, Scenario, UrlRequest};
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

/// The text as what a flag says: a URL, a body, a header, a threshold; all of them are templates or small languages.
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

/// What happens to an accepted scenario before its first request.
fn use_it(scenario: &Scenario) {
    assert!(!scenario.describe().is_empty());
    let probe = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
    scenario.driver().thread(probe).map(drop).expect("an accepted scenario can be prepared");
}

/// Every file that is asked for has the same content; what must be opened elsewhere (certificates) is not there.
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

/// Reading the system's certificates takes as long as a thousand cases.
fn no_certificates() {
    // SAFETY: libFuzzer calls this from its only thread.
    unsafe { std::env::set_var("SSL_CERT_FILE", "/dev/null") };
}
