//! Numbers that must be exact: requests, accounting, weights, order.

use crate::support::{Desk, Notebook, number, target};
use std::time::Duration;

#[test]
fn what_the_target_received_is_what_the_report_says() {
    let (target, desk) = (target(), Desk::new());
    let (_, result) = desk.result(&[&target.url("/api/products"), "--users", "8", "--for", "1s", "--threads", "2"]);
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
fn the_last_part_of_a_second_has_a_rate_of_its_own_length() {
    let (target, desk) = (target(), Desk::new());
    let (_, result) = desk.result(&[&target.url("/health"), "--rate", "100", "--for", "1500ms"]);
    let seconds = result["timeline"].as_array().unwrap();
    let (last, before) = (seconds.last().unwrap(), seconds.len() as f64 - 1.0);
    let (requests, length) = (number(last, "/requests"), number(last, "/length_s"));
    assert_eq!(number(&seconds[0], "/length_s"), 1.0);
    assert!((number(&result, "/run/elapsed_s") - before - length).abs() < 1e-6 && length < 1.0, "{last}");
    assert!(requests > 0.0 && (number(last, "/rate") - requests / length).abs() < 0.01, "{last}");
}

#[test]
fn warm_up_is_sent_and_counted_but_not_reported() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let (_, result) = desk.result(&[&url, "--rate", "100", "--for", "2s", "--warm-up", "1s"]);
    assert_eq!(target.requests(), 200);
    assert_eq!(number(&result, "/totals/requests"), 100.0);
    assert_eq!(number(&result, "/accounting/sent"), 200.0);
}

#[test]
fn an_open_rate_is_kept_to_the_request() {
    let (target, desk) = (target(), Desk::new());
    desk.result(&[&target.url("/health"), "--rate", "7200/m", "--for", "2s"]);
    assert_eq!(target.requests(), 240);
}

#[test]
fn requests_are_exact_in_both_models() {
    for load in [["--rate", "1000"], ["--users", "7"]] {
        let (target, desk) = (target(), Desk::new());
        let (_, result) = desk.result(&[&target.url("/health"), load[0], load[1], "--requests", "123"]);
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

// One user: requests of several would arrive in the order of their connections' luck, not in the order they were started.

#[test]
fn weights_are_exact_over_any_four_seconds() {
    let (book, desk) = (Notebook::start(Duration::ZERO), Desk::new());
    desk.write("weights.toml", WEIGHTED);
    let (url, one) = (book.url(""), ["--max-users", "1", "--threads", "1", "--requests", "120"]);
    let (code, _) = desk.result(&[&["weights.toml", "--target", &url], &one[..]].concat());
    assert_eq!(code, 0);
    let paths = book.paths();
    assert_eq!(paths.len(), 120);
    for window in paths.windows(80) {
        let often = window.iter().filter(|path| *path == "/often").count();
        assert!((59..=61).contains(&often), "{often} of 80");
    }
}

#[test]
fn the_same_seed_gives_the_same_order() {
    let order = |seed: &str| {
        let (book, desk) = (Notebook::start(Duration::ZERO), Desk::new());
        desk.write("weights.toml", &WEIGHTED.replace("6s", "10s"));
        let url = book.url("");
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
        desk.result(&fast);
        book.paths()
    };
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| order("7"));
        (first.join().unwrap(), order("7"))
    });
    assert_eq!(first.len(), 50);
    assert_eq!(first, second);
}
