//! Sending: in order, without duplicates, and without dropping unread events.

use std::time::Duration;

use squall_streams::{Namespace, SendError, StreamApp, WhenFull};
use squall_testkit::redis::RedisServer;

use crate::{
    faulty_network::response_dropping_proxy,
    order_checker::{EventLog, check_exactly_once},
    support::{Order, RunningWorker, app, fast_settings, orders, recording_processor, send, stream, wait_processed},
};

async fn stream_length(app: &StreamApp, key: &str) -> u64 {
    redis::cmd("XLEN").arg(key).query_async(&mut app.client().connection()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_with_a_lost_response_is_appended_once() {
    let server = RedisServer::start();
    let port = response_dropping_proxy(server.port(), 7).await;
    let url = format!("redis://127.0.0.1:{port}/");
    let faulty_app = StreamApp::connect_in("shop", &url, Namespace::new("").unwrap()).await.unwrap();
    let stream = loop {
        // `open` does not retry, and the proxy may have closed the connection.
        if let Ok(stream) = faulty_app.stream::<Order>("orders").partition_by("order_id").partitions(1).open().await {
            break stream;
        }
    };
    let mut ids = Vec::new();
    for order in orders(100) {
        ids.push(stream.send(&order).await.unwrap());
    }
    let direct_app = app(&server).await;
    let entries: Vec<(String, Vec<String>)> = redis::cmd("XRANGE")
        .arg("__strm:shop.orders.0")
        .arg("-")
        .arg("+")
        .query_async(&mut direct_app.client().connection())
        .await
        .unwrap();
    let stored: Vec<(String, String)> = entries.into_iter().map(|(id, fields)| (id, fields[1].clone())).collect();
    let expected: Vec<(String, String)> = ids
        .iter()
        .zip(orders(100))
        .map(|(id, order)| (id.to_string(), serde_json::to_string(&order).unwrap()))
        .collect();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn send_many_returns_ids_in_record_order() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = stream(&app, 7).await;
    let sent = send(&stream, &orders(1000)).await;
    for partition in 0..7 {
        let ids: Vec<_> = sent.iter().filter(|(at, _)| *at == partition).map(|(_, id)| *id).collect();
        assert!(ids.is_sorted() && !ids.is_empty());
        assert_eq!(stream_length(&app, &format!("__strm:shop.orders.{partition}")).await, ids.len() as u64);
    }
}

#[tokio::test]
async fn full_partition_fails_or_waits_and_drops_no_event() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let open = |when| {
        app.stream::<Order>("orders").partition_by("order_id").partitions(1).partition_size(10).when_full(when).open()
    };
    let failing = open(WhenFull::Fail).await.unwrap();
    failing.send_many(&orders(10)).await.unwrap();
    let error = failing.send(&orders(1)[0]).await.unwrap_err();
    assert!(matches!(&error, SendError::Full { size: 10, slowest_processor, .. } if slowest_processor.is_empty()));
    assert!(error.to_string().contains("no processor is registered"), "{error}");

    // A registered processor that has read all events and acknowledged none still prevents
    // trimming.
    for command in ["XGROUP CREATE K recorder 0", "XREADGROUP GROUP recorder 1 COUNT 10 STREAMS K >"] {
        let words: Vec<&str> =
            command.split(' ').map(|word| if word == "K" { "__strm:shop.orders.0" } else { word }).collect();
        let mut line = redis::cmd(words[0]);
        line.arg(&words[1..]);
        let _: redis::Value = line.query_async(&mut app.client().connection()).await.unwrap();
    }
    let error = failing.send(&orders(1)[0]).await.unwrap_err();
    assert!(error.to_string().contains("processor `recorder` has not acknowledged"), "{error}");
    assert_eq!(stream_length(&app, "__strm:shop.orders.0").await, 10);

    // The sender waits until the processor has caught up.
    let waiting = open(WhenFull::Wait(Duration::from_secs(60))).await.unwrap();
    let log = EventLog::default();
    let records = orders(25);
    let (more, worker) = tokio::join!(send(&waiting, &records), async {
        RunningWorker::start(&app, recording_processor(&waiting, &log).settings(fast_settings()))
    });
    wait_processed(&log, 35).await;
    worker.stop().await.unwrap();
    assert_eq!(more.len(), 25);
}

#[tokio::test]
async fn drop_unread_trims_the_oldest_events_of_a_full_partition() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream = app
        .stream::<Order>("orders")
        .partition_by("order_id")
        .partitions(1)
        .partition_size(10)
        .drop_unread()
        .open()
        .await
        .unwrap();
    stream.send_many(&orders(35)).await.unwrap();
    assert_eq!(stream_length(&app, "__strm:shop.orders.0").await, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_partition_delivers_many_events_without_loss() {
    let server = RedisServer::start();
    let app = app(&server).await;
    let stream =
        app.stream::<Order>("orders").partition_by("order_id").partitions(2).partition_size(50).open().await.unwrap();
    let log = EventLog::default();
    let worker = RunningWorker::start(&app, recording_processor(&stream, &log).settings(fast_settings()));
    let sent = send(&stream, &orders(5000)).await;
    wait_processed(&log, 5000).await;
    worker.stop().await.unwrap();
    check_exactly_once(&log.all(), &sent);
    assert!(stream_length(&app, "__strm:shop.orders.0").await <= 50);
}
