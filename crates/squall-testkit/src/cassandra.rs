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
const AUTHENTICATE: u8 = 0x03;
/// Consistency levels of the protocol.
const ONE: u8 = 1;
const ALL: u8 = 5;

/// User and password of every server that is not one of a pair.
pub const CASSANDRA_USER: &str = "cassandra";

/// The password of every store of [`Cassandra::stores`].
pub const STORE_PASSWORD: &str = "squall-test";

/// A running node.
#[derive(Debug)]
pub struct Cassandra {
    folder: TempDir,
    address: &'static str,
    /// Further words for the script.
    options: Vec<String>,
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
        let mut server = Cassandra::launch("127.0.0.1", free_ports(&["127.0.0.1"]), Vec::new());
        server.wait_until_ready();
        server
    }

    /// Starts a server that also speaks TLS, and then wants a client certificate of [`Cassandra::stores`].
    ///
    /// # Panics
    /// As [`Cassandra::start`].
    pub fn start_with_tls() -> Cassandra {
        let options = vec!["--tls".to_owned(), Cassandra::stores().display().to_string()];
        let mut server = Cassandra::launch("127.0.0.1", free_ports(&["127.0.0.1"]), options);
        server.wait_until_ready();
        server
    }

    /// Starts two nodes without passwords on one port: 127.0.0.1 in dc1 and 127.0.0.2 in dc2.
    ///
    /// # Panics
    /// As [`Cassandra::start`].
    pub fn start_two() -> [Cassandra; 2] {
        let addresses = ["127.0.0.1", "127.0.0.2"];
        let port = free_ports(&addresses);
        let mut nodes = [(addresses[0], "1"), (addresses[1], "2")].map(|(address, number)| {
            // The second node must find the first one.
            let mut node = Cassandra::launch(address, port, vec!["--node".to_owned(), number.to_owned()]);
            node.wait_until_ready();
            node
        });
        let replication = "{'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1}";
        let create = format!("CREATE KEYSPACE ready WITH replication = {replication}");
        let [first, _] = &mut nodes;
        first.wait_until("a keyspace", |node| match node.query(&create) {
            Err(error) => error.to_string().contains("existing keyspace"),
            Ok(_) => true,
        });
        first.wait_until("a table", |node| {
            node.query("CREATE TABLE IF NOT EXISTS ready.ready (key int PRIMARY KEY)").is_ok()
        });
        for node in &mut nodes {
            // Both replicas must answer, so each node knows that the other one is up.
            node.wait_until("both nodes", |node| {
                node.query_with("INSERT INTO ready.ready (key) VALUES (1)", ALL).is_ok()
            });
        }
        nodes
    }

    /// The folder with the stores of TLS tests, which scripts/cassandra/certificates lists.
    ///
    /// # Panics
    /// If keytool or openssl cannot be had.
    pub fn stores() -> PathBuf {
        let output =
            Command::new(scripts().join("certificates")).output().expect("scripts/cassandra/certificates starts");
        assert!(output.status.success(), "no certificates:\n{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).expect("a path").trim())
    }

    fn launch(address: &'static str, port: u16, options: Vec<String>) -> Cassandra {
        let folder = TempDir::new().expect("a temporary folder");
        let (script, java) = serve(folder.path(), port, &options);
        Cassandra { folder, address, options, port, script, java }
    }

    /// Starts a killed server again, with its data.
    ///
    /// # Panics
    /// As [`Cassandra::start`].
    pub fn restart(&mut self) {
        self.script.wait().expect("our own child");
        (self.script, self.java) = serve(self.folder.path(), self.port, &self.options);
        self.wait_until_ready();
    }

    /// Stops the server without ending it: it answers nothing until [`Cassandra::thaw`].
    pub fn freeze(&self) {
        kill_process(self.java, Signal::STOP).expect("our own server can be stopped");
    }

    pub fn thaw(&self) {
        kill_process(self.java, Signal::CONT).expect("our own server can be continued");
    }

    /// The port; the address is 127.0.0.1 unless it is the second of two nodes.
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
        self.query_with(cql, ONE)
    }

    fn query_with(&self, cql: &str, consistency: u8) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((self.address, self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let startup = [&[0, 1][..], &short_text("CQL_VERSION"), &short_text("3.0.0")].concat();
        if exchange(&mut stream, STARTUP, &startup)?.0 == AUTHENTICATE {
            let password = format!("\0{CASSANDRA_USER}\0{CASSANDRA_USER}");
            exchange(&mut stream, AUTH_RESPONSE, &long_text(&password))?;
        }
        // No flags.
        let query = [long_text(cql), vec![0, consistency, 0]].concat();
        exchange(&mut stream, QUERY, &query).map(|(_, body)| body)
    }

    fn wait_until_ready(&mut self) {
        self.wait_until("the password", |node| node.query("SELECT key FROM system.local").is_ok());
    }

    fn wait_until(&mut self, what: &str, reached: impl Fn(&Cassandra) -> bool) {
        let began = Instant::now();
        while !reached(self) {
            let ended = self.script.try_wait().expect("our own child");
            let log = || std::fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default();
            assert!(ended.is_none(), "Cassandra ended while it started:\n{}", log());
            assert!(began.elapsed() < MAX_START, "Cassandra does not accept {what}:\n{}", log());
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
fn serve(folder: &Path, port: u16, options: &[String]) -> (Child, Pid) {
    let mut script = Command::new(scripts().join("serve"))
        .arg(folder)
        .arg(port.to_string())
        .args(options)
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

/// A port that is free on every address, and whose successor is, too.
fn free_ports(addresses: &[&str]) -> u16 {
    let free = |address: &str, port: u16| std::net::TcpListener::bind((address, port)).ok();
    let pair = (0..100).find_map(|_| {
        let first = free(addresses[0], 0)?;
        let port = first.local_addr().ok()?.port();
        let next = port.checked_add(1)?;
        let others = addresses.iter().skip(1).all(|address| free(address, port).is_some());
        (others && addresses.iter().all(|address| free(address, next).is_some())).then_some(port)
    });
    pair.expect("free ports")
}

/// Sends a frame, and returns the opcode and the body of the answer.
fn exchange(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
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
        opcode => Ok((opcode, answer)),
    }
}

fn short_text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn long_text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}
