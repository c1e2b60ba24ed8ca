//! Starts a private redis-server (or Valkey) for one test, with its own port and folder, and kills
//! it on drop. It persists nothing unless asked to, and never touches a server that it did not
//! start.

mod topologies;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use topologies::{RedisCluster, SentinelGroup};

/// How many free ports to try, because another process may take a port first.
const ATTEMPTS: usize = 20;

/// Number of keys that [`RedisServer::write_filler_keys`] writes. While the server loads, it serves
/// clients after every 1,024 keys, so this number lets it serve them a few times.
const FILLER_KEYS: usize = 3000;
/// Delay before each key of a slow load, in microseconds.
const LOAD_DELAY: &str = "1000";

const READY_LINE: &str = "Ready to accept connections";
/// Logged once the server listens, before it loads any data.
const LISTENING_LINE: &str = "Server initialized";

/// A running server. Killed by its pid when dropped.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts a server without persistence.
    ///
    /// # Panics
    /// If neither the PATH nor `SQUALL_TEST_REDIS_SERVER` has a `redis-server`, or the server does not start.
    pub fn start() -> Self {
        Self::start_with(&["--save", ""])
    }

    /// Starts a server that persists every write, so that a restart keeps its data.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_persistent() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    /// Starts a server with these arguments in addition to port, address and folder.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut server = Self { folder: TempDir::new().expect("a temporary folder"), port: 0, arguments, child: None };
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            if server.launch(&[], READY_LINE) {
                return server;
            }
        }
        panic!("redis-server did not start in {ATTEMPTS} attempts");
    }

    /// The server's address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server again on the same port and folder.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(&[], READY_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Starts the server again on the same port with an empty folder.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.folder = TempDir::new().expect("a temporary folder");
        assert!(self.launch(&[], READY_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Writes keys that no test reads, so that a restart has data to load.
    ///
    /// # Panics
    /// If the server rejects them.
    pub fn write_filler_keys(&self) {
        let commands: String = (0..FILLER_KEYS).map(|number| format!("SET filler:{number} 1\r\n")).collect();
        let mut answers = vec![0; FILLER_KEYS * "+OK\r\n".len()];
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server runs");
        stream
            .write_all(commands.as_bytes())
            .and_then(|()| stream.read_exact(&mut answers))
            .expect("the server accepts the keys");
        assert!(answers.starts_with(b"+OK"), "{}", String::from_utf8_lossy(&answers));
    }

    /// Restarts a persistent server. After [`RedisServer::write_filler_keys`] it loads for seconds
    /// and answers `LOADING` meanwhile.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart_loading_slowly(&mut self) {
        self.kill();
        let slow = ["--key-load-delay", LOAD_DELAY];
        assert!(self.launch(&slow, LISTENING_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Suspends the server's process: connections stay open and get no response.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a paused server.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).expect("our own child can be signalled");
    }

    /// Starts the server and returns whether it logged `ready_line`. It does not if another process took the port.
    fn launch(&mut self, more: &[&str], ready_line: &str) -> bool {
        let program = program();
        let mut child = Command::new(&program)
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--dir"])
            .arg(self.folder.path())
            .args(&self.arguments)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start `{program}` ({error}); apt-get install redis-server"));
        let output = child.stdout.take().expect("piped above");
        // The server ignores a closed stdout, so the rest of its log needs no reader.
        let ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line.contains(ready_line));
        self.child = Some(child);
        if !ready {
            self.kill();
        }
        ready
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn program() -> String {
    std::env::var("SQUALL_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
