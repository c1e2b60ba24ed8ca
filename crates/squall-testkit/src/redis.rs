//! A private redis-server (or Valkey) for one test: own port, own folder, no persistence unless asked for, gone on drop.
//! Refuses to touch any server it did not start.

mod topologies;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use topologies::{RedisCluster, SentinelGroup};

/// How often another free port is tried when somebody was faster.
const ATTEMPTS: usize = 20;

/// Keys of [`RedisServer::write_filler_keys`], enough for the server to look at its clients (every 1,024) a few times while it loads them.
const FILLER_KEYS: usize = 3000;
/// What the server waits before each key it loads slowly, in microseconds.
const LOAD_DELAY: &str = "1000";

const READY_LINE: &str = "Ready to accept connections";
/// It listens, and has loaded nothing.
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
    /// A server that forgets everything when it ends.
    ///
    /// # Panics
    /// If there is no `redis-server` on the PATH (nor at `SQUALL_TEST_REDIS_SERVER`), or it does not come up.
    pub fn start() -> Self {
        Self::start_with(&["--save", ""])
    }

    /// A server that keeps every write, so that it can be restarted with its data.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    pub fn start_persistent() -> Self {
        Self::start_with(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"])
    }

    /// A server with these arguments beside port, address and folder.
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
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(&[], READY_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Starts the server again on the same port with nothing of what it had.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart_empty(&mut self) {
        self.kill();
        self.folder = TempDir::new().expect("a temporary folder");
        assert!(self.launch(&[], READY_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Writes keys that nobody looks at, so that there is something to load.
    ///
    /// # Panics
    /// If the server does not take them.
    pub fn write_filler_keys(&self) {
        let commands: String = (0..FILLER_KEYS).map(|number| format!("SET filler:{number} 1\r\n")).collect();
        let mut answers = vec![0; FILLER_KEYS * "+OK\r\n".len()];
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server runs");
        stream.write_all(commands.as_bytes()).and_then(|()| stream.read_exact(&mut answers)).expect("it takes them");
        assert!(answers.starts_with(b"+OK"), "{}", String::from_utf8_lossy(&answers));
    }

    /// Starts a persistent server again; after [`RedisServer::write_filler_keys`] it is busy loading for seconds and says so to whoever asks.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn restart_loading_slowly(&mut self) {
        self.kill();
        let slow = ["--key-load-delay", LOAD_DELAY];
        assert!(self.launch(&slow, LISTENING_LINE), "redis-server did not come back on port {}", self.port);
    }

    /// Stops the server's process without ending it; connections stay open and nothing answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).expect("our own child can be signalled");
    }

    /// Whether the server came up and said `word`; it does not when the port has been taken meanwhile.
    fn launch(&mut self, more: &[&str], word: &str) -> bool {
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
        // The server ignores a closed output, so the rest of its log needs no reader.
        let ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line.contains(word));
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
