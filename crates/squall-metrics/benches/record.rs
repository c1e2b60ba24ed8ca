//! Measures recording one sample, and harvesting a second of samples.

use criterion::{Criterion, criterion_group, criterion_main};
use squall_metrics::{MetricKey, MetricRecorder, Outcome, RecorderConfig, Sample};
use std::{hint::black_box, time::Duration};

fn record(c: &mut Criterion) {
    let mut recorder = MetricRecorder::new(RecorderConfig::default());
    let metric = recorder.metric(MetricKey::request("browse"));
    let mut random = 1u64;
    c.bench_function("record one sample", |b| {
        b.iter(|| {
            // Latencies around a millisecond, so that branches and caches behave as in a real run.
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let service = Duration::from_nanos(200_000 + (random >> 43));
            let outcome = Outcome::of_status(200);
            recorder.count_begun();
            let sample = Sample {
                metric,
                wait: Duration::ZERO,
                service,
                outcome,
                bytes_in: 200,
                bytes_out: 80,
                due_in_warm_up: false,
            };
            recorder.record(black_box(&sample));
        });
    });
    c.bench_function("record 10,000 samples and harvest", |b| {
        b.iter(|| {
            for i in 0..10_000u64 {
                let service = Duration::from_nanos(200_000 + i * 301);
                let outcome = Outcome::of_status(200);
                recorder.record(&Sample {
                    metric,
                    wait: service,
                    service,
                    outcome,
                    bytes_in: 1,
                    bytes_out: 1,
                    due_in_warm_up: false,
                });
            }
            black_box(recorder.harvest(1, 1))
        });
    });
}

criterion_group!(benches, record);
criterion_main!(benches);
