//! With `--direct` a client is connected to its worker, and the server's death does not end its session.

use std::{net::SocketAddr, time::Duration};

use squall_coord::{ApiKeyScope, MemorySlotStore, SlotStore};
use squall_grid::{ApiKey, KeyLimits, ServerConfig};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    DEADLINE, Grid, HoldingClient, RawResponse, get, node_client, post, python_client, run, send, server_config,
    worker_config,
};

const UPGRADE: &str = "Host: grid\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

async fn direct_grid(slots: u32) -> Grid<MemorySlotStore> {
    let config = ServerConfig { direct: true, ..server_config() };
    Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", slots)).await
}

async fn ask(address: SocketAddr, path: &str, more: &str) -> RawResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\n{UPGRADE}\n{more}").trim().replace('\n', "\r\n");
    stream.write_all(format!("{request}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    // Neither the server after a redirect nor an open session ends the connection.
    while !(text.contains("\r\n\r\n") && (text.contains(" 307 ") || text.contains(" 101 "))) {
        match tokio::time::timeout(DEADLINE, stream.read(&mut buffer)).await.expect("a response").unwrap_or(0) {
            0 => break,
            read => text.push_str(&String::from_utf8_lossy(&buffer[..read])),
        }
    }
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    RawResponse { status, text }
}

/// Asks the server, and returns the worker's address and the path for it.
async fn redirected(grid: &Grid<MemorySlotStore>) -> (SocketAddr, String) {
    let response = ask(grid.address, "/", "").await;
    assert_eq!(response.status, 307, "{}", response.text);
    let location = response.text.lines().find_map(|line| line.strip_prefix("location: ws://")).unwrap().to_owned();
    let (address, path) = location.split_once('/').unwrap();
    (address.parse().unwrap(), format!("/{path}"))
}

#[tokio::test]
async fn node_and_python_clients_follow_to_the_worker() {
    let grid = direct_grid(2).await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert_eq!(run(python_client(&grid.url())).await, (true, "squall".to_owned()));
    let http = format!("http://{}/?browser=chromium", grid.address);
    assert_eq!(run(node_client(&["job", &http])).await, (true, "squall".to_owned()));
    let reserved = post(grid.address, "/v1/sessions", "").await.json()["id"].as_str().unwrap().to_owned();
    let url = format!("ws://{}/sessions/{reserved}", grid.address);
    assert_eq!(run(node_client(&["job", &url])).await, (true, "squall".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    assert_eq!(grid.snapshot().await.workers[0].lifetime, 4);
    grid.end().await;
}

/// The session may begin and end between two heartbeats of the worker.
#[tokio::test]
async fn slot_of_a_short_session_is_free_after_the_next_heartbeats() {
    // A session that no offer lists keeps its slot for longer than this.
    let config = ServerConfig { direct: true, dial_timeout: 20 * DEADLINE, ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 2)).await;
    let (worker, path) = redirected(&grid).await;
    assert_eq!(ask(worker, &path, "").await.status, 101);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    assert_eq!(grid.snapshot().await.workers[0].lifetime, 1);
    grid.end().await;
}

#[tokio::test]
async fn session_outlives_the_server() {
    let grid = direct_grid(1).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    grid.server.abort();
    grid.wait_for("end of the server", |snapshot| snapshot.servers.is_empty()).await;
    // Longer than a worker waits for the server of a session that is relayed.
    for _ in 0..8 {
        tokio::time::sleep(worker_config("w1", 1).heartbeat).await;
        assert_eq!(client.evaluate("document.title").await, "page");
    }
    assert_eq!(grid.snapshot().await.sessions.len(), 1);
    client.close().await;
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.worker.drain.cancel();
    grid.worker.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn path_opens_one_session_once_and_for_no_page() {
    let grid = direct_grid(2).await;
    let (worker, path) = redirected(&grid).await;
    let page = ask(worker, &path, "Origin: http://evil.example").await;
    assert!(page.status == 403 && page.text.contains("web pages may not use the grid"), "{}", page.text);
    let posted = send(worker, &format!("POST {path} HTTP/1.1\n{UPGRADE}")).await;
    assert!(posted.status == 405 && posted.text.contains("POST is not allowed here"), "{}", posted.text);
    let forged = ask(worker, &path.replace("key=", "key=red"), "").await;
    assert!(forged.status == 403 && forged.text.contains("no server of the grid made this path"), "{}", forged.text);
    // A header of the servers changes nothing for a client.
    let client = ask(worker, &path, "x-squall-session: other\nx-squall-protocol: cdp").await;
    assert_eq!(client.status, 101, "{}", client.text);
    let again = ask(worker, &path, "").await;
    assert!(again.status == 410 && again.text.contains("was used already"), "{}", again.text);
    assert!(again.text.contains("x-playwright-debug-log: squall request "), "{}", again.text);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn client_that_does_not_follow_frees_its_slot() {
    let config = ServerConfig { direct: true, dial_timeout: Duration::from_millis(1), ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
    redirected(&grid).await;
    assert_eq!(grid.snapshot().await.sessions.len(), 1);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn deletion_and_a_revoked_key_reach_the_client() {
    let grid = direct_grid(2).await;
    let (secret, stored) = ApiKey::generate("blue", ApiKeyScope::Admin, KeyLimits::default(), 0);
    assert!(grid.store.add_api_key(&stored).await.unwrap());
    let url = format!("{}&token={secret}", grid.url());
    let mut client = HoldingClient::connect(&url, "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    let id = grid.snapshot().await.sessions[0].id.to_string();
    let delete = format!("DELETE /v1/sessions/{id}?token={secret} HTTP/1.1\nHost: grid\nConnection: close");
    assert_eq!(send(grid.address, &delete).await.status, 204);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    let message = client.evaluate("1 + 1").await;
    assert!(message.contains(&format!("squall: session {id} was deleted")), "{message}");
    client.close().await;
    let mut client = HoldingClient::connect(&url, "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    assert!(grid.store.revoke_api_key("blue").await.unwrap());
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    assert!(client.evaluate("1 + 1").await.contains("squall:"));
    client.close().await;
    grid.end().await;
}

/// A request with the new key makes the server read the keys before its heartbeat does.
#[tokio::test]
async fn sessions_of_a_key_that_was_replaced_end() {
    let generate = |name: &str| ApiKey::generate(name, ApiKeyScope::Client, KeyLimits::default(), 0);
    let ((old_secret, old), (new_secret, new)) = (generate("old"), generate("new"));
    let store = MemorySlotStore::new();
    assert!(store.add_api_key(&old).await.unwrap());
    let (heartbeat, ttl) = (Duration::from_secs(3), Duration::from_secs(30));
    let config = ServerConfig { direct: true, heartbeat, ttl, ..server_config() };
    let grid = Grid::start_with(store, config, worker_config("w1", 1)).await;
    let mut client = HoldingClient::connect(&format!("{}&token={old_secret}", grid.url()), "page").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    assert!(grid.store.add_api_key(&new).await.unwrap());
    assert!(grid.store.revoke_api_key("old").await.unwrap());
    let path = format!("/v1/capacity?token={new_secret}");
    let accepted = async { while get(grid.address, &path).await.status != 200 {} };
    tokio::time::timeout(DEADLINE, accepted).await.expect("the new key is accepted");
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    assert!(client.evaluate("1 + 1").await.contains("squall:"));
    client.close().await;
    grid.end().await;
}
