//! Tests of rejected requests: the error code is right and the server keeps running.

use serde_json::json;

use crate::support::{bundle, send, world};

#[tokio::test]
async fn bad_bodies_are_rejected_with_the_matching_code() {
    let world = world(1).await;
    let cases = [
        ("/start_test", "", "invalid_json"),
        ("/start_test", "{", "invalid_json"),
        ("/start_test", "\u{0}", "invalid_json"),
        ("/start_test", "[]", "invalid_json"),
        ("/start_test", "{}", "validation_error"),
        ("/start_test", "[1, {}, 0]", "invalid_json"),
        ("/start_test", "null", "invalid_json"),
        ("/start_test", r#"{"users": -1}"#, "validation_error"),
        ("/start_test", r#"{"users": 1.5}"#, "validation_error"),
        ("/start_test", r#"{"users": "1"}"#, "validation_error"),
        ("/start_test", r#"{"users": 1, "target_users": 1}"#, "validation_error"),
        ("/start_test", r#"{"users": 1, "usres": 1}"#, "validation_error"),
        ("/start_test", r#"{"users": 1000001}"#, "validation_error"),
        ("/start_test", r#"{"users": 1, "spawn_interval_ms": 60001}"#, "validation_error"),
        ("/start_test", r#"{"users": 1, "init_params": {"unknown": 1}}"#, "validation_error"),
        ("/change_users", r#"{"users": null}"#, "validation_error"),
        ("/stop_test", r#"{"now": true}"#, "validation_error"),
        ("/create_resource", r#"{"name": "a b", "count": 1}"#, "validation_error"),
        ("/create_resource", r#"{"name": "a", "count": 0}"#, "validation_error"),
        ("/create_resource", r#"{"name": "a", "count": 100001}"#, "validation_error"),
        ("/create_resource", r#"{"name": "a", "count": 1, "payload": 7}"#, "validation_error"),
        ("/ensure_resource", r#"{"count": 1}"#, "validation_error"),
        ("/api/v1/tests", r#"{"bundle": {}}"#, "validation_error"),
        ("/api/v1/tests", r#"{"bundle": 1, "x": 2}"#, "validation_error"),
        ("/api/v1/tests/current/rate", r#"{"rate": -1}"#, "validation_error"),
        ("/api/v1/tests/current/rate", r#"{"rate": 1e999}"#, "validation_error"),
        ("/api/v1/tests/current/scale", r#"{"users": 1, "abort": true}"#, "validation_error"),
        ("/api/v1/tests/current/stop", r#"{"abort": "yes"}"#, "validation_error"),
    ];
    for (path, body, code) in cases {
        println!("{path} {body}");
        world.post(path, body).await.expect_error(400, code);
    }
    let deep = "[".repeat(100_000 / 2);
    world.post("/start_test", deep).await.expect_error(400, "invalid_json");
    assert_eq!(world.get("/ready").await.json()["epoch"], 0, "nothing was started");
}

#[tokio::test]
async fn oversized_bodies_are_rejected() {
    let world = world(1).await;
    let long = format!(r#"{{"users": 1, "init_params": {{"a": "{}"}}}}"#, "x".repeat(64 << 10));
    world.post("/start_test", &long).await.expect_error(413, "payload_too_large");
    let longer = format!(r#"{{"bundle": "{}"}}"#, "x".repeat(1 << 20));
    world.post("/api/v1/tests", &longer).await.expect_error(400, "validation_error");
    let longest = format!(r#"{{"bundle": "{}"}}"#, "x".repeat(16 << 20));
    world.post("/api/v1/tests", &longest).await.expect_error(413, "payload_too_large");
    let head = "POST /start_test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n";
    send(world.addr, head.as_bytes()).await.expect_error(413, "payload_too_large");
}

#[tokio::test]
async fn error_message_repeats_only_part_of_a_long_body() {
    let world = world(1).await;
    let long = "ä".repeat(30_000);
    for (path, body, begin, end) in [
        (
            "/api/v1/tests",
            format!(r#"{{"bundle": "{long}"}}"#),
            "bundle: invalid type: string \"ä",
            "expected struct Bundle",
        ),
        ("/start_test", format!(r#"{{"users": "{long}"}}"#), "users: invalid type", "give a whole number of 0 or more"),
        ("/stop_test", format!(r#"{{"{long}": 1}}"#), "unknown field `ä", "there are no fields"),
    ] {
        let error = world.post(path, body).await.expect_error(400, "validation_error");
        let message = error["message"].as_str().unwrap();
        assert!(message.chars().count() < 400 && message.starts_with(begin) && message.ends_with(end), "{message}");
    }
    let error = world.get(&format!("/metrics/history?range={}", "x".repeat(30_000))).await;
    assert!(error.expect_error(400, "validation_error")["message"].as_str().unwrap().len() < 400);
}

#[tokio::test]
async fn query_error_names_the_parameter_and_the_expected_value() {
    let world = world(1).await;
    for (path, words) in [
        ("/metrics/history?from_ts=x", "from_ts: give a whole number of 0 or more"),
        ("/metrics/history?from_ts=99999999999999999999999", "from_ts: give a whole number of 0 or more"),
        ("/metrics?count=", "count: give a whole number of 0 or more"),
        ("/resources/a/items?count=-1", "count: give a whole number of 0 or more"),
        ("/probes/history", "missing field `probe_name`"),
        ("/metrics?include_events=perhaps", "include_events: `perhaps` is not a boolean; give true or false"),
    ] {
        assert_eq!(world.get(path).await.expect_error(400, "validation_error")["message"], words, "{path}");
    }
}

#[tokio::test]
async fn bad_queries_paths_and_methods_are_rejected() {
    let world = world(1).await;
    for path in [
        "/metrics?count=0",
        "/metrics?count=1001",
        "/metrics?count=x",
        "/metrics?include_events=perhaps",
        "/metrics?colour=red",
        "/metrics/history?range=1y",
        "/metrics/history?from_ts=-1",
        "/probes?count=1001",
        "/probes/history",
        "/probes/history?probe_name=a&count=1001",
        "/resources/a%20b/items",
        "/resources/a/items?count=0",
    ] {
        println!("{path}");
        world.get(path).await.expect_error(400, "validation_error");
    }
    world.get("/probes/history?probe_name=%20").await.expect_error(400, "bad_request");
    world.get("/nowhere").await.expect_error(404, "not_found");
    world.get("/start_test").await.expect_error(405, "method_not_allowed");
    world.post("/metrics", "{}").await.expect_error(405, "method_not_allowed");
    let counted = String::from_utf8(world.get("/prometheus").await.body).unwrap();
    assert!(counted.contains("squall_api_bad_requests_total 13\n"), "{counted}");
}

/// A plan from the network is checked as strictly as one from the command line.
#[tokio::test]
async fn bundle_with_an_unknown_or_invalid_field_is_rejected_at_every_depth() {
    let world = world(1).await;
    let cases = [
        ("/plan", "colour", json!("red"), "unknown field `colour`"),
        ("/plan/load", "extra", json!(1), "unknown field `extra`"),
        ("/plan/tasks/0", "extra", json!(1), "unknown field `extra`"),
        ("/limits", "extra", json!(1), "unknown field `extra`"),
        ("/limits", "grace", json!({"secs": u64::MAX, "nanos": 0}), "hundred years"),
        ("/plan/load", "warm_up", json!({"secs": u64::MAX, "nanos": 0}), "hundred years"),
        ("/plan", "thresholds", json!(["p99 <"]), ""),
        ("/plan", "seed", json!(-1), "invalid value"),
    ];
    for (place, field, value, words) in cases {
        println!("{place} {field}");
        let mut bundle = serde_json::to_value(bundle()).unwrap();
        bundle.pointer_mut(place).unwrap()[field] = value;
        let error = world.post("/api/v1/tests", json!({"bundle": bundle}).to_string()).await;
        let error = error.expect_error(400, "validation_error");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    }
    assert_eq!(world.get("/ready").await.json()["epoch"], 0, "nothing was started");
}

#[tokio::test]
async fn invalid_http_closes_only_its_own_connection() {
    let world = world(1).await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00 not tls\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"POST /start_test HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    ] {
        let response = send(world.addr, bytes).await;
        assert_eq!(response.status, 400, "{}", response.head);
    }
    assert_eq!(world.get("/health").await.status, 200);
}

#[tokio::test]
async fn path_that_is_not_utf8_gets_the_error_of_the_api() {
    let world = world(1).await;
    for path in ["/api/v1/runs/%ff%fe", "/resources/%ff/items", "/api/v1/tests/%ff"] {
        println!("{path}");
        world.get(path).await.expect_error(400, "bad_request");
    }
}
