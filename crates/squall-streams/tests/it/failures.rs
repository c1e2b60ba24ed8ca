//! Failures of processing: retries, policies, dead letters and middleware.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use squall_streams::{
    BoxError, DeadLetterQueue, Entry, ExecutorError, FailurePolicy, Middleware, PartitionEvents, Processor,
    ProcessorName, RecordStream, StreamApp, admin::StreamAdmin,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Order, RunningWorker, app, eventually, fast_settings, orders, pending_count, send, stream};

type SeenNumbers = Arc<Mutex<Vec<u64>>>;

/// A processor that fails on numbers for which `bad` returns true, and records all others.
fn failing_processor(
    stream: &RecordStream<Order>,
    seen: &SeenNumbers,
    bad: impl Fn(u64) -> bool + Send + Sync + 'static,
) -> Processor {
    let (seen, bad) = (seen.clone(), Arc::new(bad));
    Processor::new("failing", stream, move |mut events: PartitionEvents<Order>| {
        let (seen, bad) = (seen.clone(), bad.clone());
        async move {
            let mut records = events.records();
            while let Some(order) = records.next().await {
                if bad(order.number) {
                    return Err(BoxError::from(format!("number {} is bad", order.number)));
                }
                seen.lock().unwrap().push(order.number);
            }
            Ok(())
        }
    })
    .settings(fast_settings())
}

fn name() -> ProcessorName {
    ProcessorName::parse("shop.orders.failing").unwrap()
}

fn admin(app: &StreamApp) -> StreamAdmin {
    StreamAdmin::new(app.client().clone(), app.namespace().clone())
}

async fn wait_seen(seen: &SeenNumbers, count: usize) {
    eventually("the events are processed", || async { seen.lock().unwrap().len() >= count }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignore_policy_skips_and_acknowledges_the_failed_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 1).await, SeenNumbers::default());
    let worker = RunningWorker::start(
        &app,
        failing_processor(&stream, &seen, |number| number == 5).policy(FailurePolicy::ignore()),
    );
    send(&stream, &orders(10)).await;
    wait_seen(&seen, 9).await;
    assert_eq!((worker.metrics.failures(), worker.metrics.given_up()), (1, 1));
    worker.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
    assert_eq!(pending_count(&app, &stream, "failing").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_repeat_the_failed_event_before_later_ones() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen, tries) = (stream(&app, 1).await, SeenNumbers::default(), Arc::new(AtomicU32::new(0)));
    let counter = tries.clone();
    let fails_twice = move |number| number == 3 && counter.fetch_add(1, SeqCst) < 2;
    let policy = FailurePolicy::halt().retry(2, Duration::from_millis(10));
    let worker = RunningWorker::start(&app, failing_processor(&stream, &seen, fails_twice).policy(policy));
    send(&stream, &orders(6)).await;
    wait_seen(&seen, 6).await;
    worker.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(tries.load(SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quarantine_stops_one_partition_across_restarts_until_cleared() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 4).await, SeenNumbers::default());
    let records = orders(97);
    let bad_partition = stream.route(&records[20]).unwrap();
    let others: Vec<u64> = records
        .iter()
        .filter(|order| stream.route(order).unwrap() != bad_partition)
        .map(|order| order.number)
        .collect();
    let before: Vec<u64> = records[..20]
        .iter()
        .filter(|order| stream.route(order).unwrap() == bad_partition)
        .map(|order| order.number)
        .collect();
    send(&stream, &records).await;
    for _ in 0..2 {
        // The second worker finds the quarantine of the first and does not retry.
        let worker = RunningWorker::start(
            &app,
            failing_processor(&stream, &seen, |number| number == 20).policy(FailurePolicy::quarantine()),
        );
        wait_seen(&seen, others.len() + before.len()).await;
        eventually("the partition is in quarantine", || async {
            admin(&app).quarantined_partitions(&name()).await.unwrap().contains_key(&bad_partition)
        })
        .await;
        worker.stop().await.unwrap();
    }
    assert_eq!(seen.lock().unwrap().len(), others.len() + before.len());
    let reason = admin(&app).quarantined_partitions(&name()).await.unwrap()[&bad_partition].clone();
    assert!(reason.contains("number 20 is bad"), "{reason}");
    let lag = admin(&app).lag(&name()).await.unwrap();
    assert!(lag[bad_partition as usize].quarantined && lag[bad_partition as usize].pending > 0);

    // After the quarantine is cleared, a running worker continues with the failed event.
    let worker =
        RunningWorker::start(&app, failing_processor(&stream, &seen, |_| false).policy(FailurePolicy::quarantine()));
    assert!(admin(&app).clear_quarantine(&name(), bad_partition, false).await.unwrap());
    wait_seen(&seen, 97).await;
    worker.stop().await.unwrap();
    let mut all = seen.lock().unwrap().clone();
    all.sort_unstable();
    assert_eq!(all, (0..97).collect::<Vec<_>>());
    assert!(!admin(&app).clear_quarantine(&name(), bad_partition, false).await.unwrap(), "nothing left to clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clearing_quarantine_with_skip_drops_the_failed_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 1).await, SeenNumbers::default());
    let worker = RunningWorker::start(
        &app,
        failing_processor(&stream, &seen, |number| number == 2).policy(FailurePolicy::quarantine()),
    );
    send(&stream, &orders(5)).await;
    eventually("the partition is in quarantine", || async {
        !admin(&app).quarantined_partitions(&name()).await.unwrap().is_empty()
    })
    .await;
    assert!(admin(&app).clear_quarantine(&name(), 0, true).await.unwrap());
    wait_seen(&seen, 4).await;
    worker.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 3, 4]);
    assert_eq!(pending_count(&app, &stream, "failing").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halt_policy_ends_one_worker_only() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 2).await, SeenNumbers::default());
    let records = orders(40);
    let bad = records[7].number;
    let first = RunningWorker::start(&app, failing_processor(&stream, &seen, move |number| number == bad));
    send(&stream, &records).await;
    let error = first.wait_end().await.unwrap_err();
    assert!(matches!(&error, ExecutorError::Halted { error, .. } if error.contains("number 7 is bad")), "{error}");
    assert!(error.to_string().contains("squall stream quarantine shop.orders.failing --clear"), "{error}");
    // The next worker processes the other partitions and not the quarantined one.
    let healthy =
        records.iter().filter(|order| stream.route(order).unwrap() != stream.route(&records[7]).unwrap()).count();
    let second = RunningWorker::start(&app, failing_processor(&stream, &seen, move |number| number == bad));
    eventually("the other partitions are processed", || async {
        let seen = seen.lock().unwrap();
        records
            .iter()
            .filter(|order| stream.route(order).unwrap() != stream.route(&records[7]).unwrap())
            .all(|order| seen.contains(&order.number))
    })
    .await;
    assert!(healthy > 0);
    assert_eq!(second.metrics.failures(), 0);
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letter_contains_event_and_error() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 1).await, SeenNumbers::default());
    let letters = DeadLetterQueue::for_stream(&app, &stream).await.unwrap();
    let sink = letters.sink().clone();
    let worker =
        RunningWorker::start(&app, failing_processor(&stream, &seen, |number| number % 4 == 1).middleware(letters));
    let sent = send(&stream, &orders(8)).await;
    wait_seen(&seen, 6).await;
    let dead = Arc::new(Mutex::new(Vec::new()));
    let letter_reader = {
        let dead = dead.clone();
        Processor::new("letter_reader", &sink, move |mut events| {
            let dead = dead.clone();
            async move {
                while let Some(event) = events.next().await {
                    dead.lock().unwrap().push(event.record);
                }
                Ok::<(), BoxError>(())
            }
        })
    };
    let second = RunningWorker::start(&app, letter_reader.settings(fast_settings()));
    eventually("two dead letters have arrived", || async { dead.lock().unwrap().len() >= 2 }).await;
    worker.stop().await.unwrap();
    second.stop().await.unwrap();
    let dead = dead.lock().unwrap().clone();
    assert_eq!(dead[0].xid, sent[1].1.to_string());
    assert_eq!(dead[0].data, r#"{"order_id":1,"number":1}"#);
    assert_eq!(dead[1].error, "number 5 is bad");
    assert_eq!(pending_count(&app, &stream, "failing").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panicking_processor_is_handled_by_the_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen) = (stream(&app, 1).await, SeenNumbers::default());
    let bad = |number| {
        assert!(number != 1, "one is too many");
        false
    };
    let worker = RunningWorker::start(&app, failing_processor(&stream, &seen, bad).policy(FailurePolicy::ignore()));
    send(&stream, &orders(3)).await;
    wait_seen(&seen, 2).await;
    worker.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processor_that_takes_no_event_is_handled_by_the_policy() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 1).await;
    let idle_processor =
        Processor::new("idle", &stream, |_events: PartitionEvents<Order>| async { Ok::<(), BoxError>(()) });
    let worker = RunningWorker::start(&app, idle_processor.settings(fast_settings()));
    send(&stream, &orders(1)).await;
    let error = worker.wait_end().await.unwrap_err();
    assert!(error.to_string().contains("without asking for an event"), "{error}");
}

/// Counts events and skips every third one.
struct SkipEveryThird(AtomicU32);

impl Middleware for SkipEveryThird {
    fn before_event(&self, event: Entry) -> BoxFuture<'_, Result<Option<Entry>, BoxError>> {
        Box::pin(async move { Ok((self.0.fetch_add(1, SeqCst) % 3 != 2).then_some(event)) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn middleware_gets_every_event_and_can_skip_it() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, seen, middleware) =
        (stream(&app, 1).await, SeenNumbers::default(), Arc::new(SkipEveryThird(AtomicU32::new(0))));
    let worker =
        RunningWorker::start(&app, failing_processor(&stream, &seen, |_| false).middleware(middleware.clone()));
    send(&stream, &orders(9)).await;
    wait_seen(&seen, 6).await;
    eventually("all events are acknowledged", || async {
        pending_count(&app, &stream, "failing").await == 0 && middleware.0.load(SeqCst) == 9
    })
    .await;
    worker.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 3, 4, 6, 7]);
}
