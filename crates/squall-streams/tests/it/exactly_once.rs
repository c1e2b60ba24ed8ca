//! Processing exactly once and in order without crashes, for combinations of partitions, workers,
//! batches and compressions.

use std::time::Duration;

use squall_streams::{Compression, Processor, RecordLayout};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::{EventLog, check_exactly_once},
    support::{
        Order, RunningWorker, app, fast_settings, orders, pending_count, recording_processor, send, wait_processed,
    },
};

/// Enough for several reads per partition, and few enough for eight combinations per test.
const EVENTS: u64 = 1500;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    OneByOne,
    Batches,
}

async fn check_exactly_once_with(partitions: u32, workers: usize, read_mode: ReadMode, compression: Compression) {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = app
        .stream::<Order>("orders")
        .partition_by("order_id")
        .partitions(partitions)
        .compression(compression)
        .open()
        .await
        .unwrap();
    let (log, numbers) = (EventLog::default(), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
    let processor = || match read_mode {
        ReadMode::OneByOne => recording_processor(&stream, &log),
        ReadMode::Batches => {
            let numbers = numbers.clone();
            Processor::new("recorder", &stream, move |mut events| {
                let numbers = numbers.clone();
                async move {
                    while let Some(batch) = events.take_batch(50, Duration::from_millis(20)).await {
                        assert!(!batch.is_empty() && batch.len() <= 50);
                        numbers.lock().unwrap().extend(batch.into_iter().map(|order| (order.order_id, order.number)));
                    }
                    Ok::<(), std::io::Error>(())
                }
            })
        }
    };
    let running: Vec<RunningWorker> =
        (0..workers).map(|_| RunningWorker::start(&app, processor().settings(fast_settings()))).collect();
    let records = orders(EVENTS);
    let mut sent = send(&stream, &records[..EVENTS as usize / 2]).await;
    sent.extend(send(&stream, &records[EVENTS as usize / 2..]).await);
    match read_mode {
        ReadMode::OneByOne => wait_processed(&log, EVENTS as usize).await,
        ReadMode::Batches => {
            crate::support::eventually("all batches are processed", || async {
                numbers.lock().unwrap().len() >= EVENTS as usize
            })
            .await;
        }
    }
    for worker in running {
        worker.stop().await.unwrap();
    }
    match read_mode {
        ReadMode::OneByOne => check_exactly_once(&log.all(), &sent),
        ReadMode::Batches => {
            let mut numbers = numbers.lock().unwrap().clone();
            numbers.sort_by_key(|(order_id, _)| *order_id); // a stable sort keeps the order within a key
            let mut expected: Vec<(u64, u64)> = records.iter().map(|order| (order.order_id, order.number)).collect();
            expected.sort_by_key(|(order_id, _)| *order_id);
            assert_eq!(numbers, expected, "every key in order, every event once");
        }
    }
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

macro_rules! matrix {
    ($($name:ident $partitions:literal $workers:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for read_mode in [ReadMode::OneByOne, ReadMode::Batches] {
                for compression in [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Zstd] {
                    check_exactly_once_with($partitions, $workers, read_mode, compression).await;
                }
            }
        }
    )*};
}

matrix! {
    exactly_once_with_1_partition_and_1_worker 1 1;
    exactly_once_with_1_partition_and_3_workers 1 3;
    exactly_once_with_3_partitions_and_1_worker 3 1;
    exactly_once_with_3_partitions_and_3_workers 3 3;
    exactly_once_with_16_partitions_and_1_worker 16 1;
    exactly_once_with_16_partitions_and_3_workers 16 3;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flat_records_are_processed_exactly_once() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = app
        .stream::<Order>("orders")
        .partition_by("order_id")
        .partitions(2)
        .layout(RecordLayout::Flat)
        .open()
        .await
        .unwrap();
    let log = EventLog::default();
    let sent = send(&stream, &orders(200)).await;
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    wait_processed(&log, 200).await;
    worker.stop().await.unwrap();
    check_exactly_once(&log.all(), &sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_processor_of_a_stream_gets_every_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = crate::support::stream(&app, 4).await;
    let (first, second) = (EventLog::default(), EventLog::default());
    let other = {
        let log = second.clone();
        Processor::new("other", &stream, move |events| crate::support::record_events(events, log.clone()))
            .settings(fast_settings())
    };
    let one = RunningWorker::start(&app, recording_processor(&stream, &first).settings(fast_settings()));
    let two = RunningWorker::start(&app, other);
    let sent = send(&stream, &orders(500)).await;
    wait_processed(&first, 500).await;
    wait_processed(&second, 500).await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    check_exactly_once(&first.all(), &sent);
    check_exactly_once(&second.all(), &sent);
}

/// Passes every event after yielding, so that a cancelled read often stops inside it.
struct YieldingMiddleware;

impl squall_streams::Middleware for YieldingMiddleware {
    fn before_event(
        &self,
        event: squall_streams::Entry,
    ) -> futures_util::future::BoxFuture<'_, Result<Option<squall_streams::Entry>, squall_streams::BoxError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(Some(event))
        })
    }
}

async fn check_cancelled_reads(with_middleware: bool) {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = crate::support::stream(&app, 2).await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let cancelling_processor = {
        let seen = seen.clone();
        Processor::new("recorder", &stream, move |mut events: squall_streams::PartitionEvents<Order>| {
            let seen = seen.clone();
            async move {
                let mut rng = fastrand::Rng::with_seed(u64::from(events.partition()));
                loop {
                    let timeout = Duration::from_micros(rng.u64(0..3000));
                    let result = if rng.bool() {
                        tokio::time::timeout(timeout, events.take_batch(7, Duration::from_millis(5))).await
                    } else {
                        let one = tokio::time::timeout(timeout, events.next()).await;
                        one.map(|one| one.map(|event| vec![event.record]))
                    };
                    match result {
                        Ok(Some(records)) => {
                            seen.lock()
                                .unwrap()
                                .extend(records.into_iter().map(|order| (order.order_id, order.number)));
                        }
                        Ok(None) => return Ok::<(), std::io::Error>(()),
                        Err(_) => {}
                    }
                }
            }
        })
    };
    let cancelling_processor = if with_middleware {
        cancelling_processor.middleware(std::sync::Arc::new(YieldingMiddleware))
    } else {
        cancelling_processor
    };
    let worker = RunningWorker::start(&app, cancelling_processor.settings(fast_settings()));
    let records = orders(2000);
    for chunk in records.chunks(50) {
        send(&stream, chunk).await;
    }
    crate::support::eventually("all events are processed", || async { seen.lock().unwrap().len() >= 2000 }).await;
    worker.stop().await.unwrap();
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|(order_id, _)| *order_id);
    let mut expected: Vec<(u64, u64)> = records.iter().map(|order| (order.order_id, order.number)).collect();
    expected.sort_by_key(|(order_id, _)| *order_id);
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_lose_and_repeat_no_event() {
    check_cancelled_reads(false).await;
    check_cancelled_reads(true).await;
}
