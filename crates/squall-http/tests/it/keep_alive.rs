//! When connections are kept, replaced and dropped.

use squall_http::{BodyMode, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, get, get_hastily};

/// Codes of `count` requests by one user.
async fn codes(session: &mut Session, request: &squall_http::PreparedRequest, count: usize) -> Vec<String> {
    let mut codes = Vec::new();
    for _ in 0..count {
        let exchange = session.send(request, BodyMode::Discard).await;
        codes.push(match exchange.result {
            Ok(response) => response.status.to_string(),
            Err(error) => error.code().to_owned(),
        });
    }
    codes
}

#[tokio::test]
async fn an_abandoned_exchange_reports_its_bytes() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::respond("x"),
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 2"),
        ServerStep::Hang,
    ]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(session.close_abandoned(), (0, 0), "nothing was abandoned");
    let arrived = async {
        while server.requests() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = session.send(&request, BodyMode::Discard) => panic!("the answer never ends"),
        () = arrived => {}
    }
    let (bytes_in, bytes_out) = session.close_abandoned();
    assert_eq!(bytes_out, request.as_bytes().len() as u64);
    assert!(bytes_in <= "HTTP/1.1 2".len() as u64);
    assert_eq!(session.close_abandoned(), (0, 0), "it is told once");
}

#[tokio::test]
async fn without_keep_alive_every_request_opens_a_connection() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Restart]);
    let connector = connector(|config| config.keep_alive = false);
    let request = get(&connector, &server.url("/"));
    assert_eq!(codes(&mut Session::new(&connector), &request, 3).await, ["200", "200", "200"]);
    assert_eq!(server.connections(), 3);
    assert!(server.last_request().contains("\r\nConnection: close\r\n"));
}

#[tokio::test]
async fn connection_close_in_a_request_ends_its_connection() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Restart]);
    let connector = connector(|_| {});
    let mut request = squall_http::HttpRequest::get(&server.url("/")).expect("a URL");
    request.headers.push(("connection".into(), "Close".into()));
    let request = squall_http::PreparedRequest::new(&request, &connector).expect("a valid request");
    assert_eq!(codes(&mut Session::new(&connector), &request, 2).await, ["200", "200"]);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn connection_close_in_a_response_fails_no_later_request() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx";
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(response), ServerStep::Close]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    assert_eq!(codes(&mut Session::new(&connector), &request, 3).await, ["200", "200", "200"]);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_connection_closed_before_writing_is_replaced() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::respond("x"),
        ServerStep::Read,
        ServerStep::respond("x"),
        ServerStep::Close,
    ]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    for round in 0..3 {
        assert_eq!(codes(&mut session, &request, 2).await, ["200", "200"], "round {round}");
        server.wait_until_closed(round + 1);
        // On loopback the close has already arrived; one turn of the runtime's driver notices it.
        tokio::task::yield_now().await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_close_after_writing_is_an_error_and_is_not_retried() {
    let server =
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Read, ServerStep::Close]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    assert_eq!(codes(&mut session, &request, 4).await, ["200", "CLOSED", "200", "CLOSED"]);
    assert_eq!((server.connections(), server.requests()), (2, 4));
}

#[tokio::test]
async fn unrequested_bytes_are_never_taken_for_the_next_response() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 500 Evil\r\nContent-Length: 0\r\n\r\n";
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(response), ServerStep::Restart]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    assert_eq!(codes(&mut Session::new(&connector), &request, 3).await, ["200", "200", "200"]);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_failed_exchange_drops_its_connection() {
    let server =
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Read, ServerStep::Hang]);
    let connector = connector(|_| {});
    let patient = get(&connector, &server.url("/"));
    let hasty = get_hastily(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        assert_eq!(codes(&mut session, &patient, 1).await, ["200"]);
        assert_eq!(codes(&mut session, &hasty, 1).await, ["TIMEOUT"]);
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_abandoned_response_is_never_read_by_the_next_request() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::respond("first"),
        ServerStep::Read,
        ServerStep::respond("other"),
        ServerStep::Hang,
    ]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    assert_eq!(codes(&mut session, &request, 1).await, ["200"]);
    {
        let abandoned = session.send(&request, BodyMode::Keep);
        let mut abandoned = std::pin::pin!(abandoned);
        std::future::poll_fn(|cx| {
            assert!(abandoned.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    }
    let exchange = session.send(&request, BodyMode::Keep).await;
    assert!(exchange.new_connection);
    assert_eq!(exchange.result.expect("a response").body(), b"first");
}

#[tokio::test]
async fn a_closed_session_connects_again() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Restart]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    codes(&mut session, &request, 2).await;
    session.close();
    session.trim();
    codes(&mut session, &request, 2).await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn each_origin_has_its_own_connection() {
    let servers =
        [0, 1].map(|_| ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Restart]));
    let connector = connector(|_| {});
    let mut session = Session::new(&connector);
    for server in servers.iter().cycle().take(6) {
        codes(&mut session, &get(&connector, &server.url("/")), 1).await;
    }
    assert_eq!(servers.map(|server| (server.connections(), server.requests())), [(1, 3), (1, 3)]);
}
