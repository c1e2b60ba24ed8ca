//! Measures the stream engine against a bare XREADGROUP/XACK loop on the same server, its idle cost and its rebalance.
//! Prints what it saw; refuses to judge. Alternates the two sides, because the machine is shared.
//!
//! bench/streams/run, or cargo bench -p squall-streams (EVENTS=400000 ROUNDS=3 change the amount of work; RUNNEL_PYTHON=… names a
//! Python that has runnel, the system of the seed, for a side-by-side run of the same work; SQUALL_PYTHON=… one that has squall, for the
//! same work in Python on this engine).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;
use serde::{Deserialize, Serialize};
use squall_streams::{App, BoxError, Namespace, Processor, Settings, Stream, StreamMetrics};
use squall_testkit::redis::RedisServer;
use tokio_util::sync::CancellationToken;

const BATCH: usize = 100;

#[derive(Serialize, Deserialize)]
struct Order {
    order_id: u64,
    amount: u64,
    note: String,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), BoxError> {
    let (events, rounds) = (setting("EVENTS", 400_000), setting("ROUNDS", 3));
    for partitions in [1, 16] {
        throughput(partitions, events, rounds).await?;
    }
    if let Ok(python) = std::env::var("RUNNEL_PYTHON") {
        peer(&python, setting("PEER_EVENTS", 20_000), rounds).await?;
    }
    idle().await?;
    rebalance().await
}

/// The same records on 16 partitions, taken in turn by the Python system and by us.
async fn peer(python: &str, events: u64, rounds: u64) -> Result<(), BoxError> {
    let (mut theirs, mut ours, mut in_python) = (Vec::new(), Vec::new(), Vec::new());
    let (mut their_cpu, mut python_cpu) = (Vec::new(), Vec::new());
    let squall_python = std::env::var("SQUALL_PYTHON").ok();
    for _ in 0..rounds {
        let server = RedisServer::start();
        let (rate, cpu) = script(python, "peer.py", &server, events)?;
        theirs.push(rate);
        their_cpu.push(cpu);
        if let Some(python) = &squall_python {
            let (rate, cpu) = script(python, "python.py", &server, events)?;
            in_python.push(rate);
            python_cpu.push(cpu);
        }
        let app = app(&server).await?;
        let stream = open(&app, 16).await?;
        fill(&stream, events).await?;
        ours.push(worker(&app, &stream, events).await?);
    }
    let (theirs, ours) = (median(theirs), median(ours));
    if squall_python.is_some() {
        let (in_python, cpu, their_cpu) = (median(in_python), median(python_cpu), median(their_cpu));
        println!(
            "the same work in Python, 16 partitions: runnel {theirs:.0}/s and {their_cpu:.1} µs CPU per event, squall stream worker \
             {in_python:.0}/s and {cpu:.1} µs, ratio {:.1} and {:.1}",
            in_python / theirs,
            their_cpu / cpu
        );
    }
    println!(
        "the seed's system, 16 partitions: runnel {theirs:.0}/s, squall {ours:.0}/s, ratio {:.0} (bar 10)",
        ours / theirs
    );
    Ok(())
}

/// Runs a script of bench/streams and reads what it prints: events per second and CPU µs per event.
fn script(python: &str, name: &str, server: &RedisServer, events: u64) -> Result<(f64, f64), BoxError> {
    let path = format!("{}/../../bench/streams/{name}", env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new(python).args([&path, &server.url(), &events.to_string()]).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(rate), Some(cpu)) => Ok((rate?, cpu?)),
        _ => Err(format!("{name} printed {printed:?} and said {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Sends the records and says how fast.
async fn fill(stream: &Stream<Order>, events: u64) -> Result<f64, BoxError> {
    let begin = Instant::now();
    for chunk in 0..events / 5_000 {
        let order = |n| Order { order_id: chunk * 5_000 + n, amount: n * 7, note: "a note of some length".into() };
        stream.send_many(&(0..5_000).map(order).collect::<Vec<_>>()).await?;
    }
    Ok(events as f64 / begin.elapsed().as_secs_f64())
}

async fn app(server: &RedisServer) -> Result<App, BoxError> {
    Ok(App::connect_in("bench", &server.url(), Namespace::new("")?).await?)
}

async fn open(app: &App, partitions: u32) -> Result<Stream<Order>, BoxError> {
    let stream = app.stream("orders").partition_by("order_id").partitions(partitions).partition_size(10_000_000);
    Ok(stream.open().await?)
}

async fn throughput(partitions: u32, events: u64, rounds: u64) -> Result<(), BoxError> {
    let (mut bare, mut ours, mut sends) = (Vec::new(), Vec::new(), Vec::new());
    let mut costs = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let server = RedisServer::start();
        let app = app(&server).await?;
        let stream = open(&app, partitions).await?;
        sends.push(fill(&stream, events).await?);
        let start = cpu(&app).await?;
        bare.push(bare_loop(&app, &stream, events).await?);
        let middle = cpu(&app).await?;
        ours.push(worker(&app, &stream, events).await?);
        let end = cpu(&app).await?;
        let spent = [middle.0 - start.0, middle.1 - start.1, end.0 - middle.0, end.1 - middle.1];
        costs.iter_mut().zip(spent).for_each(|(costs, spent)| costs.push(spent * 1e6 / events as f64));
    }
    let (bare, ours, sends) = (median(bare), median(ours), median(sends));
    println!(
        "throughput, {partitions} partition(s), batch {BATCH}: bare loop {bare:.0}/s, squall {ours:.0}/s, ratio {:.2} (bar 0.60); sending {sends:.0}/s",
        ours / bare
    );
    // Steadier than rates on a shared machine.
    let [bare_client, bare_server, client, server] = costs.map(median);
    println!(
        "  CPU per event, client + server: bare loop {bare_client:.1} + {bare_server:.1} µs, squall {client:.1} + {server:.1} µs"
    );
    Ok(())
}

/// The least one can do: read a hundred, acknowledge a hundred, partition after partition. No decoding, no fencing.
async fn bare_loop(app: &App, stream: &Stream<Order>, events: u64) -> Result<f64, BoxError> {
    let mut commands = app.link().commands();
    let keys: Vec<String> = (0..stream.partitions()).map(|n| app.namespace().events(stream.name(), n)).collect();
    for key in &keys {
        let _: Value =
            redis::cmd("XGROUP").arg("CREATE").arg(key).arg("bare").arg("0").query_async(&mut commands).await?;
    }
    let (begin, mut done) = (Instant::now(), 0);
    while done < events {
        for key in &keys {
            let mut read = redis::cmd("XREADGROUP");
            read.arg("GROUP").arg("bare").arg("1").arg("COUNT").arg(BATCH).arg("STREAMS").arg(key).arg(">");
            let Value::Array(streams) = read.query_async(&mut commands).await? else { continue };
            let Some(Value::Array(parts)) = streams.into_iter().next() else { continue };
            let Some(Value::Array(entries)) = parts.into_iter().nth(1) else { continue };
            let mut ack = redis::cmd("XACK");
            ack.arg(key).arg("bare");
            for entry in &entries {
                if let Value::Array(entry) = entry
                    && let Value::BulkString(id) = &entry[0]
                {
                    ack.arg(id);
                }
            }
            let _: i64 = ack.query_async(&mut commands).await?;
            done += entries.len() as u64;
        }
    }
    Ok(events as f64 / begin.elapsed().as_secs_f64())
}

fn summing(stream: &Stream<Order>) -> Processor {
    Processor::new("summing", stream, |mut events| async move {
        let mut records = events.records();
        let mut sum = 0u64;
        while let Some(order) = records.next().await {
            sum = sum.wrapping_add(order.amount);
        }
        std::hint::black_box(sum);
        Ok::<(), BoxError>(())
    })
}

/// From the first partition taken to the last event acknowledged.
async fn worker(app: &App, stream: &Stream<Order>, events: u64) -> Result<f64, BoxError> {
    let settings = Settings { prefetch: BATCH * 2, join_delay: Duration::ZERO, ..Settings::default() };
    let (stop, metrics, task) = start(app, summing(stream).settings(settings));
    until(|| metrics.fetched() > 0).await;
    let begin = Instant::now();
    until(|| metrics.acked() >= events).await;
    let rate = events as f64 / begin.elapsed().as_secs_f64();
    stop.cancel();
    task.await??;
    Ok(rate)
}

type Task = tokio::task::JoinHandle<Result<(), squall_streams::ExecutorError>>;

fn start(app: &App, processor: Processor) -> (CancellationToken, Arc<StreamMetrics>, Task) {
    let (stop, metrics) = (CancellationToken::new(), processor.metrics());
    let task = tokio::spawn(app.worker().processor(processor).run(stop.clone()));
    (stop, metrics, task)
}

async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// CPU seconds of this process and of the server.
async fn cpu(app: &App) -> Result<(f64, f64), BoxError> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut app.link().commands()).await?;
    let server = info.lines().filter_map(|line| line.strip_prefix("used_cpu_").and_then(|rest| rest.split_once(':')));
    let server = server
        .filter(|(name, _)| ["sys", "user"].contains(name))
        .filter_map(|(_, seconds)| seconds.trim().parse::<f64>().ok());
    Ok((ticks / 100.0, server.sum()))
}

async fn idle() -> Result<(), BoxError> {
    let server = RedisServer::start();
    let app = app(&server).await?;
    let stream = open(&app, 64).await?;
    let (stop, metrics, task) = start(&app, summing(&stream));
    until(|| metrics.held() == 64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begin) = (cpu(&app).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(setting("IDLE_SECONDS", 20))).await;
    let (after, seconds) = (cpu(&app).await?, begin.elapsed().as_secs_f64());
    println!(
        "idle, 64 partitions, one worker: {:.2} % of a core (bar 1 %), and {:.2} % in the server",
        (after.0 - before.0) / seconds * 100.0,
        (after.1 - before.1) / seconds * 100.0
    );
    stop.cancel();
    task.await??;
    Ok(())
}

async fn rebalance() -> Result<(), BoxError> {
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = RedisServer::start();
        let app = app(&server).await?;
        let stream = open(&app, 64).await?;
        let (first_stop, first, first_task) = start(&app, summing(&stream));
        until(|| first.held() == 64).await;
        let begin = Instant::now();
        let (second_stop, second, second_task) = start(&app, summing(&stream));
        until(|| first.held() == 32 && second.held() == 32).await;
        joins.push(begin.elapsed().as_secs_f64() * 1000.0);
        let begin = Instant::now();
        second_stop.cancel();
        until(|| first.held() == 64).await;
        leaves.push(begin.elapsed().as_secs_f64() * 1000.0);
        second_task.await??;
        first_stop.cancel();
        first_task.await??;
    }
    let delay = Settings::default().join_delay.as_millis();
    println!(
        "rebalance, 64 partitions: a join moves 32 in {:.0} ms (of which {delay} ms join delay), a leave moves them back in {:.0} ms (bar 1000 ms)",
        median(joins),
        median(leaves)
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
