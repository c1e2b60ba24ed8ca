//! Helpers of the tests: run the program in a temporary folder, read its output and files.

use serde_json::Value;
use squall_target::TargetServer;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Limit of every wait; only a failing test reaches it.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// A temporary folder in which a test runs the program.
pub(crate) struct TestFolder {
    dir: TempDir,
}

/// Exit code and output of a finished process.
#[derive(Debug)]
pub(crate) struct FinishedProcess {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestFolder {
    pub(crate) fn new() -> TestFolder {
        TestFolder { dir: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> &TestFolder {
        std::fs::write(self.path(name), text).expect("a writable folder");
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The program with its arguments, to be started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(arguments).current_dir(self.dir.path()).env("NO_COLOR", "1").env_remove("SQUALL_LOG");
        // Temporary files of a killed process are removed with the folder.
        command.env("TMPDIR", self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `squall` with these arguments to its end.
    pub(crate) fn squall(&self, arguments: &[&str]) -> FinishedProcess {
        let output = self.command(arguments).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
        FinishedProcess {
            code: output.status.code().expect("an exit code"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// Runs `squall run` quietly and reads its result.
    pub(crate) fn result(&self, arguments: &[&str]) -> (i32, Value) {
        let all = [&["run"], arguments, &["--quiet", "--json", "result.json"]].concat();
        let ended = self.squall(&all);
        assert!(self.path("result.json").exists(), "no result: {ended:?}");
        (ended.code, self.json("result.json"))
    }

    /// A line for the shell, to be started. Its `squall` is the program.
    pub(crate) fn shell(&self, line: &str) -> Command {
        let programs = PathBuf::from(env!("CARGO_BIN_EXE_squall"));
        let path = std::env::var_os("PATH").expect("a PATH");
        let folders = [programs.parent().expect("a folder").to_owned()].into_iter().chain(std::env::split_paths(&path));
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.dir.path()).env("NO_COLOR", "1").env("TMPDIR", self.dir.path());
        command.env("PATH", std::env::join_paths(folders).expect("folders without a colon"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> RunningProcess {
        RunningProcess { child: self.command(arguments).spawn().expect("the program starts"), stderr: String::new() }
    }
}

/// A running process. Dropping it kills it.
pub(crate) struct RunningProcess {
    child: Child,
    stderr: String,
}

impl RunningProcess {
    /// Wraps a process that was started with pipes.
    pub(crate) fn from_child(child: Child) -> RunningProcess {
        RunningProcess { child, stderr: String::new() }
    }

    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the process runs");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the process runs");
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the process runs");
    }

    /// Standard output, to read while the process runs.
    pub(crate) fn stdout(&mut self) -> &mut std::process::ChildStdout {
        self.child.stdout.as_mut().expect("a pipe")
    }

    /// Reads standard error until a line contains `part` and returns that line.
    pub(crate) fn wait_for_line(&mut self, part: &str) -> String {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        // Byte by byte, so that nothing after the line is read.
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).expect("readable"), 1, "it ended before `{part}`: {}", self.stderr);
            line.push(byte[0]);
            if byte[0] == b'\n' {
                let text = String::from_utf8(std::mem::take(&mut line)).expect("UTF-8");
                self.stderr += &text;
                if text.contains(part) {
                    return text;
                }
            }
        }
    }

    pub(crate) fn interrupt_if_running(&self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::INT);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// Waits for the exit code without reading the output.
    pub(crate) fn code(mut self) -> i32 {
        self.child.wait().expect("it ends").code().expect("an exit code")
    }

    pub(crate) fn end(mut self) -> FinishedProcess {
        let (mut stdout, mut stderr) = (String::new(), std::mem::take(&mut self.stderr));
        let mut errors = self.child.stderr.take().expect("a pipe");
        let reading = std::thread::spawn(move || {
            let mut rest = String::new();
            errors.read_to_string(&mut rest).expect("UTF-8");
            rest
        });
        self.child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("UTF-8");
        stderr += &reading.join().expect("no panic");
        let code = self.child.wait().expect("it ends").code().expect("an exit code");
        FinishedProcess { code, stdout, stderr }
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn target() -> TargetServer {
    TargetServer::start("127.0.0.1:0").expect("a free port")
}

/// Waits until `done` holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < MAX_WAIT, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The number at a path like `/totals/requests`.
#[track_caller]
pub(crate) fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path} in {result:#}"))
}

/// A server that records the path of each request in the order of arrival. It responds after
/// `delay`, one request at a time.
pub(crate) struct RecordingServer {
    pub(crate) addr: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
}

impl RecordingServer {
    pub(crate) fn start(delay: Duration) -> RecordingServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let paths = Arc::new(Mutex::new(Vec::new()));
        let recorded = paths.clone();
        // One lock for all connections, so that one request is served at a time.
        let serving = Arc::new(Mutex::new(()));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (paths, serving) = (recorded.clone(), serving.clone());
                std::thread::spawn(move || serve(stream, &paths, &serving, delay));
            }
        });
        RecordingServer { addr, paths }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("no panic").clone()
    }
}

fn serve(stream: TcpStream, paths: &Mutex<Vec<String>>, serving: &Mutex<()>, delay: Duration) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    writer.set_nodelay(true).ok()?;
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|n| *n > 0)?;
        let path = first.split(' ').nth(1)?.to_owned();
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
        }
        let _served = serving.lock().expect("no panic");
        paths.lock().expect("no panic").push(path);
        if !delay.is_zero() {
            std::thread::park_timeout(delay);
        }
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
    }
}

/// Sends one GET on a new connection and returns the whole response as text.
pub(crate) fn get(addr: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("it answers");
    String::from_utf8_lossy(&response).into_owned()
}

/// The part of a document below `heading`, up to the next heading of its level.
pub(crate) fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let below = document.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no `{heading}`")).1;
    below.split("\n## ").next().expect("a part")
}

/// The first code block of `language` in a section.
pub(crate) fn code_block<'a>(section: &'a str, language: &str) -> &'a str {
    let block = section.split_once(&format!("\n```{language}\n")).unwrap_or_else(|| panic!("no block of {language}")).1;
    block.split("```").next().expect("a block")
}

/// The last line of the replies of the Redis at `port` to `commands`; `None` without a reply.
pub(crate) fn ask_redis(port: u16, commands: &[&str]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut replies = BufReader::new(stream.try_clone().ok()?).lines();
    let mut last = None;
    for command in commands {
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let line = replies.next()?.ok()?;
        last = match line.as_str() {
            "$-1" => None,
            text if text.starts_with('$') => Some(replies.next()?.ok()?),
            _ => Some(line),
        };
    }
    last
}
