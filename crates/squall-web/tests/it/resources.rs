//! Tests of the resource pool routes.

use serde_json::json;
use squall_coord::{FleetStores, PoolName, PoolStore, RedisClient, RedisFleetStores};
use squall_testkit::redis::RedisServer;
use squall_web::{ResourceFactory, StartableScenario, WebConfig};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::support::{TEST_TIMEOUT, startable_scenario, world, world_on, world_with};

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
    assert_eq!((items["total"].as_u64(), items["items"].as_array().map(Vec::len)), (Some(3), Some(3)));
    let first = items["items"].as_array().unwrap().iter().find(|item| item["resource_id"] == "1").unwrap();
    assert_eq!((&first["plan"], &first["resource_name"]), (&json!("gold"), &json!("accounts")));
    assert!(first["created_at"].as_u64() > Some(0) && first.get("held").is_none(), "{first}");
    let counts = world.cell.pools().count_all().await.unwrap().pools;
    assert_eq!(counts[0].pool, PoolName::new("accounts").unwrap());
}

#[tokio::test]
async fn items_of_an_unknown_pool_are_an_empty_list() {
    let world = world(1).await;
    let items = world.get("/resources/nothing/items").await;
    assert_eq!(items.status, 200);
    assert_eq!(items.json(), json!({"resource_name": "nothing", "total": 0, "count": 0, "items": []}));
}

#[tokio::test]
async fn idle_fleet_lists_the_pools_and_probes_that_the_scenario_declares() {
    let mut config = WebConfig::local("test");
    let (resources, probes) = (vec!["accounts".to_owned()], vec!["depth".to_owned()]);
    config.scenario = Some(StartableScenario { resources, probes, ..startable_scenario() });
    let world = world_with(1, config).await;
    let listed = world.get("/resources").await.json();
    let empty = json!({"resource_name": "accounts", "count": 0, "available": 0, "held": 0, "waiting": 0});
    assert_eq!((&listed["count"], &listed["resources"]), (&json!(1), &json!([empty])));
    let probes = world.get("/probes").await.json()["probes"].clone();
    assert_eq!((&probes[0]["probe_name"], &probes[0]["latest"]), (&json!("depth"), &json!(null)));
    assert_eq!(world.post("/create_resource", r#"{"name": "accounts", "count": 1}"#).await.status, 200);
    let listed = world.get("/resources").await.json();
    assert_eq!((&listed["count"], &listed["resources"][0]["count"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn created_resources_have_the_fields_of_the_factory() {
    let mut config = WebConfig::local("test");
    let make = |pool: &str, number: u64| match (pool, number) {
        ("accounts", 3) => Some(Err("ValueError: no name left".to_owned())),
        ("accounts", _) => Some(Ok(json!({"login": format!("user{number}"), "plan": "free"}).to_string())),
        _ => None,
    };
    let resource_factory = Some(ResourceFactory(Arc::new(make)));
    config.scenario = Some(StartableScenario { resource_factory, ..startable_scenario() });
    let world = world_with(1, config).await;
    let made = world.post("/create_resource", r#"{"name": "accounts", "count": 1}"#).await;
    assert_eq!(made.status, 200, "{}", made.json());
    let body = r#"{"name": "accounts", "count": 2, "payload": {"plan": "gold"}}"#;
    assert_eq!(world.post("/ensure_resource", body).await.json()["created_resource_ids"], json!(["2"]));
    let items = world.get("/resources/accounts/items").await.json()["items"].clone();
    let item = |id: &str| items.as_array().unwrap().iter().find(|item| item["resource_id"] == id).unwrap().clone();
    assert_eq!((&item("1")["login"], &item("1")["plan"]), (&json!("user1"), &json!("free")));
    assert_eq!((&item("2")["login"], &item("2")["plan"]), (&json!("user2"), &json!("gold")));
    let failed =
        world.post("/create_resource", r#"{"name": "accounts", "count": 1}"#).await.expect_error(400, "bad_request");
    assert_eq!(failed["message"], "the factory of `accounts` failed for 3: ValueError: no name left");
    // A pool without a factory has only the fields of the request.
    assert_eq!(world.post("/create_resource", r#"{"name": "other", "count": 1}"#).await.status, 200);
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
