//! Every documented exit code of `squall run`.

use crate::support::{TestFolder, target};
use squall_testkit::scripted_server::refused_address;

#[test]
fn run_that_holds_its_thresholds_exits_with_0() {
    let (target, folder) = (target(), TestFolder::new());
    let (code, result) = folder.result(&[
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
fn breached_threshold_exits_with_1() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/delay/20");
    let (code, result) = folder.result(&[&url, "--users", "2", "--requests", "20", "-t", "p50<1ms"]);
    assert_eq!((code, result["verdict"].as_str()), (1, Some("threshold_breached")));
    assert_eq!(result["thresholds"][0]["passed"], false);
}

#[test]
fn breached_abort_threshold_stops_the_run_and_exits_with_1() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/fail?rate=1");
    let (code, _) = folder.result(&[&url, "--rate", "50", "--for", "5m", "-t", "error_rate<1% !abort"]);
    assert_eq!(code, 1);
    assert!(target.requests() < 5_000, "it was stopped, not run for five minutes");
}

/// Ten requests end long before the warm-up does.
#[test]
fn run_that_ends_in_its_warm_up_exits_with_1() {
    let (target, folder) = (target(), TestFolder::new());
    let (code, result) =
        folder.result(&[&target.url("/health"), "--users", "2", "--requests", "10", "--warm-up", "1m"]);
    assert_eq!((code, result["verdict"].as_str()), (1, Some("nothing_measured")));
    assert_eq!((target.requests(), result["accounting"]["warm_up"].as_u64()), (10, Some(10)));
    let url = target.url("/health");
    let ended = folder.squall(&["run", &url, "--users", "2", "--requests", "10", "--warm-up", "1m"]);
    assert!(ended.stdout.contains("nothing was measured; all 10 requests were warm-up"), "{}", ended.stdout);
}

#[test]
fn unreachable_target_exits_with_3() {
    let folder = TestFolder::new();
    let url = format!("http://{}/", refused_address());
    let (code, result) = folder.result(&[&url, "--rate", "20", "--for", "1s", "-t", "error_rate<1%"]);
    assert_eq!((code, result["verdict"].as_str()), (3, Some("target_unreachable")));
}

#[test]
fn run_without_99_percent_of_its_starts_exits_with_4_unless_allowed() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/delay/400");
    let slow = [url.as_str(), "--rate", "100", "--for", "2s", "--max-users", "1", "--grace", "1s"];
    for more in [&[][..], &["--strict"]] {
        let (code, result) = folder.result(&[&slow[..], more].concat());
        assert_eq!((code, result["verdict"].as_str()), (4, Some("schedule_missed")));
    }
    let (code, result) = folder.result(&[&slow[..], &["--allow-missing"]].concat());
    assert_eq!((code, result["verdict"].as_str()), (0, Some("passed")));
    assert_eq!((&result["generator"]["saturated"], &result["run"]["allow_missing"]), (&true.into(), &true.into()));
}
