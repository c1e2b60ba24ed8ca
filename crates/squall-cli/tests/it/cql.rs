//! `squall cql` against a real Cassandra. Rows are counted by the CQL client of squall-testkit, which
//! shares no code with the program.

use crate::support::{FinishedProcess, RunningProcess, TestFolder};
use squall_testkit::cassandra::Cassandra;
use std::net::TcpListener;

const LOGIN: [&str; 5] = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];

/// The words of a command against a server, in a keyspace of the test's own.
fn words<'w>(command: &[&'w str], port: &'w str, keyspace: &'w str) -> Vec<&'w str> {
    let connection = ["-schema", keyspace, "-node", "127.0.0.1", "-port", port];
    [&["cql"], command, &connection, &LOGIN, &["-log", "no-settings"]].concat()
}

fn cql(command: &[&str], keyspace: &str) -> FinishedProcess {
    let port = format!("native={}", Cassandra::shared().port());
    TestFolder::new().squall(&words(command, &port, &format!("keyspace={keyspace}")))
}

fn count(keyspace: &str, table: &str) -> i64 {
    Cassandra::shared().count(&format!("SELECT COUNT(*) FROM {keyspace}.{table}"))
}

/// The figure of a line of the summary.
#[track_caller]
pub(crate) fn figure<'o>(ended: &'o FinishedProcess, name: &str) -> &'o str {
    let line = ended.stdout.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split(':').nth(1)).map(str::trim).unwrap_or_else(|| panic!("no {name} in {ended:?}"))
}

#[test]
fn write_makes_exactly_n_rows_and_read_validates_them() {
    let written = cql(&["write", "n=1000", "no-warmup", "-rate", "threads=7"], "exact_n");
    assert_eq!(written.code, 0, "{written:?}");
    assert!(written.stdout.contains("Running WRITE with 7 threads for 1000 iteration\n"), "{written:?}");
    assert!(figure(&written, "Total partitions").starts_with("1,000"), "{written:?}");
    assert!(written.stdout.ends_with("\nEND\n"), "{written:?}");
    assert_eq!(count("exact_n", "standard1"), 1000);
    let read =
        cql(&["read", "n=500", "no-warmup", "-pop", "seq=1..1000", "-rate", "threads=4", "processes=2"], "exact_n");
    assert_eq!(read.code, 0, "{read:?}");
    assert!(figure(&read, "Total errors").starts_with('0'), "{read:?}");
}

#[test]
fn a_run_without_a_length_ends_when_its_rate_is_known() {
    let until = ["write", "err<0.9", "n>2", "n<4", "no-warmup", "-rate", "threads=2", "throttle=100/s"];
    let ended = cql(&until, "standard_error");
    assert!(ended.code == 0 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    assert!(ended.stdout.contains("until stderr of mean < 0.9\n"), "{ended:?}");
    let seconds = ended.stdout.lines().filter(|line| line.starts_with("total,")).count();
    assert!((2..=6).contains(&seconds), "{seconds} lines: {ended:?}");
}

#[test]
fn a_row_that_differs_fails_the_read() {
    let written = cql(&["write", "n=5", "no-warmup", "-rate", "threads=1"], "differs");
    assert_eq!(written.code, 0, "{written:?}");
    // The key of seed 1 is 0P37709P21.
    let change = "UPDATE differs.standard1 SET \"C3\" = 0x00 WHERE key = 0x30503337373039503231";
    Cassandra::shared().query(change).expect("the row can be changed");
    let read = cql(&["read", "n=1", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=1"], "differs");
    assert_eq!(read.code, 1, "{read:?}");
    assert!(read.stderr.contains("Operation x0 on key(s) [30503337373039503231]"), "{read:?}");
    assert!(read.stderr.contains("VALIDATION") && read.stderr.contains("C3 has another value"), "{read:?}");
    assert!(read.stdout.ends_with("FAILURE\n") && !read.stdout.contains("Results:"), "{read:?}");
    // Seed 6 was never written.
    let missing =
        cql(&["read", "n=1", "no-warmup", "-pop", "seq=6..6", "-errors", "ignore", "-rate", "threads=1"], "differs");
    let line =
        "READ MISSING_ROW: 1 times: the key has no row (node 127.0.0.1, data centre dc1, consistency LOCAL_ONE)\n";
    assert!(missing.code == 0 && missing.stderr.contains(line), "{missing:?}");
    assert!(figure(&missing, "Total errors").starts_with('1'), "{missing:?}");
}

#[test]
fn counters_add_up() {
    let command = ["counter_write", "n=300", "no-warmup", "add=fixed(2)", "-pop", "seq=1..100", "-rate", "threads=5"];
    let written = cql(&command, "counters");
    assert_eq!(written.code, 0, "{written:?}");
    assert_eq!(count("counters", "counter1"), 100);
    let sum = Cassandra::shared().count("SELECT SUM(\"C0\") FROM counters.counter1");
    assert_eq!(sum, 600);
    let read = cql(&["counter_read", "n=100", "no-warmup", "-pop", "seq=1..100", "-rate", "threads=5"], "counters");
    assert_eq!(read.code, 0, "{read:?}");
}

#[test]
fn every_step_of_threads_runs_and_stands_in_the_last_table() {
    let command = ["write", "n=50", "no-warmup", "truncate=always", "-rate", "threads>=2", "threads<=4"];
    let ended = cql(&command, "steps");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("Improvement over 2 threadCount: "), "{ended:?}");
    for threads in [2, 4] {
        let step =
            format!("\n\nRunning with {threads} threadCount\nRunning WRITE with {threads} threads for 50 iteration\n");
        assert!(ended.stdout.contains(&step), "{ended:?}");
    }
    let table = ended.stdout.split("\n\n").last().unwrap_or_default();
    let labels: Vec<&str> = table.lines().map(|line| line.get(..20).unwrap_or(line)).collect();
    let rows = ["2 threadCount, WRITE", "2 threadCount, total", "4 threadCount, WRITE", "4 threadCount, total"];
    let [improvement, header, labels @ .., end] = labels.as_slice() else { panic!("{ended:?}") };
    assert!(improvement.starts_with("Improvement") && header.starts_with("           id, type"), "{ended:?}");
    assert_eq!((labels, *end), (&rows[..], "END"), "one line for each kind of operation of a whole run");
    assert_eq!(ended.stdout.matches("END").count(), 1, "{ended:?}");
    assert_eq!(count("steps", "standard1"), 50);
}

#[test]
fn a_search_of_threads_ends_at_its_highest_number() {
    let ended = cql(&["write", "n=40", "no-warmup", "-rate", "auto", "threads>=2", "threads<=7"], "searched_threads");
    assert_eq!(ended.code, 0, "{ended:?}");
    let steps: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("Running with ")).collect();
    assert_eq!(steps, ["Running with 2 threadCount", "Running with 4 threadCount"], "8 would be too many");
    assert!(ended.stdout.contains("\n4 threadCount, total, ") && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
}

#[test]
fn a_sequence_that_does_not_wrap_ends_the_run() {
    let ended = cql(&["write", "n=1000", "no-warmup", "-pop", "seq=1..40", "no-wrap", "-rate", "threads=3"], "no_wrap");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(figure(&ended, "Total partitions").starts_with("40 "), "{ended:?}");
    assert_eq!(count("no_wrap", "standard1"), 40);
}

#[test]
fn mixed_runs_at_a_fixed_rate_and_writes_the_hdr_log() {
    let written = cql(&["write", "n=200", "-rate", "threads=5"], "mixed");
    assert!(written.code == 0 && written.stdout.contains("Warming up WRITE with 50 iterations...\n"), "{written:?}");
    let (port, folder) = (format!("native={}", Cassandra::shared().port()), TestFolder::new());
    let command = ["mixed", "n=300", "no-warmup", "-pop", "seq=1..200", "-rate", "threads=8", "fixed=300/s"];
    let mut words = words(&command, &port, "keyspace=mixed");
    words.push("hdrfile=run.hdr");
    let ended = folder.squall(&words);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(figure(&ended, "Total partitions").starts_with("300"), "{ended:?}");
    let log = folder.read("run.hdr");
    for tag in ["READ-st", "READ-rt", "READ-wt", "WRITE-st", "WRITE-rt", "WRITE-wt"] {
        assert!(log.contains(&format!("\nTag={tag},")), "{tag} in {log}");
    }
}

#[test]
fn a_wrong_password_names_the_servers_reason() {
    let port = format!("native={}", Cassandra::shared().port());
    let login = ["-mode", "native", "cql3", "user=cassandra", "password=wrong"];
    let words = [&["cql", "write", "n=1", "-node", "127.0.0.1", "-port", &port][..], &login].concat();
    let ended = TestFolder::new().squall(&words);
    assert_eq!(ended.code, 3, "{ended:?}");
    let reason = "Provided username cassandra and/or password are incorrect";
    assert!(
        ended.stderr.contains("squall: cannot connect to 127.0.0.1:") && ended.stderr.contains(reason),
        "{ended:?}"
    );
}

#[test]
fn a_scenario_without_its_database_has_the_code_of_an_unreachable_target() {
    let scenario = |port: u16, password: &str, statement: &str| {
        let folder = TestFolder::new();
        let login = format!("user = \"cassandra\"\npassword = \"{password}\"");
        let task = format!("[[task]]\nname = \"a\"\nkind = \"cql\"\nstatement = \"{statement}\"");
        let load = "[load]\nusers = 1\nfor = \"1s\"";
        folder.write("cql.toml", &format!("{load}\n[cql]\nport = {port}\n{login}\n{task}\n"));
        folder.squall(&["run", "cql.toml", "--no-tui"])
    };
    let (port, statement) = (Cassandra::shared().port(), "SELECT key FROM system.local");
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let refused = scenario(closed.port(), "cassandra", statement);
    assert!(refused.code == 3 && refused.stderr.contains("cannot connect to 127.0.0.1:"), "{refused:?}");
    let wrong = scenario(port, "wrong", statement);
    assert!(wrong.code == 3 && wrong.stderr.contains("password are incorrect"), "{wrong:?}");
    let statement = scenario(port, "cassandra", "SELECT absent FROM system.local");
    assert!(statement.code == 2 && statement.stderr.contains("cannot prepare"), "{statement:?}");
}

#[test]
fn a_missing_password_is_asked_for() {
    let port = format!("native={}", Cassandra::shared().port());
    let ended = TestFolder::new().squall(&["cql", "write", "n=1", "-node", "127.0.0.1", "-port", &port]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("wants a password: add -mode native cql3 user=NAME password=WORD"), "{ended:?}");
}

#[test]
fn a_table_that_does_not_exist_is_an_error_with_a_hint() {
    let ended = cql(&["read", "n=1", "-rate", "threads=1"], "no_such_keyspace");
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("cannot prepare READ:") && ended.stderr.contains("run write"), "{ended:?}");
}

#[test]
fn a_table_with_other_columns_is_an_error_with_a_hint() {
    let narrow = cql(&["write", "n=1", "no-warmup", "-rate", "threads=1"], "other_columns");
    assert_eq!(narrow.code, 0, "{narrow:?}");
    for command in ["write", "read"] {
        let wide = cql(&[command, "n=1", "no-warmup", "-rate", "threads=1", "-col", "n=fixed(6)"], "other_columns");
        let hint = "; give the columns of the table in -col, or another -schema keyspace=";
        assert!(wide.code == 2 && wide.stderr.contains("\"C5\"") && wide.stderr.contains(hint), "{wide:?}");
        assert!(!wide.stderr.contains("run write"), "{wide:?}");
    }
}

#[test]
fn a_silent_listener_is_an_error_within_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = format!("native={}", listener.local_addr().expect("bound").port());
    let mode = ["-mode", "native", "cql3", "connectTimeout=200"];
    let words = [&["cql", "write", "n=1", "-node", "127.0.0.1", "-port", &port][..], &mode].concat();
    let ended = TestFolder::new().squall(&words);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("did not answer within 0.2 s: check -node and -port native="), "{ended:?}");
}

#[test]
fn an_interrupt_drains_and_prints_the_summary() {
    let port = format!("native={}", Cassandra::shared().port());
    let command = ["write", "duration=1h", "no-warmup", "-rate", "threads=4", "throttle=100/s"];
    let (folder, words) = (TestFolder::new(), words(&command, &port, "keyspace=interrupted"));
    let mut running = folder.start(&words);
    wait_for_table_line(&mut running);
    running.interrupt();
    let ended = running.end();
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.stdout.ends_with("\nEND\n"), "{ended:?}");
    let written: i64 =
        figure(&ended, "Total partitions").split(' ').next().and_then(|n| n.parse().ok()).expect("a count");
    assert_eq!(count("interrupted", "standard1"), written);
}

/// Reads standard output up to the first line of the table.
pub(crate) fn wait_for_table_line(running: &mut RunningProcess) {
    use std::io::Read;
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.contains("\ntotal,") {
        assert_eq!(running.stdout().read(&mut byte).expect("readable"), 1, "it ended early: {text}");
        text.push(char::from(byte[0]));
    }
}

#[test]
fn help_version_and_print_need_no_database() {
    let folder = TestFolder::new();
    let help = folder.squall(&["cql", "help", "-rate"]);
    assert!(help.code == 0 && help.stdout.contains("throttle="), "{help:?}");
    let version = folder.squall(&["cql", "version"]);
    assert!(version.code == 0 && version.stdout.starts_with("Version: squall 0."), "{version:?}");
    let print = folder.squall(&["cql", "print", "dist=uniform(1..100)"]);
    assert!(print.code == 0 && print.stdout.starts_with("% of samples    Range       % of total"), "{print:?}");
    let empty = folder.squall(&["cql"]);
    assert!(
        empty.code == 2 && empty.stderr.starts_with("squall: there is not a command: begin with write,"),
        "{empty:?}"
    );
    let wrong = folder.squall(&["cql", "wirte", "n=1"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("did you mean write?"), "{wrong:?}");
}
