//! Every documented exit code.

use crate::support::{Desk, target};
use squall_testkit::scripted_server::refused_address;

#[test]
fn a_run_that_keeps_its_promises_passes_with_0() {
    let (target, desk) = (target(), Desk::new());
    let (code, result) = desk.result(&[
        &target.url("/health"),
        "--rate",
        "50",
        "--for",
        "1s",
        "--threshold",
        "p99<30s",
        "--threshold",
        "error_rate<1%",
    ]);
    assert_eq!((code, result["verdict"].as_str(), &result["exit_code"]), (0, Some("passed"), &0.into()));
}

#[test]
fn a_breached_threshold_fails_with_1() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/delay/20");
    let (code, result) = desk.result(&[&url, "--users", "2", "--requests", "20", "-t", "p50<1ms"]);
    assert_eq!((code, result["verdict"].as_str()), (1, Some("threshold_breached")));
    assert_eq!(result["thresholds"][0]["passed"], false);
}

#[test]
fn an_abort_threshold_stops_the_run_early_with_1() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/fail?rate=1");
    let (code, _) = desk.result(&[&url, "--rate", "50", "--for", "5m", "-t", "error_rate<1% !abort"]);
    assert_eq!(code, 1);
    assert!(target.requests() < 5_000, "it was stopped, not run for five minutes");
}

/// Which is known only at the end: ten requests are over long before the warm-up is.
#[test]
fn a_run_in_which_nothing_was_measured_fails_with_1() {
    let (target, desk) = (target(), Desk::new());
    let (code, result) = desk.result(&[&target.url("/health"), "--users", "2", "--requests", "10", "--warm-up", "1m"]);
    assert_eq!((code, result["verdict"].as_str()), (1, Some("nothing_measured")));
    assert_eq!((target.requests(), result["accounting"]["warm_up"].as_u64()), (10, Some(10)));
    let url = target.url("/health");
    let ended = desk.squall(&["run", &url, "--users", "2", "--requests", "10", "--warm-up", "1m"]);
    assert!(ended.stdout.contains("nothing was measured; all 10 requests were warm-up"), "{}", ended.stdout);
}

#[test]
fn a_target_that_cannot_be_reached_fails_with_3() {
    let desk = Desk::new();
    let url = format!("http://{}/", refused_address());
    let (code, result) = desk.result(&[&url, "--rate", "20", "--for", "1s", "-t", "error_rate<1%"]);
    assert_eq!((code, result["verdict"].as_str()), (3, Some("target_unreachable")));
}

#[test]
fn a_schedule_that_cannot_be_kept_fails_with_4_only_when_strict() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/delay/400");
    let slow = [url.as_str(), "--rate", "100", "--for", "2s", "--max-users", "1", "--grace", "1s"];
    let (code, result) = desk.result(&slow);
    assert_eq!(code, 0);
    assert_eq!(result["generator"]["saturated"], true, "{result:#}");
    let (code, result) = desk.result(&[&slow[..], &["--strict"]].concat());
    assert_eq!((code, result["verdict"].as_str()), (4, Some("schedule_missed")));
}
