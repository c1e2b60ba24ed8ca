//! Stopping a run by Ctrl-C, SIGTERM and SIGHUP, once and twice.

use crate::support::{RunningProcess, TestFolder, number, target, wait_until};
use serde_json::json;
use std::process::{Command, Stdio};

#[test]
fn first_ctrl_c_drains_and_the_report_is_exact() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/delay/1200");
    let mut running = folder.start(&["run", &url, "--users", "6", "--for", "5m", "--json", "result.json"]);
    wait_until("all users to be under way", || target.requests() >= 6);
    running.interrupt();
    let line = running.wait_for_line("draining");
    assert_eq!(line, "draining: 6 in flight, press Ctrl-C again to abort\n");
    let ended = running.end();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let result = folder.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), target.requests() as f64);
    assert_eq!(number(&result, "/totals/errors"), 0.0, "what was under way was finished");
    assert_eq!(number(&result, "/accounting/sent"), number(&result, "/accounting/reported"));
    assert_eq!(result["verdict"], "interrupted");
}

#[test]
fn second_ctrl_c_aborts_and_the_run_still_reports() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/delay/60000");
    let run = ["run", &url, "--users", "3", "--for", "5m", "--timeout", "2m", "--grace", "5m", "--json", "result.json"];
    let mut running = folder.start(&run);
    wait_until("all users to be under way", || target.requests() >= 3);
    running.interrupt();
    running.wait_for_line("draining");
    running.interrupt();
    let ended = running.end();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    let result = folder.json("result.json");
    assert_eq!(number(&result, "/totals/requests"), 3.0);
    assert_eq!(number(&result, "/totals/errors"), 3.0, "what was cut off is counted as an error");
    assert!(result.to_string().contains("ABORTED"), "{result:#}");
}

#[test]
fn sigterm_drains_like_ctrl_c() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let run = ["run", &url, "--rate", "20", "--for", "5m", "--json", "result.json", "--save-baseline=base.json"];
    let running = folder.start(&run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.terminate();
    assert_eq!(running.end().code, 130);
    assert!(!folder.path("base.json").exists(), "half a run is no baseline");
    assert_eq!(number(&folder.json("result.json"), "/totals/requests"), target.requests() as f64);
}

/// LoadPilot's command line ends its engine by SIGTERM and expects success.
#[test]
fn sigterm_of_a_loadpilot_plan_has_exit_code_0_in_process_result_and_summary() {
    let (target, folder) = (target(), TestFolder::new());
    let plan = json!({
        "name": "shop", "target_url": target.url(""), "rps": 20, "duration_secs": 300, "ramp_up_secs": 0,
        "mode": "constant", "steps": 5,
        "tasks": [{"name": "look", "weight": 1, "url": "/health", "method": "GET", "headers": {}, "body_template": null}],
        "data_pool": [], "n_vusers": 5, "vuser_configs": [], "thresholds": {},
    });
    folder.write("plan.json", &plan.to_string());
    let running = folder.start(&["run", "--plan", "plan.json", "--json", "result.json"]);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.terminate();
    let ended = running.end();
    let result = folder.json("result.json");
    assert_eq!((ended.code, &result["exit_code"]), (0, &0.into()), "{}", ended.stderr);
    assert_eq!(result["verdict"], "interrupted");
    let summary = ended.stdout + &ended.stderr;
    assert!(summary.contains("Interrupted after") && !summary.contains("exit code"), "{summary}");
}

#[test]
fn ctrl_c_stops_a_search() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let running = folder.start(&["run", &url, "--find-max", "p99<10s", "--find-max-probe", "1m"]);
    wait_until("the first probe", || target.requests() >= 3);
    running.interrupt();
    let ended = running.end();
    assert_eq!(ended.code, 130);
    assert!(ended.stdout.contains("interrupted"), "{}", ended.stdout);
}

/// A full pipe with its unread end.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be asked not to block");
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe can be asked to block");
    (reader, writer)
}

/// The run drains, writes its result and ends.
#[test]
fn run_with_unread_stderr_can_be_stopped() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let (_unread, errors) = full_pipe();
    let run = ["run", &url, "--rate", "50", "--for", "5m", "--no-tui", "--json", "result.json"];
    let running = RunningProcess::from_child(folder.command(&run).stderr(errors).spawn().expect("the program starts"));
    wait_until("more than two lines' time", || target.requests() >= 150);
    running.interrupt();
    assert_eq!(running.code(), 130);
    assert_eq!(number(&folder.json("result.json"), "/totals/requests"), target.requests() as f64);
}

/// The files are written, and a press of Ctrl-C ends the wait for the reader.
#[test]
fn unread_stdout_does_not_prevent_the_output_files() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let (_unread, lines) = full_pipe();
    let run = ["run", &url, "--rate", "50", "--for", "3s", "-q", "--json-lines", "-", "--json", "result.json"];
    let running = RunningProcess::from_child(folder.command(&run).stdout(lines).spawn().expect("the program starts"));
    wait_until("the result", || folder.path("result.json").exists());
    running.interrupt();
    // At once; or, if the press came between the write of the file and the wait, after the flush
    // timeout.
    let code = running.code();
    assert!([130, 2].contains(&code), "{code}");
    assert_eq!(number(&folder.json("result.json"), "/totals/requests"), target.requests() as f64);
    assert_eq!(folder.json("result.json")["verdict"], "passed");
}

#[test]
fn sighup_drains_like_ctrl_c() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let run = folder.command(&["run", &url, "--rate", "20", "--for", "5m", "-q", "--json", "result.json"]);
    let running = start_with_sighup("default", &run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.signal(rustix::process::Signal::HUP);
    assert_eq!(running.end().code, 130);
    assert_eq!(number(&folder.json("result.json"), "/totals/requests"), target.requests() as f64);
}

#[test]
fn run_under_nohup_ignores_sighup() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let run = folder.command(&["run", &url, "--rate", "20", "--requests", "20", "-q"]);
    let running = start_with_sighup("ignore", &run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.signal(rustix::process::Signal::HUP);
    assert_eq!(running.end().code, 0);
    assert_eq!(target.requests(), 20);
}

/// Starts a program with the SIGHUP disposition of a shell (`default`) or of `nohup` (`ignore`).
fn start_with_sighup(how: &str, program: &Command) -> RunningProcess {
    let mut env = Command::new("env");
    env.arg(format!("--{how}-signal=HUP")).arg(program.get_program()).args(program.get_args());
    env.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    env.current_dir(program.get_current_dir().expect("a folder"));
    env.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    RunningProcess::from_child(env.spawn().expect("the program starts"))
}

#[test]
fn pipe_without_a_reader_blocks_neither_the_start_nor_the_signals() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    for flag in ["--json", "--json-lines"] {
        let pipe = folder.path(&format!("pipe{flag}"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        let before = target.requests();
        let run =
            folder.start(&["run", &url, "--rate", "50", "--for", "5m", "-q", flag, pipe.to_str().expect("UTF-8")]);
        wait_until("requests", || target.requests() > before + 5);
        run.interrupt();
        // The report waits for a reader, and further signals end the wait.
        let run = std::cell::RefCell::new(run);
        wait_until("the end", || {
            run.borrow().interrupt_if_running();
            run.borrow_mut().has_ended()
        });
    }
}

#[test]
fn stopped_run_prints_its_summary_and_gives_up_a_pipe_without_a_reader() {
    let (target, folder) = (target(), TestFolder::new());
    let made = Command::new("mkfifo").arg(folder.path("unread")).status().expect("mkfifo");
    assert!(made.success());
    let url = target.url("/health");
    let mut run = folder.start(&["run", &url, "--rate", "50", "--for", "5m", "--json", "unread", "--html", "r.html"]);
    wait_until("requests", || target.requests() > 5);
    run.terminate();
    run.wait_for_line("waiting up to 5 s for a reader of unread");
    let run = std::cell::RefCell::new(run);
    wait_until("the end after one signal", || run.borrow_mut().has_ended());
    let ended = run.into_inner().end();
    assert_eq!(ended.code, 130, "{}", ended.stderr);
    assert!(ended.stdout.contains("Interrupted after"), "no summary: {}", ended.stdout);
    assert!(ended.stderr.contains("cannot write unread: its reader does not read"), "{}", ended.stderr);
    assert!(folder.path("r.html").exists());
}
