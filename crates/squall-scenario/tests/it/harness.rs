//! Runs users of a scenario without an engine, against a target in this process.

use squall_engine::{Driver, DriverThread, Iteration, ThreadRecorder, UserIdentity, VirtualUser};
use squall_metrics::{EngineDelta, ErrorNote, MetricDelta, MetricKind, RecorderConfig};
use squall_model::TaskIndex;
use squall_scenario::{Scenario, ScenarioFiles, ScenarioOverrides};
use squall_target::TargetServer;
use std::{collections::BTreeMap, future::Future, io, time::Instant};

/// Files and environment from memory.
#[derive(Default)]
pub(crate) struct MemoryFiles(pub(crate) BTreeMap<&'static str, &'static str>);

impl ScenarioFiles for MemoryFiles {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let found = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(found.as_bytes().to_vec())
    }

    fn env(&mut self, name: &str) -> Option<String> {
        self.0.get(name).map(|value| (*value).to_owned())
    }
}

pub(crate) fn target() -> TargetServer {
    TargetServer::start("127.0.0.1:0").expect("a free port")
}

/// A scenario against `target`. `rest` follows the line of the target.
pub(crate) fn scenario(target: &TargetServer, rest: &str) -> Scenario {
    with_files(target, rest, MemoryFiles::default())
}

pub(crate) fn with_files(target: &TargetServer, rest: &str, mut files: MemoryFiles) -> Scenario {
    let text = format!("target = \"{}\"\n{rest}", target.url(""));
    Scenario::parse("shop.toml", &text, &mut files, ScenarioOverrides::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// The content of a recorder.
pub(crate) struct RecordedRun {
    pub(crate) metrics: Vec<MetricDelta>,
    pub(crate) notes: Vec<ErrorNote>,
    pub(crate) engine: EngineDelta,
}

impl RecordedRun {
    /// `name: OUTCOME×n, …` for each metric of `kind`.
    pub(crate) fn lines(&self, kind: MetricKind) -> Vec<String> {
        let of_kind = self.metrics.iter().filter(|metric| metric.key.kind == kind);
        let outcomes = |metric: &MetricDelta| {
            let one = |(outcome, n): &(squall_metrics::Outcome, u64)| format!("{}×{n}", outcome.code);
            metric.outcomes.iter().map(one).collect::<Vec<_>>().join(" ")
        };
        of_kind.map(|metric| format!("{}: {}", metric.key.name, outcomes(metric))).collect()
    }

    pub(crate) fn notes(&self) -> Vec<&str> {
        self.notes.iter().map(|note| note.message.as_str()).collect()
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(tokio::task::LocalSet::new().run_until(future))
}

/// One user starts and runs every task in turn, `rounds` times. Also returns whether each iteration was
/// completed.
pub(crate) fn run(scenario: &Scenario, rounds: u64) -> (RecordedRun, Vec<bool>) {
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let mut thread = scenario.driver().thread(recorder.clone()).expect("a sound scenario");
        thread.connect().await.unwrap_or_else(|error| panic!("{error}"));
        let mut user = thread.user(UserIdentity { number: 3, seed: 7 });
        let mut completed = Vec::new();
        if user.on_start().await.is_ok() {
            for number in 0..rounds {
                for task in 0..scenario.plan.tasks.len() {
                    let now = Instant::now();
                    let iteration = Iteration { number, task: TaskIndex(task), intended: now, started: now };
                    completed.push(user.iterate(iteration).await);
                }
            }
        }
        user.on_stop().await;
        drop(user);
        let (metrics, notes, engine) = recorder.harvest(0, 0);
        (RecordedRun { metrics, notes, engine }, completed)
    })
}

/// A server that keeps the bytes that it receives and responds with 200.
pub(crate) struct CapturingServer {
    pub(crate) url: String,
    received: std::sync::mpsc::Receiver<String>,
}

impl CapturingServer {
    pub(crate) fn start() -> CapturingServer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let (tx, received) = std::sync::mpsc::channel();
        // Ends with the user's only connection, which the user closes when it is dropped.
        std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            serve(stream, &tx)
        });
        CapturingServer { url, received }
    }

    /// Everything received since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        self.received.try_iter().collect()
    }
}

fn serve(stream: std::net::TcpStream, tx: &std::sync::mpsc::Sender<String>) -> io::Result<()> {
    use io::{BufRead, Read, Write};
    let mut reader = io::BufReader::new(stream);
    loop {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            if reader.read_line(&mut text)? == 0 {
                return Ok(());
            }
        }
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        text.push_str(&String::from_utf8_lossy(&body));
        // Kept before the response is sent, so that a test with the response finds the request.
        tx.send(text).expect("the test is still there");
        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")?;
    }
}

/// Why the thread's browsers or database cannot be reached.
pub(crate) fn connect_error(scenario: &Scenario) -> String {
    block_on(async {
        let recorder = ThreadRecorder::new(RecorderConfig::default(), Instant::now());
        let mut thread = scenario.driver().thread(recorder).expect("a sound scenario");
        thread.connect().await.expect_err("no connection").to_string()
    })
}
