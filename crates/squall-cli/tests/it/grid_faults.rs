//! Kills and freezes each process of a grid while one client has a session and another waits. After
//! every fault the capacity is right again, no worker has more sessions than slots, the next client
//! gets a page, and neither a process nor a folder is left.
//!
//! squall-grid's own tests kill and freeze browsers and their Node hosts.

use crate::{
    grid::{address_in, client_script, page_title, playwright_folder},
    support::{RunningProcess, TestFolder, get, wait_until},
};
use rustix::process::Signal;
use serde_json::Value;
use squall_testkit::redis::RedisServer;
use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// A grid with one slot, and a second server that only observes.
struct FaultGrid {
    folder: TestFolder,
    redis: RedisServer,
    server: RunningProcess,
    address: String,
    observer: RunningProcess,
    observer_address: String,
    worker: RunningProcess,
}

/// A client that holds a session, or waits for one.
struct HoldingClient {
    child: Child,
    input: ChildStdin,
    output: RefCell<BufReader<ChildStdout>>,
}

impl HoldingClient {
    fn start(url: &str) -> Self {
        let mut command = Command::new("node");
        command.arg(client_script()).args(["hold", url]).env("NODE_PATH", playwright_folder().join("node_modules"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: RefCell::new(BufReader::new(output)) }
    }

    fn line(&self) -> String {
        let mut line = String::new();
        self.output.borrow_mut().read_line(&mut line).expect("text");
        line.trim().to_owned()
    }

    fn evaluate(&mut self, expression: &str) -> String {
        writeln!(self.input, "{expression}").expect("the client reads");
        self.line()
    }

    fn close(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        child.wait().expect("the client ends");
    }
}

fn start_server(folder: &TestFolder, redis: &str) -> (RunningProcess, String) {
    let mut server = folder.start(&["grid", "serve", "--redis", redis, "--listen", "127.0.0.1:0"]);
    let mut first = String::new();
    BufReader::new(server.stdout()).read_line(&mut first).expect("it says where it listens");
    let address = address_in(&first).to_owned();
    (server, address)
}

fn start_worker(folder: &TestFolder, redis: &str, name: &str) -> RunningProcess {
    let playwright = playwright_folder().join("node_modules/playwright-core");
    let arguments = ["grid", "worker", "--redis", redis, "--slots", "1", "--id", name, "--playwright"];
    folder.start(&[&arguments[..], &[playwright.to_str().expect("text")]].concat())
}

impl FaultGrid {
    /// A grid, a client that has its slot, and a client that waits.
    fn start() -> (Self, HoldingClient, HoldingClient) {
        let (folder, redis) = (TestFolder::new(), RedisServer::start());
        let (server, address) = start_server(&folder, &redis.url());
        let (observer, observer_address) = start_server(&folder, &redis.url());
        let worker = start_worker(&folder, &redis.url(), "w1");
        let grid = Self { folder, redis, server, address, observer, observer_address, worker };
        let holder = HoldingClient::start(&grid.url());
        assert_eq!(holder.line(), "connected");
        let waiting = HoldingClient::start(&grid.url());
        grid.wait_for("a waiting client", |view| view.queued == 1 && view.active == 1);
        (grid, holder, waiting)
    }

    fn url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    fn observed(&self, path: &str) -> Option<Value> {
        let response = get(self.observer_address.parse().expect("an address"), path, "*/*");
        serde_json::from_str(response.split_once("\r\n\r\n").map_or(&*response, |(_, body)| body)).ok()
    }

    fn view(&self) -> Option<View> {
        let (workers, capacity) = (self.observed("/v1/workers")?, self.observed("/v1/capacity")?);
        let workers = workers["workers"].as_array()?.clone();
        for worker in &workers {
            assert!(worker["active_sessions"].as_u64() <= worker["max_slots"].as_u64(), "{worker}");
        }
        let active = workers.iter().filter_map(|worker| worker["active_sessions"].as_u64()).sum();
        Some(View { workers: workers.len(), active, queued: capacity["queued"].as_u64()? })
    }

    fn wait_for(&self, what: &str, found: impl Fn(&View) -> bool) {
        wait_until(what, || self.view().is_some_and(|view| found(&view)));
    }

    /// Checks that the grid works, ends it, and checks that nothing is left.
    fn end(self) {
        self.wait_for("an idle worker", |view| (view.workers, view.active, view.queued) == (1, 0, 0));
        assert_eq!(page_title(&self.url()), "squall");
        let Self { folder, server, observer, worker, .. } = self;
        for process in [worker, server, observer] {
            process.terminate();
            assert_eq!(process.end().code, 0);
        }
        let root = folder.path("").display().to_string();
        wait_until("the end of all processes", || processes_with(&root) == 0);
        let left: Vec<_> = std::fs::read_dir(folder.path("")).expect("the folder").flatten().collect();
        assert!(left.is_empty(), "temporary folders are removed: {left:?}");
    }
}

/// What the observer sees.
struct View {
    workers: usize,
    active: u64,
    queued: u64,
}

/// Browsers and Node hosts of a test have its folder in their command lines.
fn processes_with(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("proc").flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(text)).count()
}

#[test]
fn killed_server_frees_its_slot_and_its_place_in_the_queue() {
    let (mut grid, holder, waiting) = FaultGrid::start();
    grid.server.signal(Signal::KILL);
    grid.wait_for("free capacity", |view| (view.active, view.queued) == (0, 0));
    (grid.server, grid.address) = start_server(&grid.folder, &grid.redis.url());
    holder.close();
    waiting.close();
    grid.end();
}

#[test]
fn frozen_server_frees_its_slot_and_its_place_in_the_queue() {
    let (grid, holder, waiting) = FaultGrid::start();
    grid.server.signal(Signal::STOP);
    grid.wait_for("free capacity", |view| (view.active, view.queued) == (0, 0));
    grid.server.signal(Signal::CONT);
    // The waiting client's place was lost, and it gets another when the server wakes up.
    holder.close();
    waiting.close();
    grid.end();
}

#[test]
fn killed_worker_is_forgotten_and_the_next_one_serves_the_waiting_client() {
    let (mut grid, mut holder, mut waiting) = FaultGrid::start();
    grid.worker.signal(Signal::KILL);
    grid.wait_for("the end of the worker", |view| view.workers == 0);
    let message = holder.evaluate("1 + 1");
    assert!(message.contains("squall: worker w1 was lost"), "{message}");
    grid.worker = start_worker(&grid.folder, &grid.redis.url(), "w2");
    assert_eq!(waiting.line(), "connected");
    assert_eq!(waiting.evaluate("1 + 1"), "2");
    holder.close();
    waiting.close();
    grid.end();
}

#[test]
fn frozen_worker_is_forgotten_and_comes_back_without_its_session() {
    let (grid, mut holder, mut waiting) = FaultGrid::start();
    grid.worker.signal(Signal::STOP);
    grid.wait_for("the end of the worker", |view| view.workers == 0);
    let message = holder.evaluate("1 + 1");
    assert!(message.contains("squall: worker w1 was lost"), "{message}");
    grid.worker.signal(Signal::CONT);
    assert_eq!(waiting.line(), "connected");
    assert_eq!(waiting.evaluate("1 + 1"), "2");
    holder.close();
    waiting.close();
    grid.end();
}

#[test]
fn session_survives_a_redis_that_freezes_and_one_that_loses_its_data() {
    let (mut grid, mut holder, waiting) = FaultGrid::start();
    grid.redis.pause();
    assert_eq!(holder.evaluate("1 + 1"), "2");
    grid.redis.resume();
    grid.wait_for("the session", |view| view.active == 1);
    grid.redis.kill();
    assert_eq!(holder.evaluate("2 + 2"), "4");
    grid.redis.restart_empty();
    grid.wait_for("the session", |view| (view.workers, view.active) == (1, 1));
    assert_eq!(holder.evaluate("3 + 3"), "6");
    // The waiting client reads that the store does not respond, or it got its place back.
    drop(waiting.input);
    let _ = { waiting.child }.kill();
    holder.close();
    grid.end();
}
