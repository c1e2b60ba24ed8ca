//! Stock clients get pages, wait for slots, and share workers.

use futures_util::{SinkExt, StreamExt};
use squall_coord::{MemorySlotStore, RedisClient, RedisSlotStore, SlotStore, SlotWorkerId};
use squall_grid::{GridWorkerConfig, ServerConfig};
use squall_testkit::redis::RedisServer;
use std::path::Path;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{
    Grid, HoldingClient, cdp_client, get, node_client, python_client, run, server_config, start_worker, worker_config,
};

#[tokio::test]
async fn node_and_python_clients_get_a_page() {
    let grid = Grid::start(2).await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert_eq!(run(python_client(&grid.url())).await, (true, "squall".to_owned()));
    let http = format!("http://{}/?browser=chromium", grid.address);
    assert_eq!(run(node_client(&["job", &http])).await, (true, "squall".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    assert_eq!(grid.store.snapshot().await.unwrap().workers[0].lifetime, 3);
    grid.end().await;
}

/// The other tests use the headless shell, which is four times as fast.
#[tokio::test]
async fn full_chromium_serves_playwright_and_cdp_clients() {
    let executable = Some("/usr/lib/chromium/chromium".into());
    let config = GridWorkerConfig { executable, ..worker_config("w1", 2) };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    let url = format!("ws://{}/devtools/browser", grid.address);
    assert_eq!(run(cdp_client(&["puppeteer", "job", &url, "page"])).await, (true, "page".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

/// Client and browser compress messages of this size, unless the server forbids it.
#[tokio::test]
async fn large_messages_pass_compressed_and_plain() {
    let mut bytes = Vec::new();
    for compression in [true, false] {
        let config = ServerConfig { compression, ..server_config() };
        let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
        assert_eq!(run(node_client(&["large", &grid.url()])).await, (true, "8000000".to_owned()));
        grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
        let metrics = get(grid.address, "/metrics").await.text;
        let down = metrics.lines().find_map(|line| line.strip_prefix("squall_grid_bytes_down_total ")).unwrap();
        bytes.push(down.parse::<u64>().unwrap());
        grid.end().await;
    }
    assert!(bytes[0] < 1_000_000 && bytes[1] > 8_000_000, "{bytes:?}");
}

#[tokio::test]
async fn client_waits_until_a_slot_is_free() {
    let grid = Grid::start(1).await;
    let first = HoldingClient::connect(&grid.url(), "first").await;
    let mut second = HoldingClient::start(&grid.url(), "second");
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    let capacity = get(grid.address, "/v1/capacity").await.json();
    assert_eq!(capacity["browsers"][0]["available_slots"], 0);
    assert_eq!(capacity["queued"], 1);
    let waited = capacity["queue_oldest_ms"].as_u64().unwrap();
    assert_eq!(capacity["browsers"][0]["queue_oldest_ms"], waited);
    grid.wait_for("longer wait", |snapshot| snapshot.queue_oldest_ms["chromium"] > waited).await;
    first.close().await;
    assert_eq!(second.line().await, "connected");
    let capacity = get(grid.address, "/v1/capacity").await.json();
    assert_eq!(capacity["queue_oldest_ms"], 0);
    assert!(capacity["queue_wait_p95_ms"].as_u64().unwrap() >= waited.max(1), "{capacity}");
    let metrics = get(grid.address, "/metrics").await.text;
    assert!(metrics.contains("squall_grid_queue_wait_seconds_count 2"), "{metrics}");
    assert_eq!(second.evaluate("document.title").await, "second");
    second.close().await;
    grid.end().await;
}

#[tokio::test]
async fn client_that_leaves_while_it_waits_frees_its_place() {
    let grid = Grid::start(1).await;
    let first = HoldingClient::connect(&grid.url(), "first").await;
    let mut second = HoldingClient::start(&grid.url(), "second");
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    second.child.kill().await.unwrap();
    grid.wait_for("empty queue", |snapshot| snapshot.waiting.is_empty()).await;
    first.close().await;
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn draining_server_refuses_waiting_clients_and_ends_sessions_with_a_reason() {
    let grid = Grid::start(1).await;
    let mut first = HoldingClient::connect(&grid.url(), "first").await;
    let mut second = HoldingClient::start(&grid.url(), "second");
    grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
    grid.stop.cancel();
    let message = second.line().await;
    assert!(message.contains("the server is shutting down"), "{message}");
    let message = first.evaluate("1 + 1").await;
    assert!(message.contains("squall: the server was shut down"), "{message}");
    first.close().await;
    grid.end().await;
}

#[tokio::test]
async fn browser_is_recycled_without_a_failed_session() {
    let mut config = worker_config("w1", 2);
    config.rules.recycle_after = 2;
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    for _ in 0..7 {
        assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    }
    grid.end().await;
}

#[tokio::test]
async fn sessions_at_the_same_time_do_not_notice_that_browsers_are_recycled() {
    let mut config = worker_config("w1", 4);
    config.rules.recycle_after = 5;
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    assert_eq!(run(node_client(&["many", &grid.url(), "40"])).await, (true, "0 failed".to_owned()));
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    assert_eq!(grid.snapshot().await.workers[0].lifetime, 40);
    grid.end().await;
}

#[tokio::test]
async fn drained_worker_finishes_its_session_and_leaves() {
    let grid = Grid::start(1).await;
    let mut client = HoldingClient::connect(&grid.url(), "page").await;
    // Many programs encode the colon.
    for (id, status) in [("w2", 404), ("chromium%3Aw1", 202), ("chromium:w1", 202), ("w1", 202)] {
        let response = crate::support::post(grid.address, &format!("/v1/workers/{id}/drain"), "").await;
        assert_eq!(response.status, status, "{id}: {}", response.text);
    }
    let other = start_worker(&grid.store, worker_config("w2", 1));
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert_eq!(client.evaluate("1 + 1").await, "2");
    client.close().await;
    tokio::time::timeout(crate::support::DEADLINE, grid.worker.task).await.unwrap().unwrap().unwrap();
    let snapshot = grid.store.snapshot().await.unwrap();
    let workers: Vec<String> = snapshot.workers.iter().map(|view| view.worker.to_string()).collect();
    assert_eq!(workers, ["chromium:w2"]);
    other.drain.cancel();
    other.task.await.unwrap().unwrap();
}

/// Debian has neither browser, so a stand-in takes their place: this shows the way of a session, not that
/// the browsers work.
#[tokio::test]
async fn stand_ins_for_firefox_and_webkit_are_reached_by_their_names() {
    for browser in ["firefox", "webkit"] {
        let config = GridWorkerConfig {
            id: SlotWorkerId::new(browser, "w1").unwrap(),
            executable: None,
            playwright: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stand_in")],
            ..worker_config("w1", 1)
        };
        let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
        let url = format!("ws://{}/?browser={browser}", grid.address);
        let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
        let (mut client, _) = tokio_tungstenite::client_async(&url, stream).await.unwrap();
        client.send(Message::text(browser)).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text(browser));
        let cdp = crate::support::get(grid.address, "/devtools/browser?browser=firefox").await;
        assert_eq!(cdp.status, 426);
        drop(client);
        grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
        grid.end().await;
    }
}

#[tokio::test]
async fn grid_on_redis_heals_after_the_data_is_lost() {
    let redis = RedisServer::start();
    let client = RedisClient::open(&redis.url()).await.unwrap();
    let store = RedisSlotStore::new(&client, "squall-grid:{test}:");
    let grid = Grid::start_with(store, server_config(), worker_config("w1", 2)).await;
    let mut held = HoldingClient::connect(&grid.url(), "held").await;
    grid.wait_for("held session", |snapshot| snapshot.sessions.iter().any(|session| session.held)).await;
    redis_flush(&client).await;
    grid.wait_for("adopted session", |snapshot| snapshot.sessions.len() == 1 && snapshot.workers[0].active == 1).await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    assert_eq!(held.evaluate("document.title").await, "held");
    held.close().await;
    grid.end().await;
}

async fn redis_flush(client: &RedisClient) {
    redis::cmd("FLUSHALL").query_async(&mut client.connection()).await.unwrap()
}
