//! HTTP/1.1 exchanges: the bytes sent and the response read.

use bytes::Bytes;
use http::Method;
use proptest::prelude::*;
use squall_http::{BodyMode, HttpRequest, PreparedRequest, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, fetch, get, server};

#[tokio::test]
async fn a_response_is_read_and_its_connection_is_reused() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("hello"), ServerStep::Restart]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/a?b=c"));
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert_eq!(exchange.new_connection, round == 0);
        assert_eq!(exchange.bytes_out, request.as_bytes().len() as u64);
        assert_eq!(exchange.bytes_in, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".len() as u64);
        assert!(exchange.ended >= exchange.started);
        let response = exchange.result.expect("a response");
        assert_eq!((response.status, response.body()), (200, &b"hello"[..]));
        assert_eq!(response.header("content-LENGTH"), Some("5"));
    }
    assert_eq!((server.connections(), server.requests()), (1, 3));
    assert!(server.last_request().starts_with("GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"));
}

#[tokio::test]
async fn a_discarded_body_is_read_to_the_end_and_counted() {
    let server =
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond(&"x".repeat(300_000)), ServerStep::Restart]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        let exchange = session.send(&request, BodyMode::Discard).await;
        assert_eq!(exchange.bytes_in, 300_000 + "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n".len() as u64);
        assert!(exchange.result.expect("a response").body().is_empty());
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_large_request_body_arrives_whole() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("ok"), ServerStep::Restart]);
    let connector = connector(|_| {});
    let mut request = HttpRequest::new(Method::POST, &server.url("/upload")).expect("a URL");
    request.body = Bytes::from(vec![b'y'; 5_000_000]);
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        let exchange = session.send(&request, BodyMode::Discard).await;
        assert_eq!(exchange.bytes_out, request.as_bytes().len() as u64);
        assert_eq!(exchange.result.expect("a response").status, 200);
    }
    assert!(server.last_request().ends_with(&"y".repeat(1000)));
    assert_eq!(server.last_request().len(), request.as_bytes().len());
}

#[tokio::test]
async fn a_response_before_the_upload_ends_is_accepted() {
    let refusal = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let server = ScriptedServer::start(vec![ServerStep::send(refusal), ServerStep::Hang]);
    let connector = connector(|_| {});
    let mut request = HttpRequest::new(Method::PUT, &server.url("/upload")).expect("a URL");
    request.body = Bytes::from(vec![b'y'; 50_000_000]);
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Discard).await;
    assert_eq!(exchange.result.expect("a response").status, 413);
}

#[tokio::test]
async fn interim_head_and_empty_responses_keep_the_connection_in_sync() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n"),
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        ServerStep::Read,
        ServerStep::respond("last"),
    ]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let head = PreparedRequest::new(&HttpRequest::new(Method::HEAD, &server.url("/")).expect("a URL"), &connector)
        .expect("a valid request");
    let mut session = Session::new(&connector);
    for (request, status) in [(&request, 204), (&request, 304), (&head, 200), (&request, 200)] {
        let exchange = session.send(request, BodyMode::Keep).await;
        assert_eq!(exchange.result.expect("a response").status, status);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn chunk_extensions_and_trailers_are_removed() {
    let server = server(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n",
    );
    assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Ok((200, "hello world".into())));
}

#[tokio::test]
async fn a_body_may_end_with_the_connection() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\n\r\nall there is"),
        ServerStep::Close,
    ]);
    assert_eq!(fetch(&connector(|_| {}), &server.url("/")).await, Ok((200, "all there is".into())));
}

#[test]
fn a_response_split_at_any_byte_reads_the_same_over_a_socket() {
    const RESPONSE: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n5\r\nhello\r\n6;z\r\n world\r\n0\r\n\r\n";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = ProptestConfig::with_cases(64);
    proptest!(config, |(cuts in prop::collection::btree_set(1..RESPONSE.len(), 0..8))| {
        let mut pieces = Vec::new();
        let mut from = 0;
        for at in cuts.into_iter().chain([RESPONSE.len()]) {
            pieces.push(RESPONSE[from..at].to_vec());
            from = at;
        }
        let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::SendPieces(pieces), ServerStep::Restart]);
        let fetched = runtime.block_on(fetch(&connector(|_| {}), &server.url("/")));
        prop_assert_eq!(fetched, Ok((200, "hello world".to_owned())));
    });
}
