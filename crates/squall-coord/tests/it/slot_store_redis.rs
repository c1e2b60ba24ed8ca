//! What only the slot store in Redis has: playwright-distributed's keys, and a server that loses its
//! data.

use std::{collections::BTreeMap, time::Duration};

use redis::AsyncTypedCommands;
use squall_coord::{
    ApiKeyScope, ClaimOutcome, EndReason, RedisClient, RedisSlotStore, ReleaseCause, SlotOffer, SlotStore, StoreError,
    StoredApiKey,
};
use squall_testkit::redis::RedisServer;

use crate::slot_store::{claim, offer, server, worker};

const TTL: Duration = Duration::from_secs(600);

async fn hash(client: &RedisClient, key: &str) -> BTreeMap<String, String> {
    client.connection().hgetall(key).await.unwrap().into_iter().collect()
}

#[tokio::test]
async fn keys_of_playwright_distributed_show_workers_and_counts() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "");
    store.renew_server(&server(), TTL).await.unwrap();
    store.offer(&SlotOffer { lifetime: 3, ..offer("w1", 2) }, TTL).await.unwrap();
    let session = claim();
    assert!(matches!(store.claim(&session).await.unwrap(), ClaimOutcome::Granted(_)));
    let view = hash(&client, "worker:chromium:w1").await;
    assert_eq!(view["browserType"], "chromium");
    assert_eq!(view["wsEndpoint"], "ws://w1/");
    assert_eq!(view["status"], "available");
    assert!(view["lastHeartbeat"].parse::<u64>().unwrap() > 1_700_000_000);
    assert!(!view.values().any(|value| value.contains("secret")), "{view:?}");
    assert!(client.connection().pttl("worker:chromium:w1").await.unwrap().raw() > 0);
    assert_eq!(hash(&client, "cluster:active_connections").await["chromium:w1"], "1");
    assert_eq!(hash(&client, "cluster:lifetime_connections").await["chromium:w1"], "4");
    store.release(&session.session, ReleaseCause::Ended).await.unwrap();
    assert_eq!(hash(&client, "cluster:active_connections").await["chromium:w1"], "0");
    store.leave_worker(&worker("w1")).await.unwrap();
    store.leave_server(&server()).await.unwrap();
    let left: Vec<String> = client.connection().keys("*").await.unwrap();
    assert!(left.iter().all(|key| ["released", "lost", "sweep_at"].contains(&key.as_str())), "{left:?}");
}

#[tokio::test]
async fn shutdown_command_written_by_hand_drains_the_worker() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "");
    store.renew_server(&server(), TTL).await.unwrap();
    assert!(!store.offer(&offer("w1", 2), TTL).await.unwrap().drain);
    client.connection().set_ex("worker:cmd:chromium:w1", "shutdown", 60).await.unwrap();
    assert!(store.offer(&offer("w1", 2), TTL).await.unwrap().drain);
    assert_eq!(hash(&client, "worker:chromium:w1").await["status"], "draining");
    assert!(matches!(store.claim(&claim()).await.unwrap(), ClaimOutcome::Waiting { .. }));
    assert!(store.offer(&offer("w1", 2), TTL).await.unwrap().drain);
}

#[tokio::test]
async fn store_that_lost_everything_is_right_after_one_offer() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "squall-grid:{a}:");
    store.renew_server(&server(), TTL).await.unwrap();
    store.offer(&offer("w1", 2), TTL).await.unwrap();
    let session = claim();
    store.claim(&session).await.unwrap();
    client.connection().flushall().await.unwrap();
    let sessions = vec![crate::slot_store::held(&session)];
    let outcome = store.offer(&SlotOffer { sessions, lifetime: 1, ..offer("w1", 2) }, TTL).await.unwrap();
    assert_eq!(outcome.end, [(session.session.clone(), EndReason::ServerUnknown)]);
    assert_eq!(store.renew_server(&server(), TTL).await.unwrap(), std::slice::from_ref(&session.session));
    assert!(matches!(store.claim(&claim()).await.unwrap(), ClaimOutcome::Granted(_)));
    assert!(matches!(store.claim(&claim()).await.unwrap(), ClaimOutcome::Waiting { .. }));
}

#[tokio::test]
async fn key_of_another_type_is_named() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    client.connection().set("offers", "text").await.unwrap();
    let error = RedisSlotStore::new(&client, "").offer(&offer("w1", 2), TTL).await.unwrap_err();
    assert!(matches!(&error, StoreError::WrongType { key, .. } if key == "offers"), "{error:?}");
}

#[tokio::test]
async fn key_that_was_lost_with_all_data_is_not_revoked() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "");
    let scope = ApiKeyScope::Client;
    let key = |name: &str| StoredApiKey {
        name: name.to_owned(),
        hash: "1".to_owned(),
        scope,
        max_sessions: None,
        max_waiting: None,
        created: 7,
    };
    assert!(store.add_api_key(&key("ci")).await.unwrap());
    client.connection().flushall().await.unwrap();
    assert!(store.api_keys().await.unwrap().is_empty() && store.revoked_api_keys().await.unwrap().is_empty());
}
