//! Servers that misbehave: each failure is counted under its own outcome with its latency, and the
//! run continues to its end.

use crate::support::{TestFolder, number};
use serde_json::Value;
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

/// Sends ten requests to a scripted server and returns the outcomes by code.
#[track_caller]
fn outcomes(script: Vec<ServerStep>, extra: &[&str]) -> Value {
    let (server, folder) = (ScriptedServer::start(script), TestFolder::new());
    let (_, result) = folder.result(&[&[&server.url("/"), "--users", "2", "--requests", "10"], extra].concat());
    assert_eq!(number(&result, "/totals/requests"), 10.0, "the run went on to its end");
    assert_eq!(number(&result, "/accounting/sent"), number(&result, "/accounting/reported"));
    assert!(number(&result, "/latency_ms/response/max") > 0.0, "errors have a latency");
    result
}

#[track_caller]
fn check(script: Vec<ServerStep>, extra: &[&str], category: &str) {
    let result = outcomes(script, extra);
    let text = result["outcomes"].to_string();
    assert_eq!(number(&result, "/totals/errors"), 10.0, "{text}");
    assert!(text.contains(category), "{category} is missing in {text}");
}

#[test]
fn each_kind_of_failure_has_its_own_outcome() {
    let head = || ServerStep::send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    std::thread::scope(|scope| {
        scope.spawn(|| check(vec![ServerStep::Read, ServerStep::Reset], &[], "transport_error"));
        scope.spawn(|| check(vec![ServerStep::Read, head(), ServerStep::Reset], &[], "transport_error"));
        scope.spawn(|| {
            check(vec![ServerStep::Read, ServerStep::send("HELLO\r\n\r\n"), ServerStep::Close], &[], "protocol_error")
        });
        let endless = || {
            vec![
                ServerStep::Read,
                ServerStep::send("HTTP/1.1 200 OK\r\n"),
                ServerStep::SendForever(b"X-More: x\r\n".to_vec()),
            ]
        };
        scope.spawn(move || check(endless(), &[], "protocol_error"));
        scope.spawn(|| check(vec![ServerStep::Read, head(), ServerStep::Hang], &["--timeout", "200ms"], "timeout"));
        scope.spawn(|| {
            check(
                vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Restart],
                &["--expect-body", "y"],
                "check_failed",
            )
        });
    });
}

#[test]
fn closed_connections_are_opened_again() {
    let goodbye = ServerStep::send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    let announced = outcomes(vec![ServerStep::Read, goodbye, ServerStep::Close], &[]);
    assert_eq!(number(&announced, "/totals/errors"), 0.0, "{}", announced["outcomes"]);

    // If the server closes without notice, the next request may be on its way; it fails and is
    // counted.
    let silent = outcomes(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Close], &[]);
    for outcome in silent["outcomes"].as_array().unwrap() {
        let code = outcome["code"].as_str().unwrap();
        assert!(["HTTP_200", "CLOSED", "RESET"].contains(&code), "{outcome}");
    }
}

#[test]
fn unknown_host_and_tls_failure_are_outcomes() {
    let plain = ScriptedServer::start(vec![ServerStep::respond("I speak no TLS"), ServerStep::Hang]);
    // A label of 64 bytes is invalid, so the resolver refuses the name without asking a server.
    let nowhere = format!("http://{}.invalid/", "x".repeat(64));
    for (url, expected) in [(nowhere, "DNS_FAILURE"), (plain.url("/").replace("http://", "https://"), "TLS_FAILURE")] {
        let folder = TestFolder::new();
        let (code, result) = folder.result(&[&url, "--users", "1", "--requests", "3"]);
        assert_eq!(code, 3, "{result:#}");
        assert_eq!(
            result["outcomes"],
            serde_json::json!([
                {"category": "transport_error", "code": expected, "count": 3}
            ])
        );
        assert!(number(&result, "/latency_ms/service/min") > 0.0, "each has its latency");
        assert_eq!(number(&result, "/accounting/reported"), 3.0, "the run went on to its end");
    }
}

#[test]
fn requests_without_a_file_descriptor_are_counted_and_the_run_ends() {
    let (target, folder) = (crate::support::target(), TestFolder::new());
    let run = format!(
        "ulimit -n 64; exec {} run {} --users 80 --for 1s --quiet --json result.json",
        env!("CARGO_BIN_EXE_squall"),
        target.url("/delay/50")
    );
    let status = std::process::Command::new("sh").args(["-c", &run]).current_dir(folder.path("")).status();
    assert_eq!(status.expect("a shell").code(), Some(0));
    let result = folder.json("result.json");
    let starved = result["outcomes"].as_array().unwrap().iter().find(|outcome| outcome["code"] == "LOCAL_LIMIT");
    let starved = number(starved.unwrap_or_else(|| panic!("{}", result["outcomes"])), "/count");
    assert_eq!(number(&result, "/totals/errors"), starved, "{}", result["outcomes"]);
    // The report counts them as unsent.
    assert_eq!(number(&result, "/accounting/unsent"), starved);
    assert_eq!(number(&result, "/accounting/sent"), target.requests() as f64);
    assert_eq!(result["accounting"]["balanced"], true);
    let because = result["generator"]["saturated_because"].to_string();
    assert!(because.contains("ulimit -n"), "{because}");
    // A user without a file descriptor waits 0.1 s before its next attempt.
    assert!(starved <= 80.0 * 11.0, "{starved} attempts in a second are spinning");
}
