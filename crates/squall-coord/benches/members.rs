//! The cost of a thousand idle members: commands at the server, CPU of the server, CPU of an
//! orchestrator.
//! Every member is a real [`Membership`] with its own blocking connections; only the process is
//! shared. The orchestrator is a real one, which sweeps a pool of a hundred items.
//!
//! usage: SQUALL=program cargo bench -p squall-coord --bench members -- [MEMBERS] [SECONDS]
//! (default: 1000 members, 20 seconds)

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use squall_coord::{
    ItemId, LeaseEvent, LeaseKeys, LeaseStore, MemberId, Membership, MembershipConfig, PoolItem, PoolKeys, PoolName,
    PoolStore, RedisClient, RedisLeaseStore, RedisPoolStore, RedisRunStore, ReportFields, RunKeys, RunStore, UnitId,
};
use squall_testkit::redis::RedisServer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const UNIT_COUNT: u32 = 256;
/// The timings of a worker.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1150);
const TTL: Duration = Duration::from_millis(3500);
/// Time between joins, because machines do not start within the same millisecond.
const JOIN_INTERVAL: Duration = Duration::from_millis(10);

fn keys() -> LeaseKeys {
    LeaseKeys::with_prefix("squall:{bench}:shares")
}

async fn run_member(client: RedisClient, name: String, stop: CancellationToken) {
    let config = MembershipConfig {
        heartbeat_interval: HEARTBEAT_INTERVAL,
        ttl: TTL,
        ..MembershipConfig::new(MemberId::new(&*name), (0..UNIT_COUNT).map(UnitId::from).collect())
    };
    let (membership, mut handle) =
        Membership::new(RedisLeaseStore::new(&client, keys()), config).expect("timings that fit");
    let handle_events = async {
        while let Some(event) = handle.events.recv().await {
            if let LeaseEvent::ReturnRequested(lease) = event {
                handle.release(lease);
            }
        }
    };
    tokio::join!(membership.run(stop.clone()), handle_events, send_reports(client, name, stop));
}

/// Sends a worker's report once per heartbeat.
async fn send_reports(client: RedisClient, name: String, stop: CancellationToken) {
    let run = RedisRunStore::new(&client, RunKeys::new("squall:{bench}:"));
    let report: ReportFields = (0..18).map(|n| (format!("field_{n}"), "123456".to_owned())).collect();
    let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
    while !stop.is_cancelled() {
        heartbeats.tick().await;
        // If the server is busy, the next heartbeat tries again.
        let _ = run.report(&name, &report, TTL).await;
    }
}

/// Calls of each command so far, sent by clients and made by scripts.
async fn command_counts(client: &RedisClient) -> BTreeMap<String, u64> {
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut client.connection())
        .await
        .expect("the server responds");
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(line).collect()
}

/// Commands per second from clients; MONITOR marks those of scripts.
fn measure_command_rate(port: u16, seconds: u64) -> f64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server runs");
    stream.write_all(b"MONITOR\r\n").expect("the server runs");
    let mut lines = BufReader::new(stream).split(b'\n').map_while(Result::ok).skip(1);
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(seconds) {
        let line = lines.next().expect("members send heartbeats");
        // +1794866000.123456 [0 127.0.0.1:40000] "EVALSHA" …, or [0 lua]
        count +=
            u32::from(line.splitn(4, |byte| *byte == b' ').nth(2).is_none_or(|measured_from| measured_from != b"lua]"));
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

async fn server_cpu(client: &RedisClient) -> f64 {
    let info: String =
        redis::cmd("INFO").arg("cpu").query_async(&mut client.connection()).await.expect("the server responds");
    let seconds = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).and_then(|value| value.trim().parse().ok());
        line.unwrap_or(0.0)
    };
    seconds("used_cpu_sys:") + seconds("used_cpu_user:")
}

/// A real orchestrator that leads an idle fleet.
struct OrchestratorProcess(Child);

impl OrchestratorProcess {
    fn start(program: &str, redis: &str) -> OrchestratorProcess {
        let mut command = Command::new(program);
        command.args(["orchestrator", "--fleet", "bench", "--listen", "127.0.0.1:0", "--redis", redis]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        OrchestratorProcess(child.unwrap_or_else(|error| panic!("{program} does not start: {error}")))
    }

    /// Seconds of CPU so far.
    fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("the orchestrator runs");
        // After the process name, which may contain any character: the 12th and 13th number, in
        // ticks of 10 ms.
        let numbers = stat.rsplit(')').next().unwrap_or_default().split(' ');
        let ticks: f64 = numbers.skip(12).take(2).filter_map(|number| number.parse::<f64>().ok()).sum();
        ticks / 100.0
    }
}

impl Drop for OrchestratorProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (members, seconds) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(20));
    let program = std::env::var("SQUALL").expect("SQUALL names the program whose orchestrator is measured");
    let server = RedisServer::start_with(&["--save", "", "--maxclients", "15000"]);
    let client = RedisClient::open(&server.url()).await.expect("the server runs");
    let pools = RedisPoolStore::new(&client, &RedisLeaseStore::new(&client, keys()), PoolKeys::new("squall:{bench}:"));
    let items: Vec<PoolItem> = (0..100).map(|n| PoolItem { id: ItemId::from(n), payload: n.to_string() }).collect();
    pools.put(&PoolName::new("accounts").expect("a name"), &items, None, None).await.expect("put");
    let (stop, started) = (CancellationToken::new(), Instant::now());
    let mut tasks = JoinSet::new();
    for number in 0..members {
        tasks.spawn(run_member(client.clone(), format!("w{number}"), stop.clone()));
        tokio::time::sleep(JOIN_INTERVAL).await;
    }
    let store = RedisLeaseStore::new(&client, keys());
    let settled_after = loop {
        // A thousand joins at once keep the server busy for longer than the response timeout.
        let snapshot = store.snapshot().await.unwrap_or_default();
        let all_held = snapshot.leases.len() == UNIT_COUNT as usize && snapshot.members.len() as u64 == members;
        let wanted =
            snapshot.assignment.iter().flat_map(|(member, units)| units.iter().map(move |unit| (unit, member)));
        if all_held
            && wanted
                .clone()
                .all(|(unit, member)| snapshot.leases.get(unit).is_some_and(|holder| holder.member == *member))
        {
            break started.elapsed();
        }
        assert!(started.elapsed() < Duration::from_secs(120), "not settled: {} leases", snapshot.leases.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("{members} members joined and {UNIT_COUNT} units settled in {:.1} s", settled_after.as_secs_f64());
    tokio::time::sleep(Duration::from_secs(3)).await;

    let orchestrator = OrchestratorProcess::start(&program, &server.url());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (before, cpu, measured_from) = (command_counts(&client).await, server_cpu(&client).await, Instant::now());
    let orchestrator_cpu = orchestrator.cpu_seconds();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, elapsed) = (command_counts(&client).await, measured_from.elapsed().as_secs_f64());
    let server_share = (server_cpu(&client).await - cpu) / elapsed;
    let orchestrator_share = (orchestrator.cpu_seconds() - orchestrator_cpu) / elapsed;
    // Measured last, because MONITOR costs the server CPU.
    let sent_rate = measure_command_rate(server.port(), seconds);
    drop(orchestrator);

    let rate = |name: &str| {
        let count = |calls: &BTreeMap<String, u64>| calls.get(name).copied().unwrap_or(0);
        (count(&after) - count(&before)) as f64 / elapsed
    };
    let total_rate: f64 = after.keys().map(|name| rate(name)).sum();
    println!("idle: {sent_rate:.0} commands/s sent, {total_rate:.0}/s with those inside scripts");
    for name in after.keys().filter(|name| rate(name) >= 1.0) {
        println!("  {name} {:.0}/s", rate(name));
    }
    println!("idle: server {:.1} % of a core, orchestrator {:.2} %", server_share * 100.0, orchestrator_share * 100.0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("machine load while measured: {}", load.split(' ').next().unwrap_or("unknown"));
    stop.cancel();
    tasks.shutdown().await;
    assert!(sent_rate < 2000.0, "more than 2,000 commands/s");
    assert!(orchestrator_share < 0.10, "more than a tenth of a core");
}
