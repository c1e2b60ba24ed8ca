//! Fleets of real processes on a real server: up, steered through the API, down. Every test has a runtime folder and ports of its own.

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

use crate::support::{Desk, Ended, Running, number, target, wait_until};

/// A desk whose fleet is nobody else's; it goes down at the end whatever happens.
struct Home {
    desk: Desk,
    api: SocketAddr,
}

impl Home {
    fn new() -> Home {
        let desk = Desk::new();
        std::fs::create_dir(desk.path("run")).unwrap();
        let api = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Home { desk, api }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.desk.command(arguments);
        command.env("XDG_RUNTIME_DIR", self.desk.path("run")).env_remove("RUST_LOG");
        for name in ["SQUALL_REDIS", "SQUALL_TOKEN", "SQUALL_API", "SQUALL_FLEET"] {
            command.env_remove(name);
        }
        command
    }

    fn squall(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Ended {
            code: output.status.code().expect("it ended"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.squall(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.stdout
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, words: &str) {
        let ended = self.squall(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["test", "status", "--json"])).unwrap()
    }

    /// The pids in what `up` said.
    fn pids(text: &str) -> Vec<i32> {
        text.lines().filter_map(|line| line.split(" pid ").nth(1)?.trim().parse().ok()).collect()
    }

    fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.api).expect("it listens");
        let (api, length) = (self.api, body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {api}\r\nConnection: close\r\nContent-Length: {length}\r\n");
        stream.write_all(format!("{head}{headers}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let body = answer.split_once("\r\n\r\n").expect("a body").1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn is_up(&self, workers: u64) -> bool {
        TcpStream::connect(self.api).is_ok() && self.request("GET", "/readyz", "", "").1["alive_workers"] == workers
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = self.command(&["down"]).output();
    }
}

fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ended = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'));
    !ended && test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

/// Both went up, and the first was forgotten.
#[test]
fn of_two_that_go_up_at_once_one_is_refused() {
    let home = Home::new();
    let another = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let up = |api: SocketAddr| home.command(&["up", "--workers", "1", "--listen", &api.to_string()]).spawn();
    let both = [up(home.api), up(another)].map(|child| Running::of(child.expect("it starts")).end());
    let mut codes = both.each_ref().map(|ended| ended.code);
    codes.sort_unstable();
    assert_eq!(codes, [0, 2], "{both:?}");
    assert!(both.iter().any(|ended| ended.stderr.contains("running already")), "{both:?}");
}

#[test]
fn a_fleet_goes_up_is_steered_and_goes_down() {
    let (home, target) = (Home::new(), target());
    let listen = home.api.to_string();
    let said = home.ok(&["up", "--workers", "2", "--listen", &listen]);
    let pids = Home::pids(&said);
    assert_eq!(pids.len(), 4, "redis-server, an orchestrator and two workers: {said}");
    assert!(pids.iter().all(|pid| is_alive(*pid)) && said.contains("squall test start"), "{said}");
    home.refused(&["up"], 2, "squall down");
    assert!(home.ok(&["test", "status"]).contains("no test has run yet; 2 workers alive"));
    home.refused(&["test", "stop"], 2, "squall test start");

    let url = target.url("/api/products");
    let said = home.ok(&["test", "start", &url, "--rate", "100", "--for", "10m"]);
    assert!(said.contains("test 1 starts"), "{said}");
    wait_until("requests", || home.status()["live"]["requests_total"].as_u64() > Some(0));
    home.refused(&["test", "start", &url, "--rate", "1"], 2, "squall test stop");
    home.refused(&["test", "scale", "--users", "5"], 2, "driven by its rate");
    home.refused(&["test", "rate", "1000000000"], 2, "10000000");
    assert!(home.ok(&["test", "rate", "150"]).contains("150/s instead of 100"), "the rate before is said");
    wait_until("the new rate", || home.status()["level"] == 150.0);
    home.ok(&["test", "pause"]);
    wait_until("the pause", || home.status()["paused"] == true && home.status()["level"] == 0.0);
    assert!(home.ok(&["test", "status"]).contains("is paused"));
    home.refused(&["test", "pause"], 2, "paused already");
    home.ok(&["test", "resume"]);
    wait_until("the load", || home.status()["level"] == 150.0);
    home.ok(&["test", "stop"]);
    wait_until("the end", || home.status()["state"] == "IDLE");
    let (status, result) = home.request("GET", "/api/v1/tests/1", "", "");
    assert_eq!((status, &result["schema"]), (200, &Value::from("squall.result/1")));
    assert_eq!(number(&result, "/totals/requests"), target.requests() as f64, "sent = reported");
    assert_eq!(number(&result, "/accounting/lost_at_most"), 0.0);
    assert!(home.ok(&["test", "status", "--watch"]).contains("test 1 is over"));

    // Stopped before it has begun, most of the time: nobody is taken for lost, and the next may start.
    home.ok(&["test", "start", &url, "--rate", "100", "--for", "10m"]);
    home.ok(&["test", "stop"]);
    wait_until("the end", || home.status()["state"] == "IDLE");
    let (_, stopped) = home.request("GET", "/api/v1/tests/2", "", "");
    assert_eq!(number(&stopped, "/accounting/lost_at_most"), 0.0, "{stopped:#}");
    let both = number(&result, "/totals/requests") + number(&stopped, "/totals/requests");
    assert_eq!(both, target.requests() as f64);

    let said = home.ok(&["down"]);
    for role in ["worker-1", "worker-2", "orchestrator", "redis-server"] {
        assert!(said.contains(&format!("ended {role} (pid ")), "{said}");
    }
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{said}");
    assert!(!home.desk.path("run/squall").exists(), "nothing is left behind");
    assert!(home.ok(&["down"]).contains("nothing to end"));
    home.refused(&["test", "status"], 3, "squall up");
}

/// It told the requests, and that none had failed.
#[test]
fn the_status_of_a_test_that_is_over_says_what_broke() {
    let (home, target) = (Home::new(), target());
    home.ok(&["up", "--workers", "1", "--listen", &home.api.to_string()]);
    let url = target.url("/api/products");
    home.ok(&["test", "start", &url, "--rate", "20", "--for", "1s", "-t", "p99<1us", "-t", "error_rate<1%"]);
    let said = home.ok(&["test", "status", "--watch"]);
    assert!(said.contains("\n  verdict: threshold breached\n  ✗ p99<1us: "), "{said}");
    assert!(!said.contains("error_rate") && !said.contains("lost") && !said.contains("not reported"), "{said}");
    let status = home.status();
    assert_eq!((&status["verdict"], &status["exit_code"]), (&"threshold_breached".into(), &1.into()));
    assert_eq!((number(&status, "/accounting/lost_at_most"), number(&status, "/fleet/missed_starts")), (0.0, 0.0));
}

#[test]
fn a_fleet_that_has_lost_its_store_is_not_called_a_mistake_nor_running() {
    let home = Home::new();
    let said = home.ok(&["up", "--workers", "1", "--listen", &home.api.to_string()]);
    let redis = Home::pids(said.lines().find(|line| line.contains("redis-server  ")).expect(&said))[0];
    kill_process(Pid::from_raw(redis).unwrap(), Signal::KILL).unwrap();
    wait_until("its end", || !is_alive(redis));
    home.refused(&["test", "status"], 3, "the coordination store did not answer");
    home.refused(&["test", "start", "http://127.0.0.1:1/", "--users", "1"], 3, "the coordination store did not answer");
    home.refused(&["up"], 2, "has lost redis-server: end what is left of it with `squall down`");
}

/// The load went on with the next `up`, and nobody had said so.
#[test]
fn a_test_that_outlives_its_fleet_is_named_by_down_and_by_the_next_up() {
    let (home, target, redis) = (Home::new(), target(), RedisServer::start());
    let (listen, server) = (home.api.to_string(), redis.url());
    let up = ["up", "--workers", "1", "--listen", &listen, "--redis", &server];
    assert!(!home.ok(&up).contains("under way"));
    home.ok(&["test", "start", &target.url("/api/products"), "--rate", "20", "--for", "10m"]);
    wait_until("requests", || target.requests() > 0);
    let said = home.ok(&["down"]);
    assert!(said.contains("test 1 is still under way") && said.contains("`squall test stop` before"), "{said}");
    let said = home.ok(&up);
    assert!(said.contains("test 1 is under way, and these workers take part in it"), "{said}");
    home.ok(&["test", "stop"]);
    wait_until("the end", || home.status()["state"] == "IDLE");
    assert!(!home.ok(&["down"]).contains("under way"));
}

/// It was silent for as long as the worker did not end.
#[test]
fn down_says_whom_it_waits_for() {
    let home = Home::new();
    let said = home.ok(&["up", "--workers", "1", "--listen", &home.api.to_string()]);
    assert!(said.contains("a fleet of 1 worker is up"), "{said}");
    let worker = Home::pids(said.lines().find(|line| line.contains("worker-1  ")).expect(&said))[0];
    let signal = |signal| kill_process(Pid::from_raw(worker).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    let mut down = Running::of(home.command(&["down"]).spawn().unwrap());
    down.wait_for_line(&format!("waiting for worker-1 (pid {worker})"));
    signal(Signal::CONT);
    let ended = down.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stdout.contains("ended worker-1"), "{ended:?}");
}

#[test]
fn without_a_server_a_fleet_lives_in_one_process() {
    let (home, target) = (Home::new(), target());
    home.desk.write(
        "shop.toml",
        &format!("target = \"{}\"\n[[task]]\nname = \"look\"\nget = \"/api/products\"\n", target.url("")),
    );
    let listen = home.api.to_string();
    let up = home.command(&["up", "--workers", "2", "--listen", &listen]).env("PATH", "/nowhere").output().unwrap();
    assert!(up.status.success(), "{up:?}");
    let pids = Home::pids(&String::from_utf8(up.stdout).unwrap());
    assert_eq!(pids.len(), 1);
    home.ok(&["test", "start", &target.url("/api/products"), "--users", "4", "--pause", "10ms", "--for", "10m"]);
    wait_until("requests", || target.requests() > 0);
    home.ok(&["test", "scale", "--users", "6"]);
    wait_until("six users", || home.status()["live"]["users"] == 6);
    // In the middle of a test.
    home.ok(&["down"]);
    assert!(!is_alive(pids[0]) && !home.desk.path("run/squall").exists());
}

#[test]
fn orchestrators_and_workers_start_apart_and_ask_for_the_token() {
    let (home, redis, target) = (Home::new(), RedisServer::start(), target());
    // What the variable is in the file does not exist there.
    let text = "[variables]\nwhat = 'nothing'\n[[task]]\nname = 'look'\nget = '/api/{{ what }}'\n";
    let text = format!("target = \"{}\"\n{text}", target.url(""));
    home.desk.write("shop.toml", &text);
    let (listen, url, token) = (home.api.to_string(), redis.url(), "a-token-for-tests-only");
    let start = |arguments: &[&str]| {
        Running::of(home.command(arguments).env("SQUALL_TOKEN", token).env("SQUALL_REDIS", &url).spawn().unwrap())
    };
    let leader = start(&["orchestrator", "--listen", &listen, "--scenario", "shop.toml", "--log", "json"]);
    let worker = start(&["worker", "--id", "w1"]);
    wait_until("the fleet", || home.is_up(1));
    let api = format!("http://{listen}");
    home.refused(&["test", "status", "--api", &api], 2, "--token");
    home.refused(&["test", "status", "--api", &api, "--token", "a-token-that-is-wrong"], 2, "SQUALL_TOKEN");
    home.ok(&["test", "status", "--api", &api, "--token", token]);

    let bearer = format!("Authorization: Bearer {token}\r\n");
    let (status, _) = home.request("POST", "/start_test", "", r#"{"users": 2}"#);
    assert_eq!(status, 401);
    let (status, started) =
        home.request("POST", "/start_test", &bearer, r#"{"users": 2, "init_params": {"waht": "products"}}"#);
    assert_eq!((status, &started["error"]["code"]), (400, &Value::from("validation_error")), "{started}");
    let (status, started) =
        home.request("POST", "/start_test", &bearer, r#"{"users": 2, "init_params": {"what": "products"}}"#);
    assert_eq!((status, &started["start_result"]["delivered"]), (200, &Value::from(1)), "{started}");
    wait_until("requests", || target.requests() > 0);
    let metrics = || home.request("GET", "/metrics", &bearer, "").1;
    let codes = || metrics()["metrics"][0]["aggregate_total"]["result_code_counts"].clone();
    wait_until("numbers", || codes()["HTTP_200"].as_u64() > Some(0));
    assert_eq!(codes().as_object().map(serde_json::Map::len), Some(1), "the parameter is the variable: {}", codes());
    let (status, stopped) = home.request("POST", "/stop_test", &bearer, "{}");
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
fn the_api_is_served_and_asked_by_tls() {
    let (home, redis) = (Home::new(), RedisServer::start());
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["127.0.0.1"], CertificateValidity::Current);
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (cert, key, ca) = (path(&identity.cert_file), path(&identity.key_file), path(&authority.ca_file()));
    let (listen, url) = (home.api.to_string(), redis.url());
    let serve = ["orchestrator", "--redis", &url, "--listen", &listen];
    let leader = Running::of(home.command(&serve).args(["--tls-cert", &cert, "--tls-key", &key]).spawn().unwrap());
    let api = format!("https://{listen}");
    wait_until("the API", || home.squall(&["test", "status", "--api", &api, "--api-ca", &ca]).code == 0);
    home.refused(&["test", "status", "--api", &api], 3, "--api-ca");
    home.refused(&["test", "status", "--api", &format!("http://{listen}")], 3, "no answer");
    let without_tls = target();
    let plain = without_tls.url("").replace("http://", "https://");
    home.refused(&["test", "status", "--api", &plain], 3, "http:// port? Is `squall orchestrator` running there?");
    leader.terminate();
    assert_eq!(leader.end().code, 0);
    let files = ["--tls-cert", "none.pem", "--tls-key", "none.pem"];
    let ended = home.squall(&[&serve[..], &files].concat());
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(ended.stderr.contains("none.pem") && !ended.stderr.contains("serves the API"), "{}", ended.stderr);
}

#[test]
fn what_cannot_work_is_said_with_the_remedy() {
    let home = Home::new();
    let redis = "redis://127.0.0.1:1";
    home.refused(&["orchestrator", "--redis", redis, "--listen", "0.0.0.0:0"], 2, "--token");
    home.refused(&["test", "scale", "--users", "1000001"], 2, "--users");
    home.refused(&["test", "start", "http://127.0.0.1:1/", "--strict"], 2, "squall run … --cluster");
    home.refused(&["test", "start", "http://127.0.0.1:1/", "--prometheus", "127.0.0.1:0"], 2, "GET /prometheus");
    home.refused(&["test", "start", "shop.py", "--processes", "2"], 2, "start more workers");
    home.refused(&["test", "start", "--plan", "plan.json"], 2, "--plan belongs to `squall run`");
    home.refused(&["orchestrator", "--redis", redis, "--listen", "127.0.0.1:0", "--token", "short"], 2, "too short");
    home.refused(&["orchestrator", "--redis", redis, "--listen", "127.0.0.1:0"], 3, "redis");
    home.refused(&["orchestrator", "--redis", redis, "--listen", "nonsense"], 2, "HOST:PORT");
    home.refused(&["orchestrator", "--redis", redis, "--scenario", "none.toml"], 2, "none.toml");
    home.refused(&["test", "status", "--api", "http://127.0.0.1:1"], 3, "squall up");
    home.refused(&["test", "start", "http://127.0.0.1:1/", "--json", "--api", "http://127.0.0.1:1"], 2, "--cluster");
    home.refused(&["test", "start", "http://127.0.0.1:1/", "--find-max", "p99<1s"], 2, "squall run");
    home.refused(&["worker", "--redis", redis, "--fleet", "a}b:{c"], 2, "letters");
    home.refused(&["up", "--listen", "0.0.0.0:8080"], 2, "--token");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    home.refused(&["up", "--listen", &taken.local_addr().unwrap().to_string()], 2, "--listen");
    let listen = home.api.to_string();
    home.refused(&["up", "--redis", redis, "--listen", &listen], 3, "cannot connect");
    home.refused(&["up", "--redis", "http://x", "--listen", &listen], 2, "is not a Redis address");
    assert!(!home.desk.path("run/squall").exists(), "nothing is left behind");
}

/// Messages are copied into tickets and chats.
#[test]
fn a_login_in_an_address_is_not_said() {
    let home = Home::new();
    let hidden = "s3cr3t";
    for api in
        ["http://me:s3cr3t@127.0.0.1:1", "http://127.0.0.1:1/?token=s3cr3t", "http://me:s3cr3t@a b", "me:s3cr3t@h"]
    {
        let ended = home.squall(&["test", "status", "--api", api]);
        assert!(ended.code != 0 && !ended.stderr.contains(hidden), "{api}: {ended:?}");
    }
    for redis in ["redis://me:s3cr3t@127.0.0.1:1", "unix:///nowhere?user=me&pass=s3cr3t", "redis://h?pass=s3cr3t"] {
        let ended = home.squall(&["worker", "--redis", redis]);
        assert!(ended.code != 0 && !ended.stderr.contains(hidden), "{redis}: {ended:?}");
    }
    let help = home.command(&["test", "status", "--help"]).env("SQUALL_API", "http://me:s3cr3t@h").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains(hidden), "{help:?}");
}

/// It may be the record of a fleet that runs; `up` wrote its own over it.
#[test]
fn a_damaged_record_is_refused_by_up_and_down_alike() {
    let home = Home::new();
    let folder = home.desk.path("run/squall");
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::write(folder.join("fleet.json"), r#"{"version":1,"proc"#).unwrap();
    for command in [&["up", "--listen", &home.api.to_string()][..], &["down"]] {
        home.refused(command, 2, "fleet.json is damaged; end the processes yourself and remove it");
    }
    assert_eq!(std::fs::read_to_string(folder.join("fleet.json")).unwrap(), r#"{"version":1,"proc"#);
}

#[test]
fn down_believes_no_pid_that_is_another_process_by_now() {
    let home = Home::new();
    let folder = home.desk.path("run/squall");
    std::fs::create_dir(&folder).unwrap();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = bystander.id();
    let record =
        format!(r#"{{"version":1,"api":"http://x","processes":[{{"role":"worker-1","pid":{pid},"start_time":1}}]}}"#);
    std::fs::write(folder.join("fleet.json"), record).unwrap();
    // A folder that others can write to may hold anything.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    home.refused(&["down"], 2, "not a folder of yours alone");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(home.ok(&["down"]).contains("was gone already: worker-1"));
    assert!(is_alive(pid as i32));
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}
