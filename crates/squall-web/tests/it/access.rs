//! Tests of the access rules: token, Host, Origin and TLS.

use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity};
use squall_web::{ApiToken, TlsFiles, WebConfig};
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::support::{RawResponse, World, parse_response, send, world, world_with};

const TOKEN: &str = "a-token-for-tests-only";

async fn world_with_token() -> World {
    let config = WebConfig { token: Some(ApiToken::new(TOKEN).unwrap()), ..WebConfig::local("test") };
    world_with(1, config).await
}

async fn ask(world: &World, method: &str, path: &str, headers: &str) -> RawResponse {
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    send(world.addr, request.as_bytes()).await
}

#[tokio::test]
async fn every_path_except_health_requires_the_token() {
    let world = world_with_token().await;
    let open = ["/health", "/healthz", "/readyz", "/openapi.json"];
    for (method, path) in squall_web::router_paths() {
        let path = path.replace("{name}", "a").replace("{epoch}", "1");
        let method = method.to_uppercase();
        let without = ask(&world, &method, &path, "Host: localhost\r\n").await;
        if open.contains(&path.as_str()) {
            assert_eq!(without.status, 200, "{path}");
            continue;
        }
        println!("{method} {path}");
        without.expect_error(401, "unauthorized");
        assert!(without.head.to_ascii_lowercase().contains("www-authenticate: bearer"), "{}", without.head);
        for wrong in ["Bearer nonsense-of-some-len", "Basic YTpi", "Bearer", "Bearer "] {
            let headers = format!("Host: localhost\r\nAuthorization: {wrong}\r\n");
            ask(&world, &method, &path, &headers).await.expect_error(401, "unauthorized");
        }
    }
    for scheme in ["Bearer", "bearer"] {
        let headers = format!("Host: any.example\r\nAuthorization: {scheme} {TOKEN}\r\n");
        assert_eq!(ask(&world, "GET", "/ready", &headers).await.status, 200);
        // A proxy that terminates TLS may forward the requests.
        let headers = format!("{headers}Origin: https://any.example\r\n");
        assert_eq!(ask(&world, "GET", "/ready", &headers).await.status, 200);
    }
}

#[tokio::test]
async fn requests_with_a_foreign_host_or_origin_are_denied() {
    let world = world(1).await;
    for host in ["evil.example", "evil.example:8080", "10.0.0.1", "127.0.0.1.evil.example", ""] {
        println!("{host}");
        ask(&world, "GET", "/ready", &format!("Host: {host}\r\n")).await.expect_error(403, "forbidden");
    }
    ask(&world, "GET", "/ready", "").await.expect_error(400, "bad_request");
    ask(&world, "GET", "/ready", "Host: localhost\r\nHost: localhost\r\n").await.expect_error(400, "bad_request");
    for host in ["localhost:1@evil.example", "127.0.0.1:1, evil.example", "localhost:abc", "[::1"] {
        println!("{host}");
        ask(&world, "GET", "/ready", &format!("Host: {host}\r\n")).await.expect_error(403, "forbidden");
    }
    // A full address with a local name does not excuse a foreign Host.
    ask(&world, "GET", "http://localhost/ready", "Host: evil.example\r\n").await.expect_error(403, "forbidden");
    ask(&world, "GET", "http://evil.example/ready", "Host: localhost\r\n").await.expect_error(403, "forbidden");
    ask(&world, "GET", "http://localhost/ready", "Host: localhost\r\nHost: localhost\r\n")
        .await
        .expect_error(400, "bad_request");
    assert_eq!(ask(&world, "GET", "http://localhost/ready", "Host: LOCALHOST\r\n").await.status, 200);
    for path in ["/health", "/openapi.json"] {
        ask(&world, "GET", path, "Host: evil.example\r\n").await.expect_error(403, "forbidden");
        ask(&world, "GET", path, "").await.expect_error(400, "bad_request");
    }
    for origin in ["http://evil.example", "null", "http://localhost:1", "file://", "https://localhost"] {
        println!("{origin}");
        let headers = format!("Host: localhost\r\nOrigin: {origin}\r\nContent-Length: 0\r\n");
        ask(&world, "POST", "/stop_test", &headers).await.expect_error(403, "forbidden");
    }
    let own = ask(&world, "GET", "/ready", "Host: localhost\r\nOrigin: http://localhost\r\n").await;
    assert_eq!(own.status, 200);
    assert!(!own.head.to_ascii_lowercase().contains("access-control"), "{}", own.head);
}

#[tokio::test]
async fn address_reachable_by_other_machines_requires_a_token() {
    let cell = squall_coord::MemoryFleetStores::default();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let fleet = squall_orchestrator::FleetClient::new(cell);
    let error = squall_web::serve(fleet, WebConfig::local("test"), listener, CancellationToken::new()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("--token"), "{error}");
}

#[tokio::test]
async fn https_is_served_with_a_certificate() {
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["localhost", "127.0.0.1"], CertificateValidity::Current);
    let files = TlsFiles { cert: identity.cert_file.clone(), key: identity.key_file.clone() };
    let swapped = TlsFiles { cert: identity.key_file.clone(), key: identity.cert_file.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let fleet = squall_orchestrator::FleetClient::new(squall_coord::MemoryFleetStores::default());
    let stop = CancellationToken::new();
    let config = WebConfig { tls: Some(files), ..WebConfig::local("test") };
    let serving = tokio::spawn(squall_web::serve(fleet.clone(), config, listener, stop.clone()));

    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca_file()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    // A client without a handshake must not block others.
    let _silent = TcpStream::connect(addr).await.unwrap();
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    assert_eq!(parse_response(&all).status, 200);
    stop.cancel();
    drop(_silent);
    serving.await.unwrap().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = WebConfig { tls: Some(swapped), ..WebConfig::local("test") };
    let error = squall_web::serve(fleet, config, listener, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("cannot read a private key"), "{error}");
}
