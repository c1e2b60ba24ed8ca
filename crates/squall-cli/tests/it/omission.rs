//! Coordinated omission is not hidden: a server that freezes for 2 s in a 10 s run at 100/s.

use crate::support::{Desk, number, target, wait_until};
use std::time::Duration;

/// Response and service p99 in milliseconds of a run through the freeze.
fn through_a_freeze(extra: &[&str]) -> (f64, f64) {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let run = [&["run", &url, "--rate", "100", "--for", "10s", "--quiet", "--json", "result.json"], extra].concat();
    let running = desk.start(&run);
    wait_until("three seconds of requests", || target.requests() >= 300);
    target.freeze(Duration::from_secs(2));
    assert_eq!(running.end().code, 0);
    let result = desk.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), 1000.0);
    (number(&result, "/latency_ms/response/p99"), number(&result, "/latency_ms/service/p99"))
}

#[test]
fn a_freeze_shows_in_the_response_time() {
    let (response, _) = through_a_freeze(&[]);
    assert!((1700.0..5000.0).contains(&response), "{response} ms");
}

#[test]
fn a_freeze_shows_even_where_few_users_were_waiting() {
    // Four users: only four requests were under way, so that the service time alone would look fine.
    let (response, service) = through_a_freeze(&["--max-users", "4"]);
    assert!((1700.0..5000.0).contains(&response), "{response} ms");
    assert!(service < response / 4.0, "service {service} ms, response {response} ms");
}
