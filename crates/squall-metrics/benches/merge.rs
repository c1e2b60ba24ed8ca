//! Measures the collection of a fleet's deltas: decoded, and merged into the view. The main figure
//! is histograms per second.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use squall_metrics::{
    Collector, Delta, MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample, SourceId, decode_delta, encode_delta,
};
use std::{hint::black_box, time::Duration};

const WORKERS: u64 = 20;
const METRICS: u64 = 10;
const SECONDS: u32 = 5;

/// What a worker sends in a second: ten metrics of a hundred requests each, service times from 0.5
/// to about 30 ms, most of them short, and a wait of about 50 µs.
fn second(worker: u64, second: u32, random: &mut u64) -> Vec<u8> {
    let mut unit = || {
        *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*random >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    for metric in 0..METRICS {
        let metric = recorder.metric(MetricKey::request(format!("/api/v1/things/{metric}")));
        for _ in 0..100 {
            let wait = Duration::from_nanos((20_000.0 + unit() * 60_000.0) as u64);
            let service = Duration::from_nanos((500_000.0 / (1.0 - 0.983 * unit())) as u64);
            let outcome = Outcome::of_status(if unit() < 0.01 { 503 } else { 200 });
            recorder.count_begun();
            recorder.record_iteration(wait, false);
            recorder.record(&Sample {
                metric,
                wait,
                service,
                outcome,
                bytes_in: 1800,
                bytes_out: 180,
                due_in_warm_up: false,
            });
        }
    }
    let (metrics, errors, engine) = recorder.harvest(50, 5);
    let source = SourceId { instance: worker, thread: 0 };
    encode_delta(&Delta { source, seq: second.into(), second, metrics, errors, engine, last: false })
}

/// CPU time of this thread, so that the figure also holds on a busy machine.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("it begins with a number"))
}

fn merge(c: &mut Criterion) {
    let mut random = 1;
    let frames: Vec<_> =
        (0..SECONDS).flat_map(|s| (0..WORKERS).map(move |w| (w, s))).map(|(w, s)| second(w, s, &mut random)).collect();
    // Three of each metric, and the engine's own.
    let histograms = frames.len() as u64 * (METRICS * 3 + 1);
    println!("a worker's second: {} bytes", frames.iter().map(Vec::len).sum::<usize>() / frames.len());
    let collector = || Collector::new((0..WORKERS).map(|instance| SourceId { instance, thread: 0 }), 10);
    let collect = |mut collector: Collector| {
        for frame in &frames {
            let delta = decode_delta(black_box(frame)).expect("it was encoded here");
            collector.merge(delta).expect("they are in order");
        }
        collector
    };
    let before = cpu_time();
    let rounds = 20;
    (0..rounds).for_each(|_| drop(black_box(collect(collector()))));
    let per_second = (rounds * histograms) as f64 / (cpu_time() - before).as_secs_f64();
    println!("decode and merge: {per_second:.0} histograms per second of CPU");
    let mut group = c.benchmark_group("fleet");
    group.throughput(Throughput::Elements(histograms));
    group.bench_function("decode and merge, per histogram", |b| {
        b.iter_batched(collector, &collect, BatchSize::PerIteration)
    });
    let whole = collect(collector());
    println!("a checkpoint of {WORKERS} workers, {METRICS} metrics, {SECONDS} seconds: {} bytes", whole.save().len());
    group.throughput(Throughput::Elements(1));
    group.bench_function("save a checkpoint", |b| b.iter(|| black_box(&whole).save()));
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
