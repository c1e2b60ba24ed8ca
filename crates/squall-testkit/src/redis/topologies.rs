//! Starts groups of servers: a master with a replica and a Sentinel, and a cluster of three masters.
//! It never touches a server that it did not start.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{ATTEMPTS, RedisServer, free_port, program};

const WAIT_LIMIT: Duration = Duration::from_secs(60);
const SLOTS: u32 = 16384;

/// Sends one command, whose arguments have no spaces, and returns the whole reply.
fn send_command(port: u16, command: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("the server runs");
    socket.set_read_timeout(Some(WAIT_LIMIT)).expect("a socket has timeouts");
    socket.write_all(format!("{command}\r\n").as_bytes()).expect("sent");
    // Sentinel has no QUIT. Every server answers what it has read before it notices the closed connection.
    socket.shutdown(Shutdown::Write).expect("connected");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("answered");
    answer
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < WAIT_LIMIT, "{what}: not within {WAIT_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Three masters that share the hash slots.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster and waits until all nodes report that it works.
    ///
    /// # Panics
    /// As [`RedisServer::start`], or if the nodes do not form a cluster.
    pub fn start() -> Self {
        let arguments = ["--save", "", "--cluster-enabled", "yes", "--cluster-node-timeout", "5000"];
        let nodes: Vec<RedisServer> = (0..3).map(|_| RedisServer::start_with(&arguments)).collect();
        let count = u32::try_from(nodes.len()).expect("three");
        for (at, node) in (0..).zip(&nodes) {
            let slots: Vec<String> =
                (SLOTS * at / count..SLOTS * (at + 1) / count).map(|slot| slot.to_string()).collect();
            send_command(node.port(), &format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
            send_command(node.port(), &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
        }
        for node in &nodes[1..] {
            send_command(nodes[0].port(), &format!("CLUSTER MEET 127.0.0.1 {}", node.port()));
        }
        let agrees = |node: &RedisServer| {
            let info = send_command(node.port(), "CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        wait_for("the nodes find together", || nodes.iter().all(agrees));
        Self { nodes }
    }

    /// The address of one node, from which clients discover the others.
    pub fn url(&self) -> String {
        format!("redis-cluster://127.0.0.1:{}", self.nodes[0].port())
    }

    /// The nodes.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }
}

/// A master, a replica, and a Sentinel that promotes the replica when the master fails.
#[derive(Debug)]
pub struct SentinelGroup {
    /// The master at the start.
    pub initial_master: RedisServer,
    /// Its replica.
    pub replica: RedisServer,
    port: u16,
    child: Child,
    _folder: TempDir,
}

impl SentinelGroup {
    /// Starts a group named `main` and waits until its replica is in sync.
    ///
    /// # Panics
    /// As [`RedisServer::start`], or if the Sentinel does not start.
    pub fn start() -> Self {
        let first = RedisServer::start_with(&["--save", "", "--repl-diskless-sync-delay", "0"]);
        let master = first.port().to_string();
        // Two arguments, because Redis 6.2 does not split an argument at a space.
        let second = RedisServer::start_with(&["--save", "", "--replicaof", "127.0.0.1", &master]);
        wait_for("the replica is in step", || {
            send_command(second.port(), "INFO replication").contains("master_link_status:up")
        });
        for _ in 0..ATTEMPTS {
            let (folder, port) = (TempDir::new().expect("a temporary folder"), free_port());
            let config = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {master} 1\n\
                 sentinel down-after-milliseconds main 700\nsentinel failover-timeout main 5000\n",
                folder.path().display()
            );
            let file = folder.path().join("sentinel.conf");
            std::fs::write(&file, config).expect("written");
            let mut command = Command::new(program());
            command.arg(&file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut child = command.spawn().expect("redis-server starts");
            let output = BufReader::new(child.stdout.take().expect("piped above"));
            let watching = output.lines().map_while(Result::ok).any(|line| line.contains("+monitor master"));
            if !watching {
                let _ = child.kill();
                let _ = child.wait();
                continue;
            }
            wait_for("Sentinel knows the replica", || {
                send_command(port, "SENTINEL MASTER main").contains("num-slaves\r\n$1\r\n1")
            });
            return Self { initial_master: first, replica: second, port, child, _folder: folder };
        }
        panic!("Sentinel did not start in {ATTEMPTS} attempts");
    }

    /// The address of the Sentinel.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main/0", self.port)
    }

    /// Kills the first master once its replica has every write; missing writes would be lost.
    ///
    /// # Panics
    /// If the replica does not catch up.
    pub fn kill_master(&mut self) {
        let offset = |port, name: &str| {
            let info = send_command(port, "INFO replication");
            let told =
                info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok());
            told.unwrap_or(0)
        };
        wait_for("the replica has everything", || {
            let wanted = offset(self.initial_master.port(), "master_repl_offset");
            wanted > 0 && offset(self.replica.port(), "slave_repl_offset") >= wanted
        });
        self.initial_master.kill();
    }

    /// Waits until Sentinel reports the replica as the new master.
    ///
    /// # Panics
    /// If Sentinel does not promote it.
    pub fn await_promotion(&self) {
        let second = self.replica.port().to_string();
        wait_for("the replica is promoted", || {
            send_command(self.port, "SENTINEL GET-MASTER-ADDR-BY-NAME main").contains(&second)
                && send_command(self.replica.port(), "ROLE").contains("master")
        });
    }
}

impl Drop for SentinelGroup {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
