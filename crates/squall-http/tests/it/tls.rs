//! HTTPS: trusted authorities, client certificates, and failures.

use squall_http::{BodyMode, HttpConfig, HttpVersion, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity, wrap_tls};

use crate::{connector, fetch, get};

/// An authority and a server certificate for 127.0.0.1 that it issued.
struct Secure {
    authority: CertificateAuthority,
    server: ScriptedServer,
}

impl Secure {
    fn start(names: &[&str], validity: CertificateValidity, script: Vec<ServerStep>) -> Secure {
        let authority = CertificateAuthority::new();
        let identity = authority.issue(names, validity);
        let server =
            ScriptedServer::start_with(script, wrap_tls(CertificateAuthority::server_config(&identity, None, &[])));
        Secure { authority, server }
    }

    fn hello() -> Secure {
        Secure::start(
            &["127.0.0.1"],
            CertificateValidity::Current,
            vec![ServerStep::Read, ServerStep::respond("hello"), ServerStep::Restart],
        )
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
async fn a_certificate_of_a_trusted_authority_is_accepted() {
    let secure = Secure::hello();
    let connector = connector(|config| config.tls.ca = Some(secure.authority.ca_file()));
    let request = get(&connector, &secure.url());
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, BodyMode::Keep).await;
        assert_eq!((exchange.new_connection, exchange.bytes_out), (round == 0, request.as_bytes().len() as u64));
        assert_eq!(exchange.result.expect("a response").body(), b"hello");
    }
    assert_eq!(secure.server.connections(), 1);
}

#[tokio::test]
async fn an_untrusted_certificate_is_rejected_unless_insecure() {
    let secure = Secure::hello();
    let other = CertificateAuthority::new();
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
async fn an_expired_certificate_is_rejected() {
    let secure = Secure::start(
        &["127.0.0.1"],
        CertificateValidity::Expired,
        vec![ServerStep::Read, ServerStep::respond("hello")],
    );
    assert_eq!(secure.fetch(|_| {}).await, failure());
}

#[tokio::test]
async fn the_certificate_must_match_the_host_or_the_given_server_name() {
    let secure = Secure::start(
        &["shop.test"],
        CertificateValidity::Current,
        vec![ServerStep::Read, ServerStep::respond("hello")],
    );
    assert_eq!(secure.fetch(|_| {}).await, failure());
    assert_eq!(secure.fetch(|config| config.tls.server_name = Some("shop.test".into())).await, hello());
}

/// The error of a GET to a server with this identity, by a client that trusts only this file; "hello" on success.
async fn said(identity: &squall_testkit::tls::TlsIdentity, trusted: std::path::PathBuf) -> String {
    let script = vec![ServerStep::Read, ServerStep::respond("hello")];
    let server = ScriptedServer::start_with(script, wrap_tls(CertificateAuthority::server_config(identity, None, &[])));
    let connector = connector(|config| config.tls.ca = Some(trusted));
    let request = get(&connector, &format!("https://{}/", server.address()));
    let mut session = Session::new(&connector);
    match session.send(&request, BodyMode::Keep).await.result {
        Ok(response) => String::from_utf8_lossy(response.body()).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_self_signed_server_is_trusted_if_its_own_certificate_is_given() {
    let (ours, others) = (CertificateAuthority::new(), CertificateAuthority::new());
    let server = ours.self_signed(&["127.0.0.1"], CertificateValidity::Current);
    let stranger = others.self_signed(&["127.0.0.1"], CertificateValidity::Current);
    assert_eq!(said(&server, server.cert_file.clone()).await, "hello");
    let refused = said(&server, stranger.cert_file).await;
    assert!(refused.contains("not signed by an authority"), "{refused}");
    let leaf = ours.issue(&["127.0.0.1"], CertificateValidity::Current);
    assert_eq!(said(&leaf, leaf.cert_file.clone()).await, "hello", "pinned without its authority");
}

#[tokio::test]
async fn a_pinned_certificate_must_still_be_valid_and_for_the_name() {
    let authority = CertificateAuthority::new();
    let old = authority.self_signed(&["127.0.0.1"], CertificateValidity::Expired);
    let refused = said(&old, old.cert_file.clone()).await;
    assert!(refused.contains("has expired"), "{refused}");
    let other = authority.self_signed(&["shop.test", "127.0.0.2"], CertificateValidity::Current);
    let refused = said(&other, other.cert_file.clone()).await;
    assert!(refused.contains("not for 127.0.0.1 but for shop.test, 127.0.0.2"), "{refused}");
    let nameless = authority.self_signed(&[], CertificateValidity::Current);
    let refused = said(&nameless, nameless.cert_file.clone()).await;
    assert!(refused.contains("has no subjectAltName"), "{refused}");
}

#[tokio::test]
async fn tls_errors_have_a_text_with_a_hint() {
    let (authority, other) = (CertificateAuthority::new(), CertificateAuthority::new());
    let server = authority.issue(&["127.0.0.1"], CertificateValidity::Current);
    let namesake = said(&server, other.ca_file()).await;
    assert!(namesake.ends_with("trust it with --ca FILE, or --insecure"), "{namesake}");
    let own = authority.self_signed(&["127.0.0.1"], CertificateValidity::Current);
    assert_eq!(
        said(&own, other.ca_file()).await,
        "TLS: the server's certificate is not signed by an authority that is trusted here; \
         trust it with --ca FILE, or --insecure"
    );
    let plain = ScriptedServer::start(vec![ServerStep::send("HTTP/1.1 400 Bad Request\r\n\r\n"), ServerStep::Hang]);
    let closing = ScriptedServer::start(vec![ServerStep::Close]);
    let connector = connector(|_| {});
    for (server, part) in [(&plain, "is this an http:// port?"), (&closing, "closed the connection during")] {
        let request = get(&connector, &format!("https://{}/", server.address()));
        let mut session = Session::new(&connector);
        let error = session.send(&request, BodyMode::Keep).await.result.expect_err("a failure").to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_plain_text_port_is_a_tls_failure() {
    let server = ScriptedServer::start(vec![ServerStep::send("HTTP/1.1 400 Bad Request\r\n\r\n"), ServerStep::Hang]);
    let connector = connector(|_| {});
    assert_eq!(fetch(&connector, &format!("https://{}/", server.address())).await, failure());
    let closing = ScriptedServer::start(vec![ServerStep::Close]);
    assert_eq!(fetch(&connector, &format!("https://{}/", closing.address())).await, failure());
}

#[tokio::test]
async fn a_handshake_that_never_ends_times_out() {
    let server = ScriptedServer::start(vec![ServerStep::Hang]);
    let connector = connector(|config| config.connect_timeout = crate::SHORT);
    assert_eq!(fetch(&connector, &format!("https://{}/", server.address())).await, Err("CONNECT_TIMEOUT".into()));
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_required() {
    let (servers, clients) = (CertificateAuthority::new(), CertificateAuthority::new());
    let identity = servers.issue(&["127.0.0.1"], CertificateValidity::Current);
    let config = CertificateAuthority::server_config(&identity, Some(&clients), &[]);
    let server = ScriptedServer::start_with(vec![ServerStep::Read, ServerStep::respond("hello")], wrap_tls(config));
    let url = format!("https://{}/", server.address());
    let us = clients.issue(&["client"], CertificateValidity::Current);
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
async fn a_stream_without_close_notify_does_not_complete_a_body() {
    for (head, last, code) in [
        ("HTTP/1.1 200 OK\r\n\r\npart", ServerStep::CloseAbruptly, Err("TRUNCATED".to_owned())),
        ("HTTP/1.1 200 OK\r\n\r\nwhole", ServerStep::Close, Ok((200, "whole".to_owned()))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", ServerStep::Close, Err("TRUNCATED".to_owned())),
        ("", ServerStep::CloseAbruptly, Err("CLOSED".to_owned())),
    ] {
        let script = vec![ServerStep::Read, ServerStep::send(head), last];
        let secure = Secure::start(&["127.0.0.1"], CertificateValidity::Current, script);
        assert_eq!(secure.fetch(|_| {}).await, code, "{head:?}");
    }
}

#[tokio::test]
async fn http2_is_used_only_if_the_server_agrees() {
    let secure = Secure::hello();
    assert_eq!(secure.fetch(|config| config.version = HttpVersion::Http2).await, Err("H2_ERROR".into()));
    assert_eq!(secure.fetch(|config| config.version = HttpVersion::Http1).await, hello());
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_replaced_silently() {
    for last in [ServerStep::Close, ServerStep::CloseAbruptly, ServerStep::Reset] {
        let script = vec![ServerStep::Read, ServerStep::respond("hello"), last.clone()];
        let secure = Secure::start(&["127.0.0.1"], CertificateValidity::Current, script);
        let connector = connector(|config| config.tls.ca = Some(secure.authority.ca_file()));
        let request = get(&connector, &secure.url());
        let mut session = Session::new(&connector);
        for round in 1..=3 {
            let exchange = session.send(&request, BodyMode::Keep).await;
            assert_eq!(exchange.result.expect("a response").body(), b"hello", "{last:?}");
            secure.server.wait_until_closed(round);
            tokio::task::yield_now().await;
        }
    }
}
