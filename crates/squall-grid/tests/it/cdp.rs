//! CDP clients get a browser of their own, and come back to it.

use rustix::process::{Signal, kill_process};
use squall_coord::{ApiKeyScope, MemorySlotStore, SlotSnapshot, SlotStore};
use squall_grid::{ApiKey, GridWorkerConfig, KeyLimits};
use std::{path::Path, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    recovery::{browsers, wait_for_no_browsers},
    support::{DEADLINE, Grid, HoldingClient, cdp_client, get, post, run, send, server_config, worker_config},
};

const LIBRARIES: [&str; 2] = ["puppeteer", "playwright"];

fn ok(text: &str) -> (bool, String) {
    (true, text.to_owned())
}

/// A worker whose browsers can be found among those of other tests.
fn marked_worker(slots: u32) -> (String, GridWorkerConfig) {
    let flag = format!("--squall-test={:x}", fastrand::u64(..));
    let config = GridWorkerConfig { args: vec![flag.clone()], ..worker_config("w1", slots) };
    (flag, config)
}

#[tokio::test]
async fn puppeteer_and_connect_over_cdp_get_a_browser_of_their_own() {
    let grid = Grid::start(2).await;
    let version = get(grid.address, "/json/version/").await.json();
    assert_eq!(version["webSocketDebuggerUrl"], "ws://grid/devtools/browser");
    for library in LIBRARIES {
        let url = format!("ws://{}/devtools/browser", grid.address);
        assert_eq!(run(cdp_client(&[library, "job", &url, library])).await, ok(library));
        let http = format!("http://{}/", grid.address);
        assert_eq!(run(cdp_client(&[library, "titles", &http])).await, ok(""), "no page of another session");
        assert_eq!(run(cdp_client(&[library, "large", &url])).await, ok("8000000"));
    }
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn client_comes_back_to_the_pages_that_it_left() {
    let (flag, config) = marked_worker(1);
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let pooled = browsers(&flag).len();
    for library in LIBRARIES {
        let reserved = post(grid.address, "/v1/sessions", r#"{"protocol": "cdp", "keep_alive": "10m"}"#).await;
        assert_eq!(reserved.status, 201, "{}", reserved.text);
        let (id, path) = {
            let body = reserved.json();
            let url = body["url"].as_str().unwrap().to_owned();
            (body["id"].as_str().unwrap().to_owned(), url.replace("ws://grid", ""))
        };
        let url = format!("ws://{}{path}", grid.address);
        for title in ["one", "two"] {
            assert_eq!(run(cdp_client(&[library, "leave", &url, title])).await, ok(title));
            grid.wait_for("detached session", |snapshot| snapshot.sessions[0].attachable).await;
        }
        assert_eq!(get(grid.address, &format!("/v1/sessions/{id}")).await.json()["status"], "detached");
        assert_eq!(run(cdp_client(&[library, "titles", &url])).await, ok("one two"));
        grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
        let gone = run(cdp_client(&[library, "job", &url])).await;
        assert!(!gone.0, "{gone:?}");
    }
    assert!(browsers(&flag).len() <= pooled + 1, "browsers of CDP sessions have ended");
    grid.end().await;
}

#[tokio::test]
async fn kept_session_ends_after_its_time_and_when_it_is_deleted() {
    let grid = Grid::start(1).await;
    let short = format!("ws://{}/devtools/browser?keep_alive=500ms", grid.address);
    assert_eq!(run(cdp_client(&["puppeteer", "leave", &short])).await, ok("squall"));
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    let long = format!("ws://{}/devtools/browser?keep_alive=1h", grid.address);
    assert_eq!(run(cdp_client(&["puppeteer", "leave", &long])).await, ok("squall"));
    grid.wait_for("detached session", |snapshot| snapshot.sessions.iter().any(|session| session.attachable)).await;
    let id = grid.snapshot().await.sessions[0].id.to_string();
    let delete = format!("DELETE /v1/sessions/{id} HTTP/1.1\nHost: grid\nConnection: close");
    assert_eq!(send(grid.address, &delete).await.status, 204);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn kept_sessions_of_a_revoked_key_end_with_and_without_a_client() {
    let (secret, stored) = ApiKey::generate("blue", ApiKeyScope::Client, KeyLimits::default(), 0);
    let store = MemorySlotStore::new();
    assert!(store.add_api_key(&stored).await.unwrap());
    let grid = Grid::start_with(store, server_config(), worker_config("w1", 2)).await;
    let url = format!("ws://{}/devtools/browser?keep_alive=1h&token={secret}", grid.address);
    assert_eq!(run(cdp_client(&["puppeteer", "leave", &url])).await, ok("squall"));
    grid.wait_for("detached session", |snapshot| snapshot.sessions.iter().any(|session| session.attachable)).await;
    let mut client = HoldingClient::connect_with(cdp_client(&["playwright", "hold", &url])).await;
    let both_held = |snapshot: &SlotSnapshot| snapshot.sessions.iter().filter(|session| session.held).count() == 2;
    grid.wait_for("held sessions", both_held).await;
    assert!(grid.store.revoke_api_key("blue").await.unwrap());
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    // The worker has ended them too: it could not drain otherwise.
    client.child.kill().await.unwrap();
    grid.end().await;
}

#[tokio::test]
async fn worker_without_a_program_for_cdp_stays_reachable() {
    let config = GridWorkerConfig {
        executable: None,
        playwright: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stand_in")],
        ..worker_config("w1", 1)
    };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let refused = send(grid.address, &format!("GET /devtools/browser HTTP/1.1\n{UPGRADE}")).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("worker w1 has no --executable, which CDP sessions need"), "{}", refused.text);
    assert!(!grid.snapshot().await.workers[0].unreachable);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    assert_eq!(grid.snapshot().await.workers[0].lifetime, 0);
    let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
    let (client, _) = tokio_tungstenite::client_async(grid.url(), stream).await.unwrap();
    drop(client);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn killed_and_stopped_cdp_browsers_end_their_session_with_a_reason() {
    let (flag, mut config) = marked_worker(1);
    config.probe_every = Duration::from_secs(2);
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    for signal in [Signal::KILL, Signal::STOP] {
        let url = format!("ws://{}/devtools/browser", grid.address);
        let mut client = HoldingClient::connect_with(cdp_client(&["playwright", "hold", &url])).await;
        let own = browsers(&flag).into_iter().filter(|pid| {
            let command =
                std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            command.contains("/c0/") || command.contains("/c1/")
        });
        for pid in own {
            kill_process(pid, signal).unwrap();
        }
        let message = client.evaluate("1 + 1").await;
        assert!(message.contains("closed") || message.contains("squall:"), "{message}");
        grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
        client.child.kill().await.unwrap();
    }
    grid.end().await;
    wait_for_no_browsers(&flag).await;
}

const UPGRADE: &str = "Host: grid\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

/// The worker offers once, because an offer makes it reachable again.
#[tokio::test]
async fn slot_of_a_cdp_session_serves_the_next_client_while_its_browser_ends() {
    let config = GridWorkerConfig { heartbeat: DEADLINE * 2, ttl: DEADLINE * 4, ..worker_config("w1", 1) };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let url = format!("ws://{}/devtools/browser", grid.address);
    for _ in 0..3 {
        let mut first = HoldingClient::connect_with(cdp_client(&["puppeteer", "hold", &url])).await;
        let next = tokio::spawn(run(cdp_client(&["puppeteer", "job", &url, "next"])));
        grid.wait_for("waiting client", |snapshot| snapshot.waiting.len() == 1).await;
        first.child.kill().await.unwrap();
        assert_eq!(next.await.unwrap(), ok("next"));
        assert!(!grid.snapshot().await.workers[0].unreachable);
        grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    }
    grid.worker.task.abort();
    grid.stop.cancel();
    grid.server.await.unwrap();
}

#[tokio::test]
async fn session_whose_browser_never_answered_is_no_session_of_the_worker() {
    let config = GridWorkerConfig {
        executable: Some("/bin/false".into()),
        playwright: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stand_in")],
        ..worker_config("w1", 1)
    };
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    let refused = send(grid.address, &format!("GET /devtools/browser HTTP/1.1\n{UPGRADE}")).await;
    assert_eq!(refused.status, 502, "{}", refused.text);
    grid.wait_for("offer", |snapshot| !snapshot.workers[0].unreachable).await;
    let snapshot = grid.snapshot().await;
    assert_eq!((snapshot.workers[0].lifetime, snapshot.workers[0].active), (0, 0));
    grid.end().await;
}

/// Reads a close frame: its code and its reason.
async fn read_close(stream: &mut tokio::net::TcpStream) -> (u16, String) {
    let mut close = [0; 4];
    tokio::time::timeout(DEADLINE, stream.read_exact(&mut close)).await.expect("a frame").unwrap();
    assert_eq!(close[0], 0x88);
    let mut reason = vec![0; usize::from(close[1]) - 2];
    stream.read_exact(&mut reason).await.unwrap();
    (u16::from_be_bytes([close[2], close[3]]), String::from_utf8(reason).unwrap())
}

#[tokio::test]
async fn cdp_session_ends_with_a_reason_when_its_browser_is_overdue() {
    let mut config = worker_config("w1", 2);
    (config.rules.max_age, config.rules.recycle_timeout) = (Duration::from_secs(1), Duration::ZERO);
    let grid = Grid::start_with(MemorySlotStore::new(), server_config(), config).await;
    for keep_alive in ["", "?keep_alive=1h"] {
        let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
        let url = format!("ws://{}/devtools/browser{keep_alive}", grid.address);
        let (client, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        let mut stream = client.into_inner();
        let (code, reason) = read_close(&mut stream).await;
        assert!(code == 1001 && reason.starts_with("squall: session "), "{code} {reason}");
        drop(stream);
    }
    let left = format!("ws://{}/devtools/browser?keep_alive=1h", grid.address);
    let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
    drop(tokio_tungstenite::client_async(left, stream).await.unwrap());
    grid.wait_for("end of the sessions", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}

#[tokio::test]
async fn message_that_is_too_large_ends_its_session_with_a_reason() {
    let grid = Grid::start(1).await;
    let stream = tokio::net::TcpStream::connect(grid.address).await.unwrap();
    let url = format!("ws://{}/devtools/browser", grid.address);
    let (client, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
    let mut stream = client.into_inner();
    // The header of a masked text frame of 65 MiB.
    let mut header = vec![0x81, 0xff];
    header.extend((65u64 << 20).to_be_bytes());
    header.extend([0; 4]);
    stream.write_all(&header).await.unwrap();
    let (code, reason) = read_close(&mut stream).await;
    assert!(code == 1009 && reason.starts_with("squall: a message is larger than 64 MiB"), "{code} {reason}");
    drop(stream);
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    grid.end().await;
}
