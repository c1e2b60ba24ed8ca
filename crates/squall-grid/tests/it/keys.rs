//! API keys of the store are created, limited and revoked while the server runs.

use redis::AsyncTypedCommands;
use squall_coord::{ApiKeyScope, RedisClient, RedisSlotStore, SlotStore};
use squall_grid::{ApiKey, KeyLimits};
use squall_testkit::redis::RedisServer;

use crate::support::{Grid, HoldingClient, get, node_client, post_with, run, server_config, worker_config};

async fn create<S: SlotStore>(grid: &Grid<S>, name: &str, limits: KeyLimits) -> String {
    let (secret, stored) = ApiKey::generate(name, ApiKeyScope::Client, limits, 0);
    assert!(grid.store.add_api_key(&stored).await.unwrap());
    secret
}

#[tokio::test]
async fn revoked_key_ends_its_sessions_and_opens_no_more() {
    let grid = Grid::start(2).await;
    let blue = create(&grid, "blue", KeyLimits::default()).await;
    let red = create(&grid, "red", KeyLimits { sessions: Some(1), waiting: None }).await;
    let url = |secret: &str| format!("{}&token={secret}", grid.url());
    let mut of_blue = HoldingClient::connect(&url(&blue), "blue").await;
    let mut of_red = HoldingClient::connect(&url(&red), "red").await;
    let full = post_with(grid.address, "/v1/sessions", "{}", &red).await;
    assert_eq!(full.status, 429, "{}", full.text);
    assert!(full.text.contains("limit of sessions and waiting clients is 1"), "{}", full.text);
    assert!(grid.store.revoke_api_key("blue").await.unwrap());
    grid.wait_for("end of a session", |snapshot| snapshot.sessions.len() == 1).await;
    let message = of_blue.evaluate("1 + 1").await;
    assert!(message.contains("squall: the API key blue was revoked"), "{message}");
    let (ok, message) = run(node_client(&["job", &url(&blue)])).await;
    assert!(!ok && message.contains("unknown or revoked"), "{message}");
    let (ok, message) = run(node_client(&["job", &grid.url()])).await;
    assert!(!ok && message.contains("an API key is required"), "{message}");
    assert_eq!(of_red.evaluate("document.title").await, "red");
    of_blue.close().await;
    of_red.close().await;
    grid.end().await;
}

#[tokio::test]
async fn key_at_its_waiting_limit_is_refused_and_leaves_the_queue_to_others() {
    let grid = Grid::start(1).await;
    let blue = create(&grid, "blue", KeyLimits { sessions: None, waiting: Some(1) }).await;
    let red = create(&grid, "red", KeyLimits::default()).await;
    let url = |secret: &str| format!("{}&token={secret}", grid.url());
    let first = HoldingClient::connect(&url(&blue), "first").await;
    let mut second = HoldingClient::start(&url(&blue), "second");
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    let (ok, message) = run(node_client(&["job", &url(&blue)])).await;
    assert!(
        !ok && message.contains("429") && message.contains("the API key's limit of waiting clients is 1"),
        "{message}"
    );
    let mut of_red = HoldingClient::start(&url(&red), "red");
    grid.wait_for("waiting client of another key", |snapshot| snapshot.waiting.len() == 2).await;
    first.close().await;
    assert_eq!(second.line().await, "connected");
    // The key's place in the queue is free again.
    let mut third = HoldingClient::start(&url(&blue), "third");
    grid.wait_for("waiting clients of both keys", |snapshot| snapshot.waiting.len() == 2).await;
    second.close().await;
    assert_eq!(of_red.line().await, "connected");
    of_red.close().await;
    assert_eq!(third.line().await, "connected");
    third.close().await;
    grid.end().await;
}

#[tokio::test]
async fn sessions_of_a_recreated_key_end() {
    let grid = Grid::start(2).await;
    let old = create(&grid, "blue", KeyLimits::default()).await;
    let url = |secret: &str| format!("{}&token={secret}", grid.url());
    let mut of_old = HoldingClient::connect(&url(&old), "old").await;
    // No heartbeat sees the grid without the key.
    assert!(grid.store.revoke_api_key("blue").await.unwrap());
    let new = create(&grid, "blue", KeyLimits::default()).await;
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    let message = of_old.evaluate("1 + 1").await;
    assert!(message.contains("squall: the API key blue was revoked"), "{message}");
    let mut of_new = HoldingClient::connect(&url(&new), "new").await;
    assert_eq!(of_new.evaluate("document.title").await, "new");
    let listed = get(grid.address, &format!("/v1/sessions?token={new}")).await.json();
    assert_eq!(listed["sessions"][0]["key"], "blue");
    of_old.close().await;
    of_new.close().await;
    grid.end().await;
}

#[tokio::test]
async fn sessions_of_a_stored_key_survive_a_store_that_lost_all_data() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "squall-grid:{test}:");
    let grid = Grid::start_with(store, server_config(), worker_config("w1", 1)).await;
    let secret = create(&grid, "blue", KeyLimits::default()).await;
    let url = format!("{}&token={secret}", grid.url());
    let mut session = HoldingClient::connect(&url, "page").await;
    client.connection().flushall().await.unwrap();
    // A heartbeat has read the keys.
    let closed = async { while get(grid.address, "/v1/capacity?token=wrong").await.status != 401 {} };
    closed.await;
    grid.wait_for("session", |snapshot| snapshot.sessions.len() == 1 && !snapshot.servers.is_empty()).await;
    for _ in 0..8 {
        let before = grid.snapshot().await.sessions[0].age;
        grid.wait_for("another heartbeat", |snapshot| {
            snapshot.sessions.first().is_none_or(|session| session.age > before + worker_config("w1", 1).heartbeat)
        })
        .await;
        assert_eq!(session.evaluate("document.title").await, "page");
    }
    let (ok, message) = run(node_client(&["job", &url])).await;
    assert!(!ok && message.contains("unknown or revoked"), "{message}");
    session.close().await;
    grid.end().await;
}
