//! Runs the program and reads what it leaves behind.

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

/// Longest that anything is waited for; reached only by a failing test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder of its own to run the program in.
pub(crate) struct Desk {
    folder: TempDir,
}

/// What a finished program left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        Desk { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> &Desk {
        std::fs::write(self.path(name), text).expect("a writable folder");
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The program with its arguments, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
        command.args(arguments).current_dir(self.folder.path()).env("NO_COLOR", "1").env_remove("SQUALL_LOG");
        // What a killed one leaves behind goes with the desk.
        command.env("TMPDIR", self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `squall` with these arguments to its end.
    pub(crate) fn squall(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().expect("the program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
        Ended {
            code: output.status.code().expect("it ended by itself"),
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

    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        Running { child: self.command(arguments).spawn().expect("the program starts"), said: String::new() }
    }
}

/// A program under way; it is ended when dropped.
pub(crate) struct Running {
    child: Child,
    said: String,
}

impl Running {
    /// Of a program that was started otherwise, with pipes.
    pub(crate) fn of(child: Child) -> Running {
        Running { child, said: String::new() }
    }

    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the program is there");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the program is there");
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the program is there");
    }

    /// Its standard output, to be read while it runs.
    pub(crate) fn stdout(&mut self) -> &mut std::process::ChildStdout {
        self.child.stdout.as_mut().expect("a pipe")
    }

    /// Reads standard error until a line contains `part`; gives that line.
    pub(crate) fn wait_for_line(&mut self, part: &str) -> String {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        // Byte by byte, so that nothing after the line is taken.
        let mut line = Vec::new();
        loop {
            let mut byte = [0];
            assert_eq!(stderr.read(&mut byte).expect("readable"), 1, "it ended before `{part}`: {}", self.said);
            line.push(byte[0]);
            if byte[0] == b'\n' {
                let text = String::from_utf8(std::mem::take(&mut line)).expect("UTF-8");
                self.said += &text;
                if text.contains(part) {
                    return text;
                }
            }
        }
    }

    /// How it ends, whether or not anybody reads what it says.
    pub(crate) fn code(mut self) -> i32 {
        self.child.wait().expect("it ends").code().expect("it ended by itself")
    }

    pub(crate) fn end(mut self) -> Ended {
        let (mut stdout, mut stderr) = (String::new(), std::mem::take(&mut self.said));
        let mut errors = self.child.stderr.take().expect("a pipe");
        let reading = std::thread::spawn(move || {
            let mut rest = String::new();
            errors.read_to_string(&mut rest).expect("UTF-8");
            rest
        });
        self.child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("UTF-8");
        stderr += &reading.join().expect("no panic");
        let code = self.child.wait().expect("it ends").code().expect("it ended by itself");
        Ended { code, stdout, stderr }
    }
}

impl Drop for Running {
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
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The number at a path like `/totals/requests`.
#[track_caller]
pub(crate) fn number(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {path} in {result:#}"))
}

/// A server that writes down the path of each request in the order of arrival and answers after `delay`, one at a time.
pub(crate) struct Notebook {
    pub(crate) addr: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Notebook {
    pub(crate) fn start(delay: Duration) -> Notebook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let paths = Arc::new(Mutex::new(Vec::new()));
        let book = paths.clone();
        // One counter for all connections: whoever holds it is being served.
        let counter = Arc::new(Mutex::new(()));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (book, counter) = (book.clone(), counter.clone());
                std::thread::spawn(move || serve(stream, &book, &counter, delay));
            }
        });
        Notebook { addr, paths }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("no panic").clone()
    }
}

fn serve(stream: TcpStream, book: &Mutex<Vec<String>>, counter: &Mutex<()>, delay: Duration) -> Option<()> {
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
        let _served = counter.lock().expect("no panic");
        book.lock().expect("no panic").push(path);
        if !delay.is_zero() {
            std::thread::park_timeout(delay);
        }
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok()?;
    }
}

/// One GET on a connection of its own; the whole answer as text, bytes that are no text replaced.
pub(crate) fn get(addr: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The last line of what the Redis at `port` answers to `commands`; nothing if nobody answers, or with nothing.
pub(crate) fn ask_redis(port: u16, commands: &[&str]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let mut answers = BufReader::new(stream.try_clone().ok()?).lines();
    let mut last = None;
    for command in commands {
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let line = answers.next()?.ok()?;
        last = match line.as_str() {
            "$-1" => None,
            text if text.starts_with('$') => Some(answers.next()?.ok()?),
            _ => Some(line),
        };
    }
    last
}
