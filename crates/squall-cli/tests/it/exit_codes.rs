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
fn error_rate_without_a_percent_sign_is_explained() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let run =
        |threshold: &str| folder.squall(&["run", &url, "--requests", "3", "--rate", "50", "-t", threshold]).stderr;
    for (threshold, read) in [("error_rate<1", "error_rate<100%"), ("error_rate < 0.01", "error_rate<1%")] {
        let note = format!("note: threshold {threshold} is read as {read}");
        assert!(run(threshold).contains(&note), "{}", run(threshold));
    }
    for clear in ["error_rate<1%", "error_rate<=0", "errors<1"] {
        assert!(!run(clear).contains("note:"), "{clear}");
    }
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
fn run_whose_users_log_in_too_late_names_start_users_and_passes_with_it() {
    let (target, folder) = (target(), TestFolder::new());
    folder.write(
        "slow.toml",
        &format!(
            r#"target = "{}"
               load = {{ rate = "60/s", for = "2s" }}
               on_start = [{{ method = "POST", url = "/auth/login", json = {{ username = "ann", password = "pw" }} }}]
               task = [{{ name = "look", method = "GET", url = "/delay/900" }}]"#,
            target.url("")
        ),
    );
    let slow = ["run", "slow.toml", "--quiet", "--grace", "1s"];
    let ended = folder.squall(&slow);
    assert_eq!(ended.code, 4, "{ended:?}");
    let [verdict, reason] = ended.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{ended:?}") };
    assert!(verdict.contains("raise --start-users") && reason.contains("raise --start-users"), "{ended:?}");
    let ended = folder.squall(&[&slow[..], &["--start-users", "60"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
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
    let ended = folder.squall(&[&["run", "--quiet"], &slow[..]].concat());
    assert_eq!(ended.code, 4);
    let remedies =
        "because no user was free: raise --max-users or lower the rate; --allow-missing lets such a run pass";
    assert!(ended.stderr.contains(remedies), "{ended:?}");
    let (code, result) = folder.result(&[&slow[..], &["--allow-missing"]].concat());
    assert_eq!((code, result["verdict"].as_str()), (0, Some("passed")));
    assert_eq!((&result["generator"]["saturated"], &result["run"]["allow_missing"]), (&true.into(), &true.into()));
}
