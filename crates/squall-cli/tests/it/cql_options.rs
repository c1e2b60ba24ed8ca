//! The connection options of `squall cql` against a real Cassandra: statements as text, compression,
//! data centres, consistency levels.

use crate::{
    cql::wait_for_table_line,
    support::{FinishedProcess, TestFolder},
};
use squall_testkit::cassandra::Cassandra;
use std::time::{Duration, Instant};

const MODE: [&str; 5] = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra"];

/// The words of a command; `mode` are further words of `-mode`.
fn words(command: &[&str], keyspace: &str, mode: &[&str]) -> Vec<String> {
    let (schema, port) = (format!("keyspace={keyspace}"), format!("native={}", Cassandra::shared().port()));
    let connection = ["-schema", &schema, "-port", &port];
    let all = [&["cql"], command, &connection, &["-log", "no-settings"], &MODE, mode].concat();
    all.into_iter().map(str::to_owned).collect()
}

fn cql(command: &[&str], keyspace: &str, mode: &[&str]) -> FinishedProcess {
    let words = words(command, keyspace, mode);
    TestFolder::new().squall(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn passed(ended: &FinishedProcess) {
    assert!(ended.code == 0 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
}

#[test]
fn unprepared_statements_write_and_read_the_same_rows() {
    let run = |command: &[&str], mode: &[&str]| {
        passed(&cql(
            &[&command[..2], &["no-warmup"], &command[2..], &["-rate", "threads=3"]].concat(),
            "unprepared",
            mode,
        ));
    };
    run(&["write", "n=50", "-insert", "row-population-ratio=fixed(4)/5"], &["unprepared"]);
    let last = "SELECT COUNT(\"C4\") FROM unprepared.standard1";
    assert_eq!(Cassandra::shared().count(last), 0, "the last of five columns is empty");
    run(&["write", "n=50"], &["unprepared"]);
    run(&["read", "n=100", "-pop", "seq=1..50"], &[]);
    run(&["read", "n=100", "-pop", "seq=1..50"], &["unprepared"]);
    run(&["counter_write", "n=60", "add=fixed(3)", "-pop", "seq=1..20"], &["unprepared"]);
    assert_eq!(Cassandra::shared().count("SELECT SUM(\"C2\") FROM unprepared.counter1"), 180);
    run(&["counter_read", "n=20", "-pop", "seq=1..20"], &["unprepared"]);
    let profile = cql(&["user", "profile=p.yaml", "ops(insert=1)", "n=1"], "unprepared", &["unprepared"]);
    assert!(profile.code == 2 && profile.stderr.contains("-mode unprepared cannot be used with user"), "{profile:?}");
}

#[test]
fn frames_are_compressed_as_asked() {
    for name in ["lz4", "snappy"] {
        let compression = format!("compression={name}");
        let command = ["write", "duration=1h", "no-warmup", "-rate", "threads=2", "throttle=50/s"];
        let words = words(&command, &format!("frames_{name}"), &[&compression]);
        let folder = TestFolder::new();
        let mut running = folder.start(&words.iter().map(String::as_str).collect::<Vec<_>>());
        wait_for_table_line(&mut running);
        let began = Instant::now();
        // Each connection tells the server which compression it wants.
        let clients = || Cassandra::shared().query("SELECT client_options FROM system_views.clients").expect("a view");
        while !clients().windows(name.len()).any(|bytes| bytes == name.as_bytes()) {
            assert!(began.elapsed() < Duration::from_secs(60), "no client uses {name}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        running.interrupt();
        let ended = running.end();
        assert!(ended.code == 130 && ended.stdout.ends_with("\nEND\n"), "{ended:?}");
        let read = ["read", "n=10", "no-warmup", "-pop", "seq=1..1", "-rate", "threads=2"];
        passed(&cql(&read, &format!("frames_{name}"), &[&compression]));
    }
}

#[test]
fn nodes_are_chosen_by_data_centre_rack_and_list() {
    let write = |node: &[&str], mode: &[&str]| {
        let command = ["write", "n=200", "no-warmup", "-rate", "threads=20"];
        cql(&[&command[..], &["-node", "127.0.0.1"], node].concat(), "chosen_nodes", mode)
    };
    passed(&write(&["datacenter=dc1", "rack=rack1", "remote-dc=dc2", "whitelist"], &["maxPending=1"]));
    assert_eq!(Cassandra::shared().count("SELECT COUNT(*) FROM chosen_nodes.standard1"), 200);
    let unknown = write(&["datacenter=dc9"], &[]);
    let reason = "no node of the cluster is in the data centre dc9: it has dc1";
    assert!(unknown.code == 3 && unknown.stderr.contains(reason), "{unknown:?}");
    let refused = write(&["rack=rack1"], &["protocolVersion=5"]);
    assert!(refused.code == 2 && refused.stderr.contains("rack=: it needs datacenter= beside it"), "{refused:?}");
    assert!(refused.stderr.contains("only version 4 is spoken"), "{refused:?}");
}

#[test]
fn columns_have_the_names_sizes_and_timestamps_that_are_asked_for() {
    let run = |command: &[&str]| {
        let columns = ["keysize=16", "no-warmup", "-rate", "threads=2", "-col", "names=b,a", "size=uniform(3..9)"];
        cql(&[&command[..2], &columns, &command[2..]].concat(), "columns", &[])
    };
    passed(&run(&["write", "n=30", "timestamp=1234567"]));
    let cassandra = Cassandra::shared();
    assert_eq!(cassandra.count("SELECT MAX(WRITETIME(a)) FROM columns.standard1"), 1_234_567);
    assert_eq!(cassandra.count("SELECT COUNT(b) FROM columns.standard1"), 30);
    let read = ["read", "n=30", "slice", "-pop", "seq=1..30"];
    passed(&run(&read));
    // 0P37709P21000000, the key of seed 1.
    let key = "0x30503337373039503231303030303030";
    cassandra.query(&format!("UPDATE columns.standard1 SET a = 0x00 WHERE key = {key}")).expect("a row is changed");
    let changed = run(&read);
    assert!(changed.code == 1 && changed.stderr.contains("VALIDATION: 1 times: a has another value"), "{changed:?}");
    passed(&run(&[&read[..], &["-errors", "skip-read-validation"]].concat()));
}

#[test]
fn the_log_has_the_parts_that_are_asked_for() {
    let printed = |log: &[&str], more: &[&str]| {
        let mut words = words(&["write", "n=20", "no-warmup", "-rate", "threads=1", "throttle=10/s"], "parts", &[]);
        let at = words.iter().position(|word| word == "no-settings").expect("-log");
        words.splice(at..=at, log.iter().map(|word| (*word).to_owned()));
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let folder = TestFolder::new();
        let ended = folder.squall(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(ended.code, 0, "{ended:?}");
        (ended.stdout, folder)
    };
    let (all, _) = printed(&["interval=1s"], &["-reporting", "header-frequency=1"]);
    assert!(all.starts_with("******************** Stress Settings ********************\n"), "{all}");
    let (headers, lines) = (all.matches("type       total ops,").count(), all.matches("\ntotal, ").count());
    assert!(headers == lines && lines >= 2 && all.contains("\nResults:\n"), "{all}");
    let (minimal, _) = printed(&["no-settings", "level=minimal"], &[]);
    assert!(!minimal.contains("total ops") && minimal.contains("\nResults:\n"), "{minimal}");
    let (table, _) = printed(&["no-settings", "no-summary"], &[]);
    assert!(table.contains("total ops") && !table.contains("Results:"), "{table}");
    let (nothing, folder) = printed(&["no-settings", "file=run.log"], &[]);
    assert!(nothing.is_empty() && folder.read("run.log").ends_with("\nEND\n"), "{nothing}");
}

#[test]
fn files_name_the_nodes_and_the_login() {
    let folder = TestFolder::new();
    folder.write("nodes.txt", &format!("# the test server\n127.0.0.1:{}\n", Cassandra::shared().port()));
    folder.write("login.properties", "cql.username = cassandra\ncql.password = cassandra\n");
    let write = |login: &str| {
        let command = ["cql", "write", "n=5", "no-warmup", "-rate", "threads=1", "-schema", "keyspace=of_files"];
        folder.squall(&[&command[..], &["-node", "file=nodes.txt", "-credentials-file", login]].concat())
    };
    passed(&write("login.properties"));
    folder.write("empty.properties", "user=cassandra\n");
    let refused = write("empty.properties");
    assert!(refused.code == 2 && refused.stderr.contains("empty.properties: cql.username is missing"), "{refused:?}");
    let absent = write("absent.properties");
    assert!(absent.code == 2 && absent.stderr.contains("cannot read absent.properties"), "{absent:?}");
}

#[test]
fn a_consistency_level_that_cannot_be_had_is_counted_by_node_and_data_centre() {
    passed(&cql(&["write", "n=20", "no-warmup", "cl=QUORUM", "-rate", "threads=2"], "levels", &[]));
    passed(&cql(
        &["read", "n=20", "no-warmup", "cl=LOCAL_SERIAL", "-pop", "seq=1..20", "-rate", "threads=2"],
        "levels",
        &[],
    ));
    let command = ["write", "n=5", "no-warmup", "cl=TWO", "-rate", "threads=1", "-errors", "ignore", "retries=2"];
    let ended = cql(&command, "levels", &[]);
    passed(&ended);
    assert!(ended.stderr.contains("WRITE UNAVAILABLE: 15 times: "), "{ended:?}");
    assert!(ended.stderr.contains("(node 127.0.0.1, data centre dc1, consistency TWO)"), "{ended:?}");
    let errors = ended.stdout.lines().find(|line| line.starts_with("Total errors")).expect("a summary");
    assert!(errors.contains(" 5 "), "{ended:?}");
}

#[test]
fn the_statement_of_a_failed_operation_is_printed() {
    let mut words = words(&["write", "n=1", "no-warmup", "cl=TWO", "-rate", "threads=1"], "printed", &[]);
    let log = words.iter().position(|word| word == "no-settings").expect("-log");
    words.insert(log, "print-statements-on-error".to_owned());
    let ended = TestFolder::new().squall(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(
        ended.stderr.contains("\nStatement: UPDATE \"printed\".\"standard1\" SET \"C0\" = 0x85182fdf"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("WHERE key = 0x30503337373039503231\n"), "{ended:?}");
}
