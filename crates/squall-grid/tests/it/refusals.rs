//! Bad requests get a status and a sentence that says what to do.

use std::time::Duration;

use squall_coord::{MemorySlotStore, SlotStore};
use squall_grid::ServerConfig;

use crate::support::{Grid, HoldingClient, get, node_client, run, send, server_config, worker_config};

const UPGRADE: &str = "Host: grid\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

async fn check(grid: &Grid<MemorySlotStore>, head: &str, status: u16, sentence: &str) {
    let response = send(grid.address, head).await;
    assert_eq!(response.status, status, "{head}: {}", response.text);
    assert!(response.text.contains(sentence), "{head}: {}", response.text);
}

#[tokio::test]
async fn bad_requests_are_refused_with_a_remedy() {
    let grid = Grid::start(1).await;
    let upgrade = |path: &str, more: &str| format!("GET {path} HTTP/1.1\n{UPGRADE}\n{more}");
    check(&grid, &upgrade("/?browser=opera", ""), 400, "unknown browser `opera`: use ?browser=chromium").await;
    check(&grid, "GET / HTTP/1.1\nHost: grid\nConnection: close", 426, "connect with a WebSocket").await;
    check(&grid, &upgrade("/", "Origin: http://evil.example"), 403, "web pages may not use the grid").await;
    check(&grid, &upgrade("/", "User-Agent: Playwright/1.50.2 (x64) node/20"), 428, "the client has Playwright 1.50")
        .await;
    check(
        &grid,
        &upgrade("/", "User-Agent: Playwright/1.50.2 (x64) node/20"),
        428,
        "chromium workers of this grid have 1.65",
    )
    .await;
    check(&grid, "GET /nowhere HTTP/1.1\nHost: grid\nConnection: close", 404, "nothing at this path").await;
    check(&grid, "PUT /v1/sessions HTTP/1.1\nHost: grid\nConnection: close", 405, "PUT is not allowed").await;
    check(&grid, "PUT /v1/sessions HTTP/1.1\nHost: grid\nConnection: close", 405, "allow: GET, POST").await;
    check(&grid, "GET /v1/workers/w1 HTTP/1.1\nHost: grid\nConnection: close", 404, "nothing at this path").await;
    check(&grid, "HEAD /readyz HTTP/1.1\nHost: grid\nConnection: close", 200, "").await;
    check(&grid, "GET /devtools/browser HTTP/1.1\nHost: grid\nConnection: close", 426, "puppeteer.connect").await;
    check(&grid, "DELETE /v1/sessions/none HTTP/1.1\nHost: grid\nConnection: close", 404, "no session none").await;
    check(&grid, &upgrade(&format!("/?x={}", "y".repeat(3000)), ""), 414, "longer than 2 KiB").await;
    for bytes in [10_000, 100_000, 1_000_000] {
        check(&grid, &upgrade("/", &format!("X-Large: {}", "x".repeat(bytes))), 431, "more than 8 KiB").await;
    }
    assert_eq!(send(grid.address, &upgrade("/", &format!("X-Large: {}", "x".repeat(2_000_000)))).await.status, 431);
    for count in [70, 1000] {
        let many: Vec<String> = (0..count).map(|number| format!("X-{number}: 1")).collect();
        check(&grid, &upgrade("/", &many.join("\n")), 431, "more than 64 headers").await;
    }
    let json = send(grid.address, "GET / HTTP/1.1\nHost: grid\nAccept: application/json\nConnection: close").await;
    assert_eq!(json.json()["error"]["code"], 426);
    assert_eq!(get(grid.address, "/json").await.json()["wsEndpointPath"], "/");
    assert_eq!(get(grid.address, "/healthz").await.status, 200);
    assert_eq!(get(grid.address, "/readyz").await.status, 200);
    let metrics = get(grid.address, "/metrics").await.text;
    assert!(metrics.contains("squall_grid_slots{browser=\"chromium\"} 1"), "{metrics}");
    assert!(metrics.contains("squall_grid_refused_total 1"), "{metrics}");
    let snapshot = grid.store.snapshot().await.unwrap();
    assert!(snapshot.sessions.is_empty() && snapshot.waiting.is_empty(), "no refusal claimed a slot");
    grid.end().await;
}

#[tokio::test]
async fn full_queue_and_deadline_are_told_to_the_client() {
    let config = ServerConfig { queue_limit: 1, queue_timeout: Duration::from_millis(2500), ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
    let first = HoldingClient::connect(&grid.url(), "first").await;
    let url = grid.url();
    let waiting = tokio::spawn(async move { run(node_client(&["job", &url])).await });
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    let (ok, message) = run(node_client(&["job", &grid.url()])).await;
    assert!(!ok && (message.contains("429") || message.contains("503")), "{message}");
    let (ok, message) = waiting.await.unwrap();
    assert!(!ok && message.contains("no chromium worker had a free slot within 2.5s"), "{message}");
    assert!(message.contains("squall session "), "the client's call log names its claim: {message}");
    let firefox = format!("GET /?browser=firefox HTTP/1.1\n{UPGRADE}");
    check(&grid, &firefox, 503, "start one with `squall grid worker --browser firefox`").await;
    first.close().await;
    grid.end().await;
}
