//! What `squall cql` does when the database fails in the middle of a run: a table is dropped, the
//! server freezes, is killed, and comes back.

use crate::support::{RunningProcess, TestFolder};
use squall_testkit::cassandra::Cassandra;
use std::io::Read;

const MODE: [&str; 6] = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra", "requestTimeout=5000"];

fn start(folder: &TestFolder, port: u16, keyspace: &str, errors: &[&str]) -> RunningProcess {
    let (port, schema) = (format!("native={port}"), format!("keyspace={keyspace}"));
    let command = ["cql", "write", "duration=1h", "no-warmup", "-rate", "threads=4", "throttle=200/s"];
    let connection = ["-schema", &schema, "-node", "127.0.0.1", "-port", &port, "-log", "no-settings"];
    folder.start(&[&command[..], &connection, &MODE, errors].concat())
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Interval {
    operations: u64,
    /// Seconds since the start of the run.
    time: f64,
    pub(crate) errors: u64,
}

/// Reads the next line of the table for all operations.
pub(crate) fn next_interval(running: &mut RunningProcess) -> Interval {
    loop {
        let (mut line, mut byte) = (String::new(), [0]);
        while !line.ends_with('\n') {
            assert_eq!(running.stdout().read(&mut byte).expect("readable"), 1, "it ended early: {line}");
            line.push(char::from(byte[0]));
        }
        if line.starts_with("total,") {
            let column = |number| line.split(',').nth(number).map(str::trim).unwrap_or_default();
            let count = |number| column(number).parse().unwrap_or_else(|_| panic!("{line}"));
            let time = column(11).parse().unwrap_or_else(|_| panic!("{line}"));
            return Interval { operations: count(2), time, errors: count(13) };
        }
    }
}

/// Reads the table up to a line that fulfils the condition.
fn wait_for(running: &mut RunningProcess, mut reached: impl FnMut(u64, u64) -> bool) {
    let mut since = None;
    loop {
        let interval = next_interval(running);
        // A line of a busy machine can stand for more than a second.
        let seconds = since.map_or(interval.time, |since| interval.time - since).max(1.0);
        // Four threads that wait 100 ms after a failure, and requests that were on their way.
        assert!(interval.errors as f64 <= 60.0 * seconds, "{interval:?} after {since:?} s");
        if reached(interval.operations, interval.errors) {
            return;
        }
        since = Some(interval.time);
    }
}

#[test]
fn a_frozen_a_killed_and_a_restarted_server_is_survived() {
    let mut server = Cassandra::start();
    let folder = TestFolder::new();
    let mut running = start(&folder, server.port(), "killed", &["-errors", "ignore", "retries=0"]);
    wait_for(&mut running, |_, errors| errors == 0);
    server.freeze();
    wait_for(&mut running, |_, errors| errors > 0);
    server.thaw();
    wait_for(&mut running, |operations, errors| operations > 0 && errors == 0);
    server.kill();
    wait_for(&mut running, |_, errors| errors > 0);
    server.restart();
    wait_for(&mut running, |operations, errors| operations > 0 && errors == 0);
    running.interrupt();
    let ended = running.end();
    assert!(ended.code == 130 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    for code in ["WRITE CLIENT_TIMEOUT: ", "WRITE NO_CONNECTION: "] {
        let mut lines = ended.stderr.lines().filter(|line| line.starts_with(code)).peekable();
        assert!(lines.peek().is_some(), "{code} in {ended:?}");
        assert!(
            lines.all(|line| line.ends_with("(node 127.0.0.1, data centre dc1, consistency LOCAL_ONE)")),
            "{code} in {ended:?}"
        );
    }
    // A request that timed out took its whole time.
    let max = ended.stdout.lines().find(|line| line.starts_with("Latency max")).expect("a summary");
    let max: f64 =
        max.split([':', 'm']).nth(2).and_then(|ms| ms.trim().parse().ok()).unwrap_or_else(|| panic!("{max}"));
    assert!(max >= 5000.0, "{max} ms");

    let mut running = start(&folder, server.port(), "killed", &["-errors", "retries=2"]);
    wait_for(&mut running, |_, errors| errors == 0);
    server.kill();
    let ended = running.end();
    assert!(ended.code == 1 && ended.stdout.ends_with("FAILURE\n"), "{ended:?}");
    assert!(ended.stderr.contains("Operation x3 on key(s) ["), "{ended:?}");
    // A driver that had no time to notice the end of the server still finds a connection, which is broken.
    assert!(["NO_CONNECTION", "CONNECTION_BROKEN"].iter().any(|code| ended.stderr.contains(code)), "{ended:?}");
}

#[test]
fn a_table_that_is_dropped_during_the_run_fails_it() {
    let server = Cassandra::shared();
    let folder = TestFolder::new();
    let mut running = start(&folder, server.port(), "dropped", &["-errors", "retries=1"]);
    wait_for(&mut running, |operations, _| operations > 0);
    server.query("DROP TABLE dropped.standard1").expect("the table can be dropped");
    let ended = running.end();
    assert!(ended.code == 1 && ended.stdout.ends_with("FAILURE\n"), "{ended:?}");
    // Which error the server reports depends on how far the drop has come.
    assert!(ended.stderr.contains("Operation x2 on key(s) ["), "{ended:?}");
    let is_named = ended.stderr.contains("data centre dc1, consistency LOCAL_ONE)");
    assert!(ended.stderr.starts_with("WRITE ") && is_named, "{ended:?}");
}
