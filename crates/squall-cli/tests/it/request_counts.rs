//! Numbers that must be exact: requests, accounting, weights and order.

use crate::support::{RecordingServer, TestFolder, number, target};
use std::time::Duration;

#[test]
fn report_counts_the_requests_that_the_target_received() {
    let (target, folder) = (target(), TestFolder::new());
    let (_, result) = folder.result(&[&target.url("/api/products"), "--users", "8", "--for", "1s", "--threads", "2"]);
    let received = target.requests() as f64;
    assert!(received > 8.0);
    assert_eq!(number(&result, "/totals/requests"), received);
    for part in ["sent", "recorded", "reported"] {
        assert_eq!(number(&result, &format!("/accounting/{part}")), received, "{part}");
    }
    assert_eq!(number(&result, "/totals/errors"), 0.0);
    let seconds: f64 = result["timeline"].as_array().unwrap().iter().map(|s| number(s, "/requests")).sum();
    assert_eq!(seconds, received, "the timeline adds up");
}

#[test]
fn rate_of_a_partial_last_second_uses_its_length() {
    let (target, folder) = (target(), TestFolder::new());
    let (_, result) = folder.result(&[&target.url("/health"), "--rate", "100", "--for", "1500ms"]);
    let seconds = result["timeline"].as_array().unwrap();
    let (last, before) = (seconds.last().unwrap(), seconds.len() as f64 - 1.0);
    let (requests, length) = (number(last, "/requests"), number(last, "/length_s"));
    assert_eq!(number(&seconds[0], "/length_s"), 1.0);
    assert!((number(&result, "/run/elapsed_s") - before - length).abs() < 1e-6 && length < 1.0, "{last}");
    assert!(requests > 0.0 && (number(last, "/rate") - requests / length).abs() < 0.01, "{last}");
}

#[test]
fn warm_up_requests_are_sent_and_counted_but_not_reported() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let (_, result) = folder.result(&[&url, "--rate", "100", "--for", "2s", "--warm-up", "1s"]);
    assert_eq!(target.requests(), 200);
    assert_eq!(number(&result, "/totals/requests"), 100.0);
    assert_eq!(number(&result, "/accounting/sent"), 200.0);
}

#[test]
fn open_rate_sends_the_exact_number_of_requests() {
    let (target, folder) = (target(), TestFolder::new());
    folder.result(&[&target.url("/health"), "--rate", "7200/m", "--for", "2s"]);
    assert_eq!(target.requests(), 240);
}

#[test]
fn requests_flag_sends_exactly_that_many_in_both_models() {
    for load in [["--rate", "1000"], ["--users", "7"]] {
        let (target, folder) = (target(), TestFolder::new());
        let (_, result) = folder.result(&[&target.url("/health"), load[0], load[1], "--requests", "123"]);
        assert_eq!(target.requests(), 123, "{load:?}");
        assert_eq!(number(&result, "/totals/requests"), 123.0);
    }
}

const WEIGHTED: &str = r#"
name = "weights"
target = "http://127.0.0.1:9"
[load]
rate = "20/s"
for = "6s"
[[task]]
name = "often"
weight = 3
get = "/often"
[[task]]
name = "seldom"
weight = 1
get = "/seldom"
"#;

// One user, because requests of several connections arrive in any order.

#[test]
fn task_weights_are_exact_over_any_four_seconds() {
    let (server, folder) = (RecordingServer::start(Duration::ZERO), TestFolder::new());
    folder.write("weights.toml", WEIGHTED);
    let (url, one) = (server.url(""), ["--max-users", "1", "--threads", "1", "--requests", "120"]);
    let (code, _) = folder.result(&[&["weights.toml", "--target", &url], &one[..]].concat());
    assert_eq!(code, 0);
    let paths = server.paths();
    assert_eq!(paths.len(), 120);
    for window in paths.windows(80) {
        let often = window.iter().filter(|path| *path == "/often").count();
        assert!((59..=61).contains(&often), "{often} of 80");
    }
}

#[test]
fn same_seed_gives_the_same_order_of_tasks() {
    let order = |seed: &str| {
        let (server, folder) = (RecordingServer::start(Duration::ZERO), TestFolder::new());
        folder.write("weights.toml", &WEIGHTED.replace("6s", "10s"));
        let url = server.url("");
        let fast = [
            "weights.toml",
            "--target",
            &url,
            "--max-users",
            "1",
            "--threads",
            "1",
            "--rate",
            "50",
            "--requests",
            "50",
            "--seed",
            seed,
        ];
        folder.result(&fast);
        server.paths()
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| order("7"));
        (first.join().unwrap(), order("7"))
    });
    assert_eq!(first.len(), 50);
    assert_eq!(first, second);
}
