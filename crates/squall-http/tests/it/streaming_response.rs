//! Streamed responses: decoded while they arrive, with the user's cookies, always over HTTP/1.1.

use std::future::poll_fn;

use squall_http::{
    BodyMode, Connector, Cookies, HttpVersion, PreparedRequest, Session, StreamOpener, StreamingResponse,
};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};
use squall_testkit::tls::{self, CertificateAuthority, CertificateValidity};

use crate::codings::{brotli, gzip, raw_deflate, zlib};
use crate::{connector, get};

const TEXT: &str = "squall squall squall squall squall squall";

/// Sends this body byte by byte.
fn dripping(coding: &str, body: &[u8]) -> ScriptedServer {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", body.len());
    let mut pieces = vec![head.into_bytes()];
    pieces.extend(body.iter().map(|&byte| vec![byte]));
    ScriptedServer::start(vec![ServerStep::Read, ServerStep::SendPieces(pieces), ServerStep::Hang])
}

async fn open(connector: &Connector, request: &PreparedRequest, cookies: &Cookies) -> StreamingResponse {
    let mut opener = StreamOpener::new(connector, cookies.clone());
    opener.send(request).await.result.expect("a head");
    opener.into_response().expect("the response of a head")
}

async fn piece(answer: &mut StreamingResponse) -> Result<Option<Vec<u8>>, String> {
    poll_fn(|cx| answer.poll_chunk(cx)).await.map_err(|error| error.code().to_owned())
}

async fn whole(server: &ScriptedServer, limit: usize) -> Result<String, String> {
    let connector = connector(|config| config.max_body_bytes = limit);
    let request = get(&connector, &server.url("/"));
    let mut answer = open(&connector, &request, &Cookies::default()).await;
    let mut read = Vec::new();
    while let Some(piece) = piece(&mut answer).await? {
        read.extend(piece);
    }
    Ok(String::from_utf8(read).expect("a text"))
}

#[tokio::test]
async fn every_coding_is_decoded_while_the_body_arrives() {
    let zstd = zstd::encode_all(TEXT.as_bytes(), 3).expect("memory");
    for (coding, body) in [
        ("gzip", gzip(TEXT.as_bytes())),
        ("deflate", zlib(TEXT.as_bytes())),
        ("deflate", raw_deflate(TEXT.as_bytes())),
        ("br", brotli(TEXT.as_bytes())),
        ("zstd", zstd),
        ("identity", TEXT.as_bytes().to_vec()),
    ] {
        assert_eq!(whole(&dripping(coding, &body), 1000).await.as_deref(), Ok(TEXT), "{coding}");
        if coding != "identity" {
            let cut = &body[..body.len() - 1];
            assert_eq!(whole(&dripping(coding, cut), 1000).await, Err("BAD_ENCODING".into()), "{coding}, cut off");
            assert_eq!(whole(&dripping(coding, b"plain"), 1000).await, Err("BAD_ENCODING".into()), "not {coding}");
        }
    }
    assert_eq!(whole(&dripping("gzip", b""), 1000).await.as_deref(), Ok(""));
}

#[tokio::test]
async fn flushed_bytes_are_returned_before_the_rest_arrives() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"data: 1\n\n").and_then(|()| encoder.flush()).expect("memory");
    let mut first = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n".to_vec();
    first.extend_from_slice(encoder.get_ref());
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::Send(first), ServerStep::Hang]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut answer = open(&connector, &request, &Cookies::default()).await;
    assert_eq!(piece(&mut answer).await, Ok(Some(b"data: 1\n\n".to_vec())));
}

#[tokio::test]
async fn a_streamed_body_may_exceed_the_body_limit_but_a_decoded_chunk_may_not() {
    assert_eq!(whole(&dripping("identity", TEXT.as_bytes()), 10).await.as_deref(), Ok(TEXT));
    let zeros = vec![0; 10_000_000];
    let zstd = zstd::encode_all(&zeros[..], 3).expect("memory");
    for (coding, body) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros)), ("zstd", zstd)] {
        let mut response = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n").into_bytes();
        response.extend(body);
        let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::Send(response), ServerStep::Close]);
        assert_eq!(whole(&server, 100_000).await, Err("BODY_TOO_LARGE".into()), "{coding}");
    }
}

#[tokio::test]
async fn streams_share_the_cookies_of_their_user() {
    let answer = "HTTP/1.1 200 OK\r\nSet-Cookie: from=stream\r\nContent-Length: 0\r\n\r\n";
    let streaming = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(answer), ServerStep::Hang]);
    let connector = connector(|_| {});
    let mut session = Session::new(&connector);
    let other = Session::with_cookies(&connector, session.cookies().clone());
    let request = get(&connector, &streaming.url("/"));
    open(&connector, &request, session.cookies()).await;
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert!(streaming.last_request().contains("\r\nCookie: from=stream\r\n"));
    let live = open(&connector, &request, session.cookies()).await;
    assert!(streaming.last_request().contains("\r\nCookie: from=stream\r\n"));
    assert_eq!(live.sent(), streaming.last_request().len() as u64);

    open(&connector, &request, other.cookies()).await;
    assert!(streaming.last_request().contains("\r\nCookie: from=stream\r\n"), "they are the same cookies");
}

#[tokio::test]
async fn bytes_after_the_response_go_to_the_upgraded_protocol() {
    use tokio::io::AsyncReadExt;
    let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nfirst";
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(answer), ServerStep::Close]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let answer = open(&connector, &request, &Cookies::default()).await;
    assert_eq!(answer.status(), 101);
    let (mut stream, mut read) = answer.into_upgraded();
    stream.read_to_end(&mut read).await.expect("bytes");
    assert_eq!(read, b"first");
}

#[tokio::test]
async fn streams_use_http1_even_if_the_server_prefers_http2() {
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["localhost"], CertificateValidity::Current);
    let config = CertificateAuthority::server_config(&identity, None, &["h2", "http/1.1"]);
    let script = vec![ServerStep::Read, ServerStep::respond("hello"), ServerStep::Hang];
    let server = ScriptedServer::start_with(script, tls::wrap_tls(config));
    for version in [HttpVersion::Auto, HttpVersion::Http1, HttpVersion::Http2] {
        let connector = connector(|config| {
            config.version = version;
            config.tls.ca = Some(authority.ca_file());
        });
        let request = get(&connector, &format!("https://localhost:{}/", server.address().port()));
        let mut answer = open(&connector, &request, &Cookies::default()).await;
        assert_eq!(piece(&mut answer).await, Ok(Some(b"hello".to_vec())), "{version:?}");
    }
}

#[tokio::test]
async fn failed_opening_has_its_bytes_and_phases() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send("HTTP/1.1 200"), ServerStep::Close]);
    let connector = connector(|config| config.record_phases = true);
    let request = get(&connector, &server.url("/"));
    let mut opener = StreamOpener::new(&connector, Cookies::default());
    let exchange = opener.send(&request).await;
    assert!(exchange.result.is_err());
    assert_eq!((exchange.bytes_in, exchange.bytes_out), (12, server.last_request().len() as u64));
    assert!(exchange.phases.is_some_and(|phases| !phases.connect.is_zero() && !phases.first_byte.is_zero()));
    assert!(opener.into_response().is_none());
}
