//! HTTPS: whom we trust, who we are, and how it fails.

use squall_http::{Body, HttpConfig, HttpVersion, Session};
use squall_testkit::hostile::{Hostile, Step};
use squall_testkit::tls::{Authority, Validity, wrap};

use crate::{connector, fetch, get};

/// An authority and a server for 127.0.0.1 that it vouches for.
struct Secure {
    authority: Authority,
    server: Hostile,
}

impl Secure {
    fn start(names: &[&str], validity: Validity, script: Vec<Step>) -> Secure {
        let authority = Authority::new();
        let identity = authority.issue(names, validity);
        let server = Hostile::start_with(script, wrap(Authority::server_config(&identity, None, &[])));
        Secure { authority, server }
    }

    fn hello() -> Secure {
        Secure::start(&["127.0.0.1"], Validity::Current, vec![Step::Read, Step::respond("hello"), Step::Again])
    }

    fn url(&self) -> String {
        format!("https://{}/", self.server.address())
    }

    async fn fetch(&self, change: impl FnOnce(&mut HttpConfig)) -> Result<(u16, String), String> {
        let connector = connector(|config| {
            config.tls.ca = Some(self.authority.ca_file());
            change(config);
        });
        fetch(&connector, &self.url()).await
    }
}

fn hello() -> Result<(u16, String), String> {
    Ok((200, "hello".into()))
}

fn failure() -> Result<(u16, String), String> {
    Err("TLS_FAILURE".into())
}

#[tokio::test]
async fn a_server_that_our_authority_vouches_for_is_trusted_and_kept() {
    let secure = Secure::hello();
    let connector = connector(|config| config.tls.ca = Some(secure.authority.ca_file()));
    let request = get(&connector, &secure.url());
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, Body::Keep).await;
        assert_eq!((exchange.new_connection, exchange.bytes_out), (round == 0, request.as_bytes().len() as u64));
        assert_eq!(exchange.result.expect("a response").body(), b"hello");
    }
    assert_eq!(secure.server.connections(), 1);
}

#[tokio::test]
async fn a_stranger_is_refused_unless_insecure() {
    let secure = Secure::hello();
    let other = Authority::new();
    assert_eq!(secure.fetch(|config| config.tls.ca = Some(other.ca_file())).await, failure());
    assert_eq!(secure.fetch(|config| config.tls.ca = None).await, failure());
    assert_eq!(
        secure
            .fetch(|config| {
                config.tls.ca = None;
                config.tls.insecure = true;
            })
            .await,
        hello()
    );
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let secure = Secure::start(&["127.0.0.1"], Validity::Expired, vec![Step::Read, Step::respond("hello")]);
    assert_eq!(secure.fetch(|_| {}).await, failure());
}

#[tokio::test]
async fn the_name_must_match_or_be_given() {
    let secure = Secure::start(&["shop.test"], Validity::Current, vec![Step::Read, Step::respond("hello")]);
    assert_eq!(secure.fetch(|_| {}).await, failure());
    assert_eq!(secure.fetch(|config| config.tls.server_name = Some("shop.test".into())).await, hello());
}

#[tokio::test]
async fn a_plain_text_port_is_a_tls_failure() {
    let server = Hostile::start(vec![Step::send("HTTP/1.1 400 Bad Request\r\n\r\n"), Step::Hang]);
    let connector = connector(|_| {});
    assert_eq!(fetch(&connector, &format!("https://{}/", server.address())).await, failure());
    let closing = Hostile::start(vec![Step::Close]);
    assert_eq!(fetch(&connector, &format!("https://{}/", closing.address())).await, failure());
}

#[tokio::test]
async fn a_handshake_that_never_ends_times_out() {
    let server = Hostile::start(vec![Step::Hang]);
    let connector = connector(|config| config.connect_timeout = crate::SHORT);
    assert_eq!(fetch(&connector, &format!("https://{}/", server.address())).await, Err("CONNECT_TIMEOUT".into()));
}

#[tokio::test]
async fn a_client_certificate_opens_the_door() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let identity = servers.issue(&["127.0.0.1"], Validity::Current);
    let config = Authority::server_config(&identity, Some(&clients), &[]);
    let server = Hostile::start_with(vec![Step::Read, Step::respond("hello")], wrap(config));
    let url = format!("https://{}/", server.address());
    let us = clients.issue(&["client"], Validity::Current);
    let known = connector(|config| {
        config.tls.ca = Some(servers.ca_file());
        config.tls.client_cert = Some(us.cert_file);
        config.tls.client_key = Some(us.key_file);
    });
    assert_eq!(fetch(&known, &url).await, hello());
    let unknown = connector(|config| config.tls.ca = Some(servers.ca_file()));
    let refused = fetch(&unknown, &url).await.expect_err("refused");
    assert!(["TLS_FAILURE", "RESET"].contains(&refused.as_str()), "{refused}");
}

#[tokio::test]
async fn a_stream_cut_without_goodbye_is_not_the_end_of_a_body() {
    for (head, last, code) in [
        ("HTTP/1.1 200 OK\r\n\r\npart", Step::Cut, Err("TRUNCATED".to_owned())),
        ("HTTP/1.1 200 OK\r\n\r\nwhole", Step::Close, Ok((200, "whole".to_owned()))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", Step::Close, Err("TRUNCATED".to_owned())),
        ("", Step::Cut, Err("CLOSED".to_owned())),
    ] {
        let script = vec![Step::Read, Step::send(head), last];
        let secure = Secure::start(&["127.0.0.1"], Validity::Current, script);
        assert_eq!(secure.fetch(|_| {}).await, code, "{head:?}");
    }
}

#[tokio::test]
async fn http2_is_spoken_only_with_a_server_that_agrees() {
    let secure = Secure::hello();
    assert_eq!(secure.fetch(|config| config.version = HttpVersion::Http2).await, Err("H2_ERROR".into()));
    assert_eq!(secure.fetch(|config| config.version = HttpVersion::Http1).await, hello());
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_replaced_silently() {
    for last in [Step::Close, Step::Cut, Step::Reset] {
        let script = vec![Step::Read, Step::respond("hello"), last.clone()];
        let secure = Secure::start(&["127.0.0.1"], Validity::Current, script);
        let connector = connector(|config| config.tls.ca = Some(secure.authority.ca_file()));
        let request = get(&connector, &secure.url());
        let mut session = Session::new(&connector);
        for round in 1..=3 {
            let exchange = session.send(&request, Body::Keep).await;
            assert_eq!(exchange.result.expect("a response").body(), b"hello", "{last:?}");
            secure.server.wait_until_closed(round);
            tokio::task::yield_now().await;
        }
    }
}
