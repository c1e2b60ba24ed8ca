//! Sessions are reserved first and connected to later.

use std::time::Duration;

use squall_coord::{ApiKeyScope, MemorySlotStore, ReleaseCause, SlotStore};
use squall_grid::{ApiKey, GridWorker, KeyLimits, ServerConfig, ServerOffers};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Grid, HoldingClient, get, key, node_client, post, post_with, run, send, server_config, worker_config,
};

#[tokio::test]
async fn reserved_session_waits_for_its_client() {
    let grid = Grid::start(1).await;
    let reserved = post(grid.address, "/v1/sessions", r#"{"playwright_version": "1.65.0"}"#).await;
    assert_eq!(reserved.status, 201, "{}", reserved.text);
    assert_eq!(reserved.json()["status"], "pending");
    let id = reserved.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(get(grid.address, &format!("/v1/sessions/{id}")).await.json()["status"], "pending");
    assert_eq!(get(grid.address, "/v1/capacity").await.json()["browsers"][0]["available_slots"], 0);
    let url = format!("ws://{}/sessions/{id}", grid.address);
    assert_eq!(run(node_client(&["job", &url])).await, (true, "squall".to_owned()));
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    // "session … has ended", or "there is no session …" if the client takes longer than the store remembers it.
    let (ok, message) = run(node_client(&["job", &url])).await;
    assert!(!ok && message.contains(&format!("session {id}")), "{message}");
    let (ok, message) = run(node_client(&["job", &format!("ws://{}/sessions/none", grid.address)])).await;
    assert!(!ok && message.contains("there is no session none"), "{message}");
    grid.end().await;
}

#[tokio::test]
async fn reserved_session_without_a_client_frees_its_slot() {
    let config = ServerConfig { pending_timeout: Duration::from_millis(300), ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
    assert_eq!(post(grid.address, "/v1/sessions", "").await.status, 201);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    let deleted = post(grid.address, "/v1/sessions", "{}").await.json()["id"].as_str().unwrap().to_owned();
    let delete = format!("DELETE /v1/sessions/{deleted} HTTP/1.1\nHost: grid\nConnection: close");
    assert_eq!(send(grid.address, &delete).await.status, 204);
    assert!(grid.snapshot().await.sessions.is_empty());
    grid.end().await;
}

/// The store may say that a client has left while the worker still has it.
#[tokio::test]
async fn second_client_of_a_session_on_a_full_worker_does_not_end_the_first() {
    let grid = Grid::start(1).await;
    let mut first = HoldingClient::connect(&grid.url(), "first").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    let id = grid.snapshot().await.sessions[0].id.clone();
    assert!(grid.store.release(&id, ReleaseCause::Detached).await.unwrap());
    let (ok, message) = run(node_client(&["job", &format!("ws://{}/sessions/{id}", grid.address)])).await;
    assert!(!ok && message.contains(&format!("session {id} is open already")), "{message}");
    let sessions: Vec<_> = grid.snapshot().await.sessions.into_iter().map(|session| session.id).collect();
    assert_eq!(sessions, [id]);
    assert_eq!(first.evaluate("document.title").await, "first");
    first.close().await;
    grid.end().await;
}

#[tokio::test]
async fn reservations_with_wrong_values_are_refused() {
    let grid = Grid::start(1).await;
    let check = async |body: &str, status: u16, sentence: &str| {
        let response = post(grid.address, "/v1/sessions", body).await;
        assert_eq!(response.status, status, "{body}: {}", response.text);
        assert!(response.text.contains(sentence), "{body}: {}", response.text);
    };
    check("{", 400, "the body is not valid").await;
    check("[]", 400, "expected a JSON object").await;
    check(r#"{"playwright_version": ""}"#, 400, "a version such as 1.65, not ``").await;
    check(r#"{"colour": "red"}"#, 400, "unknown field `colour`").await;
    check(r#"{"browser": "opera"}"#, 400, "unknown browser `opera`").await;
    check(r#"{"browser": "firefox", "protocol": "cdp"}"#, 400, "only chromium has the protocol cdp").await;
    check(r#"{"protocol": "bidi"}"#, 400, "use playwright or cdp").await;
    check(r#"{"keep_alive": "5m"}"#, 400, "only sessions of the protocol cdp have keep_alive").await;
    check(r#"{"protocol": "cdp", "keep_alive": "2h"}"#, 400, "at most 1 h").await;
    check(r#"{"playwright_version": "1.50.0"}"#, 428, "workers of this grid have 1.65").await;
    check(&format!("{{\"browser\": \"{}\"}}", "x".repeat(9000)), 400, "larger than 8192 bytes").await;
    // Neither is waited for without end.
    for length in [10, 100_000_000] {
        let head = format!("POST /v1/sessions HTTP/1.1\nHost: grid\nContent-Length: {length}\nConnection: close");
        let response = send(grid.address, &head).await;
        assert!(response.status == 400 && response.text.contains("it is incomplete"), "{}", response.text);
    }
    assert!(grid.snapshot().await.sessions.is_empty());
    grid.end().await;
}

#[tokio::test]
async fn worker_offers_its_slots_to_a_server_without_redis() {
    let keys = vec![key("blue", false), ApiKey::new("host", "host-secret", ApiKeyScope::Worker, KeyLimits::default())];
    let config = ServerConfig { keys, ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
    let url = format!("http://{}", grid.address);
    let drain = CancellationToken::new();
    let offers = ServerOffers::new(&url, Some("host-secret".to_owned())).unwrap();
    let remote = tokio::spawn(GridWorker::new(offers, worker_config("w2", 1)).run(drain.clone()));
    grid.wait_for("second worker", |snapshot| snapshot.workers.len() == 2).await;
    grid.store.drain(&squall_coord::SlotWorkerId::new("chromium", "w1").unwrap()).await.unwrap();
    let client = format!("{}&token=blue-secret", grid.url());
    assert_eq!(run(node_client(&["job", &client])).await, (true, "squall".to_owned()));
    // A key of a client cannot offer slots, and one of a worker cannot open sessions.
    assert_eq!(post_with(grid.address, "/v1/workers/offer", "{}", "blue-secret").await.status, 403);
    assert_eq!(post_with(grid.address, "/v1/sessions", "{}", "host-secret").await.status, 403);
    assert_eq!(post_with(grid.address, "/v1/workers/offer", "{}", "host-secret").await.status, 400);
    drain.cancel();
    tokio::time::timeout(crate::support::DEADLINE, remote).await.unwrap().unwrap().unwrap();
    grid.wait_for("end of the worker", |snapshot| snapshot.workers.iter().all(|view| view.worker.name() != "w2")).await;
    grid.end().await;
}

/// Playwright prints this header in its call log.
#[tokio::test]
async fn answer_to_a_client_names_its_session_and_its_worker() {
    let grid = Grid::start(1).await;
    let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
    let (client, response) = tokio_tungstenite::client_async(grid.url(), stream).await.unwrap();
    let name = response.headers()["x-playwright-debug-log"].to_str().unwrap().to_owned();
    let id = grid.snapshot().await.sessions[0].id.to_string();
    assert_eq!(name, format!("squall session {id} on chromium:w1"));
    drop(client);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}
