//! Tests of the pages for what shares the fleet's Redis server, on a real one.

use serde_json::json;
use squall_coord::{MemoryFleetStores, RedisClient, RedisSlotStore, SlotOffer, SlotStore, SlotWorkerId};
use squall_streams::{Namespace, admin::StreamAdmin};
use squall_testkit::redis::RedisServer;
use squall_web::{ShownGrid, ShownStreams, WebConfig};
use std::time::Duration;

use crate::support::{world_on, world_with};

#[tokio::test]
async fn server_without_streams_and_grid_says_which_flag_shows_them() {
    let world = world_with(1, WebConfig::local("test")).await;
    let session = world.get("/api/v1/session").await.json();
    assert_eq!((&session["shows_streams"], &session["shows_grid"]), (&json!(false), &json!(false)));
    for (path, flag) in [("/api/v1/streams", "--streams"), ("/api/v1/grid", "--grid NAME")] {
        let error = world.get(path).await.expect_error(404, "not_found");
        assert!(error["message"].as_str().unwrap().contains(flag), "{error}");
    }
}

#[tokio::test]
async fn streams_are_listed_with_lag_owner_and_quarantine_and_a_partition_is_released() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let admin = StreamAdmin::new(client.clone(), Namespace::default());
    let streams = Some(ShownStreams { admin });
    let world = world_on(MemoryFleetStores::default(), 1, WebConfig { streams, ..WebConfig::local("test") }).await;
    assert_eq!(world.get("/api/v1/streams").await.json(), json!({"streams": []}));
    let mut connection = client.connection();
    let mut run = async |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async::<redis::Value>(&mut connection).await.unwrap()
    };
    run(&["HSET", "squall:__meta:shop.orders", "partitions", "2", "hasher", "xxh64"]).await;
    let events = "squall:__strm:shop.orders.{0}";
    for id in ["1-0", "2-0", "3-0"] {
        run(&["XADD", events, id, "data", "{}"]).await;
    }
    run(&["XGROUP", "CREATE", events, "billing", "0"]).await;
    run(&["XREADGROUP", "GROUP", "billing", "w1", "COUNT", "2", "STREAMS", events, ">"]).await;
    run(&["XACK", events, "billing", "1-0"]).await;
    run(&["SET", "squall:__quar:shop.orders.billing.{0}", r#"{"error": "no price", "xids": ["2-0"]}"#]).await;
    let found = world.until(|found| found["streams"][0]["processors"][0]["rate"].is_number(), "/api/v1/streams").await;
    let stream = &found["streams"][0];
    assert_eq!(
        (&stream["stream"], &stream["partitions"], &stream["events"]),
        (&json!("shop.orders"), &json!(2), &json!(3))
    );
    let processor = &stream["processors"][0];
    let counts = [&processor["waiting"], &processor["pending"], &processor["processed"]];
    assert_eq!(counts, [&json!(1), &json!(1), &json!(1)], "{processor}");
    assert_eq!(processor["partitions"][0]["quarantine"]["error"], "no price");
    assert_eq!(processor["partitions"][1]["quarantine"], json!(null));
    let path = "/api/v1/streams/shop.orders.billing/partitions";
    world.post(&format!("{path}/1/release"), "{}").await.expect_error(409, "invalid_state");
    world.post(&format!("{path}/2/release"), "{}").await.expect_error(404, "not_found");
    world.post(&format!("{path}/x/release"), "{}").await.expect_error(400, "validation_error");
    world.post("/api/v1/streams/nothing/partitions/0/release", "{}").await.expect_error(400, "validation_error");
    let released = world.post(&format!("{path}/0/release"), r#"{"skip": true}"#).await;
    assert_eq!(released.status, 200, "{}", released.json());
    let found = world.get("/api/v1/streams").await.json();
    let processor = &found["streams"][0]["processors"][0];
    assert_eq!((&processor["pending"], &processor["partitions"][0]["quarantine"]), (&json!(0), &json!(null)));
}

#[tokio::test]
async fn grid_shows_its_workers_and_drains_one() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "squall-grid:{main}:");
    let offer = SlotOffer {
        worker: SlotWorkerId::new("chromium", "w1").unwrap(),
        versions: vec!["1.65".to_owned()],
        endpoint: "127.0.0.1:1".to_owned(),
        secret: "secret".to_owned(),
        slots: 3,
        max_lifetime: None,
        lifetime: 0,
        draining: false,
        started_ms: 1,
        sessions: vec![],
        ended: vec![],
    };
    store.offer(&offer, Duration::from_secs(60)).await.unwrap();
    let grid = Some(ShownGrid { store });
    let world = world_on(MemoryFleetStores::default(), 1, WebConfig { grid, ..WebConfig::local("test") }).await;
    let shown = world.get("/api/v1/grid").await.json();
    assert_eq!(shown["slots"], json!({"all": 3, "used": 0, "free": 3, "closed": 0}));
    let worker = &shown["workers"][0];
    assert_eq!((&worker["name"], &worker["state"]), (&json!("w1"), &json!("available")));
    assert!(!shown.to_string().contains("secret"), "the worker's secret stays in the store");
    world.post("/api/v1/grid/sessions/none/end", "{}").await.expect_error(404, "not_found");
    world.post("/api/v1/grid/workers/chromium/w2/drain", "{}").await.expect_error(404, "not_found");
    assert_eq!(world.post("/api/v1/grid/workers/chromium/w1/drain", "{}").await.status, 202);
    let shown = world.get("/api/v1/grid").await.json();
    assert_eq!(shown["workers"][0]["state"], "draining");
    assert_eq!(shown["slots"], json!({"all": 3, "used": 0, "free": 0, "closed": 3}));
}
