//! The outputs of `squall run`, read back.

use crate::support::{RunningProcess, TestFolder, get, number, target, wait_until};
use serde_json::Value;
use squall_testkit::scripted_server::refused_address;
use std::io::Write;

/// Exit code and standard error of a run of ten requests whose standard output is a full disk.
fn run_with_full_stdout(folder: &TestFolder, more: &[&str]) -> (i32, String) {
    let target = target();
    let url = target.url("/health");
    let arguments = [&["run", &url, "--users", "1", "-n", "10"], more].concat();
    let full = std::fs::File::create("/dev/full").expect("every Linux has one");
    let ended = folder.command(&arguments).stdout(full).output().expect("the program starts");
    assert_eq!(target.requests(), 10);
    (ended.status.code().expect("it ended by itself"), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn unprintable_summary_does_not_prevent_the_outputs() {
    let folder = TestFolder::new();
    let (code, output) = run_with_full_stdout(&folder, &["--json", "a.json"]);
    assert_eq!(code, 0, "{output}");
    assert!(output.contains("cannot write to standard output") && output.contains("wrote a.json"), "{output}");
    assert_eq!(folder.json("a.json")["totals"]["requests"], 10);
    let (code, output) = run_with_full_stdout(&folder, &["--json", "b.json", "-t", "requests>99"]);
    assert_eq!((code, folder.json("b.json")["exit_code"].as_i64()), (1, Some(1)), "{output}");
}

#[test]
fn failed_output_fails_the_run_and_the_others_are_written() {
    let folder = TestFolder::new();
    let outputs = ["--json", "/dev/full", "--csv", "a.csv", "--hdr", "/dev/full", "--json-lines", "a.jsonl"];
    let (code, output) = run_with_full_stdout(&folder, &[&outputs[..], &["--quiet"]].concat());
    assert_eq!((code, output.matches("cannot write /dev/full").count()), (2, 2), "{output}");
    assert!(folder.read("a.csv").lines().count() > 1);
    assert!(folder.read("a.jsonl").contains("\"phase\":\"done\""));
    let (code, output) = run_with_full_stdout(&folder, &[&outputs[..], &["--quiet", "-t", "requests>99"]].concat());
    assert_eq!(code, 1, "what the run has to say comes first: {output}");
}

#[test]
fn one_run_writes_every_output() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/api/products?page=3");
    let ended = folder.squall(&[
        "run",
        &url,
        "--rate",
        "100",
        "--for",
        "2s",
        "--name",
        "all outputs",
        "--json",
        "result.json",
        "--html",
        "report.html",
        "--junit",
        "junit.xml",
        "--csv",
        "metrics.csv",
        "--hdr",
        "run.hlog",
        "--json-lines",
        "lines.jsonl",
        "-t",
        "p99<10s",
        "--save-baseline",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("all outputs"), "the summary is on standard output: {}", ended.stdout);
    for file in ["result.json", "report.html", "junit.xml", "metrics.csv", "run.hlog", "lines.jsonl", "baseline.json"] {
        assert!(ended.stderr.contains(file), "{file} is not mentioned:\n{}", ended.stderr);
    }

    let result = folder.json("result.json");
    assert_eq!((result["schema"].as_str(), number(&result, "/totals/requests")), (Some("squall.result/1"), 200.0));
    assert_eq!(folder.json(".squall/baseline.json")["totals"], result["totals"]);

    let html = folder.read("report.html");
    assert!(html.starts_with("<!") && html.contains("all outputs"));
    for fetch in ["src=\"http", "href=\"http", "url(http", "@import", "fetch("] {
        assert!(!html.contains(fetch), "the report must not fetch anything: {fetch}");
    }
    assert!(folder.read("junit.xml").contains("<testcase"));
    assert!(folder.read("metrics.csv").starts_with("metric,"));

    let log = folder.read("run.hlog");
    assert!(log.starts_with("#[Histogram log format version 1.3]"), "{log}");
    let intervals = log.lines().filter(|line| !line.starts_with(['#', '"']) && !line.starts_with("Tag=")).count();
    assert!(intervals >= 2, "{log}");

    let lines: Vec<Value> =
        folder.read("lines.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 3, "two seconds and an end");
    let last = lines.last().unwrap();
    assert_eq!((last["phase"].as_str(), last["requests_total"].as_u64()), (Some("done"), Some(200)));
    assert!(last["elapsed_secs"].is_number() && last["current_rps"].is_number());
    let elapsed: Vec<f64> = lines.iter().map(|line| number(line, "/elapsed_secs")).collect();
    assert!(elapsed.is_sorted(), "time does not go back: {elapsed:?}");
}

#[test]
fn json_without_a_path_is_the_only_text_on_stdout() {
    let (target, folder) = (target(), TestFolder::new());
    let ended = folder.squall(&["run", "--json", &target.url("/health"), "--users", "1", "--requests", "5"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let result: Value = serde_json::from_str(&ended.stdout).expect("nothing but JSON");
    assert_eq!(number(&result, "/totals/requests"), 5.0);
    assert!(ended.stderr.contains("requests"), "the summary moves to standard error: {}", ended.stderr);
}

#[test]
fn quiet_run_that_passes_prints_nothing() {
    let (target, folder) = (target(), TestFolder::new());
    let ended = folder.squall(&["run", &target.url("/health"), "--users", "1", "--requests", "5", "--quiet"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""));
}

#[test]
fn quiet_run_that_fails_prints_the_reason_on_stderr() {
    let (target, folder) = (target(), TestFolder::new());
    let (url, refused) = (target.url("/delay/20"), format!("http://{}/", refused_address()));
    let load = ["--users", "1", "--requests", "5", "--quiet", "-t", "p50<1ms", "-t", "p99<30s"];
    let ended = folder.squall(&[&["run", &url], &load[..]].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (1, ""));
    assert!(ended.stderr.starts_with("squall: Failed: 1 of 2 thresholds breached (exit code 1)\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("\n  p50<1ms: ") && ended.stderr.lines().count() == 2, "{}", ended.stderr);
    let ended = folder.squall(&[&["run", &refused], &load[..]].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (3, ""));
    assert!(ended.stderr.contains("could not be reached (exit code 3)\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("5× CONNECT_REFUSED: "), "{}", ended.stderr);
}

#[test]
fn environment_and_squall_toml_set_flags_and_check_shows_where_they_come_from() {
    let (target, folder) = (target(), TestFolder::new());
    folder.write("squall.toml", "[run]\nrequests = 7\nusers = 2\nthreshold = ['p99<30s']\njson = 'result.json'\n");
    let url = target.url("/health");
    let run = |arguments: &[&str]| {
        let mut command = folder.command(&[&["run", &url], arguments].concat());
        command.env("SQUALL_REQUESTS", "5").env("SQUALL_QUIET", "true").output().expect("the program starts")
    };
    let checked = String::from_utf8(run(&["--users", "1", "--check"]).stdout).expect("UTF-8");
    for (flag, source) in
        [("--users=1", "command line"), ("--requests=5", "SQUALL_REQUESTS"), ("--json=result.json", "squall.toml")]
    {
        let line = checked.lines().find(|line| line.contains(flag)).unwrap_or_else(|| panic!("{flag}: {checked}"));
        assert!(line.ends_with(source), "{line}");
    }
    let ended = run(&[]);
    assert_eq!((ended.status.code(), ended.stderr.len(), target.requests()), (Some(0), 0, 5), "{ended:?}");
    assert_eq!(folder.json("result.json")["thresholds"][0]["threshold"], "p99<30s");
    folder.write("squall.toml", "[run]\nrate = 'fast'\n");
    let refused = String::from_utf8(run(&[]).stderr).expect("UTF-8");
    assert!(refused.contains("--rate") && refused.contains("--rate is set by squall.toml"), "{refused}");
}

#[test]
fn mistakes_in_squall_toml_and_in_switches_of_the_environment_are_printed() {
    let folder = TestFolder::new();
    for (file, part) in [
        ("[run]\nraet = 20\n", "`raet`, which is no flag"),
        ("[run\n", "squall.toml: "),
        ("rate = 20\n", "has no table [run]"),
        ("[run]\ndurration = '1s'\n", "`durration`, which is no flag"),
    ] {
        let refused = folder.write("squall.toml", file).squall(&["run", "http://127.0.0.1:1/", "--check"]);
        assert!(refused.code == 2 && refused.stderr.contains(part), "{file}: {refused:?}");
    }
    std::fs::remove_file(folder.path("squall.toml")).expect("it exists");
    let mut run = folder.command(&["run", "http://127.0.0.1:1/", "--check"]);
    let refused = run.env("SQUALL_QUIET", "maybe").output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && stderr.contains("SQUALL_QUIET: --quiet is on or off"), "{stderr}");
}

#[test]
fn reports_show_no_value_of_the_query_of_the_url() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health?token=hunter2&page=77");
    let documents = ["--json", "r.json", "--html", "r.html", "--junit", "r.xml", "--csv", "r.csv"];
    let run = [&["run", &url, "--requests", "3", "--rate", "50"][..], &documents].concat();
    let ended = folder.squall(&run);
    assert_eq!(ended.code, 0, "{ended:?}");
    for text in [&ended.stdout, &ended.stderr]
        .into_iter()
        .cloned()
        .chain(["r.json", "r.html", "r.xml", "r.csv"].map(|name| folder.read(name)))
    {
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert_eq!(folder.json("r.json")["run"]["name"], target.url("/health?token=…&page=…"));
    folder.squall(&[&run[..], &["--show-values"]].concat());
    assert_eq!(folder.json("r.json")["run"]["name"], target.url("/health?token=…&page=77"));
}

#[test]
fn run_without_a_terminal_prints_one_plain_line_a_second() {
    let (target, folder) = (target(), TestFolder::new());
    let ended = folder.squall(&["run", &target.url("/health"), "--rate", "20", "--for", "2s"]);
    assert!(ended.stderr.contains("20/s"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}') && !ended.stdout.contains('\u{1b}'), "no colours without a terminal");
}

/// Starts a run of one request, which gets its response after the first scrape. Returns the address
/// of the endpoint and the run.
fn start_scraped_run(folder: &TestFolder) -> (std::net::SocketAddr, RunningProcess) {
    let target = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/", target.local_addr().expect("bound"));
    let mut running =
        folder.start(&["run", &url, "--users", "1", "-n", "1", "--prometheus", "127.0.0.1:0", "--json", "a.json"]);
    let line = running.wait_for_line("/metrics");
    let addr = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let addr = addr.parse().expect("an address");
    let (mut connection, _) = target.accept().expect("a request");
    assert!(get(addr, "/metrics", "text/plain").starts_with("HTTP/1.1 200"));
    connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("it reads");
    (addr, running)
}

#[test]
fn final_metrics_are_served_until_they_are_scraped() {
    let folder = TestFolder::new();
    let (addr, mut running) = start_scraped_run(&folder);
    running.wait_for_line("waiting up to 15 s for the last scrape of Prometheus");
    let last = get(addr, "/metrics", "text/plain");
    let counted = last.lines().find(|line| line.starts_with("squall_requests_total{"));
    assert!(counted.is_some_and(|line| line.ends_with(" 1")), "{last}");
    assert_eq!(running.end().code, 0);
    assert_eq!(folder.json("a.json")["totals"]["requests"], 1);
}

#[test]
fn ctrl_c_ends_the_wait_for_the_final_scrape() {
    let folder = TestFolder::new();
    let (_, mut running) = start_scraped_run(&folder);
    running.wait_for_line("waiting up to 15 s for the last scrape of Prometheus");
    running.interrupt();
    assert_eq!(running.end().code, 0, "the run itself was complete");
}

#[test]
fn metrics_of_a_running_test_can_be_scraped() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let mut running = folder.start(&["run", &url, "--rate", "50", "--for", "5m", "--prometheus", "127.0.0.1:0"]);
    let line = running.wait_for_line("/metrics");
    let addr = line.split("http://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    let addr = addr.parse().expect("an address");
    wait_until("a second with requests", || get(addr, "/metrics", "text/plain").contains("squall_requests_total"));
    let text = get(addr, "/metrics", "text/plain");
    assert!(text.contains("text/plain; version=0.0.4") && text.contains("_bucket{"), "{text}");
    let accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    assert!(get(addr, "/metrics", accept).contains("application/vnd.google.protobuf"));
    assert!(get(addr, "/other", "*/*").starts_with("HTTP/1.1 404"));
    running.interrupt();
    assert_eq!(running.end().code, 130);
}

#[test]
fn report_of_a_saved_result_equals_what_the_run_wrote() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/api/products");
    let files = ["--json", "result.json", "--html", "run.html", "--junit", "run.xml", "--csv", "run.csv"];
    let load = ["run", &url, "--rate", "50", "--for", "1s", "--phases", "-t", "p99<1us", "-t", "error_rate<1%"];
    let ran = folder.squall(&[&load[..], &files].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    let again = ["report", "result.json", "--html", "again.html", "--junit", "again.xml", "--csv", "again.csv"];
    let rendered = folder.squall(&again);
    assert_eq!((rendered.code, rendered.stdout.as_str()), (0, ""), "{rendered:?}");
    assert!(rendered.stderr.contains("wrote again.html"), "{}", rendered.stderr);
    for end in ["html", "xml", "csv"] {
        assert_eq!(folder.read(&format!("again.{end}")), folder.read(&format!("run.{end}")), "{end}");
    }
    assert_eq!(folder.squall(&["report", "result.json"]).stdout, ran.stdout);
    folder.squall(&["report", "result.json", "--text", "again.txt"]);
    assert_eq!(folder.read("again.txt"), ran.stdout);
    assert_eq!(folder.squall(&["report", "result.json", "--csv"]).stdout, folder.read("run.csv"));
}

#[test]
fn result_that_cannot_be_rendered_is_refused_with_the_remedy() {
    let folder = TestFolder::new();
    let ran = folder.squall(&["run", &target().url("/health"), "--users", "1", "-n", "3", "--json", "result.json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut old: Value = folder.json("result.json");
    old.as_object_mut().unwrap().remove("recorded");
    folder.write("old.json", &old.to_string()).write("other.json", "{}");
    let refused = |arguments: &[&str], text: &str| {
        let ended = folder.squall(&[&["report"], arguments].concat());
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.stderr.contains(text), "{}", ended.stderr);
    };
    refused(&["old.json"], "old.json: the result has no histograms");
    refused(&["other.json"], "other.json: not a Squall result file; `squall run … --json FILE` writes one");
    refused(&["missing.json"], "cannot read missing.json");
    refused(&["result.json", "--html", "result.json"], "--html result.json would replace result.json");
    refused(&["result.json", "--csv", "--text"], "only one output can go to standard output");
    assert_eq!(folder.json("result.json")["totals"]["requests"], 3);
}
