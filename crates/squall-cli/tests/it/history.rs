//! The history: `--history`, `squall runs`, `squall ui` and `squall run --web`, with real runs.

use crate::support::{FinishedProcess, TestFolder, target};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

fn run(folder: &TestFolder, url: &str, flags: &[&str]) -> FinishedProcess {
    let ended = folder.squall(&[&["run", url, "--rate", "20", "--for", "1s"], flags].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended
}

fn list(folder: &TestFolder, flags: &[&str]) -> Value {
    let ended = folder.squall(&[&["runs", "list", "--json"], flags].concat());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    serde_json::from_str(&ended.stdout).expect("JSON")
}

fn get(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).expect("the page listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("a connection");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {head}"))
}

#[test]
fn kept_runs_are_listed_shown_annotated_compared_and_removed() {
    let (target, folder) = (target(), TestFolder::new());
    let ended = run(&folder, &target.url("/health"), &["--history", "--name", "Basket", "--json", "basket.json"]);
    assert!(ended.stderr.contains("kept the run as 20") && ended.stderr.contains(".squall/runs"), "{}", ended.stderr);
    run(&folder, &target.url("/health"), &["--quiet", "--history", "--name", "shop"]);
    let all = list(&folder, &[]);
    let names: Vec<&str> = all["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["shop", "Basket"]);
    let id = all["runs"][1]["id"].as_str().unwrap();
    assert_eq!(all["runs"][1]["requests"], 20);
    assert_eq!(folder.json(&format!(".squall/runs/{id}.json")), folder.json("basket.json"));

    assert_eq!(folder.squall(&["runs", "note", "basket", "before the fix"]).code, 0);
    assert_eq!(list(&folder, &["fix"])["runs"].as_array().unwrap().len(), 1);
    assert_eq!(list(&folder, &["--verdict", "interrupted"])["runs"].as_array().unwrap().len(), 0);
    let table = folder.squall(&["runs", "list"]).stdout;
    assert!(table.lines().count() == 3 && table.contains("before the fix"), "{table}");
    let shown = folder.squall(&["runs", "show", "basket"]);
    assert!(shown.stdout.contains("Basket") && shown.stdout.contains("note: before the fix"), "{}", shown.stdout);
    let result: Value = serde_json::from_str(&folder.squall(&["runs", "show", "latest", "--json"]).stdout).unwrap();
    assert_eq!(result["run"]["name"], "shop");
    assert_eq!(folder.squall(&["runs", "show", "latest", "--html"]).code, 0);
    assert!(folder.read("squall-report.html").contains("Squall report"));

    let compared = folder.squall(&["runs", "compare", "basket", "latest", "--json", "--html"]);
    folder.write("new.json", &result.to_string());
    let direct = folder.squall(&["compare", "basket.json", "new.json", "--json"]);
    assert_eq!((compared.code, compared.stdout), (direct.code, direct.stdout));
    assert!(folder.read("squall-compare.html").contains("Squall comparison"));

    assert_eq!(folder.squall(&["runs", "rm", "basket"]).code, 0);
    assert_eq!(list(&folder, &[])["runs"].as_array().unwrap().len(), 1);
    assert_eq!(folder.squall(&["runs", "show", "basket"]).code, 2);
}

#[test]
fn wrong_names_and_files_of_the_history_are_explained() {
    let folder = TestFolder::new();
    let none = folder.squall(&["runs", "list"]);
    assert!(none.code == 0 && none.stdout.contains("--history"), "{none:?}");
    std::fs::create_dir_all(folder.path(".squall/runs")).unwrap();
    folder.write(".squall/runs/junk.json", "hello").write("file", "");
    let junk = folder.squall(&["runs", "list"]);
    assert!(junk.stderr.contains("skipped .squall/runs/junk.json: not a result file"), "{}", junk.stderr);
    let target = target();
    run(&folder, &target.url("/health"), &["--quiet", "--history", "--name", "shop"]);
    let id = list(&folder, &[])["runs"][0]["id"].as_str().unwrap().to_owned();
    let wrong = id.replace("shop", "shpo");
    for (arguments, part) in [
        (&["runs", "show", wrong.as_str()][..], format!("did you mean `{id}`")),
        (&["runs", "lst"], "'list'".to_owned()),
        (&["runs", "list", "--verdict", "good"], "threshold_breached".to_owned()),
        (&["runs", "rm", "shop", "missing"], "no run `missing`".to_owned()),
        (&["runs", "compare", "shop"], "--save-baseline".to_owned()),
        (&["ui", "missing"], "no folder missing".to_owned()),
        (&["run", "http://127.0.0.1:1/", "--history", "file"], "--history: cannot create the folder file".to_owned()),
        (&["run", "http://127.0.0.1:1/", "--web", "--cluster"], "--cluster".to_owned()),
    ] {
        let ended = folder.squall(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(&part), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(list(&folder, &[])["runs"].as_array().unwrap().len(), 1, "nothing was removed");
}

#[test]
fn full_history_loses_its_oldest_runs_and_says_so() {
    let (target, folder) = (target(), TestFolder::new());
    run(&folder, &target.url("/health"), &["--quiet", "--history", "runs", "--name", "first"]);
    let file = std::fs::read_dir(folder.path("runs")).unwrap().next().unwrap().unwrap().path();
    // Blanks at the end leave the result as it is.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text + &" ".repeat(2 << 20)).unwrap();
    let ended =
        run(&folder, &target.url("/health"), &["--history", "runs", "--history-limit", "1", "--name", "second"]);
    assert!(ended.stderr.contains("removed the oldest run 20") && ended.stderr.contains("1 MiB"), "{}", ended.stderr);
    let left = list(&folder, &["--history", "runs"]);
    assert_eq!((left["runs"].as_array().unwrap().len(), &left["runs"][0]["name"]), (1, &"second".into()));
}

#[test]
fn folder_of_results_is_served_until_a_signal() {
    let (target, folder) = (target(), TestFolder::new());
    std::fs::create_dir(folder.path("results")).unwrap();
    run(&folder, &target.url("/health"), &["--quiet", "--json", "results/before.json"]);
    let mut serving = folder.start(&["ui", "results", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    BufReader::new(serving.stdout()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap();
    assert_eq!(get(address, "/api/v1/session")["results_only"], true);
    assert_eq!(get(address, "/api/v1/runs")["runs"][0]["id"], "before");
    serving.interrupt();
    assert_eq!(serving.end().code, 0);
}

#[test]
fn run_with_a_page_serves_the_api_and_reports_as_without() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let flags =
        ["--rate", "50", "--for", "3s", "--web", "127.0.0.1:0", "--history", "--json", "result.json", "--no-tui"];
    let mut running = folder.start(&[&["run", url.as_str()], &flags[..]].concat());
    let line = running.wait_for_line("web UI: http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while get(&address, "/api/v1/tests/current")["live"]["requests_total"].as_u64() < Some(20) {
        assert!(std::time::Instant::now() < deadline, "no requests on the page");
        std::thread::yield_now();
    }
    let ended = running.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let result = folder.json("result.json");
    assert_eq!(result["totals"]["requests"], 150);
    assert_eq!(target.requests(), 150);
    assert_eq!(list(&folder, &[])["runs"].as_array().unwrap().len(), 1, "the run is kept once");
}
