//! Exactly once and in order without crashes, over partitions, workers, batching and compression.

use std::time::Duration;

use squall_streams::{Compression, Processor, RecordLayout};
use squall_testkit::redis::RedisServer;

use crate::{
    order_checker::{Log, check_exactly_once},
    support::{Order, Running, app, orders, pending, processed, quick, recorder, send},
};

/// Enough for several fetches per partition, few enough for eight combinations in each cell.
const EVENTS: u64 = 1500;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    OneByOne,
    Batches,
}

async fn check(partitions: u32, workers: usize, reading: Reading, compression: Compression) {
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
    let (log, numbers) = (Log::default(), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
    let processor = || match reading {
        Reading::OneByOne => recorder(&stream, &log),
        Reading::Batches => {
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
    let running: Vec<Running> = (0..workers).map(|_| Running::start(&app, processor().settings(quick()))).collect();
    let records = orders(EVENTS);
    let mut sent = send(&stream, &records[..EVENTS as usize / 2]).await;
    sent.extend(send(&stream, &records[EVENTS as usize / 2..]).await);
    match reading {
        Reading::OneByOne => processed(&log, EVENTS as usize).await,
        Reading::Batches => {
            crate::support::eventually("all batches", || async { numbers.lock().unwrap().len() >= EVENTS as usize })
                .await;
        }
    }
    for worker in running {
        worker.stop().await.unwrap();
    }
    match reading {
        Reading::OneByOne => check_exactly_once(&log.all(), &sent),
        Reading::Batches => {
            let mut numbers = numbers.lock().unwrap().clone();
            numbers.sort_by_key(|(order_id, _)| *order_id); // stable: keeps the order within a key
            let mut expected: Vec<(u64, u64)> = records.iter().map(|order| (order.order_id, order.number)).collect();
            expected.sort_by_key(|(order_id, _)| *order_id);
            assert_eq!(numbers, expected, "every key in order, everything once");
        }
    }
    assert_eq!(pending(&app, &stream, "recorder").await, 0);
}

macro_rules! matrix {
    ($($name:ident $partitions:literal $workers:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for reading in [Reading::OneByOne, Reading::Batches] {
                for compression in [Compression::None, Compression::Gzip, Compression::Lz4, Compression::Zstd] {
                    check($partitions, $workers, reading, compression).await;
                }
            }
        }
    )*};
}

matrix! {
    one_partition_one_worker 1 1;
    one_partition_three_workers 1 3;
    three_partitions_one_worker 3 1;
    three_partitions_three_workers 3 3;
    sixteen_partitions_one_worker 16 1;
    sixteen_partitions_three_workers 16 3;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flat_records_are_processed_too() {
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
    let log = Log::default();
    let sent = send(&stream, &orders(200)).await;
    let worker = Running::start(&app, recorder(&stream, &log).settings(quick()));
    processed(&log, 200).await;
    worker.stop().await.unwrap();
    check_exactly_once(&log.all(), &sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processors_of_one_stream_each_see_everything() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = crate::support::stream(&app, 4).await;
    let (first, second) = (Log::default(), Log::default());
    let other = {
        let log = second.clone();
        Processor::new("other", &stream, move |events| crate::support::record(events, log.clone())).settings(quick())
    };
    let one = Running::start(&app, recorder(&stream, &first).settings(quick()));
    let two = Running::start(&app, other);
    let sent = send(&stream, &orders(500)).await;
    processed(&first, 500).await;
    processed(&second, 500).await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
    check_exactly_once(&first.all(), &sent);
    check_exactly_once(&second.all(), &sent);
}

/// Lets everything pass, but takes its time, so that it is often cancelled in the middle.
struct Slow;

impl squall_streams::Middleware for Slow {
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

async fn check_cancelled_reads(slow: bool) {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = crate::support::stream(&app, 2).await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let impatient = {
        let seen = seen.clone();
        Processor::new("recorder", &stream, move |mut events: squall_streams::PartitionEvents<Order>| {
            let seen = seen.clone();
            async move {
                let mut dice = fastrand::Rng::with_seed(u64::from(events.partition()));
                loop {
                    let patience = Duration::from_micros(dice.u64(0..3000));
                    let got = if dice.bool() {
                        tokio::time::timeout(patience, events.take_batch(7, Duration::from_millis(5))).await
                    } else {
                        let one = tokio::time::timeout(patience, events.next()).await;
                        one.map(|one| one.map(|event| vec![event.record]))
                    };
                    match got {
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
    let impatient = if slow { impatient.middleware(std::sync::Arc::new(Slow)) } else { impatient };
    let worker = Running::start(&app, impatient.settings(quick()));
    let records = orders(2000);
    for chunk in records.chunks(50) {
        send(&stream, chunk).await;
    }
    crate::support::eventually("everything", || async { seen.lock().unwrap().len() >= 2000 }).await;
    worker.stop().await.unwrap();
    assert_eq!(pending(&app, &stream, "recorder").await, 0);
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|(order_id, _)| *order_id);
    let mut expected: Vec<(u64, u64)> = records.iter().map(|order| (order.order_id, order.number)).collect();
    expected.sort_by_key(|(order_id, _)| *order_id);
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_reads_lose_and_repeat_nothing() {
    check_cancelled_reads(false).await;
    check_cancelled_reads(true).await;
}
