//! A grid in this process, and clients as processes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use serde_json::Value;
use squall_coord::{ApiKeyScope, MemorySlotStore, SlotStore, SlotWorkerId};
use squall_grid::{ApiKey, BrowserRules, GridWorker, GridWorkerConfig, Isolation, KeyLimits, ServerConfig};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub(crate) const EXECUTABLE: &str = "/usr/lib/chromium/chromium-headless-shell";
/// Far longer than anything takes here.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The folder of `scripts/install-playwright`.
pub(crate) fn playwright_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-playwright");
        let output = std::process::Command::new(script).stderr(Stdio::inherit()).output().expect("the script runs");
        assert!(output.status.success(), "scripts/install-playwright failed");
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
    })
}

pub(crate) fn worker_config(name: &str, slots: u32) -> GridWorkerConfig {
    GridWorkerConfig {
        id: SlotWorkerId::new("chromium", name).unwrap(),
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        slots,
        isolation: Isolation::Key,
        rules: BrowserRules {
            recycle_after: 50,
            max_age: Duration::from_secs(3600),
            max_memory: None,
            recycle_timeout: Duration::from_secs(3600),
            spares: 1,
            limit: slots as usize + 2,
        },
        max_lifetime: None,
        executable: Some(EXECUTABLE.into()),
        args: Vec::new(),
        confine_with: None,
        playwright: vec![playwright_folder().join("node_modules/playwright-core")],
        node: "node".into(),
        heartbeat: Duration::from_millis(200),
        ttl: Duration::from_secs(3),
        drain_timeout: DEADLINE,
        launch_timeout: DEADLINE,
        probe_every: Duration::from_secs(5),
        probe_timeout: Duration::from_secs(20),
    }
}

pub(crate) fn key(name: &str, admin: bool) -> ApiKey {
    let scope = if admin { ApiKeyScope::Admin } else { ApiKeyScope::Client };
    ApiKey::new(name, &format!("{name}-secret"), scope, KeyLimits::default())
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig { heartbeat: Duration::from_millis(200), drain_timeout: Duration::ZERO, ..ServerConfig::default() }
}

/// A worker that runs in this process.
pub(crate) struct RunningWorker {
    pub(crate) drain: CancellationToken,
    pub(crate) task: JoinHandle<Result<(), squall_grid::GridWorkerError>>,
}

pub(crate) fn start_worker<S: SlotStore>(store: &S, config: GridWorkerConfig) -> RunningWorker {
    let drain = CancellationToken::new();
    let task = tokio::spawn(GridWorker::new(store.clone(), config).run(drain.clone()));
    RunningWorker { drain, task }
}

/// A server with one worker.
pub(crate) struct Grid<S> {
    pub(crate) store: S,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) server: JoinHandle<()>,
    pub(crate) worker: RunningWorker,
}

impl Grid<MemorySlotStore> {
    pub(crate) async fn start(slots: u32) -> Self {
        Self::start_with(MemorySlotStore::new(), server_config(), worker_config("w1", slots)).await
    }
}

impl<S: SlotStore> Grid<S> {
    pub(crate) async fn start_with(store: S, server: ServerConfig, worker: GridWorkerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(squall_grid::serve(store.clone(), server, listener, stop.clone()));
        let worker = start_worker(&store, worker);
        let grid = Self { store, address, stop, server, worker };
        grid.wait_for("a worker", |snapshot| !snapshot.workers.is_empty()).await;
        grid
    }

    pub(crate) async fn snapshot(&self) -> squall_coord::SlotSnapshot {
        self.store.snapshot().await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/?browser=chromium", self.address)
    }

    /// Polls the store until `found`.
    pub(crate) async fn wait_for(&self, what: &str, found: impl Fn(&squall_coord::SlotSnapshot) -> bool) {
        let polling = async {
            while !found(&self.store.snapshot().await.unwrap()) {
                assert!(!self.worker.task.is_finished() || what.contains("end"), "the worker ended");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, polling).await;
        assert!(waited.is_ok(), "no {what}: {:?}", self.store.snapshot().await);
    }

    /// Ends everything, and checks that no browser is left.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.server.await.unwrap();
        self.worker.drain.cancel();
        tokio::time::timeout(DEADLINE, self.worker.task).await.expect("the worker drains").unwrap().unwrap();
        let snapshot = self.store.snapshot().await.unwrap();
        assert!(snapshot.workers.is_empty() && snapshot.sessions.is_empty() && snapshot.servers.is_empty());
    }
}

/// A response to a request that is sent as it is.
pub(crate) struct RawResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl RawResponse {
    pub(crate) fn json(&self) -> Value {
        let body = self.text.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {body}"))
    }
}

/// Sends the head of a request and reads all of the response.
pub(crate) async fn send(address: SocketAddr, head: &str) -> RawResponse {
    exchange(address, head, "").await
}

async fn exchange(address: SocketAddr, head: &str, body: &str) -> RawResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{}\r\n\r\n{body}", head.trim().replace('\n', "\r\n"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    let reading = stream.read_to_end(&mut text);
    // The server may reset a connection whose request it did not read to its end.
    let _ = tokio::time::timeout(DEADLINE, reading).await.expect("a response");
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    RawResponse { status, text }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> RawResponse {
    send(address, &format!("GET {path} HTTP/1.1\nHost: grid\nConnection: close")).await
}

/// Sends a body.
pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> RawResponse {
    post_with(address, path, body, "").await
}

/// Sends a body with an API key.
pub(crate) async fn post_with(address: SocketAddr, path: &str, body: &str, key: &str) -> RawResponse {
    let head = format!(
        "POST {path} HTTP/1.1\nHost: grid\nConnection: close\nAuthorization: Bearer {key}\nContent-Length: {}",
        body.len()
    );
    exchange(address, &head, body).await
}

fn client_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name)
}

pub(crate) fn node_client(arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.arg(client_file("client.js")).args(arguments);
    command.env("NODE_PATH", playwright_folder().join("node_modules")).kill_on_drop(true);
    command
}

pub(crate) fn cdp_client(arguments: &[&str]) -> Command {
    let mut command = Command::new("node");
    command.arg(client_file("cdp.js")).args(arguments);
    command.env("NODE_PATH", playwright_folder().join("node_modules")).kill_on_drop(true);
    command
}

pub(crate) fn python_client(url: &str) -> Command {
    let mut command = Command::new(playwright_folder().join("venv/bin/python"));
    command.arg(client_file("client.py")).arg(url).kill_on_drop(true);
    command
}

/// Runs a client to its end and returns what it printed.
pub(crate) async fn run(mut client: Command) -> (bool, String) {
    let output = tokio::time::timeout(DEADLINE, client.output()).await.expect("the client ends").unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// A client that holds a session open.
pub(crate) struct HoldingClient {
    pub(crate) child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl HoldingClient {
    pub(crate) async fn connect(url: &str, title: &str) -> Self {
        let mut client = Self::start(url, title);
        assert_eq!(client.line().await, "connected");
        client
    }

    /// A client that prints `connected`.
    pub(crate) async fn connect_with(command: Command) -> Self {
        let mut client = Self::start_with(command);
        assert_eq!(client.line().await, "connected");
        client
    }

    pub(crate) fn start(url: &str, title: &str) -> Self {
        Self::start_with(node_client(&["hold", url, title]))
    }

    fn start_with(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output).lines() }
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = tokio::time::timeout(DEADLINE, self.output.next_line()).await.expect("a line");
        line.unwrap().unwrap_or_default()
    }

    /// What evaluating `expression` in the page gives: a value, or an error message.
    pub(crate) async fn evaluate(&mut self, expression: &str) -> String {
        self.input.write_all(format!("{expression}\n").as_bytes()).await.unwrap();
        self.line().await
    }

    pub(crate) async fn close(mut self) {
        drop(self.input);
        let _ = tokio::time::timeout(DEADLINE, self.child.wait()).await.expect("the client ends");
    }
}
