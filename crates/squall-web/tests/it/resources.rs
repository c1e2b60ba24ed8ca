//! Tests of the resource pool routes.

use serde_json::json;
use squall_coord::{FleetStores, PoolName, PoolStore, RedisClient, RedisFleetStores};
use squall_testkit::redis::RedisServer;
use squall_web::WebConfig;
use std::time::{Duration, Instant};

use crate::support::{TEST_TIMEOUT, startable_scenario, world, world_on};

#[tokio::test]
async fn pools_are_created_filled_up_and_listed() {
    let world = world(1).await;
    let none = world.get("/resources").await.json();
    assert_eq!((&none["count"], &none["resources"]), (&json!(0), &json!([])));
    let made = world.post("/create_resource", r#"{"name": "accounts", "count": 2, "payload": {"plan": "gold"}}"#).await;
    assert_eq!(made.json(), json!({"resource_name": "accounts", "count": 2, "resource_ids": ["1", "2"]}));
    let body = r#"{"resource_name": "accounts", "count": 3}"#;
    let ensured = world.post("/ensure_resource", body).await.json();
    assert_eq!(
        ensured,
        json!({
            "resource_name": "accounts", "target_count": 3, "existing_count": 2, "created_count": 1,
            "current_count": 3, "created_resource_ids": ["3"],
        })
    );
    assert_eq!(world.post("/ensure_resource", body).await.json()["created_count"], 0);
    let listed = world.get("/resources").await.json();
    let counts = json!({"resource_name": "accounts", "count": 3, "available": 3, "held": 0, "waiting": 0});
    assert_eq!((&listed["count"], &listed["resources"]), (&json!(1), &json!([counts])));
    let items = world.get("/resources/accounts/items?count=1000").await.json();
    assert_eq!((items["count"].as_u64(), items["items"].as_array().map(Vec::len)), (Some(3), Some(3)));
    let first = items["items"].as_array().unwrap().iter().find(|item| item["resource_id"] == "1").unwrap();
    assert_eq!((&first["payload"]["plan"], &first["payload"]["resource_id"]), (&json!("gold"), &json!("1")));
    assert!(first["payload"]["created_at"].as_f64() > Some(0.0) && first["held"].is_null(), "{first}");
    let counts = world.cell.pools().count_all().await.unwrap().pools;
    assert_eq!(counts[0].pool, PoolName::new("accounts").unwrap());
}

#[tokio::test]
async fn concurrent_creations_get_distinct_ids() {
    let world = world(1).await;
    let body = r#"{"name": "wallets", "count": 50}"#;
    let (a, b, c) = tokio::join!(
        world.post("/create_resource", body),
        world.post("/create_resource", body),
        world.post("/create_resource", body)
    );
    let mut ids: Vec<String> = Vec::new();
    for response in [a, b, c] {
        ids.extend(
            response.json()["resource_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()),
        );
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 150);
}

/// Values of other programs in the keys of one pool, or in the key of the epoch, are named and
/// counted, and do not affect other pools.
#[tokio::test]
async fn foreign_values_in_keys_are_reported_and_other_pools_work() {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let mut config = WebConfig::local("test");
    config.scenario = Some(startable_scenario());
    let world = world_on(RedisFleetStores::new(&link, "odd"), 1, config).await;
    let ask = async |command: &str, arguments: &[&str]| {
        let mut commands = link.connection();
        let _: redis::Value = redis::cmd(command).arg(arguments).query_async(&mut commands).await.unwrap();
    };
    ask("HSET", &["squall:{odd}:resources", "okpool", "x"]).await;
    let made = world.post("/create_resource", r#"{"name": "other", "count": 2}"#).await;
    assert_eq!(made.status, 200, "{}", made.json());
    let listed = world.get("/resources").await.json();
    assert_eq!((&listed["count"], &listed["resources"][0]["resource_name"]), (&json!(1), &json!("other")));
    assert!(listed["refused"]["okpool"].as_str().unwrap().contains("squall:{odd}:resources, field okpool"), "{listed}");
    let error =
        world.post("/create_resource", r#"{"name": "okpool", "count": 2}"#).await.expect_error(500, "internal_error");
    assert!(error["message"].as_str().unwrap().contains("field okpool"), "{error}");
    // A start succeeds and counts the usable pools.
    let started = world.post("/start_test", r#"{"target_users": 2}"#).await;
    assert_eq!(started.status, 200, "{}", started.json());
    assert_eq!(started.json()["prepare_result"]["resources"], json!({"other": 2}));
    let text = String::from_utf8(world.get("/prometheus").await.body).unwrap();
    assert!(text.contains("squall_api_refused_pools_total 2\n"), "{text}");
    // Entries of other programs in the delta stream are skipped and counted.
    for fields in [["*", "other", "x"], ["*", "d", "junk"]] {
        ask("XADD", &[&["squall:{odd}:test:1:deltas"], &fields[..]].concat()).await;
    }
    let begin = Instant::now();
    while !String::from_utf8_lossy(&world.get("/prometheus").await.body).contains("squall_refused_deltas_total 2\n") {
        assert!(begin.elapsed() < TEST_TIMEOUT, "the invalid entries are not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // An unknown state does not count as IDLE while a test runs.
    ask("SET", &["squall:{odd}:test:state", "SOMETHING"]).await;
    for (path, body) in [("/stop_test", "{}"), ("/start_test", r#"{"target_users": 2}"#)] {
        let error = world.post(path, body).await.expect_error(500, "internal_error");
        assert!(
            error["message"].as_str().unwrap().contains("`test:state` holds a text that is none (`SOMETHING`)"),
            "{path}: {error}"
        );
    }
    assert_eq!(world.get("/readyz").await.status, 503);
    ask("SET", &["squall:{odd}:test:state", "RUNNING"]).await;
    assert_eq!(world.post("/stop_test", "{}").await.status, 200);
    world.until(|ready| ready["state"] == "IDLE", "/ready").await;

    ask("SET", &["squall:{odd}:test:epoch", "abc"]).await;
    let key = "key `squall:{odd}:test:epoch` holds a text that is none (`abc`)";
    for path in ["/ready", "/api/v1/tests/current"] {
        let error = world.get(path).await.expect_error(500, "internal_error");
        assert!(error["message"].as_str().unwrap().contains(key), "{error}");
    }
    let error = world.post("/start_test", r#"{"target_users": 2}"#).await.expect_error(500, "internal_error");
    assert!(error["message"].as_str().unwrap().contains(key), "{error}");
    let ready = world.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)));
}
