//! What a thousand idle members cost: commands at the server, CPU of the server, CPU of whoever watches them.
//! Every member is a real [`Seat`] with connections for waiting of its own; only the process is shared.
//!
//! usage: cargo bench -p squall-coord --bench members -- [MEMBERS] [SECONDS]   (1000 and 20 unless told)

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use squall_coord::{
    Item, ItemId, Link, MemberId, Notice, PoolKeys, PoolName, PoolStore, RedisPools, RedisRun, RedisStore, Report,
    RunKeys, RunStore, Seat, SeatConfig, SpaceKeys, Store, Unit,
};
use squall_testkit::redis::RedisServer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const UNITS: u32 = 256;
/// As a worker has them.
const BEAT: Duration = Duration::from_millis(1150);
const TTL: Duration = Duration::from_millis(3500);
/// Machines do not start within the same millisecond.
const ARRIVAL: Duration = Duration::from_millis(10);

fn keys() -> SpaceKeys {
    SpaceKeys::under("squall:{bench}:shares")
}

async fn member(link: Link, name: String, stop: CancellationToken) {
    let config = SeatConfig {
        beat: BEAT,
        ttl: TTL,
        ..SeatConfig::new(MemberId::new(&*name), (0..UNITS).map(Unit::from).collect())
    };
    let (seat, mut handle) = Seat::new(RedisStore::new(&link, keys()), config).expect("timings that fit");
    let use_leases = async {
        while let Some(notice) = handle.notices.recv().await {
            if let Notice::Drain(lease) = notice {
                handle.release(lease);
            }
        }
    };
    tokio::join!(seat.run(stop.clone()), use_leases, report(link, name, stop));
}

/// What a worker says of itself once a beat.
async fn report(link: Link, name: String, stop: CancellationToken) {
    let run = RedisRun::new(&link, RunKeys::new("squall:{bench}:"));
    let report: Report = (0..18).map(|n| (format!("field_{n}"), "123456".to_owned())).collect();
    let mut beats = tokio::time::interval(BEAT);
    while !stop.is_cancelled() {
        beats.tick().await;
        // A server that is busy is asked again at the next beat.
        let _ = run.report(&name, &report, TTL).await;
    }
}

/// Calls of each command so far: those that were sent, and those that scripts made.
async fn calls(link: &Link) -> BTreeMap<String, u64> {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut link.commands()).await.expect("answers");
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(line).collect()
}

async fn server_cpu(link: &Link) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut link.commands()).await.expect("answers");
    let seconds = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).and_then(|value| value.trim().parse().ok());
        line.unwrap_or(0.0)
    };
    seconds("used_cpu_sys:") + seconds("used_cpu_user:")
}

fn thread_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What an orchestrator does about idle members, once a second, on a thread of its own: reads who is there and who holds
/// what, and sweeps the pools. Answers the share of a core it took.
fn watch(url: String, stop: CancellationToken) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let link = Link::open(&url).await.expect("the server runs");
        let members = RedisStore::new(&link, keys());
        let pools = RedisPools::new(&link, &members, PoolKeys::new("squall:{bench}:"));
        let items: Vec<Item> = (0..100).map(|n| Item { id: ItemId::from(n), payload: n.to_string() }).collect();
        pools.put(&PoolName::new("accounts").expect("a name"), &items, None).await.expect("put");
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        let (began, before) = (Instant::now(), thread_cpu());
        while !stop.is_cancelled() {
            seconds.tick().await;
            members.view().await.expect("answers");
            pools.sweep().await.expect("answers");
        }
        (thread_cpu() - before) / began.elapsed().as_secs_f64()
    })
}

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (members, seconds) = (numbers.next().unwrap_or(1000), numbers.next().unwrap_or(20));
    let server = RedisServer::start_with(&["--save", "", "--maxclients", "15000"]);
    let link = Link::open(&server.url()).await.expect("the server runs");
    let (stop, began) = (CancellationToken::new(), Instant::now());
    let mut tasks = JoinSet::new();
    for number in 0..members {
        tasks.spawn(member(link.clone(), format!("w{number}"), stop.clone()));
        tokio::time::sleep(ARRIVAL).await;
    }
    let store = RedisStore::new(&link, keys());
    let settled = loop {
        // A thousand that come at once keep the server busy for longer than an answer may take.
        let view = store.view().await.unwrap_or_default();
        let spread = view.leases.len() == UNITS as usize && view.members.len() as u64 == members;
        let wanted = view.assignment.iter().flat_map(|(member, units)| units.iter().map(move |unit| (unit, member)));
        if spread && wanted.clone().all(|(unit, member)| view.leases.get(unit).is_some_and(|(by, _)| by == member)) {
            break began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(120), "not settled: {} leases", view.leases.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    println!("{members} members joined and {UNITS} units settled in {:.1} s", settled.as_secs_f64());
    tokio::time::sleep(Duration::from_secs(3)).await;

    let (watching, url) = (CancellationToken::new(), server.url());
    let watcher = std::thread::spawn({
        let watching = watching.clone();
        move || watch(url, watching)
    });
    let (before, cpu, from) = (calls(&link).await, server_cpu(&link).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, elapsed) = (calls(&link).await, from.elapsed().as_secs_f64());
    let server_share = (server_cpu(&link).await - cpu) / elapsed;
    watching.cancel();
    let watcher_share = watcher.join().expect("the watcher ends");

    let rate = |name: &str| {
        let count = |calls: &BTreeMap<String, u64>| calls.get(name).copied().unwrap_or(0);
        (count(&after) - count(&before)) as f64 / elapsed
    };
    // What only scripts send here; everything else came over a connection.
    let inner = [
        "time",
        "zrangebyscore",
        "zadd",
        "zscore",
        "set",
        "hget",
        "hmget",
        "zrange",
        "hgetall",
        "hkeys",
        "zcard",
        "get",
        "del",
        "hset",
        "sadd",
        "pexpire",
    ];
    let all: f64 = after.keys().map(|name| rate(name)).sum();
    let sent: f64 = after.keys().filter(|name| !inner.contains(&name.as_str())).map(|name| rate(name)).sum();
    println!("idle: {sent:.0} commands/s sent, {all:.0}/s with those inside scripts");
    for name in after.keys().filter(|name| rate(name) >= 1.0) {
        println!("  {name} {:.0}/s", rate(name));
    }
    println!("idle: server {:.1} % of a core, watching side {:.2} %", server_share * 100.0, watcher_share * 100.0);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("machine load while measured: {}", load.split(' ').next().unwrap_or("unknown"));
    stop.cancel();
    tasks.shutdown().await;
    assert!(sent < 2000.0, "more than 2,000 commands/s");
    assert!(watcher_share < 0.10, "more than a tenth of a core");
}
