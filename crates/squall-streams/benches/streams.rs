//! Measures the stream engine against a bare XREADGROUP/XACK loop on the same server, its idle cost
//! and its rebalance time. Prints the figures and judges nothing. Alternates the two sides, because
//! the machine is shared.
//!
//! Run it with bench/streams/run, or cargo bench -p squall-streams. EVENTS=400000 and ROUNDS=3 set
//! the amount of work. RUNNEL_PYTHON names a Python that has runnel, for the same work on runnel.
//! SQUALL_PYTHON names a Python that has squall, for the same work in Python on this engine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;
use serde::{Deserialize, Serialize};
use squall_streams::{BoxError, Namespace, Processor, ProcessorSettings, RecordStream, StreamApp, StreamMetrics};
use squall_testkit::redis::RedisServer;
use tokio_util::sync::CancellationToken;

const BATCH: usize = 100;

#[derive(Serialize, Deserialize)]
struct Order {
    order_id: u64,
    amount: u64,
    note: String,
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), BoxError> {
    let (events, rounds) = (env_number("EVENTS", 400_000), env_number("ROUNDS", 3));
    for partitions in [1, 16] {
        measure_throughput(partitions, events, rounds).await?;
    }
    if let Ok(python) = std::env::var("RUNNEL_PYTHON") {
        compare_with_runnel(&python, env_number("PEER_EVENTS", 20_000), rounds).await?;
    }
    measure_idle().await?;
    measure_rebalance().await
}

/// Processes the same records on 16 partitions with runnel, with squall's Python package if it is
/// installed, and with this crate.
async fn compare_with_runnel(python: &str, events: u64, rounds: u64) -> Result<(), BoxError> {
    let (mut runnel_runs, mut python_runs, mut squall_runs) = (Vec::new(), Vec::new(), Vec::new());
    let squall_python = std::env::var("SQUALL_PYTHON").ok();
    for _ in 0..rounds {
        let server = RedisServer::start();
        runnel_runs.push(run_python_script(python, "peer.py", &server, events)?);
        if let Some(python) = &squall_python {
            python_runs.push(run_python_script(python, "python.py", &server, events)?);
        }
        let app = app(&server).await?;
        let stream = open(&app, 16).await?;
        send_orders(&stream, events).await?;
        squall_runs.push(worker(&app, &stream, events).await?);
    }
    let rates = |runs: &[(f64, f64)]| -> Vec<f64> { runs.iter().map(|run| run.0).collect() };
    let costs = |runs: &[(f64, f64)]| -> Vec<f64> { runs.iter().map(|run| run.1).collect() };
    let times = |a: Vec<f64>, b: Vec<f64>| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a / b).collect() };
    println!(
        "runnel, 16 partitions, {events} events, {rounds} rounds: runnel {}/s, squall {}/s, ratio {} (bar 10)",
        median_and_range(rates(&runnel_runs), 0),
        median_and_range(squall_runs.clone(), 0),
        median_and_range(times(squall_runs, rates(&runnel_runs)), 1)
    );
    if !python_runs.is_empty() {
        println!(
            "  the same processor in Python (squall stream worker): {}/s, ratio {} (bar 10); CPU per event {} against {} µs, ratio {}",
            median_and_range(rates(&python_runs), 0),
            median_and_range(times(rates(&python_runs), rates(&runnel_runs)), 1),
            median_and_range(costs(&python_runs), 1),
            median_and_range(costs(&runnel_runs), 1),
            median_and_range(times(costs(&runnel_runs), costs(&python_runs)), 1)
        );
    }
    Ok(())
}

/// Runs a script of bench/streams and parses its output: events per second and CPU µs per event.
fn run_python_script(python: &str, name: &str, server: &RedisServer, events: u64) -> Result<(f64, f64), BoxError> {
    let path = format!("{}/../../bench/streams/{name}", env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new(python).args([&path, &server.url(), &events.to_string()]).output()?;
    let printed = String::from_utf8(output.stdout)?;
    let mut numbers = printed.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(rate), Some(cpu_seconds)) => Ok((rate?, cpu_seconds?)),
        _ => {
            Err(format!("{name} printed {printed:?}, and on stderr: {}", String::from_utf8_lossy(&output.stderr))
                .into())
        }
    }
}

/// Sends the records and returns the rate.
async fn send_orders(stream: &RecordStream<Order>, events: u64) -> Result<f64, BoxError> {
    let begin = Instant::now();
    for chunk in 0..events / 5_000 {
        let order = |n| Order { order_id: chunk * 5_000 + n, amount: n * 7, note: "a note of some length".into() };
        stream.send_many(&(0..5_000).map(order).collect::<Vec<_>>()).await?;
    }
    Ok(events as f64 / begin.elapsed().as_secs_f64())
}

async fn app(server: &RedisServer) -> Result<StreamApp, BoxError> {
    Ok(StreamApp::connect_in("bench", &server.url(), Namespace::new("")?).await?)
}

async fn open(app: &StreamApp, partitions: u32) -> Result<RecordStream<Order>, BoxError> {
    let stream = app.stream("orders").partition_by("order_id").partitions(partitions).partition_size(10_000_000);
    Ok(stream.open().await?)
}

/// The rate and the cost of one side in one round.
#[derive(Clone, Copy)]
struct BenchCost {
    rate: f64,
    /// µs of CPU per event.
    client: f64,
    server: f64,
}

/// Both sides use the same server, records and batch size, and one connection each. The side that
/// runs first alternates.
async fn measure_throughput(partitions: u32, events: u64, rounds: u64) -> Result<(), BoxError> {
    let (mut bare, mut squall_runs, mut ratios, mut sends) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let server = RedisServer::start();
        let app = app(&server).await?;
        let stream = open(&app, partitions).await?;
        sends.push(send_orders(&stream, events).await?);
        let (bare_cost, squall_cost) = if round % 2 == 0 {
            let bare_cost = measure_cost(&app, events, bare_loop(server.url(), &app, &stream, events)).await?;
            (bare_cost, measure_cost(&app, events, worker(&app, &stream, events)).await?)
        } else {
            let squall_cost = measure_cost(&app, events, worker(&app, &stream, events)).await?;
            (measure_cost(&app, events, bare_loop(server.url(), &app, &stream, events)).await?, squall_cost)
        };
        bare.push(bare_cost);
        squall_runs.push(squall_cost);
        ratios.push(squall_cost.rate / bare_cost.rate);
    }
    let rate = |sides: &[BenchCost]| median_and_range(sides.iter().map(|side| side.rate).collect(), 0);
    println!(
        "throughput, {partitions} partition(s), batch {BATCH}, {rounds} rounds: bare loop {}/s, squall {}/s, ratio {} (bar 0.60); sending {}/s",
        rate(&bare),
        rate(&squall_runs),
        median_and_range(ratios, 2),
        median_and_range(sends, 0)
    );
    let cost = |sides: &[BenchCost]| {
        let client = median(sides.iter().map(|side| side.client).collect());
        (client, median(sides.iter().map(|side| side.server).collect()))
    };
    // On a shared machine, CPU times vary less than rates.
    let ((bare_client, bare_server), (client, server)) = (cost(&bare), cost(&squall_runs));
    println!(
        "  CPU per event, client + server: bare loop {bare_client:.1} + {bare_server:.1} µs, squall {client:.1} + {server:.1} µs"
    );
    Ok(())
}

async fn measure_cost(
    app: &StreamApp,
    events: u64,
    work: impl Future<Output = Result<f64, BoxError>>,
) -> Result<BenchCost, BoxError> {
    let before = cpu_seconds(app).await?;
    let rate = work.await?;
    let after = cpu_seconds(app).await?;
    let micros_per_event = |seconds: f64| seconds * 1e6 / events as f64;
    Ok(BenchCost { rate, client: micros_per_event(after.0 - before.0), server: micros_per_event(after.1 - before.1) })
}

/// The lower bound of the cost: reads 100 events and acknowledges them, partition after partition,
/// on one thread and one plain connection. No decoding, no fencing, no runtime.
async fn bare_loop(url: String, app: &StreamApp, stream: &RecordStream<Order>, events: u64) -> Result<f64, BoxError> {
    let keys: Vec<String> = (0..stream.partitions()).map(|n| app.namespace().events_key(stream.name(), n)).collect();
    tokio::task::spawn_blocking(move || read_and_acknowledge(&url, &keys, events)).await?
}

fn read_and_acknowledge(url: &str, keys: &[String], events: u64) -> Result<f64, BoxError> {
    let mut redis = redis::Client::open(url)?.get_connection()?;
    for key in keys {
        redis::cmd("XGROUP").arg("CREATE").arg(key).arg("bare").arg("0").exec(&mut redis)?;
    }
    let (begin, mut done) = (Instant::now(), 0);
    while done < events {
        for key in keys {
            let mut read = redis::cmd("XREADGROUP");
            read.arg("GROUP").arg("bare").arg("1").arg("COUNT").arg(BATCH).arg("STREAMS").arg(key).arg(">");
            let Value::Array(streams) = read.query(&mut redis)? else { continue };
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
            ack.exec(&mut redis)?;
            done += entries.len() as u64;
        }
    }
    Ok(events as f64 / begin.elapsed().as_secs_f64())
}

fn summing_processor(stream: &RecordStream<Order>) -> Processor {
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

/// Measures from the first fetched event to the last acknowledged one. Reads have the batch size of
/// the bare loop.
async fn worker(app: &StreamApp, stream: &RecordStream<Order>, events: u64) -> Result<f64, BoxError> {
    let settings = ProcessorSettings { prefetch: BATCH, join_delay: Duration::ZERO, ..ProcessorSettings::default() };
    let (stop, metrics, task) = start(app, summing_processor(stream).settings(settings));
    wait_until(|| metrics.fetched() > 0).await;
    let begin = Instant::now();
    wait_until(|| metrics.acked() >= events).await;
    let rate = events as f64 / begin.elapsed().as_secs_f64();
    stop.cancel();
    task.await??;
    Ok(rate)
}

type WorkerJoinHandle = tokio::task::JoinHandle<Result<(), squall_streams::ExecutorError>>;

fn start(app: &StreamApp, processor: Processor) -> (CancellationToken, Arc<StreamMetrics>, WorkerJoinHandle) {
    let (stop, metrics) = (CancellationToken::new(), processor.metrics());
    let task = tokio::spawn(app.worker().processor(processor).run(stop.clone()));
    (stop, metrics, task)
}

async fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// CPU seconds of this process and of the server.
async fn cpu_seconds(app: &StreamApp) -> Result<(f64, f64), BoxError> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut app.client().connection()).await?;
    let server = info.lines().filter_map(|line| line.strip_prefix("used_cpu_").and_then(|rest| rest.split_once(':')));
    let server = server
        .filter(|(name, _)| ["sys", "user"].contains(name))
        .filter_map(|(_, seconds)| seconds.trim().parse::<f64>().ok());
    Ok((ticks / 100.0, server.sum()))
}

async fn measure_idle() -> Result<(), BoxError> {
    let server = RedisServer::start();
    let app = app(&server).await?;
    let stream = open(&app, 64).await?;
    let (stop, metrics, task) = start(&app, summing_processor(&stream));
    wait_until(|| metrics.held() == 64).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begin) = (cpu_seconds(&app).await?, Instant::now());
    tokio::time::sleep(Duration::from_secs(env_number("IDLE_SECONDS", 20))).await;
    let (after, seconds) = (cpu_seconds(&app).await?, begin.elapsed().as_secs_f64());
    println!(
        "idle, 64 partitions, one worker: {:.2} % of a core (bar 1 %), and {:.2} % in the server",
        (after.0 - before.0) / seconds * 100.0,
        (after.1 - before.1) / seconds * 100.0
    );
    stop.cancel();
    task.await??;
    Ok(())
}

async fn measure_rebalance() -> Result<(), BoxError> {
    let (mut joins, mut leaves) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let server = RedisServer::start();
        let app = app(&server).await?;
        let stream = open(&app, 64).await?;
        let (first_stop, first, first_task) = start(&app, summing_processor(&stream));
        wait_until(|| first.held() == 64).await;
        let begin = Instant::now();
        let (second_stop, second, second_task) = start(&app, summing_processor(&stream));
        wait_until(|| first.held() == 32 && second.held() == 32).await;
        joins.push(begin.elapsed().as_secs_f64() * 1000.0);
        let begin = Instant::now();
        second_stop.cancel();
        wait_until(|| first.held() == 64).await;
        leaves.push(begin.elapsed().as_secs_f64() * 1000.0);
        second_task.await??;
        first_stop.cancel();
        first_task.await??;
    }
    let delay = ProcessorSettings::default().join_delay.as_millis();
    println!(
        "rebalance, 64 partitions: a join moves 32 in {:.0} ms (of which {delay} ms join delay), a leave moves them back in {:.0} ms (bar 1000 ms)",
        median(joins),
        median(leaves)
    );
    Ok(())
}

/// The median, with the smallest and the largest value.
fn median_and_range(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most, middle) = (values[0], values[values.len() - 1], median(values));
    format!("{middle:.digits$} ({least:.digits$}–{most:.digits$})")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
