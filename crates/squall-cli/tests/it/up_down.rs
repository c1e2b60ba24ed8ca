//! `squall up`, `squall test` and `squall down` with real processes. Every test has a runtime
//! folder and ports of its own.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use squall_testkit::{
    redis::RedisServer,
    tls::{CertificateAuthority, CertificateValidity},
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Command,
};

use crate::support::{FinishedProcess, RunningProcess, TestFolder, code_block, number, section, target, wait_until};

const API_PAGE: &str = include_str!("../../../../docs/api.md");

/// A folder with a fleet of its own. Dropping it stops the fleet.
pub(crate) struct LocalFleet {
    pub(crate) folder: TestFolder,
    pub(crate) api: SocketAddr,
}

impl LocalFleet {
    pub(crate) fn new() -> LocalFleet {
        let folder = TestFolder::new();
        std::fs::create_dir(folder.path("run")).unwrap();
        let api = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        LocalFleet { folder, api }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.isolate(self.folder.command(arguments))
    }

    /// Runs a line in a shell and returns what it prints. It must succeed.
    #[track_caller]
    fn shell(&self, line: &str) -> String {
        let ended = RunningProcess::from_child(self.isolate(self.folder.shell(line)).spawn().expect("a shell")).end();
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        ended.stdout
    }

    fn isolate(&self, mut command: Command) -> Command {
        command.env("XDG_RUNTIME_DIR", self.folder.path("run")).env_remove("RUST_LOG");
        for name in ["SQUALL_REDIS", "SQUALL_TOKEN", "SQUALL_API", "SQUALL_FLEET"] {
            command.env_remove(name);
        }
        command
    }

    fn squall(&self, arguments: &[&str]) -> FinishedProcess {
        let output = self.command(arguments).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        FinishedProcess {
            code: output.status.code().expect("it ended"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.squall(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.stdout
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, message: &str) {
        let ended = self.squall(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(message), "{arguments:?}: {}", ended.stderr);
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["test", "status", "--json"])).unwrap()
    }

    /// The pids in the output of `squall up`.
    fn pids(text: &str) -> Vec<i32> {
        text.lines().filter_map(|line| line.split(" pid ").nth(1)?.trim().parse().ok()).collect()
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.api).expect("it listens");
        let (api, length) = (self.api, body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let status = response.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = response.split_once("\r\n\r\n").expect("a body").1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn is_up(&self, workers: u64) -> bool {
        TcpStream::connect(self.api).is_ok() && self.request("GET", "/readyz", "", "").1["alive_workers"] == workers
    }
}

impl Drop for LocalFleet {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    !ended && test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

#[test]
fn second_of_two_concurrent_ups_is_refused() {
    let fleet = LocalFleet::new();
    let another = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let up = |api: SocketAddr| fleet.command(&["up", "--workers", "1", "--listen", &api.to_string()]).spawn();
    let both = [up(fleet.api), up(another)].map(|child| RunningProcess::from_child(child.expect("it starts")).end());
    let mut codes = both.each_ref().map(|ended| ended.code);
    codes.sort_unstable();
    assert_eq!(codes, [0, 2], "{both:?}");
    assert!(both.iter().any(|ended| ended.stderr.contains("a fleet is running")), "{both:?}");
}

#[test]
fn fleet_starts_runs_a_controlled_test_and_stops() {
    let (fleet, target) = (LocalFleet::new(), target());
    let listen = fleet.api.to_string();
    let output = fleet.ok(&["up", "--workers", "2", "--listen", &listen]);
    let pids = LocalFleet::pids(&output);
    assert_eq!(pids.len(), 4, "redis-server, an orchestrator and two workers: {output}");
    assert!(pids.iter().all(|pid| is_alive(*pid)) && output.contains("squall test start"), "{output}");
    fleet.refused(&["up"], 2, "squall down");
    assert!(fleet.ok(&["test", "status"]).contains("no test has run yet; 2 workers alive"));
    fleet.refused(&["test", "stop"], 2, "squall test start");

    let url = target.url("/api/products");
    let output = fleet.ok(&["test", "start", &url, "--rate", "100", "--for", "10m"]);
    assert!(output.contains("test 1 starts"), "{output}");
    wait_until("requests", || fleet.status()["live"]["requests_total"].as_u64() > Some(0));
    fleet.refused(&["test", "start", &url, "--rate", "1"], 2, "squall test stop");
    fleet.refused(&["test", "scale", "--users", "5"], 2, "driven by its rate");
    fleet.refused(&["test", "rate", "1000000000"], 2, "10000000");
    assert!(fleet.ok(&["test", "rate", "150"]).contains("150/s instead of 100"), "the previous rate is printed");
    wait_until("the new rate", || fleet.status()["level"] == 150.0);
    fleet.ok(&["test", "pause"]);
    wait_until("the pause", || fleet.status()["paused"] == true && fleet.status()["level"] == 0.0);
    assert!(fleet.ok(&["test", "status"]).contains("is paused"));
    fleet.refused(&["test", "pause"], 2, "paused already");
    fleet.ok(&["test", "resume"]);
    wait_until("the load", || fleet.status()["level"] == 150.0);
    fleet.ok(&["test", "stop"]);
    wait_until("the end", || fleet.status()["state"] == "IDLE");
    let (status, result) = fleet.request("GET", "/api/v1/tests/1", "", "");
    assert_eq!((status, &result["schema"]), (200, &Value::from("squall.result/1")));
    assert_eq!(number(&result, "/totals/requests"), target.requests() as f64, "sent = reported");
    assert_eq!(number(&result, "/accounting/lost_at_most"), 0.0);
    assert!(fleet.ok(&["test", "status", "--watch"]).contains("test 1 is over"));

    // Usually stopped before it starts: no worker counts as lost, and the next test may start.
    fleet.ok(&["test", "start", &url, "--rate", "100", "--for", "10m"]);
    fleet.ok(&["test", "stop"]);
    wait_until("the end", || fleet.status()["state"] == "IDLE");
    let (_, stopped) = fleet.request("GET", "/api/v1/tests/2", "", "");
    assert_eq!(number(&stopped, "/accounting/lost_at_most"), 0.0, "{stopped:#}");
    let both = number(&result, "/totals/requests") + number(&stopped, "/totals/requests");
    assert_eq!(both, target.requests() as f64);

    let output = fleet.ok(&["down"]);
    for role in ["worker-1", "worker-2", "orchestrator", "redis-server"] {
        assert!(output.contains(&format!("ended {role} (pid ")), "{output}");
    }
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{output}");
    assert!(!fleet.folder.path("run/squall").exists(), "files are left");
    assert!(fleet.ok(&["down"]).contains("nothing to stop"));
    fleet.refused(&["test", "status"], 3, "squall up");
}

#[test]
fn status_of_an_ended_test_names_the_breached_threshold() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.ok(&["up", "--workers", "1", "--listen", &fleet.api.to_string()]);
    let url = target.url("/api/products");
    fleet.ok(&["test", "start", &url, "--rate", "20", "--for", "1s", "-t", "p99<1us", "-t", "error_rate<1%"]);
    let output = fleet.ok(&["test", "status", "--watch"]);
    assert!(output.contains("\n  verdict: threshold breached\n  ✗ p99<1us: "), "{output}");
    assert!(!output.contains("error_rate") && !output.contains("lost") && !output.contains("not reported"), "{output}");
    let status = fleet.status();
    assert_eq!((&status["verdict"], &status["exit_code"]), (&"threshold_breached".into(), &1.into()));
    assert_eq!((number(&status, "/accounting/lost_at_most"), number(&status, "/fleet/missed_starts")), (0.0, 0.0));
}

#[test]
fn lost_store_is_reported_as_unreachable_and_not_as_usage_error() {
    let fleet = LocalFleet::new();
    let output = fleet.ok(&["up", "--workers", "1", "--listen", &fleet.api.to_string()]);
    let redis = LocalFleet::pids(output.lines().find(|line| line.contains("redis-server  ")).expect(&output))[0];
    kill_process(Pid::from_raw(redis).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", || !is_alive(redis));
    fleet.refused(&["test", "status"], 3, "the coordination store did not answer");
    fleet.refused(
        &["test", "start", "http://127.0.0.1:1/", "--users", "1"],
        3,
        "the coordination store did not answer",
    );
    fleet.refused(&["up"], 2, "but redis-server has ended: stop the rest with `squall down`");
}

#[test]
fn down_and_the_next_up_name_a_test_that_still_runs() {
    let (fleet, target, redis) = (LocalFleet::new(), target(), RedisServer::start());
    let (listen, server) = (fleet.api.to_string(), redis.url());
    let up = ["up", "--workers", "1", "--listen", &listen, "--redis", &server];
    assert!(!fleet.ok(&up).contains("is running"));
    fleet.ok(&["test", "start", &target.url("/api/products"), "--rate", "20", "--for", "10m"]);
    wait_until("requests", || target.requests() > 0);
    let output = fleet.ok(&["down"]);
    assert!(output.contains("test 1 is still running") && output.contains("`squall test stop` before"), "{output}");
    let output = fleet.ok(&up);
    assert!(output.contains("test 1 is running, and these workers take part in it"), "{output}");
    fleet.ok(&["test", "stop"]);
    wait_until("the end", || fleet.status()["state"] == "IDLE");
    assert!(!fleet.ok(&["down"]).contains("still running"));
}

#[test]
fn down_names_the_process_it_waits_for() {
    let fleet = LocalFleet::new();
    let output = fleet.ok(&["up", "--workers", "1", "--listen", &fleet.api.to_string()]);
    assert!(output.contains("a fleet of 1 worker is up"), "{output}");
    let worker = LocalFleet::pids(output.lines().find(|line| line.contains("worker-1  ")).expect(&output))[0];
    let signal = |signal| kill_process(Pid::from_raw(worker).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    let mut down = RunningProcess::from_child(fleet.command(&["down"]).spawn().unwrap());
    down.wait_for_line(&format!("waiting for worker-1 (pid {worker})"));
    signal(Signal::CONT);
    let ended = down.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("ended worker-1"), "{ended:?}");
}

#[test]
fn fleet_without_a_redis_server_runs_in_one_process() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.folder.write(
        "shop.toml",
        &format!("target = \"{}\"\n[[task]]\nname = \"look\"\nget = \"/api/products\"\n", target.url("")),
    );
    let listen = fleet.api.to_string();
    let up = fleet.command(&["up", "--workers", "2", "--listen", &listen]).env("PATH", "/nowhere").output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let pids = LocalFleet::pids(&String::from_utf8(up.stdout).unwrap());
    assert_eq!(pids.len(), 1);
    fleet.ok(&["test", "start", &target.url("/api/products"), "--users", "4", "--pause", "10ms", "--for", "10m"]);
    wait_until("requests", || target.requests() > 0);
    fleet.ok(&["test", "scale", "--users", "6"]);
    wait_until("six users", || fleet.status()["live"]["users"] == 6);
    // While a test runs.
    fleet.ok(&["down"]);
    assert!(!is_alive(pids[0]) && !fleet.folder.path("run/squall").exists());
}

#[test]
fn separate_orchestrators_and_workers_require_the_token() {
    let (fleet, redis, target) = (LocalFleet::new(), RedisServer::start(), target());
    // The target has no path for the default value of the variable.
    let text = "[variables]\nwhat = 'nothing'\n[[task]]\nname = 'look'\nget = '/api/{{ what }}'\n";
    let text = format!("target = \"{}\"\n{text}", target.url(""));
    fleet.folder.write("shop.toml", &text);
    let (listen, url, token) = (fleet.api.to_string(), redis.url(), "a-token-for-tests-only");
    let start = |arguments: &[&str]| {
        RunningProcess::from_child(
            fleet.command(arguments).env("SQUALL_TOKEN", token).env("SQUALL_REDIS", &url).spawn().unwrap(),
        )
    };
    let leader = start(&["orchestrator", "--listen", &listen, "--scenario", "shop.toml", "--log", "json"]);
    let worker = start(&["worker", "--id", "w1"]);
    wait_until("the fleet", || fleet.is_up(1));
    let api = format!("http://{listen}");
    fleet.refused(&["test", "status", "--api", &api], 2, "--token");
    fleet.refused(&["test", "status", "--api", &api, "--token", "a-token-that-is-wrong"], 2, "SQUALL_TOKEN");
    fleet.ok(&["test", "status", "--api", &api, "--token", token]);

    let bearer = format!("Authorization: Bearer {token}\r\n");
    let (status, _) = fleet.request("POST", "/start_test", "", r#"{"users": 2}"#);
    assert_eq!(status, 401);
    let (status, started) =
        fleet.request("POST", "/start_test", &bearer, r#"{"users": 2, "init_params": {"waht": "products"}}"#);
    assert_eq!((status, &started["error"]["code"]), (400, &Value::from("validation_error")), "{started}");
    let (status, started) =
        fleet.request("POST", "/start_test", &bearer, r#"{"users": 2, "init_params": {"what": "products"}}"#);
    assert_eq!((status, &started["start_result"]["delivered"]), (200, &Value::from(1)), "{started}");
    wait_until("requests", || target.requests() > 0);
    let metrics = || fleet.request("GET", "/metrics", &bearer, "").1;
    let codes = || metrics()["metrics"][0]["aggregate_total"]["result_code_counts"].clone();
    wait_until("numbers", || codes()["HTTP_200"].as_u64() > Some(0));
    assert_eq!(codes().as_object().map(serde_json::Map::len), Some(1), "the parameter is the variable: {}", codes());
    let (status, stopped) = fleet.request("POST", "/stop_test", &bearer, "{}");
    assert_eq!((status, &stopped["stop_result"]["delivered"]), (200, &Value::from(1)), "{stopped}");
    worker.terminate();
    assert_eq!(worker.end().code, 0);
    leader.terminate();
    let ended = leader.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!ended.stderr.contains(token), "the token is not logged");
    let line = ended.stderr.lines().find(|line| line.contains("serves the API")).expect(&ended.stderr);
    assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
}

#[test]
fn api_is_served_and_called_over_tls() {
    let (fleet, redis) = (LocalFleet::new(), RedisServer::start());
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["127.0.0.1"], CertificateValidity::Current);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key, ca) = (path(&identity.cert_file), path(&identity.key_file), path(&authority.ca_file()));
    let (listen, url) = (fleet.api.to_string(), redis.url());
    let serve = ["orchestrator", "--redis", &url, "--listen", &listen];
    let leader = RunningProcess::from_child(
        fleet.command(&serve).args(["--tls-cert", &cert, "--tls-key", &key]).spawn().unwrap(),
    );
    let api = format!("https://{listen}");
    wait_until("the API", || fleet.squall(&["test", "status", "--api", &api, "--api-ca", &ca]).code == 0);
    fleet.refused(&["test", "status", "--api", &api], 3, "--api-ca");
    fleet.refused(&["test", "status", "--api", &format!("http://{listen}")], 3, "no response");
    let without_tls = target();
    let plain = without_tls.url("").replace("http://", "https://");
    fleet.refused(&["test", "status", "--api", &plain], 3, "http:// port? Is `squall orchestrator` running there?");
    leader.terminate();
    assert_eq!(leader.end().code, 0);
    let files = ["--tls-cert", "none.pem", "--tls-key", "none.pem"];
    let ended = fleet.squall(&[&serve[..], &files].concat());
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("none.pem") && !ended.stderr.contains("serves the API"), "{}", ended.stderr);
}

#[test]
fn test_start_with_outputs_waits_and_writes_what_a_run_writes() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.ok(&["up", "--workers", "2", "--in-memory", "--listen", &fleet.api.to_string()]);
    let url = target.url("/api/products");
    let load = ["test", "start", &url, "--rate", "50", "--for", "1s", "--name", "waited"];
    let outputs = ["--html", "report.html", "--junit", "junit.xml", "--json", "result.json"];
    let waited = fleet.squall(&[&load[..], &["-t", "p99<1us"], &outputs].concat());
    assert_eq!(waited.code, 1, "{waited:?}");
    assert!(waited.stdout.contains("1 of 1 thresholds breached"), "{}", waited.stdout);
    assert!(
        waited.stderr.contains("test 1 starts: waited") && waited.stderr.contains("wrote report.html"),
        "{waited:?}"
    );
    assert_eq!((target.requests(), number(&fleet.folder.json("result.json"), "/totals/requests")), (50, 50.0));
    assert!(fleet.folder.read("junit.xml").contains("threshold_breached"));
    let page = fleet.folder.read("report.html");
    assert!(page.contains("squall test start") && page.contains("Workers"), "the command and the workers are in it");
    fleet.ok(&["report", "result.json", "--html", "again.html"]);
    assert_eq!(fleet.folder.read("again.html"), page);
    let quiet = fleet.squall(&[&load[..], &["--wait", "--quiet"]].concat());
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""));
    let unreachable =
        fleet.squall(&["test", "start", "http://127.0.0.1:1/", "--users", "1", "-n", "1", "--wait", "-q"]);
    assert_eq!(unreachable.code, 3, "{unreachable:?}");
}

#[test]
fn interrupted_wait_stops_the_test_and_writes_its_outputs() {
    let (fleet, target) = (LocalFleet::new(), target());
    fleet.ok(&["up", "--workers", "1", "--in-memory", "--listen", &fleet.api.to_string()]);
    let url = target.url("/api/products");
    let start = ["test", "start", &url, "--rate", "50", "--for", "10m", "--json", "result.json"];
    let waiting = RunningProcess::from_child(fleet.command(&start).spawn().expect("it starts"));
    wait_until("the test makes load", || target.requests() > 10);
    waiting.interrupt();
    let ended = waiting.end();
    assert_eq!(ended.code, 130, "{ended:?}");
    assert!(ended.stderr.contains("press Ctrl-C again to abort"), "{}", ended.stderr);
    assert_eq!(number(&fleet.folder.json("result.json"), "/totals/requests"), target.requests() as f64);
    assert_eq!(fleet.status()["state"], "IDLE");
}

#[test]
fn errors_of_fleet_commands_say_what_to_do() {
    let fleet = LocalFleet::new();
    let redis = "redis://127.0.0.1:1";
    fleet.refused(&["orchestrator", "--redis", redis, "--listen", "0.0.0.0:0"], 2, "--token");
    fleet.refused(&["test", "scale", "--users", "1000001"], 2, "--users");
    fleet.refused(&["test", "start", "http://127.0.0.1:1/", "--hdr"], 2, "squall run … --cluster");
    fleet.refused(&["test", "start", "http://127.0.0.1:1/", "--prometheus", "127.0.0.1:0"], 2, "GET /metrics");
    fleet.refused(&["test", "start", "shop.py", "--processes", "2"], 2, "start more workers");
    fleet.refused(&["test", "start", "--plan", "plan.json"], 2, "--plan belongs to `squall run`");
    fleet.refused(&["orchestrator", "--redis", redis, "--listen", "127.0.0.1:0", "--token", "short"], 2, "too short");
    fleet.refused(&["orchestrator", "--redis", redis, "--listen", "127.0.0.1:0"], 3, "redis");
    fleet.refused(&["orchestrator", "--redis", redis, "--listen", "nonsense"], 2, "HOST:PORT");
    fleet.refused(&["orchestrator", "--redis", redis, "--scenario", "none.toml"], 2, "none.toml");
    fleet.refused(&["test", "status", "--api", "http://127.0.0.1:1"], 3, "squall up");
    fleet.refused(&["test", "start", "http://127.0.0.1:1/", "--json", "/no/folder/x.json"], 2, "/no/folder/x.json");
    fleet.refused(&["test", "start", "http://127.0.0.1:1/", "--find-max", "p99<1s"], 2, "squall run");
    fleet.refused(&["worker", "--redis", redis, "--fleet", "a}b:{c"], 2, "letters");
    fleet.refused(&["up", "--listen", "0.0.0.0:8080"], 2, "--token");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.refused(&["up", "--listen", &taken.local_addr().unwrap().to_string()], 2, "--listen");
    let listen = fleet.api.to_string();
    fleet.refused(&["up", "--redis", redis, "--listen", &listen], 3, "cannot connect");
    fleet.refused(&["up", "--redis", "http://x", "--listen", &listen], 2, "is not a Redis address");
    assert!(!fleet.folder.path("run/squall").exists(), "files are left");
}

/// Users copy messages into tickets and chats.
#[test]
fn credentials_in_urls_are_not_in_messages() {
    let fleet = LocalFleet::new();
    let hidden = "s3cr3t";
    for api in
        ["http://me:s3cr3t@127.0.0.1:1", "http://127.0.0.1:1/?token=s3cr3t", "http://me:s3cr3t@a b", "me:s3cr3t@h"]
    {
        let ended = fleet.squall(&["test", "status", "--api", api]);
        assert!(ended.code != 0 && !ended.stderr.contains(hidden), "{api}: {ended:?}");
    }
    for redis in ["redis://me:s3cr3t@127.0.0.1:1", "unix:///nowhere?user=me&pass=s3cr3t", "redis://h?pass=s3cr3t"] {
        let ended = fleet.squall(&["worker", "--redis", redis]);
        assert!(ended.code != 0 && !ended.stderr.contains(hidden), "{redis}: {ended:?}");
    }
    let help = fleet.command(&["test", "status", "--help"]).env("SQUALL_API", "http://me:s3cr3t@h").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains(hidden), "{help:?}");
}

/// The state file may belong to a fleet that runs.
#[test]
fn damaged_state_file_is_refused_by_up_and_down() {
    let fleet = LocalFleet::new();
    let folder = fleet.folder.path("run/squall");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(folder.join("fleet.json"), r#"{"version":1,"proc"#).unwrap();
    for command in [&["up", "--listen", &fleet.api.to_string()][..], &["down"]] {
        fleet.refused(command, 2, "fleet.json is damaged: end the processes yourself and remove the file");
    }
    assert_eq!(std::fs::read_to_string(folder.join("fleet.json")).unwrap(), r#"{"version":1,"proc"#);
}

#[test]
fn down_does_not_signal_a_reused_pid() {
    let fleet = LocalFleet::new();
    let folder = fleet.folder.path("run/squall");
    std::fs::create_dir(&folder).unwrap();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = bystander.id();
    let record =
        format!(r#"{{"version":1,"api":"http://x","processes":[{{"role":"worker-1","pid":{pid},"start_time":1}}]}}"#);
    std::fs::write(folder.join("fleet.json"), record).unwrap();
    // Other users could have written to this folder.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    fleet.refused(&["down"], 2, "can be used by other users");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(fleet.ok(&["down"]).contains("had already ended: worker-1"));
    assert!(is_alive(pid as i32));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn run_on_a_cluster_without_a_url_uses_the_fleet_of_squall_up() {
    let (fleet, target) = (LocalFleet::new(), target());
    let url = target.url("/health");
    let load = ["--users", "2", "--requests", "20", "--json", "result.json"];
    fleet.refused(&[&["run", &url, "--cluster"], &load[..]].concat(), 2, "`squall up`, and none runs");
    let printed = fleet.squall(&["up", "--workers", "2", "--listen", &fleet.api.to_string()]);
    assert!(printed.code == 0 && printed.stdout.contains("--rate 200 --for 30s --cluster\n"), "{printed:?}");
    for words in [["run", &url, "--cluster"], ["run", "--cluster", &url]] {
        fleet.ok(&[&words[..], &load[..]].concat());
        assert_eq!(fleet.folder.json("result.json")["fleet"]["workers"].as_array().map(Vec::len), Some(2));
    }
    assert_eq!(target.requests(), 40);
}

/// Whether the program printed what the page shows. Fractions are measured and may differ.
fn looks_like(printed: &Value, documented: &Value) -> bool {
    match (printed, documented) {
        (Value::Array(printed), Value::Array(documented)) => {
            printed.len() == documented.len() && printed.iter().zip(documented).all(|(a, b)| looks_like(a, b))
        }
        (Value::Number(printed), Value::Number(documented)) if documented.is_f64() => printed.as_f64() > Some(0.0),
        _ => printed == documented,
    }
}

/// Only the addresses differ, because those of the page may be in use.
/// The scenario is short; the value of one parameter makes its last variable 4 GB long.
#[test]
fn parameter_that_makes_a_text_too_long_is_refused_and_no_worker_dies() {
    let (fleet, target) = (LocalFleet::new(), target());
    let doubled: String = (0..16).map(|n| format!("v{} = '{{{{ v{n} }}}}{{{{ v{n} }}}}'\n", n + 1)).collect();
    let task = "[[task]]\nname = 'x'\nget = '/health'\n";
    fleet.folder.write("shop.toml", &format!("target = '{}'\n[variables]\nv0 = 'x'\n{doubled}{task}", target.url("")));
    let output = fleet.ok(&["up", "--workers", "2", "--listen", &fleet.api.to_string(), "--scenario", "shop.toml"]);
    let start = |params: &Value| {
        let body = serde_json::json!({"users": 2, "init_params": params}).to_string();
        fleet.request("POST", "/start_test", "", &body)
    };
    let (status, refused) = start(&serde_json::json!({"v0": "a".repeat(60_000)}));
    assert_eq!(status, 400, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("longer than 16 MiB"), "{refused}");
    assert!(LocalFleet::pids(&output).into_iter().all(is_alive), "{output}");
    wait_until("the next test", || start(&serde_json::json!({})).0 == 200);
    wait_until("requests", || target.requests() > 0);
}

#[test]
fn example_of_the_api_page_runs_as_printed() {
    let (fleet, target) = (LocalFleet::new(), target());
    let (steer, api) = (section(API_PAGE, "## Steer a test"), fleet.api.to_string());
    fleet.folder.write("shop.toml", &code_block(steer, "toml").replace("http://127.0.0.1:8089", &target.url("")));
    let commands = code_block(steer, "console").split("$ ").skip(1);
    for (command, documented) in commands.filter_map(|command| command.split_once('\n')) {
        let command =
            command.replace("squall up", &format!("squall up --listen {api}")).replace("localhost:8080", &api);
        if command.contains("/metrics") {
            wait_until("the first second", || !fleet.shell(&command).is_empty());
        }
        let printed = fleet.shell(&command);
        let line = |text: &str| serde_json::from_str(text).unwrap_or_else(|error| panic!("{command}: {error}: {text}"));
        assert!(documented.is_empty() || looks_like(&line(&printed), &line(documented)), "{command}: {printed}");
    }
    assert!(target.requests() > 0, "the test sent requests");
}
