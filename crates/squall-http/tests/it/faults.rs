//! One misbehaving server for each failure: every failure has its own code and its real latency,
//! and the user stays usable.

use squall_http::{BodyMode, HttpConfig, HttpError, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep, refused_address};

use crate::{SHORT, connector, fetch, get, get_hastily};

#[track_caller]
fn check(script: Vec<ServerStep>, code: &str, category: &str) {
    check_with(script, |_| {}, code, category);
}

/// Fails with `code` twice in a row (the second time on a new connection), with a latency and a category.
#[track_caller]
fn check_with(script: Vec<ServerStep>, change: impl FnOnce(&mut HttpConfig), code: &str, category: &str) {
    let server = ScriptedServer::start(script);
    let connector = connector(change);
    let request = get(&connector, &server.url("/"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let failures: Vec<_> = runtime.block_on(async {
        let mut session = Session::new(&connector);
        let mut failures = Vec::new();
        for _ in 0..2 {
            let exchange = session.send(&request, BodyMode::Keep).await;
            assert!(exchange.new_connection && exchange.ended > exchange.started);
            let error = exchange.result.expect_err("a failure");
            failures.push((error.code(), error.category_name()));
        }
        failures
    });
    assert_eq!(failures, [(code, category); 2]);
}

/// Received bytes count even if they do not parse.
#[tokio::test]
async fn bytes_of_malformed_responses_are_counted() {
    for answer in [
        "garbage that is no HTTP\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    ] {
        let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(answer), ServerStep::Close]);
        let connector = connector(|_| {});
        let request = get(&connector, &server.url("/"));
        let mut session = Session::new(&connector);
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert!(exchange.result.is_err(), "{answer:?}");
        assert_eq!(exchange.bytes_in, answer.len() as u64, "{answer:?}");
    }
}

#[tokio::test]
async fn bytes_of_endless_headers_are_counted() {
    let script = vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\nX-Start: "),
        ServerStep::SendForever(vec![b'x'; 1000]),
    ];
    let server = ScriptedServer::start(script);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Keep).await;
    let limit = connector.config().max_head_bytes as u64;
    assert!(exchange.bytes_in > limit, "{} bytes, beyond the limit of {limit}", exchange.bytes_in);
    assert_eq!(exchange.result.expect_err("a failure").code(), "HEAD_TOO_LARGE");
}

#[tokio::test]
async fn a_refused_connection_is_connection_refused() {
    let address = refused_address();
    let connector = connector(|_| {});
    let request = get(&connector, &format!("http://{address}/"));
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Keep).await;
    assert!(exchange.new_connection && exchange.ended > exchange.started);
    let error = exchange.result.expect_err("a failure");
    assert_eq!(
        (error.code(), error.category_name(), error.is_unreachable()),
        ("CONNECT_REFUSED", "transport_error", true)
    );
    assert_eq!(error.to_string(), format!("{address} refused the connection"));
}

/// A label may have 63 bytes, so the resolver rejects this name without a DNS server.
#[tokio::test]
async fn an_unknown_name_is_a_dns_error() {
    let connector = connector(|_| {});
    let host = format!("{}.invalid", "x".repeat(64));
    let request = get(&connector, &format!("http://{host}/"));
    let mut session = Session::new(&connector);
    // The second lookup comes from the cache.
    for _ in 0..2 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert!(exchange.ended > exchange.started, "it has a latency");
        let error = exchange.result.expect_err("a failure");
        assert_eq!(
            (error.code(), error.category_name(), error.is_unreachable()),
            ("DNS_FAILURE", "transport_error", true)
        );
        assert!(error.to_string().starts_with(&format!("cannot resolve {host}: ")), "{error}");
    }
}

#[test]
fn a_reset_before_the_response_is_connection_reset() {
    check(vec![ServerStep::Read, ServerStep::Reset], "RESET", "transport_error");
}

#[test]
fn a_reset_in_the_head_is_connection_reset() {
    check(
        vec![ServerStep::Read, ServerStep::send("HTTP/1.1 200 OK\r\nConte"), ServerStep::Reset],
        "RESET",
        "transport_error",
    );
}

#[test]
fn a_reset_in_the_body_is_connection_reset() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    check(vec![ServerStep::Read, ServerStep::send(head), ServerStep::Reset], "RESET", "transport_error");
}

#[test]
fn a_close_before_the_response_is_connection_closed() {
    check(vec![ServerStep::Read, ServerStep::Close], "CLOSED", "transport_error");
}

#[test]
fn a_close_in_the_head_is_a_truncated_response() {
    check(
        vec![ServerStep::Read, ServerStep::send("HTTP/1.1 200 OK\r\nConte"), ServerStep::Close],
        "TRUNCATED",
        "transport_error",
    );
}

#[test]
fn a_close_in_the_body_is_a_truncated_response() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    check(vec![ServerStep::Read, ServerStep::send(head), ServerStep::Close], "TRUNCATED", "transport_error");
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc";
    check(vec![ServerStep::Read, ServerStep::send(head), ServerStep::Close], "TRUNCATED", "transport_error");
}

#[test]
fn a_malformed_status_line_is_a_malformed_response() {
    check(
        vec![ServerStep::Read, ServerStep::send("HTTP/1.1 two hundred\r\n\r\n"), ServerStep::Hang],
        "MALFORMED_RESPONSE",
        "protocol_error",
    );
    check(
        vec![ServerStep::Read, ServerStep::send("220 smtp.example ESMTP\r\n"), ServerStep::Hang],
        "MALFORMED_RESPONSE",
        "protocol_error",
    );
    check(
        vec![ServerStep::Read, ServerStep::Send(vec![0, 0, 0, 4, 0]), ServerStep::Close],
        "MALFORMED_RESPONSE",
        "protocol_error",
    );
}

#[test]
fn conflicting_lengths_are_a_malformed_response() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab";
    check(vec![ServerStep::Read, ServerStep::send(head), ServerStep::Hang], "MALFORMED_RESPONSE", "protocol_error");
}

#[test]
fn endless_headers_exceed_the_head_limit() {
    for line in ["X-Filler: on and on\r\n", "x"] {
        let script = vec![
            ServerStep::Read,
            ServerStep::send("HTTP/1.1 200 OK\r\nX-Start: "),
            ServerStep::SendForever(line.as_bytes().repeat(100)),
        ];
        check(script, "HEAD_TOO_LARGE", "protocol_error");
    }
}

#[test]
fn an_endless_body_exceeds_the_body_limit() {
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
        let part = if head.contains("chunked") { "4\r\nmore\r\n" } else { "more" };
        let script =
            vec![ServerStep::Read, ServerStep::send(head), ServerStep::SendForever(part.as_bytes().repeat(1000))];
        check_with(script, |config| config.max_body_bytes = 1_000_000, "BODY_TOO_LARGE", "protocol_error");
    }
}

#[test]
fn endless_body_within_limits_ends_with_the_timeout() {
    let script = vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\n\r\n"),
        ServerStep::SendForever(vec![b'x'; 10_000]),
    ];
    let server = ScriptedServer::start(script);
    let connector = connector(|config| {
        config.timeout = SHORT;
        config.max_body_bytes = usize::MAX;
    });
    let request = get(&connector, &server.url("/"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let code = runtime.block_on(async {
        let mut session = Session::new(&connector);
        session.send(&request, BodyMode::Discard).await.result.expect_err("a failure").code()
    });
    assert_eq!(code, "TIMEOUT");
}

#[test]
fn endless_interim_responses_end_with_the_timeout() {
    let script = vec![ServerStep::Read, ServerStep::SendForever(b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100))];
    check_with(script, |config| config.timeout = SHORT, "TIMEOUT", "timeout");
}

#[test]
fn a_silent_server_is_a_timeout() {
    check_with(vec![ServerStep::Read, ServerStep::Hang], |config| config.timeout = SHORT, "TIMEOUT", "timeout");
}

#[test]
fn a_slow_body_is_a_timeout() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc";
    check_with(
        vec![ServerStep::Read, ServerStep::send(head), ServerStep::Hang],
        |config| config.timeout = SHORT,
        "TIMEOUT",
        "timeout",
    );
}

#[tokio::test]
async fn a_request_may_have_its_own_timeout() {
    let server =
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("x"), ServerStep::Read, ServerStep::Hang]);
    let connector = connector(|_| {});
    let patient = get(&connector, &server.url("/"));
    let hasty = get_hastily(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    assert!(session.send(&patient, BodyMode::Discard).await.result.is_ok());
    let error = session.send(&hasty, BodyMode::Discard).await.result.expect_err("a failure");
    assert!(matches!(error, HttpError::Timeout { after } if after == SHORT));
}

#[tokio::test]
async fn a_connection_that_is_never_accepted_is_a_connect_timeout() {
    // A full accept queue drops further attempts, so connecting hangs.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).expect("a free port");
    listener.listen(0).expect("a listener");
    let address = listener.local_addr().expect("an address").as_socket().expect("an IP address");
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let filler = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        filler.set_nonblocking(true).expect("non-blocking");
        let _ = filler.connect(&address.into());
        fillers.push(filler);
    }
    let connector = connector(|config| config.connect_timeout = SHORT);
    assert_eq!(fetch(&connector, &format!("http://{address}/")).await, Err("CONNECT_TIMEOUT".into()));
}
