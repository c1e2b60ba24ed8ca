//! The keys of the dashboard on a pseudo terminal, against real runs: they pause, resume and change the
//! load of a local run and of a fleet, and the counts of the target and of the report agree.

use serde_json::Value;
use squall_target::TargetServer;

use crate::{
    pseudo_terminal::PseudoTerminal,
    support::{TestFolder, number, target, wait_until},
    up_down::LocalFleet,
};

const SQUALL: &str = env!("CARGO_BIN_EXE_squall");

/// Pauses the run on `terminal`, resumes it after at least one second without a start, and raises its
/// load by one step.
#[track_caller]
fn pause_resume_and_raise(terminal: &mut PseudoTerminal, (level, raised): (&str, &str)) {
    terminal.press("p");
    terminal.wait_for("PAUSED");
    // The title of the chart has the rate of the last closed second. There must be one before the pause.
    terminal.wait_for("/s 0 (paused)");
    terminal.press("p");
    terminal.wait_for(&format!("resumed at {level}"));
    terminal.wait_for("RUNNING");
    terminal.press("+");
    terminal.wait_for(&format!("{raised} instead of {level}, until the planned end"));
}

/// Checks that the report and the target agree, and that the pause is in the timeline.
#[track_caller]
fn check_result(result: &Value, target: &TargetServer, peak: f64) {
    assert_eq!(number(result, "/accounting/sent"), target.requests() as f64, "{result:#}");
    assert_eq!(result["accounting"]["balanced"], true, "{result:#}");
    assert_eq!(number(result, "/accounting/reported"), target.requests() as f64);
    assert_eq!(number(result, "/totals/dropped"), 0.0);
    assert_eq!(number(result, "/run/load/peak"), peak, "the load that was asked for in the end");
    let timeline = result["timeline"].as_array().expect("seconds");
    let is_pause = |second: &&Value| second["target"] == 0.0 && second["requests"] == 0;
    assert!(timeline.iter().any(|second| is_pause(&second)), "{timeline:#?}");
}

#[test]
fn local_open_load_is_paused_and_raised_and_its_counts_are_exact() {
    let (target, folder) = (target(), TestFolder::new());
    // A busy machine may stall for a second, in which no start may be dropped.
    let load = "--rate 40 --for 4s --max-users 500";
    let run = format!("{SQUALL} run {} {load} --json result.json", target.url("/health"));
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &run);
    wait_until("a whole second of requests", || target.requests() > 60);
    pause_resume_and_raise(&mut terminal, ("40/s", "42/s"));
    let (code, output) = terminal.end();
    assert_eq!(code, 0, "{output}");
    let result = folder.json("result.json");
    check_result(&result, &target, 42.0);
    let measured = number(&result, "/run/measured_s");
    assert!(measured > 4.9, "the pause of at least a second does not shorten the load: {measured}");
    assert_eq!(result["run"]["stop"], "completed");
    assert!(output.contains("up to 42/s for"), "{output}");
}

#[test]
fn local_closed_load_is_paused_and_raised_and_its_counts_are_exact() {
    let (target, folder) = (target(), TestFolder::new());
    let run = format!("{SQUALL} run {} --users 3 --for 4s --json result.json", target.url("/delay/20"));
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &run);
    wait_until("a whole second of requests", || target.requests() > 200);
    pause_resume_and_raise(&mut terminal, ("3 users", "4 users"));
    let (code, output) = terminal.end();
    assert_eq!(code, 0, "{output}");
    check_result(&folder.json("result.json"), &target, 4.0);
}

#[test]
fn limited_run_makes_exactly_its_iterations_across_a_pause() {
    let (target, folder) = (target(), TestFolder::new());
    let run = format!("{SQUALL} run {} --users 2 -n 300 --json result.json", target.url("/delay/20"));
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &run);
    wait_until("a whole second of requests", || target.requests() > 130);
    pause_resume_and_raise(&mut terminal, ("2 users", "3 users"));
    let (code, output) = terminal.end();
    assert_eq!((code, target.requests()), (0, 300), "{output}");
    check_result(&folder.json("result.json"), &target, 3.0);
}

#[test]
fn paused_run_can_be_stopped_and_reports_what_it_sent() {
    let (target, folder) = (target(), TestFolder::new());
    let run = format!("{SQUALL} run {} --rate 40 --for 5m --json result.json", target.url("/health"));
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &run);
    wait_until("a whole second of requests", || target.requests() > 60);
    terminal.press("p");
    terminal.wait_for("/s 0 (paused)");
    terminal.press("-");
    terminal.wait_for("resume it before its load is changed");
    terminal.press("q");
    let (code, output) = terminal.end();
    assert_eq!(code, 130, "{output}");
    check_result(&folder.json("result.json"), &target, 40.0);
    assert_eq!(folder.json("result.json")["run"]["stop"], "interrupted");
}

#[test]
fn run_whose_terminal_is_closed_ends_and_writes_its_result() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    // Under nohup the test's own SIGHUP is ignored, which a child would inherit.
    let squall = format!("env --default-signal=HUP {SQUALL}");
    let run = format!("echo $$ > pid; exec {squall} run {url} --rate 40 --for 5m --json result.json");
    let terminal = PseudoTerminal::run(&folder.command(&[]), &run);
    wait_until("the first requests", || target.requests() > 20);
    let process = std::path::PathBuf::from(format!("/proc/{}", folder.read("pid").trim()));
    assert!(process.exists());
    drop(terminal);
    wait_until("the end of the process", || !process.exists());
    let result = folder.json("result.json");
    assert_eq!(result["run"]["stop"], "interrupted");
    assert_eq!(number(&result, "/accounting/sent"), target.requests() as f64);
}

#[test]
fn pages_and_filter_of_the_dashboard_react_to_keys_at_once() {
    let (target, folder) = (target(), TestFolder::new());
    let task = |i| {
        format!("[[task]]\nname = \"step-{i:02}\"\nget = \"/health\"\nexpect = {{ body_contains = \"step {i}\" }}\n")
    };
    let tasks = (1..=30).map(task);
    let load = "[load]\nrate = 200\nfor = \"5m\"\n";
    folder.write("shop.toml", &format!("target = \"{}\"\n{load}{}", target.url(""), tasks.collect::<String>()));
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &format!("{SQUALL} run shop.toml"));
    terminal.wait_for("of 30");
    terminal.press("?");
    terminal.wait_for("sort the metrics by the next column");
    terminal.press("?/step-3");
    terminal.wait_for("with “step-3”");
    terminal.press("\u{1b}");
    terminal.wait_for("metrics 1–");
    terminal.press("sss\u{1b}[6~");
    terminal.wait_for("by errors ↓");
    terminal.press("e");
    terminal.wait_for("expected the body to contain");
    terminal.press("q");
    assert_eq!(terminal.end().0, 130);
}

#[test]
fn run_on_a_fleet_is_paused_and_raised_by_keys() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.ok(&["up", "--workers", "2", "--listen", &fleet.api.to_string()]);
    let run = format!("{SQUALL} run {} --rate 40 --for 6s --cluster --json result.json", target.url("/health"));
    let mut terminal = PseudoTerminal::run(&fleet.command(&[]), &run);
    wait_until("a whole second of requests", || target.requests() > 60);
    pause_resume_and_raise(&mut terminal, ("40/s", "42/s"));
    let (code, output) = terminal.end();
    assert_eq!(code, 0, "{output}");
    check_result(&fleet.folder.json("result.json"), &target, 42.0);
}

#[test]
fn status_watch_shows_the_dashboard_and_its_keys_change_the_test() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.ok(&["up", "--workers", "2", "--listen", &fleet.api.to_string()]);
    fleet.ok(&["test", "start", &target.url("/health"), "--rate", "40", "--for", "8s"]);
    let mut terminal = PseudoTerminal::run(&fleet.command(&[]), &format!("{SQUALL} test status --watch"));
    terminal.wait_for("RUNNING");
    wait_until("a whole second of requests", || target.requests() > 60);
    pause_resume_and_raise(&mut terminal, ("40/s", "42/s"));
    terminal.press("e");
    terminal.wait_for("no error in");
    terminal.press("q");
    let (code, output) = terminal.end();
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("the test continues; `squall test stop` stops it"), "{output}");

    let terminal = PseudoTerminal::run(&fleet.command(&[]), &format!("{SQUALL} test status --watch"));
    let (code, output) = terminal.end();
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("test 1 is over") && output.contains("verdict: passed"), "{output}");
    let (_, result) = fleet.request("GET", "/api/v1/tests/1", "", "");
    assert_eq!(number(&result, "/accounting/sent"), target.requests() as f64, "{result:#}");
    assert_eq!(number(&result, "/totals/requests"), target.requests() as f64);
}
