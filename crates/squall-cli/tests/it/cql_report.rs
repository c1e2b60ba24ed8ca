//! The flags that `squall cql` shares with `squall run`, against a real Cassandra: thresholds, output
//! files, comparison, exit codes.

use crate::{
    pseudo_terminal::PseudoTerminal,
    support::{FinishedProcess, TestFolder, get, number, wait_until},
};
use squall_testkit::cassandra::Cassandra;

/// Runs `command` in a keyspace of the test's own.
fn cql(folder: &TestFolder, keyspace: &str, command: &[&str]) -> FinishedProcess {
    let (port, keyspace) = (format!("native={}", Cassandra::shared().port()), format!("keyspace={keyspace}"));
    let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra", "-log", "no-settings"];
    let connection = ["-schema", keyspace.as_str(), "-node", "127.0.0.1", "-port", port.as_str()];
    folder.squall(&[&["cql"], command, &connection, &login].concat())
}

fn count(keyspace: &str) -> i64 {
    Cassandra::shared().count(&format!("SELECT COUNT(*) FROM {keyspace}.standard1"))
}

#[test]
fn result_table_and_database_have_the_same_number_of_operations() {
    let folder = TestFolder::new();
    let flags = ["--json", "result.json", "--html", "report.html", "--junit", "junit.xml", "--csv", "run.csv"];
    let lines = ["--json-lines", "lines.jsonl", "--hdr", "run.hlog", "-t", "WRITE:p99<60s"];
    let command = ["write", "n=700", "no-warmup", "-rate", "threads=5", "processes=2"];
    let ended = cql(&folder, "same_count", &[&command[..], &flags, &lines].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = folder.json("result.json");
    assert_eq!((number(&result, "/totals/requests"), number(&result, "/totals/errors")), (700.0, 0.0));
    assert_eq!((result["verdict"].as_str(), result["exit_code"].as_i64()), (Some("passed"), Some(0)));
    let (users, threads) = (number(&result, "/totals/peak_users"), number(&result, "/generator/threads"));
    assert_eq!((users, threads), (5.0, 2.0), "threads= are the total, of which processes= have three and two");
    let last_row = ended.stdout.lines().rfind(|line| line.starts_with("total,")).expect("a row of the table");
    let total = last_row.trim_start_matches("total,").trim_start();
    assert!(total.starts_with("700,"), "{last_row}");
    assert_eq!(count("same_count"), 700);
    assert!(!result.to_string().contains("password=cassandra"), "{result}");
    assert!(folder.read("report.html").contains("cql write"), "the report names the run");
    assert!(folder.read("junit.xml").contains("WRITE:p99"), "the threshold is a test case");
    assert!(folder.read("run.csv").contains("WRITE"), "the metric has a line");
    assert!(folder.read("run.hlog").contains("Tag="), "the log has an interval");
    let last_line = folder.read("lines.jsonl").lines().last().map(str::to_owned).expect("a line");
    assert!(last_line.contains("700"), "{last_line}");
    assert!(ended.stderr.contains("WRITE:p99<"), "{ended:?}");
}

#[test]
fn the_bytes_of_rows_and_values_are_counted() {
    let folder = TestFolder::new();
    let bytes = |command: &[&str]| {
        let run = ["no-warmup", "-pop", "seq=1..40", "-rate", "threads=2", "--json", "result.json"];
        let ended = cql(&folder, "counted_bytes", &[command, &run].concat());
        assert_eq!(ended.code, 0, "{ended:?}");
        let result = folder.json("result.json");
        (number(&result, "/totals/bytes_in"), number(&result, "/totals/bytes_out"))
    };
    // A key of 10 bytes and five cells of 34, whose lengths take 4 bytes each in a row.
    assert_eq!(bytes(&["write", "n=40"]), (0.0, 40.0 * 180.0));
    assert_eq!(bytes(&["read", "n=40"]), (40.0 * 190.0, 400.0));
    assert_eq!(bytes(&["counter_write", "n=40"]), (0.0, 40.0 * 50.0));
}

#[test]
fn operations_of_a_run_can_be_scraped() {
    let folder = TestFolder::new();
    let port = format!("native={}", Cassandra::shared().port());
    let command = ["cql", "write", "duration=1h", "no-warmup", "-rate", "threads=2", "throttle=50/s"];
    let connection = ["-schema", "keyspace=scraped", "-node", "127.0.0.1", "-port", &port];
    let login = ["-mode", "native", "cql3", "user=cassandra", "password=cassandra", "--prometheus", "127.0.0.1:0"];
    let mut running = folder.start(&[&command[..], &connection, &login].concat());
    let line = running.wait_for_line("/metrics");
    let addr = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let addr = addr.parse().expect("an address");
    let is_counted = || {
        let text = get(addr, "/metrics", "text/plain");
        text.lines().any(|line| line.starts_with("squall_requests_total{") && line.contains("\"WRITE\""))
    };
    wait_until("a second with operations", is_counted);
    running.interrupt();
    assert_eq!(running.end().code, 130);
}

#[test]
fn results_of_a_time_can_be_compared() {
    let folder = TestFolder::new();
    let command = ["write", "duration=12s", "no-warmup", "-rate", "threads=2", "throttle=20/s", "--save-baseline"];
    let ended = cql(&folder, "compared", &[&command[..], &["--json", "result.json"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    let compared = folder.squall(&["compare", ".squall/baseline.json", "result.json"]);
    assert!(compared.code == 0 && compared.stdout.contains("all requests"), "{compared:?}");
}

#[test]
fn a_breached_threshold_fails_the_command_and_the_json_owns_standard_output() {
    let folder = TestFolder::new();
    let command = ["write", "n=50", "no-warmup", "-rate", "threads=2", "--json", "-t", "p50<1us"];
    let ended = cql(&folder, "breached", &command);
    assert_eq!(ended.code, 1, "{ended:?}");
    let result: serde_json::Value = serde_json::from_str(&ended.stdout).expect("only JSON on standard output");
    assert_eq!(result["verdict"], "threshold_breached");
    assert!(ended.stderr.contains("Total partitions") && ended.stderr.contains("p50<1"), "{ended:?}");
}

#[test]
fn a_rate_that_the_threads_cannot_make_names_the_words_to_change() {
    let folder = TestFolder::new();
    let command = ["write", "duration=2s", "no-warmup", "-rate", "threads=1", "fixed=50000/s", "--json", "result.json"];
    let ended = cql(&folder, "too_fast", &command);
    assert_eq!(ended.code, 4, "{ended:?}");
    assert!(ended.stderr.contains("because no thread was free: raise -rate threads= or lower the rate"), "{ended:?}");
    assert!(ended.stderr.contains("none of 1 users was free: raise -rate threads= or lower the rate"), "{ended:?}");
    let result = folder.json("result.json").to_string();
    assert!(!ended.stderr.contains("--max-users") && !result.contains("--max-users"), "{result}");
}

#[test]
fn a_failed_operation_is_a_breached_threshold_of_the_result() {
    let folder = TestFolder::new();
    let written = cql(&folder, "failed_result", &["write", "n=3", "no-warmup", "-rate", "threads=1"]);
    assert_eq!(written.code, 0, "{written:?}");
    // Seed 9 was never written.
    let command = ["read", "n=1", "no-warmup", "-pop", "seq=9..9", "-rate", "threads=1", "--json", "result.json"];
    let ended = cql(&folder, "failed_result", &command);
    assert!(ended.code == 1 && ended.stdout.ends_with("FAILURE\n"), "{ended:?}");
    let result = folder.json("result.json");
    assert_eq!((result["verdict"].as_str(), result["exit_code"].as_i64()), (Some("threshold_breached"), Some(1)));
    assert!(result["outcomes"].to_string().contains("MISSING_ROW"), "{result}");
}

#[test]
fn graph_file_is_the_html_report() {
    let folder = TestFolder::new();
    let graph = ["-graph", "file=graph.html", "title=nightly", "revision=r7"];
    let command = ["write", "n=20", "no-warmup", "-pop", "seq=1..20", "no-wrap", "-rate", "threads=2"];
    let ended = cql(&folder, "graph_file", &[&command[..], &graph].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(folder.read("graph.html").contains("nightly (r7)"), "the title names the run");
    assert_eq!(count("graph_file"), 20);
}

#[test]
fn find_max_searches_the_rate_that_holds_a_threshold() {
    let folder = TestFolder::new();
    let search = ["--find-max", "error_rate<50%", "--find-max-probe", "1s", "--find-max-precision", "90%"];
    let command = ["write", "n=100", "no-warmup", "-rate", "threads=2", "throttle=20/s", "--json", "search.json"];
    let ended = cql(&folder, "searched", &[&command[..], &search].concat());
    let result = folder.json("search.json");
    assert_eq!((result["schema"].as_str(), &result["probes"][0]["rate"]), (Some("squall.search/1"), &20.0.into()));
    assert_eq!(result["exit_code"].as_i64(), Some(i64::from(ended.code)), "{ended:?}");
    assert!(ended.stdout.contains("searching for the highest rate that holds error_rate<50%"), "{ended:?}");
    // The sequence begins again with each probe.
    assert!((1..=100).contains(&count("searched")), "{ended:?}");
    let no_threads = folder.squall(&["cql", "read", "n=5", "--find-max", "p99<1s"]);
    assert!(no_threads.code == 2 && no_threads.stderr.contains("give -rate threads=N"), "{no_threads:?}");
}

#[test]
fn flags_about_one_run_are_refused_for_a_search_of_threads() {
    let folder = TestFolder::new();
    let search = folder.squall(&["cql", "read", "n=5", "--json", "result.json", "-node", "127.0.0.1"]);
    assert_eq!(search.code, 2, "{search:?}");
    assert!(search.stderr.contains("--json is about one run") && search.stderr.contains("threads=N"), "{search:?}");
    let graph = folder.squall(&["cql", "read", "n=5", "-graph", "file=g.html", "-node", "127.0.0.1"]);
    assert!(graph.code == 2 && graph.stderr.contains("-graph is about one run"), "{graph:?}");
    let history = folder.squall(&["cql", "read", "n=5", "--history", "-node", "127.0.0.1"]);
    assert!(history.code == 2 && history.stderr.contains("--history is about one run"), "{history:?}");
    let metric = folder.squall(&["cql", "read", "n=5", "-rate", "threads=1", "-t", "write:p99<1s"]);
    assert!(metric.code == 2 && metric.stderr.contains("no operation `write`: it has READ"), "{metric:?}");
    let unknown = folder.squall(&["cql", "read", "n=5", "--jsn", "x"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("--json"), "{unknown:?}");
}

#[test]
fn an_output_replaces_neither_another_one_nor_a_file_that_the_command_reads() {
    let folder = TestFolder::new();
    let profile = "keyspace: shop\ntable: orders\n";
    folder.write("orders.yaml", profile);
    folder.write("nodes", "127.0.0.1\n");
    let refused = |outputs: &[&str], reason: &str| {
        let command = ["cql", "user", "profile=orders.yaml", "ops(insert=1)", "n=1", "-rate", "threads=1"];
        let ended = folder.squall(&[&command[..], &["-node", "file=nodes"], outputs].concat());
        assert!(ended.code == 2 && ended.stderr.contains(reason), "{ended:?}");
    };
    refused(&["--json=orders.yaml"], "--json orders.yaml would replace orders.yaml, which the command reads");
    refused(&["-log", "hdrfile=./orders.yaml"], "-log hdrfile= ./orders.yaml would replace orders.yaml");
    refused(&["-graph", "file=nodes"], "-graph file= nodes would replace nodes");
    refused(&["-log", "file=run.txt", "hdrfile=run.txt"], "two outputs have the path run.txt");
    refused(&["-log", "hdrfile=run.json", "--json=./run.json"], "two outputs have the path");
    assert_eq!(folder.read("orders.yaml"), profile);
}

#[test]
fn the_dashboard_shows_the_run_and_the_table_follows() {
    let folder = TestFolder::new();
    let port = Cassandra::shared().port();
    let squall = env!("CARGO_BIN_EXE_squall");
    let line = format!(
        "{squall} cql write n=1M no-warmup -rate threads=2 throttle=20/s -schema keyspace=on_screen -node 127.0.0.1 \
         -port native={port} -mode native cql3 user=cassandra password=cassandra -log no-settings"
    );
    let mut terminal = PseudoTerminal::run(&folder.command(&[]), &line);
    let screen = terminal.wait_for("starts/s");
    assert!(!screen.contains("total ops"), "the table waits for the end: {screen}");
    terminal.press("q");
    let (code, text) = terminal.end();
    assert!(code == 130 && text.contains("Total partitions"), "{code}: {text}");
}
