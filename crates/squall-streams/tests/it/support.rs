//! Workers, streams and waits for the tests. Every test has its own server.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use squall_streams::{
    EntryId, ExecutorError, Namespace, PartitionEvents, Processor, ProcessorSettings, RecordStream, StreamApp,
    StreamMetrics,
};
use squall_testkit::redis::RedisServer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::order_checker::{EventLog, SeenEvent};

/// The record of the tests: a key, and a number that makes the record unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) order_id: u64,
    pub(crate) number: u64,
}

pub(crate) fn orders(count: u64) -> Vec<Order> {
    (0..count).map(|number| Order { order_id: number % 97, number }).collect()
}

pub(crate) async fn app(server: &RedisServer) -> StreamApp {
    StreamApp::connect_in("shop", &server.url(), Namespace::new("").unwrap()).await.unwrap()
}

pub(crate) async fn stream(app: &StreamApp, partitions: u32) -> RecordStream<Order> {
    app.stream("orders").partition_by("order_id").partitions(partitions).open().await.unwrap()
}

/// Sends records and returns their partitions and ids.
pub(crate) async fn send(stream: &RecordStream<Order>, records: &[Order]) -> Vec<(u32, EntryId)> {
    let ids = stream.send_many(records).await.unwrap();
    records.iter().map(|record_events| stream.route(record_events).unwrap()).zip(ids).collect()
}

/// Records every event in `log`, one at a time.
pub(crate) async fn record_events(mut events: PartitionEvents<Order>, log: EventLog) -> Result<(), std::io::Error> {
    let (partition, epoch) = (events.partition(), events.fence_token().epoch.0);
    while let Some(event) = events.next().await {
        log.push(SeenEvent { partition, id: event.id, epoch });
    }
    Ok(())
}

pub(crate) fn recording_processor(stream: &RecordStream<Order>, log: &EventLog) -> Processor {
    let log = log.clone();
    Processor::new("recorder", stream, move |events| record_events(events, log.clone()))
}

/// Short heartbeats, so that changes are seen soon, and a lease that does not expire on a busy
/// machine.
pub(crate) fn fast_settings() -> ProcessorSettings {
    ProcessorSettings {
        heartbeat_interval: Duration::from_millis(100),
        lease_ttl: Duration::from_secs(30),
        join_delay: Duration::from_millis(50),
        ..ProcessorSettings::default()
    }
}

/// A lease that expires soon, for tests that wait for the expiry.
pub(crate) fn short_lease_settings() -> ProcessorSettings {
    ProcessorSettings { lease_ttl: Duration::from_millis(400), ..fast_settings() }
}

/// A worker that runs in this process.
pub(crate) struct RunningWorker {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ExecutorError>>,
    pub(crate) metrics: Arc<StreamMetrics>,
}

impl RunningWorker {
    pub(crate) fn start(app: &StreamApp, processor: Processor) -> Self {
        let stop = CancellationToken::new();
        let metrics = processor.metrics();
        let task = tokio::spawn(app.worker().processor(processor).run(stop.clone()));
        Self { stop, task, metrics }
    }

    pub(crate) async fn stop(self) -> Result<(), ExecutorError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }

    /// Waits until the worker ends without being stopped, and returns its outcome.
    pub(crate) async fn wait_end(self) -> Result<(), ExecutorError> {
        with_timeout(self.task).await.unwrap()
    }
}

/// Polls a condition for up to a minute. Other processes send no notification to wait for.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "waited a minute for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Limits a future to a minute, so that a test cannot hang.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("the future completes within a minute")
}

/// Waits until `count` different events have been processed.
pub(crate) async fn wait_processed(log: &EventLog, count: usize) {
    eventually("all events processed", || async { log.len() >= count && log.distinct() >= count }).await;
}

/// The number of pending events of a group in all partitions.
pub(crate) async fn pending_count(app: &StreamApp, stream: &RecordStream<Order>, group: &str) -> u64 {
    let mut total = 0;
    for partition in 0..stream.partitions() {
        let key = app.namespace().events_key(stream.name(), partition);
        let summary: redis::Value =
            redis::cmd("XPENDING").arg(key).arg(group).query_async(&mut app.client().connection()).await.unwrap();
        if let redis::Value::Array(parts) = summary
            && let Some(redis::Value::Int(count)) = parts.first()
        {
            total += *count as u64;
        }
    }
    total
}
