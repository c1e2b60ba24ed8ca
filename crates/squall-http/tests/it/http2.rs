//! HTTP/2 over TLS and with prior knowledge, against h2's own server.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use squall_http::{BodyMode, HttpRequest, HttpVersion, PreparedRequest, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::{connector, fetch, get, get_hastily};

/// Answers `/echo` with the request body, `/cookie` with the cookies, `/reset` with a reset, `/first` only if it is
/// the first request of its connection, and hangs on `/hang`.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let (mut held, mut answered) = (Vec::new(), false);
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let (head, mut body) = request.into_parts();
        match head.uri.path() {
            "/reset" => respond.send_reset(h2::Reason::REFUSED_STREAM),
            "/first" if answered => respond.send_reset(h2::Reason::REFUSED_STREAM),
            "/hang" => held.push(respond),
            path => {
                let mut text = format!("{} {path} ", head.method).into_bytes();
                // The connection must be polled for data to arrive.
                let whole = async {
                    while let Some(Ok(part)) = body.data().await {
                        let _ = body.flow_control().release_capacity(part.len());
                        text.extend_from_slice(&part);
                    }
                };
                drive(&mut connection, whole).await;
                if path == "/cookie" {
                    let cookies = head.headers.get_all("cookie").iter().flat_map(|value| value.as_bytes().to_vec());
                    text.extend(cookies);
                }
                let answer = Response::builder().status(201).header("x-answer", "42").header("set-cookie", "id=7");
                let mut stream = respond.send_response(answer.body(()).expect("a response"), false).expect("a stream");
                let _ = stream.send_data(Bytes::from(text), true);
                answered = true;
            }
        }
    }
}

async fn drive<S, F>(connection: &mut h2::server::Connection<S, Bytes>, work: F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| {
        let _ = connection.poll_closed(cx);
        work.as_mut().poll(cx)
    })
    .await;
}

/// A server that lives as long as the test's runtime.
async fn start(tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match tls.clone() {
                None => tokio::spawn(serve(stream)),
                Some(acceptor) => tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream).await;
                    }
                }),
            };
        }
    });
    address
}

#[tokio::test]
async fn prior_knowledge_works_and_the_connection_is_reused() {
    let address = start(None).await;
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/a?b=c"));
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert_eq!(exchange.new_connection, round == 0);
        assert!(exchange.bytes_in > 0 && exchange.bytes_out > 0 && exchange.ended > exchange.started);
        let response = exchange.result.expect("a response");
        assert_eq!((response.status, response.body()), (201, &b"GET /a "[..]));
        assert_eq!(response.header("X-Answer"), Some("42"));
    }
}

#[tokio::test]
async fn http2_is_used_when_alpn_selects_it() {
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["127.0.0.1"], CertificateValidity::Current);
    let config = CertificateAuthority::server_config(&identity, None, &["h2", "http/1.1"]);
    let address = start(Some(TlsAcceptor::from(config))).await;
    for version in [HttpVersion::Auto, HttpVersion::Http2] {
        let connector = connector(|config| {
            config.version = version;
            config.tls.ca = Some(authority.ca_file());
        });
        let fetched = fetch(&connector, &format!("https://{address}/tls")).await;
        assert_eq!(fetched, Ok((201, "GET /tls ".into())), "{version:?}");
    }
}

#[tokio::test]
async fn large_bodies_arrive_whole_in_both_directions() {
    let address = start(None).await;
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let mut request = HttpRequest::new(Method::POST, &format!("http://{address}/echo")).expect("a URL");
    request.body = Bytes::from(vec![b'z'; 3_000_000]);
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert!(exchange.bytes_out > 3_000_000 && exchange.bytes_in > 3_000_000);
        assert_eq!(exchange.result.expect("a response").body().len(), 3_000_000 + "POST /echo ".len());
    }
}

#[tokio::test]
async fn cookies_work_as_over_http1() {
    let address = start(None).await;
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/cookie"));
    let mut session = Session::new(&connector);
    assert_eq!(session.send(&request, BodyMode::Keep).await.result.expect("a response").body(), b"GET /cookie ");
    assert_eq!(session.send(&request, BodyMode::Keep).await.result.expect("a response").body(), b"GET /cookie id=7");
}

/// RFC 9113, 8.7: the server has not processed the request, so the client sends it again on a new connection.
#[tokio::test]
async fn a_request_returned_unprocessed_is_sent_again() {
    let address = start(None).await;
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/first"));
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert!(exchange.new_connection, "{round}");
        assert_eq!(exchange.result.expect("a response").body(), b"GET /first ");
    }
}

/// Answers the first request of a connection and sends GOAWAY(NO_ERROR) for the second. The frames
/// are written by hand, because h2's server cannot do this.
async fn leave_after_one(mut stream: tokio::net::TcpStream) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await?;
        match (head[3], head[4] & 1, head[8]) {
            (4, 0, _) => stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await?,
            // HEADERS: `:status: 200` is 0x88 in HPACK; END_HEADERS and END_STREAM.
            (1, _, 1) => stream.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]).await?,
            (1, _, _) => {
                stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]).await?;
                return Ok(());
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn goaway_without_error_does_not_fail_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(leave_after_one(stream));
        }
    });
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/"));
    let mut session = Session::new(&connector);
    for round in 0..4 {
        let exchange = session.send(&request, BodyMode::Discard).await;
        assert!(exchange.new_connection, "{round}");
        assert_eq!(exchange.result.expect("a response").status, 200, "{round}");
    }
}

#[tokio::test]
async fn http2_failures_have_their_own_codes() {
    let address = start(None).await;
    let connector = connector(|config| {
        config.version = HttpVersion::Http2;
        config.max_body_bytes = 1000;
    });
    assert_eq!(fetch(&connector, &format!("http://{address}/reset")).await, Err("H2_REFUSED".into()));
    let hang = get_hastily(&connector, &format!("http://{address}/hang"));
    let mut hanging = Session::new(&connector);
    let error = hanging.send(&hang, BodyMode::Keep).await.result.expect_err("a failure");
    assert_eq!(error.code(), "TIMEOUT");
    let mut request = HttpRequest::new(Method::POST, &format!("http://{address}/echo")).expect("a URL");
    request.body = Bytes::from(vec![b'z'; 5000]);
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    let error = session.send(&request, BodyMode::Keep).await.result.expect_err("a failure");
    assert_eq!(error.code(), "BODY_TOO_LARGE");
}

#[tokio::test]
async fn an_http1_server_and_a_closed_connection_give_different_errors() {
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let old = ScriptedServer::start(vec![ServerStep::send("HTTP/1.1 400 Bad Request\r\n\r\n"), ServerStep::Hang]);
    let (request, mut session) = (get(&connector, &old.url("/")), Session::new(&connector));
    let error = session.send(&request, BodyMode::Discard).await.result.expect_err("a failure");
    assert_eq!(error.code(), "H2_ERROR");
    assert!(error.to_string().contains("the server answers in HTTP/1"), "{error}");
    let leaving = ScriptedServer::start(vec![ServerStep::Read, ServerStep::Close]);
    let code = fetch(&connector, &leaving.url("/")).await.expect_err("a failure");
    assert!(["CLOSED", "RESET"].contains(&code.as_str()), "{code}");
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let gone = Arc::new(tokio::sync::Notify::new());
    let told = gone.clone();
    let server = tokio::spawn(async move {
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut connection = h2::server::handshake(stream).await.expect("a greeting");
            let (_, mut respond) = connection.accept().await.expect("a request").expect("a stream");
            respond.send_response(Response::new(()), true).expect("a stream");
            connection.graceful_shutdown();
            while connection.accept().await.is_some() {}
            drop(connection);
            told.notify_one();
        }
    });
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/"));
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        let exchange = session.send(&request, BodyMode::Discard).await;
        assert!(exchange.new_connection);
        assert_eq!(exchange.result.expect("a response").status, 200);
        gone.notified().await;
    }
    server.await.expect("no panic");
}

/// A frame on stream 1 that ends no stream but ends its headers.
fn headers_frame(block: &[u8]) -> Vec<u8> {
    let length = u32::try_from(block.len()).expect("a short block").to_be_bytes();
    [&length[1..], &[1, 4, 0, 0, 0, 1], block].concat()
}

#[tokio::test]
async fn flood_of_interim_responses_is_refused_after_few_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        // `:status: 100` as a literal, and the entry of the static table for `accept-encoding: gzip, deflate`.
        let block = [&[0x08, 3][..], b"100", &[0x90; 500]].concat();
        let flood = headers_frame(&block).repeat(100);
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("the settings are read");
        // Ends when the client closes the connection.
        while stream.write_all(&flood).await.is_ok() {}
    });
    let connector = connector(|config| config.version = HttpVersion::Http2);
    let request = get(&connector, &format!("http://{address}/"));
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Keep).await;
    let bytes = exchange.bytes_in;
    let error = exchange.result.map(|response| response.status).expect_err("it never ends");
    assert!(error.to_string().contains("more than 64 interim responses (1xx)"), "{error}");
    assert!(bytes < 1 << 20, "{bytes} bytes were read");
}
