//! Ctrl-C, SIGTERM, and twice.

use crate::support::{Desk, Running, number, target, wait_until};
use std::process::{Command, Stdio};

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

/// A pipe that is full, with the end that nobody reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be asked not to block");
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe can be asked to block");
    (reader, writer)
}

/// Whoever should read standard error does not: the run drains, its result is written, the process ends.
#[test]
fn a_run_whose_words_nobody_reads_is_stopped_all_the_same() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let (_unread, errors) = full_pipe();
    let run = ["run", &url, "--rate", "50", "--for", "5m", "--no-tui", "--json", "result.json"];
    let running = Running::of(desk.command(&run).stderr(errors).spawn().expect("the program starts"));
    wait_until("more than two lines' time", || target.requests() >= 150);
    running.interrupt();
    assert_eq!(running.code(), 130);
    assert_eq!(number(&desk.json("result.json"), "/totals/requests"), target.requests() as f64);
}

/// The same of standard output: files are written, and a person who does not want to wait for the reader is let go.
#[test]
fn lines_that_nobody_reads_keep_no_file_from_being_written() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let (_unread, lines) = full_pipe();
    let run = ["run", &url, "--rate", "50", "--for", "3s", "-q", "--json-lines", "-", "--json", "result.json"];
    let running = Running::of(desk.command(&run).stdout(lines).spawn().expect("the program starts"));
    wait_until("the result", || desk.path("result.json").exists());
    running.interrupt();
    // At once; or, if the press came between the file and the waiting, when its patience is over and the lines are given up.
    let code = running.code();
    assert!([130, 2].contains(&code), "{code}");
    assert_eq!(number(&desk.json("result.json"), "/totals/requests"), target.requests() as f64);
    assert_eq!(desk.json("result.json")["verdict"], "passed");
}

#[test]
fn a_session_that_is_closed_is_a_ctrl_c() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let run = desk.command(&["run", &url, "--rate", "20", "--for", "5m", "-q", "--json", "result.json"]);
    let running = hearing_hup("default", &run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.signal(rustix::process::Signal::HUP);
    assert_eq!(running.end().code, 130);
    assert_eq!(number(&desk.json("result.json"), "/totals/requests"), target.requests() as f64);
}

#[test]
fn a_run_under_nohup_outlives_its_session() {
    let (target, desk) = (target(), Desk::new());
    let url = target.url("/health");
    let run = desk.command(&["run", &url, "--rate", "20", "--requests", "20", "-q"]);
    let running = hearing_hup("ignore", &run);
    wait_until("the run to be under way", || target.requests() >= 3);
    running.signal(rustix::process::Signal::HUP);
    assert_eq!(running.end().code, 0);
    assert_eq!(target.requests(), 20);
}

/// Starts a program with SIGHUP as a shell (`default`) or `nohup` (`ignore`) has it, whatever these tests were started with.
fn hearing_hup(how: &str, program: &Command) -> Running {
    let mut env = Command::new("env");
    env.arg(format!("--{how}-signal=HUP")).arg(program.get_program()).args(program.get_args());
    env.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    env.current_dir(program.get_current_dir().expect("a desk"));
    env.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::of(env.spawn().expect("the program starts"))
}
