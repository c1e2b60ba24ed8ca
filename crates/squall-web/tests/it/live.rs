//! Tests of `/api/v1/live`, the feed of the web UI, with a run of fake workers.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    support::{REQUESTS_PER_SECOND, World, world},
    websocket::Socket,
};

/// Index of a column of the rows of seconds.
fn column(hello: &Value, name: &str) -> usize {
    let columns = hello["columns"].as_array().unwrap();
    columns.iter().position(|column| column == name).unwrap()
}

async fn start(world: &World) {
    assert_eq!(world.post("/start_test", r#"{"users": 1}"#).await.status, 200);
}

/// The times of the next `count` seconds.
async fn times(socket: &mut Socket, count: usize) -> Vec<u64> {
    let mut times = Vec::new();
    while times.len() < count {
        times.push(socket.message_of("second").await["row"][0].as_u64().unwrap());
    }
    times
}

#[tokio::test]
async fn reader_gets_hello_state_and_snapshot_and_then_each_second_once() {
    let world = world(2).await;
    let mut socket = Socket::open(&world, "/api/v1/live").await;
    let hello = socket.message().await;
    assert_eq!((&hello["type"], &hello["schema"]), (&"hello".into(), &"squall.live/5".into()));
    assert_eq!(socket.message_of("snapshot").await["run"], Value::Null);
    start(&world).await;
    let state = socket.message_of("state").await;
    assert_eq!((&state["plan"]["name"], &state["plan"]["until_stopped"]), (&"shop".into(), &true.into()), "{state}");
    let snapshot = socket.message_of("snapshot").await;
    let from = snapshot["seconds"][0].as_array().unwrap().len() as u64;
    assert_eq!(times(&mut socket, 3).await, [from + 1, from + 2, from + 3]);
    let second = socket.message_of("second").await;
    let requests = &second["row"][column(&hello, "requests")];
    assert_eq!(*requests, REQUESTS_PER_SECOND * 2);
    assert_eq!(second["failures"], serde_json::json!([["HTTP_500", 2]]));
    let heat: Vec<u64> = second["heat"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(heat.chunks(2).map(|pair| pair[1]).sum::<u64>(), REQUESTS_PER_SECOND * 2);
    let fleet = socket.message_of("fleet").await;
    let workers = fleet["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 2, "{fleet}");
    assert!(workers.iter().all(|worker| worker["state"] == "working" && worker["present"] == true), "{fleet}");
    let mut names: Vec<&Value> = workers.iter().map(|worker| &worker["id"]).collect();
    names.sort_by_key(|name| name.as_str());
    let table = socket.message_of("table").await;
    let [_, _, code, n, first_s, last_s, named, of] = &table["outcomes"][0].as_array().unwrap()[..] else {
        panic!("{table}")
    };
    assert_eq!((code, first_s, of), (&"HTTP_500".into(), &1.into(), &2.into()), "{table}");
    assert_eq!(named, &serde_json::json!(names), "{table}");
    assert_eq!(last_s.as_u64().map(|t| t * 2), n.as_u64(), "each worker fails once a second: {table}");
}

#[tokio::test]
async fn reconnect_with_since_leaves_no_gap_and_repeats_no_second() {
    let world = world(1).await;
    start(&world).await;
    let mut first = Socket::open(&world, "/api/v1/live").await;
    let last = times(&mut first, 2).await[1];
    let run = first.message_of("second").await["run"].as_str().unwrap().to_owned();
    drop(first);
    let mut second = Socket::open(&world, &format!("/api/v1/live?run={run}&since={last}")).await;
    let snapshot = second.message_of("snapshot").await;
    assert_eq!(snapshot["since"], last);
    let mut seen: Vec<u64> = snapshot["seconds"][0].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    seen.extend(times(&mut second, 2).await);
    let expected: Vec<u64> = (last + 1..).take(seen.len()).collect();
    assert_eq!(seen, expected);
    // The seconds of another run are of no use.
    let mut other = Socket::open(&world, &format!("/api/v1/live?run=another&since={last}")).await;
    assert_eq!(other.message_of("snapshot").await["since"], 0);
}

#[tokio::test]
async fn end_of_the_run_brings_its_result() {
    let world = world(1).await;
    start(&world).await;
    let mut socket = Socket::open(&world, "/api/v1/live").await;
    let hello = socket.message().await;
    times(&mut socket, 2).await;
    let stopped = world.post("/api/v1/tests/current/stop", "").await.json();
    assert!(stopped["revision"].as_u64().is_some(), "{stopped}");
    let (mut result, mut snapshot) = (Value::Null, Value::Null);
    while result.is_null() || snapshot["finished"] != true {
        let message = socket.message().await;
        match message["type"].as_str() {
            Some("state") => result = message["result"].clone(),
            Some("snapshot") => snapshot = message,
            _ => {}
        }
    }
    assert_eq!(result["verdict"], "interrupted", "{result}");
    let file = world.get("/api/v1/tests/1").await.json();
    let requests = file["totals"]["requests"].as_u64().unwrap();
    assert_eq!(snapshot["figures"]["total"]["requests"], requests);
    let by_second = snapshot["seconds"][column(&hello, "requests")].as_array().unwrap();
    assert_eq!(by_second.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), requests);
    let report = world.get("/api/v1/tests/1/report").await;
    assert_eq!(report.status, 200);
    assert!(report.head.to_ascii_lowercase().contains("content-disposition: attachment"), "{}", report.head);
    assert!(String::from_utf8_lossy(&report.body).starts_with("<!doctype html>"), "an HTML page");
    let page = world.get("/api/v1/tests/1/report?view=true").await;
    assert!(page.head.contains("content-security-policy: sandbox allow-scripts;"), "{}", page.head);
    assert!(!page.head.contains("content-disposition"), "{}", page.head);
}

#[tokio::test]
async fn wrong_query_and_plain_http_are_rejected() {
    let world = world(1).await;
    world.get("/api/v1/live?since=-1").await.expect_error(400, "validation_error");
    world.get("/api/v1/live?sinc=1").await.expect_error(400, "validation_error");
    world.get("/api/v1/live").await.expect_error(400, "bad_request");
}

#[tokio::test]
async fn reader_above_the_limit_is_refused_with_a_code_of_its_own() {
    let world = world(1).await;
    let mut sockets = Vec::new();
    for _ in 0..256 {
        let mut socket = Socket::open(&world, "/api/v1/live").await;
        assert_eq!(socket.message().await["type"], "hello");
        sockets.push(socket);
    }
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = format!("GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n");
    let mut stream = TcpStream::connect(world.addr).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.contains("}}") {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    assert!(text.starts_with("HTTP/1.1 503") && text.contains("too_many_readers"), "{text}");
}
