//! Partitions that move between workers, and servers that pause, restart or lose their data.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use squall_streams::{BoxError, PartitionEvents, Processor, ProcessorName, admin::StreamAdmin};
use squall_testkit::redis::RedisServer;
use tokio::sync::Semaphore;

use crate::{
    order_checker::{EventLog, SeenEvent, check_at_least_once, check_exactly_once},
    support::{
        Order, RunningWorker, app, eventually, fast_settings, orders, pending_count, recording_processor, send,
        short_lease_settings, stream, wait_processed,
    },
};

fn name() -> ProcessorName {
    ProcessorName::parse("shop.orders.recorder").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_and_leaving_workers_lose_and_repeat_no_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 16).await, EventLog::default());
    let start = || RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    let mut workers = vec![start()];
    let mut sent = Vec::new();
    for round in 0..8u64 {
        let records: Vec<Order> = (0..500).map(|n| Order { order_id: n % 97, number: round * 500 + n }).collect();
        sent.extend(send(&stream, &records).await);
        if round % 2 == 0 {
            workers.push(start());
        } else {
            workers.remove(0).stop().await.unwrap();
        }
        // Waits until some events, but not all, are processed before the next change.
        let half = sent.len() - 250;
        eventually("half of the events are processed", || async { log.len() >= half }).await;
    }
    wait_processed(&log, sent.len()).await;
    for worker in workers {
        worker.stop().await.unwrap();
    }
    check_exactly_once(&log.all(), &sent);
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebalance_does_not_interrupt_partitions_that_stay() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 8).await;
    let calls: Arc<Mutex<BTreeMap<u32, u32>>> = Arc::default();
    let counting_processor = || {
        let calls = calls.clone();
        Processor::new("recorder", &stream, move |mut events: PartitionEvents<Order>| {
            *calls.lock().unwrap().entry(events.partition()).or_default() += 1;
            async move {
                while events.next().await.is_some() {}
                Ok::<(), BoxError>(())
            }
        })
        .settings(fast_settings())
    };
    let total = || calls.lock().unwrap().values().sum::<u32>();
    let first = RunningWorker::start(&app, counting_processor());
    eventually("the worker holds all partitions", || async { total() == 8 }).await;
    let second = RunningWorker::start(&app, counting_processor());
    eventually("half of the partitions have moved", || async {
        first.metrics.held() == 4 && second.metrics.held() == 4 && total() == 12
    })
    .await;
    assert_eq!(
        calls.lock().unwrap().values().filter(|calls| **calls == 1).count(),
        4,
        "four partitions stay with the first worker"
    );
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_off_owner_cannot_acknowledge() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log, gate) = (stream(&app, 1).await, EventLog::default(), Arc::new(Semaphore::new(0)));
    let gated_processor = {
        let (log, gate) = (log.clone(), gate.clone());
        Processor::new("recorder", &stream, move |mut events: PartitionEvents<Order>| {
            let (log, gate) = (log.clone(), gate.clone());
            async move {
                let epoch = events.fence_token().epoch.0;
                while let Some(event) = events.next().await {
                    log.push(SeenEvent { partition: 0, id: event.id, epoch });
                    gate.acquire().await.unwrap().forget();
                }
                Ok::<(), BoxError>(())
            }
        })
    };
    let worker = RunningWorker::start(&app, gated_processor.settings(fast_settings()));
    let sent = send(&stream, &orders(1)).await;
    eventually("the processor has the event", || async { log.len() == 1 }).await;
    // Simulates another owner, as after a pause longer than the lease.
    let _: i64 = redis::cmd("HINCRBY")
        .arg("__lock:shop.orders.recorder.0")
        .arg("epoch")
        .arg(1)
        .query_async(&mut app.client().connection())
        .await
        .unwrap();
    gate.add_permits(1);
    eventually("the fence rejects the owner", || async { worker.metrics.fenced() >= 1 }).await;
    assert_eq!(worker.metrics.acked(), 0);
    // The worker returns with a later epoch, gets the event again, and acknowledges it.
    gate.add_permits(1);
    eventually("the event is acknowledged", || async { worker.metrics.acked() == 1 }).await;
    worker.stop().await.unwrap();
    assert_eq!(check_at_least_once(&log.all(), &sent), 1);
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn iteration_longer_than_grace_is_cancelled_and_repeated() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 1).await, EventLog::default());
    let endless_processor = {
        let log = log.clone();
        Processor::new("recorder", &stream, move |mut events: PartitionEvents<Order>| {
            let log = log.clone();
            async move {
                let epoch = events.fence_token().epoch.0;
                while let Some(event) = events.next().await {
                    log.push(SeenEvent { partition: 0, id: event.id, epoch });
                    std::future::pending::<()>().await;
                }
                Ok::<(), BoxError>(())
            }
        })
    };
    let settings = squall_streams::ProcessorSettings { grace: Duration::from_millis(50), ..fast_settings() };
    let first = RunningWorker::start(&app, endless_processor.settings(settings));
    let sent = send(&stream, &orders(1)).await;
    eventually("the processor has the event", || async { log.len() == 1 }).await;
    first.stop().await.unwrap();
    let second = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    eventually("the event is repeated", || async { log.len() == 2 }).await;
    second.stop().await.unwrap();
    assert_eq!(check_at_least_once(&log.all(), &sent), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restart_with_data_loses_no_event() {
    let mut server = RedisServer::start_persistent();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    let workers =
        [(); 2].map(|()| RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings())));
    let mut sent = send(&stream, &orders(1000)).await;
    server.kill();
    server.restart();
    sent.extend(send(&stream, &orders(1000)).await);
    wait_processed(&log, sent.len()).await;
    for worker in workers {
        worker.stop().await.unwrap();
    }
    check_at_least_once(&log.all(), &sent);
    assert_eq!(pending_count(&app, &stream, "recorder").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_pause_longer_than_the_lease_loses_no_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(short_lease_settings()));
    let mut sent = send(&stream, &orders(300)).await;
    wait_processed(&log, 300).await;
    server.pause();
    eventually("the worker has lost all partitions", || async { worker.metrics.held() == 0 }).await;
    server.resume();
    sent.extend(send(&stream, &orders(300)).await);
    wait_processed(&log, 600).await;
    worker.stop().await.unwrap();
    check_at_least_once(&log.all(), &sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restart_without_data_processes_new_events() {
    let mut server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 4).await, EventLog::default());
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    send(&stream, &orders(100)).await;
    wait_processed(&log, 100).await;
    server.kill();
    server.restart();
    send(&stream, &orders(100)).await;
    wait_processed(&log, 200).await;
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_workers_share_256_partitions_evenly() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, log) = (stream(&app, 256).await, EventLog::default());
    let settings = squall_streams::ProcessorSettings { join_delay: Duration::from_millis(500), ..fast_settings() };
    let workers: Vec<RunningWorker> = (0..16)
        .map(|_| RunningWorker::start(&app, recording_processor(&stream, &log).settings(settings.clone())))
        .collect();
    let records: Vec<Order> = (0..4096).map(|number| Order { order_id: number, number }).collect();
    let sent = send(&stream, &records).await;
    wait_processed(&log, sent.len()).await;
    let snapshot = StreamAdmin::new(app.client().clone(), app.namespace().clone()).members(&name()).await.unwrap();
    assert_eq!((snapshot.members.len(), snapshot.leases.len()), (16, 256));
    assert!(snapshot.assignment.values().all(|units| units.len() == 16), "each worker holds 16 partitions");
    for worker in workers {
        worker.stop().await.unwrap();
    }
    check_exactly_once(&log.all(), &sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lag_metric_follows_processing() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let (stream, gate) = (stream(&app, 2).await, Arc::new(Semaphore::new(0)));
    let gated_processor = {
        let gate = gate.clone();
        Processor::new("recorder", &stream, move |mut events: PartitionEvents<Order>| {
            let gate = gate.clone();
            async move {
                while events.next().await.is_some() {
                    gate.acquire().await.unwrap().forget();
                }
                Ok::<(), BoxError>(())
            }
        })
    };
    let settings = squall_streams::ProcessorSettings { report_interval: Duration::from_millis(20), ..fast_settings() };
    let worker = RunningWorker::start(&app, gated_processor.settings(settings));
    send(&stream, &orders(50)).await;
    eventually("the lag is 50", || async { worker.metrics.lag() == 50 }).await;
    gate.add_permits(50);
    eventually("the lag is 0", || async { worker.metrics.lag() == 0 && worker.metrics.acked() == 50 }).await;
    worker.stop().await.unwrap();
}
