//! Starts a real Cassandra for tests by scripts/cassandra, on a private port, and asks it questions by
//! a small CQL client of its own. The server ends when it is dropped, or when the test process ends
//! for any reason. It uses no database driver, so its answers are independent of the code under test.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The first start on a machine downloads 63 MB.
const MAX_START: Duration = Duration::from_secs(300);
/// Frames of the native protocol, version 4.
const STARTUP: u8 = 0x01;
const QUERY: u8 = 0x07;
const AUTH_RESPONSE: u8 = 0x0f;
const ERROR: u8 = 0x00;

/// User and password of every server.
pub const CASSANDRA_USER: &str = "cassandra";

/// A running node.
#[derive(Debug)]
pub struct Cassandra {
    folder: TempDir,
    port: u16,
    /// The script, which ends Java when its standard input closes.
    script: Child,
    java: Pid,
}

impl Cassandra {
    /// The server that all tests of a test program share. Use keyspaces of your own.
    ///
    /// # Panics
    /// As [`Cassandra::start`].
    pub fn shared() -> &'static Cassandra {
        static SHARED: OnceLock<Cassandra> = OnceLock::new();
        SHARED.get_or_init(Cassandra::start)
    }

    /// Starts a server and waits until it accepts the password.
    ///
    /// # Panics
    /// If Java or the jars cannot be had, or the server does not start.
    pub fn start() -> Cassandra {
        let folder = TempDir::new().expect("a temporary folder");
        let port = free_ports();
        let (script, java) = serve(folder.path(), port);
        let mut server = Cassandra { folder, port, script, java };
        server.wait_until_ready();
        server
    }

    /// Starts a killed server again, with its data.
    ///
    /// # Panics
    /// As [`Cassandra::start`].
    pub fn restart(&mut self) {
        self.script.wait().expect("our own child");
        (self.script, self.java) = serve(self.folder.path(), self.port);
        self.wait_until_ready();
    }

    /// Stops the server without ending it: it answers nothing until [`Cassandra::thaw`].
    pub fn freeze(&self) {
        kill_process(self.java, Signal::STOP).expect("our own server can be stopped");
    }

    pub fn thaw(&self) {
        kill_process(self.java, Signal::CONT).expect("our own server can be continued");
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server, as a crash would.
    pub fn kill(&self) {
        kill_process(self.java, Signal::KILL).expect("our own server can be killed");
    }

    /// The number that a `SELECT COUNT(*)` returns.
    ///
    /// # Panics
    /// If the server refuses the statement.
    pub fn count(&self, cql: &str) -> i64 {
        let body = self.query(cql).unwrap_or_else(|error| panic!("{cql}: {error}"));
        // The only value of the only row stands at the end of the result.
        let value = body.last_chunk::<8>().expect("a count has 8 bytes");
        i64::from_be_bytes(*value)
    }

    /// Sends a statement and returns the body of its result.
    pub fn query(&self, cql: &str) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let startup = [&[0, 1][..], &short_text("CQL_VERSION"), &short_text("3.0.0")].concat();
        exchange(&mut stream, STARTUP, &startup)?;
        let password = format!("\0{CASSANDRA_USER}\0{CASSANDRA_USER}");
        exchange(&mut stream, AUTH_RESPONSE, &long_text(&password))?;
        // Consistency ONE, no flags.
        let query = [long_text(cql), vec![0, 1, 0]].concat();
        exchange(&mut stream, QUERY, &query)
    }

    fn wait_until_ready(&mut self) {
        let began = Instant::now();
        while self.query("SELECT key FROM system.local").is_err() {
            let ended = self.script.try_wait().expect("our own child");
            let log = || std::fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default();
            assert!(ended.is_none(), "Cassandra ended while it started:\n{}", log());
            assert!(began.elapsed() < MAX_START, "Cassandra does not answer:\n{}", log());
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Starts the script, and returns it with the process id of Java.
fn serve(folder: &Path, port: u16) -> (Child, Pid) {
    let mut script = Command::new(scripts().join("serve"))
        .arg(folder)
        .arg(port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("scripts/cassandra/serve starts");
    let mut line = String::new();
    let output = script.stdout.take().expect("piped above");
    BufReader::new(output).read_line(&mut line).expect("the script prints the process id");
    let pid = line.trim().parse().ok().and_then(Pid::from_raw);
    (script, pid.expect("scripts/cassandra/serve prints a process id; its messages are above"))
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cassandra")
}

/// A free port whose successor is free too.
fn free_ports() -> u16 {
    let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).ok();
    let pair = (0..100).find_map(|_| {
        let first = free(0)?;
        let port = first.local_addr().ok()?.port();
        free(port.checked_add(1)?).map(|_| port)
    });
    pair.expect("two free ports")
}

fn exchange(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut frame = vec![4, 0, 0, 0, opcode];
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    stream.write_all(&frame)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut answer = vec![0; length as usize];
    stream.read_exact(&mut answer)?;
    match head[4] {
        ERROR => Err(io::Error::other(String::from_utf8_lossy(answer.get(6..).unwrap_or_default()).into_owned())),
        _ => Ok(answer),
    }
}

fn short_text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn long_text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}
