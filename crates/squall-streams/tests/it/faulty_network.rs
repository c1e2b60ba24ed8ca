//! A connection to the server that loses responses.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use squall_streams::{Namespace, StreamApp};
use squall_testkit::redis::RedisServer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    order_checker::{EventLog, check_at_least_once},
    support::{
        Order, RunningWorker, app, fast_settings, orders, pending_count, recording_processor, send, stream,
        wait_processed,
    },
};

/// Forwards to the server. Drops every `every`-th response and closes its connection.
pub(crate) async fn response_dropping_proxy(port: u16, every: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().port();
    let responses = Arc::new(AtomicU64::new(0));
    tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let responses = responses.clone();
            connections.spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mut up, mut down) = ([0; 65536], [0; 65536]);
                loop {
                    tokio::select! {
                        read = client.read(&mut up) => match read {
                            Ok(count) if count > 0 => server.write_all(&up[..count]).await.unwrap(),
                            _ => return,
                        },
                        read = server.read(&mut down) => match read {
                            Ok(count) if count > 0 && !(responses.fetch_add(1, SeqCst) + 1).is_multiple_of(every) => {
                                if client.write_all(&down[..count]).await.is_err() { return; }
                            }
                            _ => return,
                        },
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_with_lost_responses_keeps_order() {
    let server = RedisServer::start();
    let direct_app = app(&server).await;
    let stream = stream(&direct_app, 4).await;
    let port = response_dropping_proxy(server.port(), 6).await;
    let url = format!("redis://127.0.0.1:{port}/");
    let faulty_app = StreamApp::connect_in("shop", &url, Namespace::new("").unwrap()).await.unwrap();
    let faulty_stream = loop {
        // `open` does not retry, and the proxy may have closed the connection.
        let stream = faulty_app.stream::<Order>("orders").partition_by("order_id").partitions(4);
        if let Ok(stream) = stream.open().await {
            break stream;
        }
    };
    let log = EventLog::default();
    let worker = RunningWorker::start(&faulty_app, recording_processor(&faulty_stream, &log).settings(fast_settings()));
    let mut sent = Vec::new();
    for chunk in orders(3000).chunks(30) {
        sent.extend(send(&stream, chunk).await);
    }
    wait_processed(&log, sent.len()).await;
    worker.stop().await.unwrap();
    check_at_least_once(&log.all(), &sent);
    assert_eq!(pending_count(&direct_app, &stream, "recorder").await, 0);
}
