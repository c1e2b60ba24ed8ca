//! A client reaches neither sessions of another API key nor the worker itself.

use squall_coord::{MemorySlotStore, SlotStore};
use squall_grid::{GridWorkerConfig, Isolation, ServerConfig};

use crate::support::{Grid, HoldingClient, cdp_client, get, key, node_client, run, send, server_config, worker_config};

async fn grid_with_keys() -> Grid<MemorySlotStore> {
    grid_of_isolation(Isolation::Key).await
}

async fn grid_of_isolation(isolation: Isolation) -> Grid<MemorySlotStore> {
    let keys = vec![key("blue", false), key("red", false), key("root", true)];
    let config = ServerConfig { keys, ..server_config() };
    let worker = GridWorkerConfig { isolation, ..worker_config("w1", 4) };
    Grid::start_with(MemorySlotStore::new(), config, worker).await
}

fn url_of(grid: &Grid<MemorySlotStore>, key: &str) -> String {
    format!("{}&token={key}-secret", grid.url())
}

#[tokio::test]
async fn keys_do_not_see_each_others_pages_even_over_cdp() {
    let grid = grid_with_keys().await;
    let blue = HoldingClient::connect(&url_of(&grid, "blue"), "of-blue").await;
    let own = run(node_client(&["targets", &url_of(&grid, "blue"), "also-blue"])).await;
    assert_eq!(own, (true, "also-blue of-blue".to_owned()), "one key shares a browser");
    let red = run(node_client(&["targets", &url_of(&grid, "red"), "of-red"])).await;
    assert_eq!(red, (true, "of-red".to_owned()));
    let alone = format!("{}&isolation=session", url_of(&grid, "blue"));
    assert_eq!(run(node_client(&["targets", &alone, "alone"])).await, (true, "alone".to_owned()));
    blue.close().await;
    grid.end().await;
}

#[tokio::test]
async fn client_gets_the_isolation_that_it_asks_for_unless_the_worker_is_stricter() {
    let check = async |isolation: Isolation, query: &str, pages: &str| {
        let grid = grid_of_isolation(isolation).await;
        let blue = HoldingClient::connect(&url_of(&grid, "blue"), "of-blue").await;
        let url = format!("{}{query}", url_of(&grid, "red"));
        let seen = run(node_client(&["targets", &url, "of-red"])).await;
        assert_eq!(seen, (true, pages.to_owned()), "{isolation:?} {query}");
        blue.close().await;
        grid.end().await;
    };
    check(Isolation::Shared, "", "of-blue of-red").await;
    check(Isolation::Shared, "&isolation=key", "of-red").await;
    check(Isolation::Key, "&isolation=shared", "of-red").await;
}

#[tokio::test]
async fn session_belongs_to_its_key() {
    let grid = grid_with_keys().await;
    let (ok, message) = run(node_client(&["job", &grid.url()])).await;
    assert!(!ok && message.contains("an API key is required"), "{message}");
    let (ok, message) = run(node_client(&["job", &format!("{}&token=wrong", grid.url())])).await;
    assert!(!ok && message.contains("unknown or revoked"), "{message}");
    assert!(message.contains("squall request "), "the client's call log names the request: {message}");
    let over_cdp = format!("http://{}/", grid.address);
    let (ok, message) = run(cdp_client(&["playwright", "job", &over_cdp])).await;
    assert!(!ok && message.contains("an API key is required"), "{message}");
    let blue = HoldingClient::connect(&url_of(&grid, "blue"), "page").await;
    let id = grid.store.snapshot().await.unwrap().sessions[0].id.to_string();
    let list = |key: &str| format!("/v1/sessions?token={key}-secret");
    assert_eq!(get(grid.address, &list("red")).await.json()["sessions"], serde_json::json!([]));
    assert_eq!(get(grid.address, &list("root")).await.json()["sessions"][0]["id"], id.as_str());
    let request = |method: &str, path: &str, key: &str| {
        format!("{method} {path} HTTP/1.1\nHost: grid\nAuthorization: Bearer {key}-secret\nConnection: close")
    };
    let path = format!("/v1/sessions/{id}");
    assert_eq!(send(grid.address, &request("DELETE", &path, "red")).await.status, 404);
    assert_eq!(send(grid.address, &request("POST", "/v1/workers/w1/drain", "red")).await.status, 403);
    assert_eq!(send(grid.address, &request("GET", "/metrics", "red")).await.status, 403);
    assert_eq!(send(grid.address, &request("DELETE", &path, "blue")).await.status, 204);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    blue.close().await;
    grid.end().await;
}

#[tokio::test]
async fn page_reaches_neither_the_gateway_nor_the_server() {
    let grid = Grid::start(2).await;
    let endpoint = grid.store.snapshot().await.unwrap().workers[0].endpoint.clone();
    let gateway = endpoint.trim_start_matches("ws://").trim_end_matches('/').to_owned();
    let direct = send(gateway.parse().unwrap(), "GET /json HTTP/1.1\nHost: localhost").await;
    assert_eq!(direct.status, 403, "{}", direct.text);
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    for target in [endpoint, grid.url()] {
        let attack = format!(
            "new Promise(done => {{ const s = new WebSocket('{target}'); s.onopen = () => done('open'); s.onerror = () => done('refused'); }})"
        );
        assert_eq!(client.evaluate(&attack).await, "refused", "{target}");
    }
    client.close().await;
    grid.end().await;
}

#[tokio::test]
async fn client_that_ends_its_browser_over_cdp_ends_no_session_of_another_key() {
    let grid = grid_with_keys().await;
    let mut blue = HoldingClient::connect(&url_of(&grid, "blue"), "of-blue").await;
    assert_eq!(run(node_client(&["quit", &url_of(&grid, "red")])).await, (true, "closed".to_owned()));
    let one_left = |snapshot: &squall_coord::SlotSnapshot| snapshot.sessions.len() == 1;
    grid.wait_for("end of the other session", one_left).await;
    assert_eq!(blue.evaluate("document.title").await, "of-blue");
    blue.close().await;
    grid.end().await;
}
