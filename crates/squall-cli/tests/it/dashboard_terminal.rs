//! The dashboard and other terminal output on a pseudo terminal, made by `script` of util-linux.

use crate::support::{TestFolder, target, wait_until};
use std::{
    fs::Permissions,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

#[test]
fn dashboard_restores_the_terminal_at_the_end() {
    let target = target();
    let squall = env!("CARGO_BIN_EXE_squall");
    let run = format!("stty cols 120 rows 40; {squall} run {} --rate 30 --for 5m", target.url("/health"));
    let mut child = Command::new("script")
        .args(["-qec", &run, "/dev/null"])
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is part of every Debian");
    wait_until("more than a second of requests", || target.requests() > 40);
    child.stdin.as_mut().expect("a pipe").write_all(b"q").expect("it reads keys");
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{output}");
    let (entered, left) = (output.find("\u{1b}[?1049h"), output.find("\u{1b}[?1049l"));
    assert!(entered.is_some() && left > entered, "alternate screen, there and back");
    assert!(output.contains("starts/s") && output.contains("\u{1b}[?25h"), "drawn, and the cursor is back");
    let summary = &output[left.expect("checked above")..];
    assert!(summary.contains("Interrupted") && summary.contains("accounting"), "{summary}");
}

#[test]
fn terminal_that_is_too_small_for_the_dashboard_is_explained() {
    let target = target();
    let run = |size: &str| {
        let squall = env!("CARGO_BIN_EXE_squall");
        let line = format!("stty {size}; {squall} run {} -n 3 --users 1", target.url("/health"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::null());
        String::from_utf8(script.output().expect("script is part of every Debian").stdout).expect("UTF-8")
    };
    let output = run("cols 50 rows 40");
    assert!(output.contains("the terminal has 50x40 characters, the dashboard needs 60x16"), "{output}");
    let output = run("cols 60 rows 16");
    assert!(!output.contains("the dashboard needs") && output.contains("\u{1b}[?1049h"), "{output}");
}

#[test]
fn no_color_removes_colours_from_the_dashboard() {
    let target = target();
    let run = format!(
        "stty cols 120 rows 40; {} run {} -n 30 --users 2",
        env!("CARGO_BIN_EXE_squall"),
        target.url("/health")
    );
    let on_a_terminal = |no_color: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", no_color).stdin(Stdio::null());
        let output = command.output().expect("script is part of every Debian").stdout;
        let output = String::from_utf8(output).expect("UTF-8");
        assert!(output.contains("accounting"), "{output}");
        // Select Graphic Rendition with a colour: 30 to 37, 38;…, 90 to 97, and those for
        // backgrounds.
        output.split("\u{1b}[").skip(1).any(|rest| {
            let codes = rest.split_once(|letter: char| letter.is_ascii_alphabetic() && letter != ';');
            let is_sgr = codes.is_some_and(|(codes, _)| rest[codes.len()..].starts_with('m'));
            let codes = codes.map_or("", |(codes, _)| codes).split(';').filter_map(|code| code.parse::<u8>().ok());
            is_sgr
                && codes.into_iter().any(|code| (30..=48).contains(&code) && code != 39 || (90..=107).contains(&code))
        })
    };
    assert!(on_a_terminal(""), "an empty NO_COLOR is none");
    assert!(!on_a_terminal("1"));
}

#[test]
fn dashboard_shows_that_a_run_waits_for_workers() {
    let redis = squall_testkit::redis::RedisServer::start();
    let run = format!(
        "stty cols 120 rows 40; {} run http://127.0.0.1:9/ --rate 1 --for 1s --cluster {}",
        env!("CARGO_BIN_EXE_squall"),
        redis.url()
    );
    let mut command = Command::new("script");
    command.args(["-qec", &run, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
    let output = String::from_utf8(command.output().expect("script is part of every Debian").stdout).expect("UTF-8");
    let screen = output.split("\u{1b}[?1049l").next().expect("a first part");
    assert!(screen.contains("\u{1b}[?1049h") && screen.contains("waiting") && screen.contains("alive;"), "{output}");
}

#[test]
fn terminal_without_a_size_has_the_default_width() {
    let target = target();
    let run =
        format!("stty cols 0 rows 0; {} run {} -n 2 --users 1", env!("CARGO_BIN_EXE_squall"), target.url("/health"));
    let mut command = Command::new("script");
    command.args(["-qec", &run, "/dev/null"]).env("TERM", "xterm").env("NO_COLOR", "1").stdin(Stdio::null());
    let output = String::from_utf8(command.output().expect("script is part of every Debian").stdout).expect("UTF-8");
    assert!(output.contains("sent = recorded = reported 2"), "{output}");
}

#[test]
fn q_ends_a_search_and_the_terminal_is_restored() {
    let target = target();
    let squall = env!("CARGO_BIN_EXE_squall");
    let search = format!(
        "stty cols 120 rows 40; {squall} run {} --find-max 'p99<1h' --rate 30 --find-max-probe 5m; echo code $?; stty -a",
        target.url("/health")
    );
    let mut child = Command::new("script")
        .args(["-qec", &search, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is part of every Debian");
    wait_until("the first requests", || target.requests() > 5);
    child.stdin.as_mut().expect("a pipe").write_all(b"q").expect("it reads keys");
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("UTF-8");
    child.wait().expect("it ends");
    assert!(output.contains("q stops") && output.contains("interrupted; so far: nothing is known yet"), "{output}");
    assert!(output.contains("code 130"), "{output}");
    assert!(output.contains(" icanon ") && output.contains(" echo "), "{output}");
}

#[test]
fn run_without_a_terminal_does_not_ask_for_its_size() {
    let (target, folder) = (target(), TestFolder::new());
    folder.write("tput", "#!/bin/sh\ntouch asked\necho 80\n");
    std::fs::set_permissions(folder.path("tput"), Permissions::from_mode(0o755)).expect("it is ours");
    let arguments = ["run", &target.url("/health"), "--rate", "20", "--requests", "5"];
    let path = format!("{}:/usr/bin:/bin", folder.path("").display());
    let output = folder.command(&arguments).env("PATH", path).output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    assert!(!folder.path("asked").exists(), "a program called tput was run");
}
