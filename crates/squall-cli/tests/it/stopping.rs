//! Ctrl-C, SIGTERM, and twice.

use crate::support::{Desk, number, target, wait_until};

#[test]
fn one_ctrl_c_drains_and_reports_exactly() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/delay/1200");
    let mut running = desk.start(&["run", &url, "--users", "6", "--for", "5m", "--json", "result.json"]);
    wait_until("all users to be under way", || target.requests() >= 6);
    running.interrupt();
    let line = running.wait_for_line("draining");
    assert_eq!(line, "draining: 6 in flight, press Ctrl-C again to abort\n");
    let ended = running.end();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let result = desk.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), target.requests() as f64);
    assert_eq!(number(&result, "/totals/errors"), 0.0, "what was under way was finished");
    assert_eq!(number(&result, "/accounting/sent"), number(&result, "/accounting/reported"));
    assert_eq!(result["verdict"], "interrupted");
}

#[test]
fn two_ctrl_c_abort_and_still_report() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/delay/60000");
    let run = ["run", &url, "--users", "3", "--for", "5m", "--timeout", "2m", "--grace", "5m", "--json", "result.json"];
    let mut running = desk.start(&run);
    wait_until("all users to be under way", || target.requests() >= 3);
    running.interrupt();
    running.wait_for_line("draining");
    running.interrupt();
    let ended = running.end();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let result = desk.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), 3.0);
    assert_eq!(number(&result, "/totals/errors"), 3.0, "what was cut off is counted as an error");
    assert!(result.to_string().contains("ABORTED"), "{result:#}");
}

#[test]
fn sigterm_is_a_ctrl_c() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let run = ["run", &url, "--rate", "20", "--for", "5m", "--json", "result.json", "--save-baseline=base.json"];
    let running = desk.start(&run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.terminate();
    assert_eq!(running.end().code, 130);
    assert!(!desk.path("base.json").exists(), "half a run is no baseline");
    assert_eq!(number(&desk.json("result.json"), "/totals/requests"), target.requests() as f64);
}

#[test]
fn a_search_can_be_stopped() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let running = desk.start(&["run", &url, "--find-max", "p99<10s", "--find-max-probe", "1m"]);
    wait_until("the first probe", || target.requests() >= 3);
    running.interrupt();
    let ended = running.end();
    assert_eq!(ended.code, 130);
    assert!(ended.stdout.contains("interrupted"), "{}", ended.stdout);
}
