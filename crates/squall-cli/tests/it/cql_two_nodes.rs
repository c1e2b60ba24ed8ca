//! `squall cql` against two real Cassandra nodes in two data centres, one of which is killed.

use crate::{
    cql_errors::next_interval,
    support::{FinishedProcess, RunningProcess, TestFolder},
};
use squall_testkit::cassandra::Cassandra;

const SCHEMA: [&str; 2] = ["-schema", "replication(strategy=NetworkTopologyStrategy,dc1=1,dc2=1)"];

fn words<'w>(command: &[&'w str], port: &'w str, nodes: &[&'w str]) -> Vec<&'w str> {
    [&["cql"], command, &SCHEMA, &["-port", port, "-log", "no-settings", "-node"], nodes].concat()
}

/// Reads the table up to a line whose number of errors fulfils the condition.
fn wait_for_errors(running: &mut RunningProcess, reached: impl Fn(u64) -> bool) {
    while !reached(next_interval(running).errors) {}
}

#[test]
fn a_node_that_dies_makes_operations_unavailable_in_its_data_centre_only() {
    let [first, second] = Cassandra::start_two();
    let (port, folder) = (format!("native={}", first.port()), TestFolder::new());
    let rate = ["-rate", "threads=4", "throttle=100/s", "-errors", "ignore", "retries=0"];
    let threshold = "coordinator:127.0.0.1 (dc1):p99<59s";
    let outputs = ["--json=all.json", "-t", threshold];
    let write = |level| [&["write", "duration=1h", "no-warmup", level], &rate[..], &outputs].concat();
    let mut all = folder.start(&words(&write("cl=ALL"), &port, &["127.0.0.1"]));
    wait_for_errors(&mut all, |errors| errors == 0);
    let local = &write("cl=LOCAL_ONE")[..10];
    let mut local = folder.start(&words(local, &port, &["127.0.0.1", "datacenter=dc1"]));
    wait_for_errors(&mut local, |errors| errors == 0);
    second.kill();
    wait_for_errors(&mut all, |errors| errors > 20);
    wait_for_errors(&mut local, |errors| errors == 0);
    all.interrupt();
    let ended = all.end();
    assert!(ended.code == 130 && ended.stderr.contains("WRITE UNAVAILABLE: "), "{ended:?}");
    assert!(ended.stderr.contains("(node 127.0.0.1, data centre dc1, consistency ALL)"), "{ended:?}");
    let judged = ended.stderr.lines().find(|line| line.contains(threshold));
    assert!(judged.is_some_and(|line| line.contains('✓')), "{ended:?}");
    let json = folder.read("all.json");
    assert!(
        json.contains("\"UNAVAILABLE\"") && json.contains("(node 127.0.0.1, data centre dc1, consistency ALL)"),
        "{json}"
    );
    let result: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let figure = |name: &str, figure: &str| {
        let mut metrics = result["metrics"].as_array().expect("a list").iter();
        let metric = metrics.find(|metric| metric["name"] == name).unwrap_or_else(|| panic!("no {name}: {json}"));
        metric[figure].as_u64().unwrap_or_else(|| panic!("no {figure}: {metric}"))
    };
    let coordinated =
        ["127.0.0.1 (dc1)", "127.0.0.2 (dc2)"].map(|node| figure(&format!("coordinator:{node}"), "requests"));
    assert!(coordinated.iter().all(|operations| *operations > 0), "{json}");
    let done = figure("WRITE", "requests") - figure("WRITE", "errors");
    assert_eq!(coordinated.iter().sum::<u64>(), done, "each operation has one coordinator: {json}");
    local.interrupt();
    let ended = local.end();
    // No request went to the other data centre.
    assert!(ended.code == 130 && !ended.stderr.contains("WRITE "), "{ended:?}");

    let run = |nodes: &[&str]| -> FinishedProcess {
        folder.squall(&words(&["write", "n=20", "no-warmup", "-rate", "threads=2"], &port, nodes))
    };
    let down = run(&["127.0.0.1"]);
    assert!(down.code == 3 && down.stderr.contains("node 127.0.0.2:"), "{down:?}");
    assert!(down.stderr.contains("use -node with whitelist to leave it out"), "{down:?}");
    for nodes in [&["127.0.0.1", "whitelist"][..], &["127.0.0.1", "datacenter=dc1"]] {
        let ended = run(nodes);
        assert_eq!(ended.code, 0, "{nodes:?}: {ended:?}");
    }
    let unknown = run(&["127.0.0.1", "datacenter=dc3"]);
    assert!(unknown.code == 3 && unknown.stderr.contains("it has dc1, dc2"), "{unknown:?}");
}
