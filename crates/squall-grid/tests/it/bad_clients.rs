//! Clients that vanish, do not read or promise too much cost the grid nothing.

use std::{net::SocketAddr, time::Duration};

use squall_coord::MemorySlotStore;
use squall_grid::ServerConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{DEADLINE, Grid, node_client, run, server_config, worker_config};

const UPGRADE: &str = "GET /?browser=chromium HTTP/1.1\r\nHost: grid\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

async fn ask(address: SocketAddr) -> TcpStream {
    ask_with(address, "").await
}

async fn ask_with(address: SocketAddr, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{UPGRADE}{headers}\r\n").as_bytes()).await.unwrap();
    stream
}

/// A client with an open session.
async fn connected(address: SocketAddr) -> TcpStream {
    accepted(ask(address).await).await
}

async fn accepted(mut stream: TcpStream) -> TcpStream {
    let mut head = [0; 12];
    tokio::time::timeout(DEADLINE, stream.read_exact(&mut head)).await.expect("an answer").unwrap();
    assert_eq!(String::from_utf8_lossy(&head), "HTTP/1.1 101");
    stream
}

async fn check_recovered(grid: Grid<MemorySlotStore>) {
    grid.wait_for("end of all", |snapshot| snapshot.sessions.is_empty() && snapshot.waiting.is_empty()).await;
    assert_eq!(run(node_client(&["job", &grid.url()])).await, (true, "squall".to_owned()));
    grid.end().await;
}

#[tokio::test]
async fn two_hundred_vanishing_clients_leave_nothing() {
    let config = ServerConfig { queue_limit: 300, ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 2)).await;
    let mut clients = Vec::new();
    for _ in 0..200 {
        clients.push(ask(grid.address).await);
    }
    grid.wait_for("full queue", |snapshot| snapshot.sessions.len() == 2 && snapshot.waiting.len() == 198).await;
    drop(clients);
    check_recovered(grid).await;
}

/// The server adds headers of its own to those that it passes on, and a worker that refuses them must not
/// be taken for lost.
#[tokio::test]
async fn client_with_as_many_headers_as_it_may_have_gets_a_session() {
    let grid = Grid::start(1).await;
    let more = 64 - (UPGRADE.lines().count() - 1);
    let headers: String = (0..more).map(|number| format!("x-playwright-{number}: {}\r\n", "x".repeat(100))).collect();
    drop(accepted(ask_with(grid.address, &headers).await).await);
    assert!(!grid.snapshot().await.workers[0].unreachable);
    check_recovered(grid).await;
}

#[tokio::test]
async fn promise_of_a_huge_frame_ends_its_session_only() {
    let grid = Grid::start(1).await;
    let mut client = connected(grid.address).await;
    let mut frame = vec![0x81, 0xff];
    frame.extend((1u64 << 62).to_be_bytes());
    frame.extend([0; 4]);
    client.write_all(&frame).await.unwrap();
    // Playwright's server refuses the length, and the close frame comes through.
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, client.read_to_end(&mut rest)).await.expect("an end").unwrap();
    assert!(rest.windows(2).any(|bytes| bytes == 1009u16.to_be_bytes()), "{rest:?}");
    check_recovered(grid).await;
}

#[tokio::test]
async fn junk_ends_its_session_with_a_protocol_error() {
    let grid = Grid::start(1).await;
    let mut client = connected(grid.address).await;
    client.write_all(&[0x8f; 64]).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, client.read_to_end(&mut rest)).await.expect("an end").unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("squall: the client broke the WebSocket protocol"), "{rest:?}");
    check_recovered(grid).await;
}

/// Between a client and the server; passes on the first MiB that the server sends, and then reads no more.
async fn start_slow_reader(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
        let mut beginning = from_server.take(1 << 20);
        let _ = tokio::join!(
            tokio::io::copy(&mut from_client, &mut to_server),
            tokio::io::copy(&mut beginning, &mut to_client),
        );
    });
    address
}

/// The client is alive, but the pings of the server wait behind what it does not read.
#[tokio::test]
async fn client_that_does_not_read_is_given_up_and_frees_its_slot() {
    let (ping_after, lost_after) = (Duration::from_secs(1), Duration::from_secs(5));
    let config = ServerConfig { compression: false, ping_after, lost_after, ..server_config() };
    let grid = Grid::start_with(MemorySlotStore::new(), config, worker_config("w1", 1)).await;
    let slow = start_slow_reader(grid.address).await;
    let mut client = node_client(&["large", &format!("ws://{slow}/")]).spawn().unwrap();
    grid.wait_for("session", |snapshot| snapshot.sessions.len() == 1).await;
    grid.wait_for("end of the session", |snapshot| snapshot.sessions.is_empty()).await;
    assert!(client.try_wait().unwrap().is_none(), "it waits for the rest of the answer");
    client.kill().await.unwrap();
    check_recovered(grid).await;
}
