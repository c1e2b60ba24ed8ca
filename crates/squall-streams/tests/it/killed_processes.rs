//! Worker processes (the `ledger` example) that are killed and paused at random times, checked by
//! their ledger.

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
    order_checker::{SeenEvent, check_at_least_once, check_exactly_once},
    support::{Order, app, eventually, send, stream},
};

const PARTITIONS: u32 = 8;
/// Short, so that pauses are longer than the lease.
const SHORT_LEASE: Duration = Duration::from_millis(800);
/// So long that it does not expire on a busy machine.
const LONG_LEASE: Duration = Duration::from_secs(30);

struct WorkerProcess(Child);

impl WorkerProcess {
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
        kill_process(Pid::from_child(&self.0), signal).expect("the process is our child");
    }

    fn kill(mut self) {
        self.0.kill().expect("the process is our child");
        self.0.wait().expect("the process is our child");
    }

    /// Ends the worker gracefully. The signal kills a process that has not installed its handler
    /// yet.
    async fn leave(mut self) {
        self.signal(Signal::TERM);
        let mut ended = None;
        eventually("the worker has exited", || {
            ended = self.0.try_wait().expect("the process is our child");
            std::future::ready(ended.is_some())
        })
        .await;
        let status = ended.expect("the process has ended");
        assert!(status.success() || status.signal() == Some(Signal::TERM.as_raw()), "{status}");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The examples are in a folder beside that of the test programs.
fn ledger() -> PathBuf {
    let test = std::env::current_exe().expect("the test program has a path");
    test.parent()
        .and_then(|deps| deps.parent())
        .expect("the test program is in target/debug/deps")
        .join("examples/ledger")
}

async fn read_lines(app: &StreamApp, key: &str) -> Vec<SeenEvent> {
    let read_lines: Vec<String> =
        redis::cmd("LRANGE").arg(key).arg(0).arg(-1).query_async(&mut app.client().connection()).await.unwrap();
    read_lines
        .iter()
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().expect("a ledger line has four words");
            SeenEvent {
                partition: word().parse().unwrap(),
                id: EntryId::parse(word().as_bytes()).unwrap(),
                epoch: word().parse().unwrap(),
            }
        })
        .collect()
}

async fn wait_booked(app: &StreamApp, count: usize) {
    eventually("all events are booked", || async {
        let length: usize = redis::cmd("LLEN").arg("ledger").query_async(&mut app.client().connection()).await.unwrap();
        length >= count && {
            let mut all: Vec<(u32, EntryId)> =
                read_lines(app, "ledger").await.iter().map(|seen| (seen.partition, seen.id)).collect();
            all.sort_unstable();
            all.dedup();
            all.len() >= count
        }
    })
    .await;
}

/// After a newer owner has started, an older one may at most finish its current iteration.
fn check_late_attempts(attempts: &[SeenEvent]) {
    let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut late: BTreeMap<(u32, u64), usize> = BTreeMap::new();
    for attempt in attempts {
        let newest = newest.entry(attempt.partition).or_default();
        if attempt.epoch < *newest {
            *late.entry((attempt.partition, attempt.epoch)).or_default() += 1;
        }
        *newest = (*newest).max(attempt.epoch);
    }
    for ((partition, epoch), count) in late {
        assert!(
            count <= 1,
            "partition {partition}: the owner of epoch {epoch} processed {count} events after it was replaced"
        );
    }
}

async fn send_orders(stream: &squall_streams::RecordStream<Order>, from: u64, count: u64) -> Vec<(u32, EntryId)> {
    let records: Vec<Order> = (from..from + count).map(|number| Order { order_id: number % 61, number }).collect();
    send(stream, &records).await
}

/// Kills, pauses and replaces workers while they process events. `seed` determines which worker and
/// when.
async fn check_with_random_faults(seed: u64) {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut workers: Vec<WorkerProcess> = (0..3).map(|_| WorkerProcess::start(&server, SHORT_LEASE)).collect();
    let mut sent = send_orders(&stream, 0, 200).await;
    // Waits until a worker processes events, so that the faults hit busy workers.
    eventually("workers process events", || async {
        redis::cmd("LLEN").arg("ledger").query_async::<u64>(&mut app.client().connection()).await.unwrap() > 20
    })
    .await;
    for round in 0..10u64 {
        sent.extend(send_orders(&stream, 200 + round * 200, 200).await);
        let victim = rng.usize(..workers.len());
        match rng.u32(..4) {
            0 => {
                workers.swap_remove(victim).kill();
                workers.push(WorkerProcess::start(&server, SHORT_LEASE));
            }
            1 => {
                workers.swap_remove(victim).leave().await;
                workers.push(WorkerProcess::start(&server, SHORT_LEASE));
            }
            _ => {
                workers[victim].signal(Signal::STOP);
                // The pause is the fault. It is often longer than the lease.
                tokio::time::sleep(Duration::from_millis(rng.u64(50..1600))).await;
                workers[victim].signal(Signal::CONT);
            }
        }
    }
    wait_booked(&app, sent.len()).await;
    for worker in workers {
        worker.leave().await;
    }
    check_at_least_once(&read_lines(&app, "ledger").await, &sent);
    check_late_attempts(&read_lines(&app, "attempts").await);
    assert_eq!(crate::support::pending_count(&app, &stream, "booker").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_paused_workers_keep_order_and_lose_no_event() {
    // SQUALL_SEEDS=100 runs a soak test; the default keeps a test run short.
    let seeds = std::env::var("SQUALL_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        println!("seed {seed}");
        check_with_random_faults(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_owner_is_replaced_and_rejoins() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut sent = send_orders(&stream, 0, 100).await;
    let first = WorkerProcess::start(&server, SHORT_LEASE);
    wait_booked(&app, sent.len()).await;
    first.signal(Signal::STOP);
    let second = WorkerProcess::start(&server, SHORT_LEASE);
    sent.extend(send_orders(&stream, 100, 400).await);
    wait_booked(&app, sent.len()).await; // the second worker alone books them
    first.signal(Signal::CONT);
    let name = stream.name().processor("booker").unwrap();
    let admin = squall_streams::admin::StreamAdmin::new(app.client().clone(), app.namespace().clone());
    eventually("both workers hold half of the partitions", || async {
        let snapshot = admin.members(&name).await.unwrap();
        snapshot.members.len() == 2 && snapshot.leases.len() == PARTITIONS as usize && {
            snapshot.assignment.values().all(|units| units.len() == PARTITIONS as usize / 2)
        }
    })
    .await;
    sent.extend(send_orders(&stream, 500, 200).await);
    wait_booked(&app, sent.len()).await;
    first.leave().await;
    second.leave().await;
    check_at_least_once(&read_lines(&app, "ledger").await, &sent);
    check_late_attempts(&read_lines(&app, "attempts").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn graceful_worker_replacement_repeats_no_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, PARTITIONS).await;
    let mut sent = send_orders(&stream, 0, 300).await;
    let name = stream.name().processor("booker").unwrap();
    let admin = squall_streams::admin::StreamAdmin::new(app.client().clone(), app.namespace().clone());
    let mut worker = WorkerProcess::start(&server, LONG_LEASE);
    for round in 1..4 {
        let next = WorkerProcess::start(&server, LONG_LEASE);
        eventually("both workers are members", || async { admin.members(&name).await.unwrap().members.len() == 2 })
            .await;
        sent.extend(send_orders(&stream, round * 300, 300).await);
        worker.leave().await;
        worker = next;
    }
    wait_booked(&app, sent.len()).await;
    worker.leave().await;
    check_exactly_once(&read_lines(&app, "ledger").await, &sent);
    check_exactly_once(&read_lines(&app, "attempts").await, &sent);
}
