//! Real worker processes (the `ledger` example) killed and stopped at any moment, judged by what they booked.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use squall_streams::{EntryId, StreamApp};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::{Seen, check_at_least_once, check_exactly_once},
    support::{Order, app, eventually, send, stream},
};

const PARTITIONS: u32 = 8;
/// Short, so that pauses outlast it.
const LEASE: Duration = Duration::from_millis(800);
/// So long that no busy machine makes it expire.
const LONG: Duration = Duration::from_secs(30);

struct Process(Child);

impl Process {
    fn start(server: &RedisServer, lease: Duration) -> Self {
        let program = ledger();
        let child = Command::new(&program)
            .args([server.url(), PARTITIONS.to_string(), lease.as_millis().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{}: {error}; run cargo build -p squall-streams --examples", program.display())
            });
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("our own child");
    }

    fn kill(mut self) {
        self.0.kill().expect("our own child");
        self.0.wait().expect("our own child");
    }

    /// Ends gracefully. A process so young that it does not listen yet ends by the signal itself.
    async fn leave(mut self) {
        self.signal(Signal::TERM);
        let mut ended = None;
        eventually("the worker left", || {
            ended = self.0.try_wait().expect("our own child");
            std::future::ready(ended.is_some())
        })
        .await;
        let status = ended.expect("it ended");
        assert!(status.success() || status.signal() == Some(Signal::TERM.as_raw()), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Examples lie beside the folder of test programs.
fn ledger() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    test.parent().and_then(|deps| deps.parent()).expect("target/debug/deps").join("examples/ledger")
}

async fn lines(app: &StreamApp, key: &str) -> Vec<Seen> {
    let lines: Vec<String> =
        redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query_async(&mut app.client().connection()).await.unwrap();
    lines
        .iter()
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("four words");
            Seen {
                partition: word().parse().unwrap(),
                id: EntryId::parse(word().as_bytes()).unwrap(),
                epoch: word().parse().unwrap(),
            }
        })
        .collect()
}

async fn booked(app: &StreamApp, count: usize) {
    eventually("everything booked", || async {
        let length: usize = redis::cmd("LLEN").arg("ledger").query_async(&mut app.client().connection()).await.unwrap();
        length >= count && {
            let mut all: Vec<(u32, EntryId)> =
                lines(app, "ledger").await.iter().map(|seen| (seen.partition, seen.id)).collect();
            all.sort_unstable();
            all.dedup();
            all.len() >= count
        }
    })
    .await;
}

/// After a newer owner has begun, an older one may at most finish the iteration it had in hand.
fn check_stragglers(attempts: &[Seen]) {
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut late: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    for one in attempts {
        let newest = newest.entry(one.partition).or_default();
        if one.epoch < *newest {
            *late.entry((one.partition, one.epoch)).or_default() += 1;
        }
        *newest = (*newest).max(one.epoch);
    }
    for ((partition, epoch), count) in late {
        assert!(
            count <= 1,
            "partition {partition}: the owner of epoch {epoch} went on for {count} events after it was replaced"
        );
    }
}

async fn fill(stream: &squall_streams::RecordStream<Order>, from: u64, count: u64) -> Vec<(u32, EntryId)> {
    let records: Vec<Order> = (from..from + count).map(|number| Order { order_id: number % 61, number }).collect();
    send(stream, &records).await
}

/// Kills, stops and replaces workers while events flow; `seed` decides whom and when.
async fn trouble(seed: u64) {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut workers: Vec<Process> = (0..3).map(|_| Process::start(&server, LEASE)).collect();
    let mut sent = fill(&stream, 0, 200).await;
    // Wait until somebody works, so that trouble meets work.
    eventually("work has begun", || async {
        redis::cmd("LLEN").arg("ledger").query_async::<u64>(&mut app.client().connection()).await.unwrap() > 20
    })
    .await;
    for round in 0..10u64 {
        sent.extend(fill(&stream, 200 + round * 200, 200).await);
        let victim = dice.usize(..workers.len());
        match dice.u32(..4) {
            0 => {
                workers.swap_remove(victim).kill();
                workers.push(Process::start(&server, LEASE));
            }
            1 => {
                workers.swap_remove(victim).leave().await;
                workers.push(Process::start(&server, LEASE));
            }
            _ => {
                workers[victim].signal(Signal::STOP);
                // The pause is the fault itself, often longer than the lease.
                tokio::time::sleep(Duration::from_millis(dice.u64(50..1600))).await;
                workers[victim].signal(Signal::CONT);
            }
        }
    }
    booked(&app, sent.len()).await;
    for worker in workers {
        worker.leave().await;
    }
    check_at_least_once(&lines(&app, "ledger").await, &sent);
    check_stragglers(&lines(&app, "attempts").await);
    assert_eq!(crate::support::pending(&app, &stream, "booker").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_pauses_of_any_worker_keep_order_and_lose_nothing() {
    // SQUALL_SEEDS=100 for a soak; the default keeps a test run short.
    let seeds = std::env::var("SQUALL_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        println!("seed {seed}");
        trouble(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_owner_is_replaced_and_comes_back_without_harm() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut sent = fill(&stream, 0, 100).await;
    let first = Process::start(&server, LEASE);
    booked(&app, sent.len()).await;
    first.signal(Signal::STOP);
    let second = Process::start(&server, LEASE);
    sent.extend(fill(&stream, 100, 400).await);
    booked(&app, sent.len()).await; // by the second alone
    first.signal(Signal::CONT);
    let name = stream.name().processor("booker").unwrap();
    let admin = squall_streams::admin::StreamAdmin::new(app.client().clone(), app.namespace().clone());
    eventually("both share again", || async {
        let view = admin.members(&name).await.unwrap();
        view.members.len() == 2 && view.leases.len() == PARTITIONS as usize && {
            view.assignment.values().all(|units| units.len() == PARTITIONS as usize / 2)
        }
    })
    .await;
    sent.extend(fill(&stream, 500, 200).await);
    booked(&app, sent.len()).await;
    first.leave().await;
    second.leave().await;
    check_at_least_once(&lines(&app, "ledger").await, &sent);
    check_stragglers(&lines(&app, "attempts").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_replacement_of_every_worker_repeats_nothing() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut sent = fill(&stream, 0, 300).await;
    let name = stream.name().processor("booker").unwrap();
    let admin = squall_streams::admin::StreamAdmin::new(app.client().clone(), app.namespace().clone());
    let mut worker = Process::start(&server, LONG);
    for round in 1..4 {
        let next = Process::start(&server, LONG);
        eventually("both are there", || async { admin.members(&name).await.unwrap().members.len() == 2 }).await;
        sent.extend(fill(&stream, round * 300, 300).await);
        worker.leave().await;
        worker = next;
    }
    booked(&app, sent.len()).await;
    worker.leave().await;
    check_exactly_once(&lines(&app, "ledger").await, &sent);
    check_exactly_once(&lines(&app, "attempts").await, &sent);
}
