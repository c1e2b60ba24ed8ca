//! Pools over the API.

use serde_json::json;
use squall_coord::{Cell, PoolName, PoolStore};

use crate::support::world;

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
    let counts = world.cell.pools().counts().await.unwrap();
    assert_eq!(counts[0].pool, PoolName::new("accounts").unwrap());
}

#[tokio::test]
async fn many_at_once_never_get_the_same_number() {
    let world = world(1).await;
    let body = r#"{"name": "wallets", "count": 50}"#;
    let (a, b, c) = tokio::join!(
        world.post("/create_resource", body),
        world.post("/create_resource", body),
        world.post("/create_resource", body)
    );
    let mut ids: Vec<String> = Vec::new();
    for answer in [a, b, c] {
        ids.extend(answer.json()["resource_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 150);
}
