//! Tests of vikhry's feed: a snapshot, then a message per second.

use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{support::world, websocket::Socket};

#[tokio::test]
async fn subscriber_gets_a_snapshot_and_then_ticks() {
    let world = world(1).await;
    let mut socket = Socket::open(&world, "/ws/metrics").await;
    let snapshot = socket.message().await;
    assert_eq!(
        (snapshot["type"].as_str(), &snapshot["payload"]["metrics"]),
        (Some("metrics_snapshot"), &serde_json::json!([]))
    );
    assert_eq!(world.post("/start_test", r#"{"users": 1}"#).await.status, 200);
    loop {
        let tick = socket.message().await;
        assert_eq!(tick["type"], "metrics_tick");
        if tick["payload"]["metrics"][0]["aggregate_total"]["requests"].as_u64() > Some(0) {
            break;
        }
    }
    let text = String::from_utf8(world.get("/prometheus").await.body).unwrap();
    assert!(text.contains("squall_live_subscribers 1\n") && text.contains("squall_requests_total{"), "{text}");
    let mut live = Socket::open(&world, "/api/v1/live").await;
    live.message_of("snapshot").await;
    let text = String::from_utf8(world.get("/prometheus").await.body).unwrap();
    assert!(text.contains("squall_live_subscribers 2\n"), "{text}");
    // The server sends a close frame to its subscribers at shutdown.
    world.stop.cancel();
    loop {
        let (kind, _) = socket.next().await;
        if kind == 8 {
            break;
        }
    }
}

#[tokio::test]
async fn plain_http_request_to_the_feed_is_rejected() {
    let world = world(1).await;
    world.get("/ws/metrics").await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn subscriber_that_sends_a_long_message_is_disconnected() {
    let world = world(1).await;
    let mut socket = Socket::open(&world, "/ws/metrics").await;
    socket.message().await;
    // A masked text frame of 64 KiB.
    let mut frame = vec![0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4];
    frame.resize(frame.len() + (1 << 16), b'x');
    let _ = socket.stream.write_all(&frame).await;
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_secs(30), socket.stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the server ends the connection");
    assert_eq!(world.get("/health").await.status, 200);
}
