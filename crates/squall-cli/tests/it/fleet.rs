//! Fleets of real processes on a real Redis: the counts of the target and of the report agree when
//! workers are killed, frozen, join or leave during the run.

use crate::support::{RecordingServer, RunningProcess, TestFolder, ask_redis, get, target, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use squall_target::TargetServer;
use squall_testkit::redis::RedisServer;
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

struct Fleet {
    folder: TestFolder,
    redis: RedisServer,
    target: TargetServer,
    workers: Vec<(String, RunningProcess)>,
    expires_after: &'static str,
}

/// Long, so that a worker on a busy machine does not expire in tests without a failure.
const LONG_EXPIRY: &str = "60s";
/// Short enough for a test to wait for, and longer than the delays of a busy machine.
const MEDIUM_EXPIRY: &str = "12s";
/// The default.
const SHORT_EXPIRY: &str = "3500ms";

impl Fleet {
    fn new(workers: usize) -> Fleet {
        Fleet::on(RedisServer::start(), workers, LONG_EXPIRY)
    }

    /// A fleet that soon notices a lost worker.
    fn with_short_expiry(workers: usize) -> Fleet {
        Fleet::on(RedisServer::start(), workers, SHORT_EXPIRY)
    }

    fn on(redis: RedisServer, workers: usize, expires_after: &'static str) -> Fleet {
        let fleet = Fleet { folder: TestFolder::new(), redis, target: target(), workers: Vec::new(), expires_after };
        (0..workers).fold(fleet, |mut fleet, at| {
            fleet.join(&format!("w{at}"));
            fleet
        })
    }

    /// Starts a worker and waits until it has joined.
    fn join(&mut self, id: &str) {
        let arguments = ["--redis", &self.redis.url(), "--id", id, "--expires-after", self.expires_after];
        let mut worker = self.folder.start(&[&["worker"], &arguments[..]].concat());
        worker.wait_for_line("joined");
        self.workers.push((id.to_owned(), worker));
    }

    fn signal(&self, id: &str, signal: Signal) {
        let (_, worker) = self.workers.iter().find(|(name, _)| name == id).expect("it was started");
        worker.signal(signal);
    }

    /// Freezes a worker that has reported, so that runs still count on it.
    fn freeze_when_alive(&self, id: &str) {
        let status = || ask_redis(self.redis.port(), &[&format!("HGET squall:{{main}}:worker:{id}:status status")]);
        wait_until("a worker", || status().as_deref() == Some("healthy"));
        self.signal(id, Signal::STOP);
    }

    fn start(&self, load: &[&str]) -> RunningProcess {
        self.start_at("/health", load)
    }

    fn start_at(&self, path: &str, load: &[&str]) -> RunningProcess {
        let url = self.target.url(path);
        let redis = self.redis.url();
        let all = [&["run", &url, "--cluster", &redis, "--quiet", "--json", "result.json"], load].concat();
        self.folder.start(&all)
    }

    fn result(&self, run: RunningProcess) -> Value {
        let ended = run.end();
        assert!(self.folder.path("result.json").exists(), "no result: {ended:?}");
        self.folder.json("result.json")
    }

    /// The number of users in the Redis view of a worker.
    fn users_of(&self, id: &str) -> u64 {
        let response = ask_redis(self.redis.port(), &[&format!("SCARD squall:{{main}}:worker:{id}:users")]);
        response.and_then(|count| count.trim_start_matches(':').parse().ok()).unwrap_or(0)
    }

    /// Waits until the target has received `requests` in all.
    fn until_received(&self, requests: u64) {
        wait_until("requests", || self.target.requests() >= requests);
    }
}

fn number(result: &Value, path: &str) -> u64 {
    result.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {result}"))
}

/// Posts to the API of a fleet and expects success.
#[track_caller]
fn post(api: &str, path: &str, body: &str) {
    let mut stream = TcpStream::connect(api).expect("it listens");
    let (length, mut response) = (body.len(), String::new());
    let head = format!("POST {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).expect("it reads");
    stream.read_to_string(&mut response).expect("it answers");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn open_load_is_split_exactly_between_workers() {
    let fleet = Fleet::new(3);
    let result = fleet.result(fleet.start(&["--rate", "200", "--for", "3s"]));
    assert_eq!(number(&result, "/totals/requests"), 600);
    assert_eq!(fleet.target.requests(), 600, "every start was made once");
    assert_eq!((number(&result, "/accounting/sent"), number(&result, "/accounting/lost_at_most")), (600, 0));
    let workers = result.pointer("/fleet/workers").and_then(Value::as_array).expect("workers");
    assert_eq!(workers.len(), 3);
    // How evenly depends on when the shares stopped moving.
    assert!(workers.iter().all(|worker| number(worker, "/requests") > 0), "{workers:?}");
}

#[test]
fn users_are_assigned_to_workers_in_turn() {
    let fleet = Fleet::new(3);
    let run = fleet.start(&["--users", "6", "--pause", "50ms", "--for", "10m"]);
    // Shares may still move when the run starts.
    wait_until("two users each", || ["w0", "w1", "w2"].map(|worker| fleet.users_of(worker)) == [2, 2, 2]);
    fleet.until_received(60);
    run.interrupt();
    let result = fleet.result(run);
    let seconds = result["timeline"].as_array().expect("a timeline");
    assert!(seconds.iter().any(|second| second["users"] == 6), "{seconds:?}");
    assert_eq!(number(&result, "/totals/requests"), fleet.target.requests());
    let workers = result.pointer("/fleet/workers").and_then(Value::as_array).expect("workers");
    assert!(workers.iter().all(|worker| number(worker, "/requests") > 0), "{workers:?}");
}

#[test]
fn fleet_with_an_empty_name_uses_keys_without_a_name() {
    let mut fleet = Fleet::new(0);
    let redis = fleet.redis.url();
    let mut worker = fleet.folder.start(&["worker", "--redis", &redis, "--id", "w0", "--fleet", ""]);
    worker.wait_for_line("joined");
    fleet.workers.push(("w0".to_owned(), worker));
    let result = fleet.result(fleet.start(&["--fleet", "", "--users", "2", "--requests", "10"]));
    assert_eq!((number(&result, "/totals/requests"), fleet.target.requests()), (10, 10));
    assert_eq!(ask_redis(fleet.redis.port(), &["GET test:epoch"]).as_deref(), Some("1"));
}

#[test]
fn requests_of_a_killed_worker_are_bounded_and_others_take_over() {
    let fleet = Fleet::with_short_expiry(3);
    let run = fleet.start(&["--rate", "200", "--for", "12s"]);
    fleet.until_received(400);
    fleet.signal("w1", Signal::KILL);
    let result = fleet.result(run);
    let (reported, lost) = (number(&result, "/totals/requests"), number(&result, "/accounting/lost_at_most"));
    let received = fleet.target.requests();
    assert!(lost > 0, "a killed worker cannot have shipped everything");
    assert!(reported <= received && received <= reported + lost, "{reported} ≤ {received} ≤ {reported} + {lost}");
    // No start is made twice, so at most the due and unreported starts can be lost.
    assert!(reported + lost <= 2400, "{reported} and {lost} of 2400");
    // The full load is back after the gap: 3.5 s to notice, and some time to take over.
    let rates = result["timeline"].as_array().expect("a timeline").iter().map(|second| second["rate"].as_f64());
    let late: Vec<_> = rates.skip(8).flatten().collect();
    assert!(late.iter().any(|rate| *rate > 150.0), "the last seconds: {late:?}");
    assert!(number(&result, "/fleet/missed_starts") > 0, "the gap is stated");
}

#[test]
fn fleet_that_lost_all_its_workers_does_not_pass() {
    let fleet = Fleet::with_short_expiry(2);
    let redis = fleet.redis.url();
    let url = fleet.target.url("/health");
    let run = fleet.folder.start(&["run", &url, "--cluster", &redis, "--rate", "50", "--for", "8s", "--no-tui"]);
    // The workers have shipped a delta by then, so that something is measured.
    fleet.until_received(200);
    fleet.signal("w0", Signal::KILL);
    fleet.signal("w1", Signal::KILL);
    let ended = run.end();
    assert!(ended.code != 0 && !ended.stdout.contains("the run is complete"), "{ended:?}");
    assert!(ended.stdout.contains("of 400 planned starts are missing; --allow-missing"), "{ended:?}");
}

/// A worker notes its final send limit when its load ends; killed after that, exactly its requests
/// in flight are lost.
#[test]
fn lost_requests_of_a_worker_killed_while_draining_are_exact() {
    let fleet = Fleet::on(RedisServer::start(), 2, MEDIUM_EXPIRY);
    let load = ["--rate", "20", "--for", "2s", "--grace", "60s", "--max-redirects", "0"];
    let run = fleet.start_at("/delay/9000", &load);
    fleet.until_received(40);
    let ask = |command: String| ask_redis(fleet.redis.port(), &[&command]);
    let instance = ask("HGET squall:{main}:worker:w1:status instance".to_owned()).expect("it has reported");
    let is_sealed = format!("HEXISTS squall:{{main}}:test:1:notes sealed:{instance}");
    wait_until("the final send limit", || ask(is_sealed.clone()).as_deref() == Some(":1"));
    fleet.signal("w1", Signal::KILL);
    let result = fleet.result(run);
    let (reported, lost) = (number(&result, "/totals/requests"), number(&result, "/accounting/lost_at_most"));
    assert_eq!((fleet.target.requests(), reported + lost), (40, 40), "{result}");
    let why = result.pointer("/accounting/explanation").and_then(Value::as_str).unwrap_or_default();
    assert_eq!(why.contains(&format!("up to {lost} requests that are not reported")), lost > 0, "{why}");
}

#[test]
fn frozen_worker_does_not_repeat_load_that_moved_to_others() {
    let fleet = Fleet::with_short_expiry(2);
    let run = fleet.start(&["--rate", "200", "--for", "14s"]);
    fleet.until_received(400);
    fleet.signal("w1", Signal::STOP);
    // w1 wakes only after its membership has expired and w0 has taken over all shares.
    let held_by_w0 = || ask_redis(fleet.redis.port(), &["HGET squall:{main}:worker:w0:status shares"]);
    wait_until("all shares at w0", || held_by_w0().is_some_and(|shares| shares.contains("256")));
    fleet.signal("w1", Signal::CONT);
    let result = fleet.result(run);
    let (reported, received) = (number(&result, "/totals/requests"), fleet.target.requests());
    assert_eq!(reported, received, "the worker rejoins and ships its deltas");
    assert!(received <= 2800, "{received}: no start was made twice");
    assert_eq!(received + number(&result, "/fleet/missed_starts") + number(&result, "/totals/dropped"), 2800);
}

#[test]
fn joining_and_leaving_workers_lose_no_start() {
    let mut fleet = Fleet::new(2);
    let run = fleet.start(&["--rate", "200", "--for", "8s"]);
    fleet.until_received(300);
    fleet.join("late");
    fleet.until_received(700);
    fleet.signal("w0", Signal::TERM);
    let result = fleet.result(run);
    let all = (number(&result, "/totals/requests"), fleet.target.requests());
    assert_eq!(all, (1600, 1600), "{} {} {}", result["fleet"], result["totals"], result["generator"]);
    assert_eq!((number(&result, "/accounting/lost_at_most"), number(&result, "/fleet/missed_starts")), (0, 0));
    let late = result.pointer("/fleet/workers").and_then(Value::as_array).expect("workers");
    assert!(late.iter().any(|worker| worker["id"] == "late" && number(worker, "/requests") > 0), "{late:?}");
}

#[test]
fn killed_leader_is_replaced_without_loss() {
    let fleet = Fleet::new(2);
    let orchestrator = || {
        let (redis, listen) = (fleet.redis.url(), "127.0.0.1:0");
        fleet.folder.start(&["orchestrator", "--redis", &redis, "--listen", listen])
    };
    let mut leader = orchestrator();
    leader.wait_for_line("leads");
    let mut other = orchestrator();
    other.wait_for_line("joined");
    let run = fleet.start(&["--rate", "100", "--for", "8s"]);
    fleet.until_received(200);
    leader.signal(Signal::KILL);
    let result = fleet.result(run);
    assert_eq!((number(&result, "/totals/requests"), fleet.target.requests()), (800, 800));
    assert_eq!(number(&result, "/accounting/lost_at_most"), 0);
    let events = result["fleet"]["events"].to_string();
    assert!(events.contains("leads now") && !events.contains("joined"), "{events}");
}

#[test]
fn leaving_worker_is_not_ready_and_a_second_signal_logs_the_loss() {
    let (folder, redis, target) = (TestFolder::new(), RedisServer::start(), target());
    let store = redis.url();
    let arguments = ["--redis", &store, "--id", "w0", "--expires-after", LONG_EXPIRY, "--listen", "127.0.0.1:0"];
    let mut worker = folder.start(&[&["worker"], &arguments[..]].concat());
    let line = worker.wait_for_line("serving /healthz");
    let addr = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect(&line);
    let addr = addr.parse().expect(&line);
    worker.wait_for_line("joined");
    let ready = || get(addr, "/readyz", "*/*");
    wait_until("a worker that is ready", || ready().starts_with("HTTP/1.1 200"));
    // Its requests in flight keep the worker running for a while.
    let load = ["--users", "1", "--for", "10m", "--grace", "10m", "--timeout", "10m", "--quiet", "--cluster", &store];
    let run = folder.start(&[&["run", &target.url("/delay/600000")], &load[..]].concat());
    wait_until("a request", || target.requests() > 0);
    worker.terminate();
    wait_until("leaving", || ready().ends_with("not ready: leaving\n"));
    worker.terminate();
    worker.wait_for_line("ends at once; deltas that it has not shipped are lost");
    assert_eq!(worker.code(), 0);
    drop(run);
}

#[test]
fn second_worker_with_the_same_name_is_refused() {
    let fleet = Fleet::new(1);
    let again = fleet.folder.squall(&["worker", "--redis", &fleet.redis.url(), "--id", "w0"]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("another worker that is alive is called `w0`"), "{}", again.stderr);
}

#[test]
fn run_stopped_while_preparing_is_interrupted_and_has_a_result() {
    let fleet = Fleet::new(2);
    // The frozen worker never becomes ready, but counts as alive.
    fleet.signal("w1", Signal::STOP);
    let run = fleet.start(&["--rate", "10", "--for", "5s"]);
    let state = || ask_redis(fleet.redis.port(), &["GET squall:{main}:test:state"]);
    wait_until("the run", || state().as_deref() == Some("PREPARING"));
    run.interrupt();
    let ended = run.end();
    fleet.signal("w1", Signal::CONT);
    assert_eq!(ended.code, 130, "{ended:?}");
    let result = fleet.folder.json("result.json");
    assert_eq!((&result["verdict"], fleet.target.requests()), (&Value::from("interrupted"), 0));
}

/// The result has the known part and says that it is incomplete.
#[test]
fn run_writes_its_result_when_redis_is_lost() {
    let mut fleet = Fleet::new(2);
    let run = fleet.start(&["--rate", "50", "--for", "10m"]);
    let shown = || ask_redis(fleet.redis.port(), &["EXISTS squall:{main}:metrics"]);
    wait_until("a merged second", || shown().as_deref() == Some(":1"));
    fleet.redis.kill();
    run.interrupt();
    let ended = run.end();
    assert_eq!(ended.code, 130, "{ended:?}");
    let result = fleet.folder.json("result.json");
    assert!(result["fleet"]["events"].to_string().contains("the store has stopped answering"), "{result}");
    assert!(number(&result, "/totals/requests") <= fleet.target.requests());
}

#[test]
fn restarted_redis_with_its_data_loses_nothing() {
    let mut fleet = Fleet::on(RedisServer::start_persistent(), 2, LONG_EXPIRY);
    let run = fleet.start(&["--rate", "100", "--for", "8s"]);
    fleet.until_received(200);
    fleet.redis.restart();
    let result = fleet.result(run);
    let (reported, received) = (number(&result, "/totals/requests"), fleet.target.requests());
    assert_eq!(reported, received);
    assert_eq!(
        (received + number(&result, "/fleet/missed_starts"), number(&result, "/accounting/lost_at_most")),
        (800, 0)
    );
}

#[test]
fn run_without_workers_says_how_to_start_one() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    let redis = redis.url();
    let run = ["run", "http://127.0.0.1:9/", "--rate", "1", "--for", "1s", "--cluster", &redis];
    let ended = folder.squall(&[&run[..], &["--quiet"]].concat());
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("squall worker") && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    let mut waiting = folder.start(&run);
    waiting.wait_for_line("no worker is alive; waiting");
    waiting.interrupt();
    assert_eq!(waiting.end().code, 130);
}

#[test]
fn redis_server_without_tls_is_named_as_the_likely_cause() {
    let (folder, redis) = (TestFolder::new(), RedisServer::start());
    let url = format!("rediss://me:s3cr3t@127.0.0.1:{}", redis.port());
    let mut worker = folder.start(&["worker", "--redis", &url]);
    worker.wait_for_line("waiting for Redis at rediss://…@127.0.0.1:");
    let ended = worker.end();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("Does the server speak TLS?"), "{ended:?}");
    let missing = folder.squall(&["worker", "--redis", &format!("{url}?ca=/nowhere/ca.pem")]);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(
        missing.stderr.contains("/nowhere/ca.pem") && !missing.stderr.contains("is the server running"),
        "{missing:?}"
    );
}

#[test]
fn unreachable_redis_error_names_the_address() {
    let folder = TestFolder::new();
    let ended = folder.squall(&[
        "run",
        "http://127.0.0.1:9/",
        "--rate",
        "1",
        "--for",
        "1s",
        "--cluster",
        "redis://127.0.0.1:9",
    ]);
    assert_eq!(ended.code, 3);
    assert!(ended.stderr.contains("redis://127.0.0.1:9"), "{}", ended.stderr);
    let address = ["--cluster", "http://127.0.0.1:9"];
    let mistake =
        folder.squall(&[&["run", "http://127.0.0.1:9/", "--rate", "1", "--for", "1s"], &address[..]].concat());
    assert_eq!(mistake.code, 2);
    assert!(mistake.stderr.contains("is not a Redis address"), "{}", mistake.stderr);
    let mistake = folder.squall(&["worker", "--redis", "foo"]);
    assert_eq!(mistake.code, 2);
    assert!(mistake.stderr.trim_end().ends_with("redis-cluster://host:port,host:port"), "{}", mistake.stderr);
}

/// Users pass results and reports on to others.
#[test]
fn credentials_of_the_store_are_in_no_output() {
    let (folder, target) = (TestFolder::new(), target());
    let socket = folder.path("r.sock").display().to_string();
    let _redis = RedisServer::start_with(&["--save", "", "--requirepass", "s3cr3t@x", "--unixsocket", &socket]);
    let store = format!("unix://{socket}?user=default&pass=s3cr3t%40x");
    let mut worker = folder.start(&["worker", "--redis", &store, "--expires-after", LONG_EXPIRY]);
    worker.wait_for_line("joined");
    let outputs = ["--json", "x.json", "--html", "x.html", "--junit", "x.xml", "--csv", "x.csv"];
    let load = ["--rate", "20", "--requests", "5", "--cluster", &store];
    let ended = folder.squall(&[&["run", &target.url("/health")], &load[..], &outputs].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    worker.terminate();
    let log = worker.end().stderr;
    let read = |name: &str| std::fs::read_to_string(folder.path(name)).expect(name);
    for text in [read("x.json"), read("x.html"), read("x.xml"), read("x.csv"), ended.stdout, ended.stderr, log] {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
    assert!(read("x.json").contains("user=…&pass=…"), "{}", read("x.json"));
}

#[test]
fn scenario_runs_on_workers_with_its_data_files() {
    let fleet = Fleet::new(2);
    let scenario = format!(
        "target = \"{}\"\n[load]\nrate = \"50/s\"\nfor = \"2s\"\n[[data]]\nname = \"pages\"\nfile = \"pages.csv\"\n[[task]]\nname = \"browse\"\n\
         get = \"/api/products?page={{{{ pages.page }}}}\"\nexpect = {{ status = 200 }}\n",
        fleet.target.url("").trim_end_matches('/')
    );
    fleet.folder.write("shop.toml", &scenario).write("pages.csv", "page\n1\n2\n3\n");
    let redis = fleet.redis.url();
    let ended = fleet.folder.squall(&["run", "shop.toml", "--cluster", &redis, "--quiet", "--json", "result.json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = fleet.folder.json("result.json");
    assert_eq!((number(&result, "/totals/requests"), number(&result, "/totals/errors")), (100, 0));
    assert_eq!(fleet.target.requests(), 100);
}

/// Without an orchestrator, `squall run --cluster` leads the fleet itself.
#[test]
fn run_of_a_killed_command_is_ended_by_the_next_run() {
    let fleet = Fleet::new(1);
    let first = fleet.start(&["--rate", "20", "--for", "2s"]);
    fleet.until_received(1);
    first.signal(Signal::KILL);
    // The worker has the plan and continues without a leader.
    fleet.until_received(40);
    let next = fleet.result(fleet.start(&["--rate", "20", "--for", "1s"]));
    assert_eq!((number(&next, "/totals/requests"), fleet.target.requests()), (20, 60));
}

#[test]
fn busy_fleet_says_how_to_stop_its_test() {
    let fleet = Fleet::new(1);
    let first = fleet.start(&["--rate", "20", "--for", "600s"]);
    fleet.until_received(1);
    let refused = fleet.start(&["--rate", "20", "--for", "1s"]).end();
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("squall test stop") && !refused.stderr.contains("waiting"), "{refused:?}");
    let (url, redis) = (fleet.target.url("/health"), fleet.redis.url());
    let loud = fleet.folder.squall(&["run", &url, "--rate", "20", "--for", "1s", "--cluster", &redis]);
    assert!(loud.stderr.contains("runs another test; waiting a few seconds for its end"), "{loud:?}");
    first.interrupt();
    assert_eq!(first.end().code, 130);
}

#[test]
fn wait_for_a_worker_that_is_not_ready_names_it() {
    let fleet = Fleet::new(1);
    fleet.freeze_when_alive("w0");
    let (url, redis) = (fleet.target.url("/health"), fleet.redis.url());
    let mut run = fleet.folder.start(&["run", &url, "--rate", "20", "--for", "600s", "--no-tui", "--cluster", &redis]);
    run.wait_for_line("waiting for w0 to build its users");
    fleet.signal("w0", Signal::CONT);
    fleet.until_received(1);
    run.interrupt();
    assert_eq!(run.end().code, 130);
}

#[test]
fn next_run_waits_for_a_short_run_that_is_still_preparing() {
    let fleet = Fleet::new(1);
    fleet.freeze_when_alive("w0");
    let (url, redis) = (fleet.target.url("/health"), fleet.redis.url());
    let start = || fleet.folder.start(&["run", &url, "--rate", "20", "--for", "1s", "--no-tui", "--cluster", &redis]);
    let mut first = start();
    first.wait_for_line("waiting for w0 to build its users");
    let mut second = start();
    second.wait_for_line("waiting a few seconds for its end");
    fleet.signal("w0", Signal::CONT);
    for run in [first, second] {
        let ended = run.end();
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    assert_eq!(fleet.target.requests(), 40);
}

#[test]
fn worker_removes_the_files_of_its_runs() {
    let mut fleet = Fleet::new(1);
    let unpacked = |fleet: &Fleet| {
        let here = std::fs::read_dir(fleet.folder.path("")).expect("a folder").map(|entry| entry.unwrap().file_name());
        here.filter(|name| name.to_string_lossy().starts_with("squall-")).count()
    };
    for _ in 0..2 {
        fleet.result(fleet.start(&["--rate", "20", "--requests", "2"]));
    }
    assert_eq!(unpacked(&fleet), 1, "only those of the latest");
    fleet.signal("w0", Signal::TERM);
    assert_eq!(fleet.workers.remove(0).1.end().code, 0);
    assert_eq!(unpacked(&fleet), 0);
}

#[test]
fn requests_flag_counts_over_all_workers_together() {
    let fleet = Fleet::new(3);
    let result = fleet.result(fleet.start(&["--users", "7", "--requests", "1001"]));
    assert_eq!((number(&result, "/totals/requests"), fleet.target.requests()), (1001, 1001));
    assert_eq!((number(&result, "/accounting/lost_at_most"), number(&result, "/fleet/missed_starts")), (0, 0));
    assert_eq!(result["run"]["stop"], "completed", "{}", result["run"]);
}

/// Far fewer users than the rate needs: starts that wait for a user at the end of the load still
/// happen.
#[test]
fn requests_flag_with_a_rate_sends_all_requests() {
    let fleet = Fleet::new(2);
    let run = fleet.start_at("/delay/200", &["--rate", "50", "--requests", "100", "--max-users", "4"]);
    let result = fleet.result(run);
    assert_eq!((number(&result, "/accounting/sent"), fleet.target.requests()), (100, 100), "{result}");
    assert_eq!((number(&result, "/totals/errors"), number(&result, "/fleet/missed_starts")), (0, 0), "{result}");
    // By the rate it would be two seconds, but four users make at most 20 requests a second.
    let active = result["run"]["active_s"].as_f64().expect("a number");
    assert!(active > 4.0, "{active} s: the active time must include the wait for users");
}

/// A leaving worker makes every start that was due while it held its shares.
#[test]
fn leaving_worker_makes_the_starts_that_wait_for_a_user() {
    let fleet = Fleet::new(2);
    let run =
        fleet.start_at("/delay/200", &["--rate", "80", "--requests", "240", "--max-users", "4", "--grace", "60s"]);
    fleet.until_received(40);
    fleet.signal("w0", Signal::TERM);
    let result = fleet.result(run);
    assert_eq!((number(&result, "/accounting/sent"), fleet.target.requests()), (240, 240), "{result}");
    assert_eq!((number(&result, "/totals/errors"), number(&result, "/fleet/missed_starts")), (0, 0), "{result}");
}

/// A worker without users must return the iterations that it has drawn.
#[test]
fn requests_flag_is_exact_while_users_move_between_workers() {
    let mut fleet = Fleet::new(2);
    let run = fleet.start(&["--users", "3", "--pause", "20ms", "--requests", "400"]);
    fleet.until_received(60);
    fleet.join("late");
    fleet.until_received(150);
    fleet.signal("w0", Signal::TERM);
    let result = fleet.result(run);
    assert_eq!((number(&result, "/totals/requests"), fleet.target.requests()), (400, 400));
    assert_eq!((number(&result, "/accounting/lost_at_most"), number(&result, "/fleet/missed_starts")), (0, 0));
}

#[test]
fn iterations_drawn_by_a_killed_worker_are_reported_as_missed() {
    let fleet = Fleet::with_short_expiry(3);
    let run = fleet.start(&["--users", "9", "--pause", "20ms", "--requests", "3000"]);
    fleet.until_received(600);
    fleet.signal("w1", Signal::KILL);
    let result = fleet.result(run);
    let (reported, lost) = (number(&result, "/totals/requests"), number(&result, "/accounting/lost_at_most"));
    let (received, missed) = (fleet.target.requests(), number(&result, "/fleet/missed_starts"));
    assert!(reported <= received && received <= reported + lost, "{reported} ≤ {received} ≤ {reported} + {lost}");
    assert!(received <= 3000, "{received}: none was made twice");
    assert!(reported + lost <= 3000, "{reported} and {lost} of 3000: no more can be missing than was drawn");
    assert_eq!(number(&result, "/totals/iterations") + missed, 3000, "nothing is silently absent");
}

/// As many iterations as rows: no iteration is without a row, and no row is used twice.
#[test]
fn unique_rows_are_used_once_over_the_fleet() {
    let fleet = Fleet::new(3);
    let scenario = format!(
        "target = \"{}\"\n[load]\nusers = 6\nrequests = 500\n[[data]]\nname = \"one\"\nfile = \"rows.csv\"\norder = \"unique\"\n[[task]]\n\
         name = \"use\"\nget = \"/health?row={{{{ one.row }}}}\"\nexpect = {{ status = 200 }}\n",
        fleet.target.url("").trim_end_matches('/')
    );
    let rows: String = (0..500).map(|row| format!("{row}\n")).collect();
    fleet.folder.write("once.toml", &scenario).write("rows.csv", &format!("row\n{rows}"));
    let redis = fleet.redis.url();
    let ended = fleet.folder.squall(&["run", "once.toml", "--cluster", &redis, "--quiet", "--json", "result.json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = fleet.folder.json("result.json");
    assert_eq!((number(&result, "/totals/requests"), number(&result, "/totals/errors")), (500, 0), "{result}");
    assert_eq!(fleet.target.requests(), 500);
}

/// As many rows as users: a user that moves to another worker gets its own row there.
#[test]
fn row_of_a_user_moves_with_the_user() {
    let mut fleet = Fleet::new(2);
    let scenario = format!(
        "target = \"{}\"\n[load]\nusers = 9\npause = \"20ms\"\nfor = \"10m\"\n[[data]]\nname = \"own\"\nfile = \"rows.csv\"\n\
         order = \"unique\"\nper = \"user\"\n[[task]]\nname = \"use\"\nget = \"/health?row={{{{ own.row }}}}\"\n",
        fleet.target.url("").trim_end_matches('/')
    );
    fleet.folder.write("own.toml", &scenario).write("rows.csv", "row\n0\n1\n2\n3\n4\n5\n6\n7\n8\n");
    let redis = fleet.redis.url();
    let run = fleet.folder.start(&["run", "own.toml", "--cluster", &redis, "--quiet", "--json", "result.json"]);
    fleet.until_received(50);
    fleet.join("late");
    wait_until("users that have moved", || fleet.users_of("late") == 3);
    fleet.until_received(fleet.target.requests() + 100);
    fleet.signal("w0", Signal::TERM);
    wait_until("more that have moved", || fleet.users_of("late") + fleet.users_of("w1") == 9);
    fleet.until_received(fleet.target.requests() + 100);
    run.interrupt();
    let result = fleet.result(run);
    assert_eq!(number(&result, "/totals/errors"), 0, "{}", result["errors"]);
    assert_eq!(number(&result, "/totals/requests"), fleet.target.requests());
}

#[test]
fn resource_added_during_the_run_is_leased() {
    let fleet = Fleet::new(2);
    let server = RecordingServer::start(Duration::ZERO);
    let scenario = format!(
        "target = \"{}\"\n[load]\nusers = 5\npause = \"20ms\"\nfor = \"10m\"\n[[resource]]\nname = \"g\"\ncount = 2\n\
         fields = {{ name = \"own-{{{{ n }}}}\" }}\nwait = \"10m\"\n[[task]]\nname = \"use\"\nget = \"/{{{{ g.name }}}}\"\n",
        server.url("")
    );
    fleet.folder.write("grow.toml", &scenario);
    let redis = fleet.redis.url();
    let mut leader = fleet.folder.start(&["orchestrator", "--redis", &redis, "--listen", "127.0.0.1:0"]);
    let output = leader.wait_for_line("serves the API");
    let api = output.split_whitespace().find_map(|word| word.strip_prefix("addr=")).expect(&output);
    let run = fleet.folder.start(&["run", "grow.toml", "--cluster", &redis, "--quiet", "--json", "result.json"]);
    let ask = |command: &str| ask_redis(fleet.redis.port(), &[command]);
    let held =
        |count: &str| wait_until("holders", || ask("HLEN squall:{main}:resource:g:held").as_deref() == Some(count));
    let used = |path: &str| wait_until(path, || server.paths().iter().any(|used| used == path));
    used("/own-0");
    used("/own-1");
    post(api, "/ensure_resource", r#"{"name": "g", "count": 4, "payload": {"name": "late"}}"#);
    used("/late");
    held(":4");
    // The fifth user gets the unusable resource once, and then a usable one.
    post(api, "/create_resource", r#"{"name": "g", "count": 1, "payload": {"nmae": "wrong"}}"#);
    held(":5");
    post(api, "/create_resource", r#"{"name": "g", "count": 1, "payload": {"name": "last"}}"#);
    used("/last");
    let own = ask("GET squall:{main}:resource:g:1").expect("it is stored");
    run.interrupt();
    let result = fleet.result(run);
    let errors = result["errors"].as_array().expect("errors");
    assert!(number(&result, "/totals/errors") == 1 && errors[0]["code"] == "RESOURCE_REFUSED", "{errors:?}");
    let why = errors[0]["message"].as_str().unwrap_or_default();
    assert_eq!(why, "`5` of the pool `g` cannot be used: it has no field `name`");
    let own: Value = serde_json::from_str(&own).expect("JSON");
    assert_eq!([&own["name"], &own["resource_name"], &own["resource_id"]], ["own-1", "g", "1"]);
    assert!(own["created_at"].as_f64() > Some(0.0), "{own}");
}

#[test]
fn worker_that_cannot_open_the_bundle_gives_up_its_shares() {
    let fleet = Fleet::new(2);
    let unable = |id: &str| {
        let arguments = ["worker", "--redis", &fleet.redis.url(), "--id", id, "--expires-after", LONG_EXPIRY];
        // This worker cannot unpack the bundle.
        let child = fleet.folder.command(&arguments).env("TMPDIR", fleet.folder.path("nowhere")).spawn();
        RunningProcess::from_child(child.expect("the program starts"))
    };
    let run = fleet.start(&["--rate", "100", "--for", "6s"]);
    fleet.until_received(100);
    let mut late = unable("late");
    late.wait_for_line("cannot be carried out here");
    let result = fleet.result(run);
    assert_eq!((number(&result, "/totals/requests"), fleet.target.requests()), (600, 600));
    assert_eq!((number(&result, "/fleet/missed_starts"), number(&result, "/totals/dropped")), (0, 0));
    let events = result["fleet"]["events"].to_string();
    assert!(events.contains("worker late takes no part"), "{events}");
    let state = |worker: &Value| worker["id"] == "late" && worker["state"] == "unable";
    assert!(result["fleet"]["workers"].as_array().expect("workers").iter().any(state), "{result}");
    // The next run counts on the worker and names it in its error.
    let ended = fleet.start(&["--rate", "100", "--for", "6s"]).end();
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("worker late cannot carry out the run"), "{}", ended.stderr);
}

#[test]
fn run_that_has_lost_every_worker_gives_up_and_says_so() {
    let fleet = Fleet::with_short_expiry(2);
    let (url, redis) = (fleet.target.url("/health"), fleet.redis.url());
    let load = ["--users", "4", "--pause", "20ms", "--requests", "50000", "--no-tui", "--json", "result.json"];
    let mut run = fleet.folder.start(&[&["run", &url, "--cluster", &redis], &load[..]].concat());
    fleet.until_received(20);
    fleet.signal("w0", Signal::KILL);
    fleet.signal("w1", Signal::KILL);
    run.wait_for_line("no worker is left; waiting for one");
    let ended = run.end();
    assert_ne!(ended.code, 0, "{ended:?}");
    let events = fleet.folder.json("result.json")["fleet"]["events"].to_string();
    assert!(events.contains("no worker is left") && events.contains("every worker was lost"), "{events}");
}
