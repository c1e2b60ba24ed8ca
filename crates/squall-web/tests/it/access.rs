//! Tests of the access rules: token, Host, Origin and TLS.

use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity};
use squall_web::{AllowedOrigin, ApiToken, TlsFiles, WebConfig};
use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::{
    support::{RawResponse, TEST_TIMEOUT, World, parse_response, send, world, world_with},
    websocket::Socket,
};

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
    let open = ["/health", "/healthz", "/readyz", "/openapi.json", "/api/v1/session"];
    for (method, path) in squall_web::router_paths() {
        let path = path.replace("{name}", "a").replace("{epoch}", "1");
        let method = method.to_uppercase();
        let without = ask(&world, &method, &path, "Host: localhost\r\n").await;
        if path == "/api/v1/sign-in" {
            without.expect_error(400, "invalid_json");
            continue;
        }
        if open.contains(&path.as_str()) {
            assert_eq!(without.status, 200, "{path}");
            continue;
        }
        println!("{method} {path}");
        without.expect_error(401, "unauthorized");
        assert!(without.head.to_ascii_lowercase().contains("www-authenticate: bearer"), "{}", without.head);
        for none in ["Basic YTpi", "Bearer", "Bearer "] {
            let headers = format!("Host: localhost\r\nAuthorization: {none}\r\n");
            ask(&world, &method, &path, &headers).await.expect_error(401, "unauthorized");
        }
        let wrong = "Host: localhost\r\nAuthorization: Bearer nonsense-of-some-len\r\n";
        let denied = ask(&world, &method, &path, wrong).await;
        assert!([401, 429].contains(&denied.status), "{}", denied.head);
    }
    for scheme in ["Bearer", "bearer"] {
        let headers = format!("Host: any.example\r\nAuthorization: {scheme} {TOKEN}\r\n");
        assert_eq!(ask(&world, "GET", "/ready", &headers).await.status, 200);
        // A proxy that terminates TLS may forward the requests.
        let headers = format!("{headers}Origin: https://any.example\r\n");
        assert_eq!(ask(&world, "GET", "/ready", &headers).await.status, 200);
    }
}

/// The response to a token, and the cookie that it sets.
async fn sign_in(world: &World, token: &str) -> (RawResponse, String) {
    let response = world.post("/api/v1/sign-in", format!(r#"{{"token": "{token}"}}"#)).await;
    let cookie = response.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or("").to_owned();
    (response, cookie)
}

#[tokio::test]
async fn signing_in_sets_a_cookie_that_opens_the_api_and_the_live_feed() {
    let worker_command = Some("squall worker --redis redis://10.0.0.5:6379 --fleet main".to_owned());
    let token = Some(ApiToken::new(TOKEN).unwrap());
    let world = world_with(1, WebConfig { token, worker_command, ..WebConfig::local("test") }).await;
    let stranger = world.get("/api/v1/session").await.json();
    assert_eq!((&stranger["signed_in"], &stranger["worker_command"]), (&false.into(), &serde_json::Value::Null));
    let (response, cookie) = sign_in(&world, TOKEN).await;
    assert_eq!(response.status, 200);
    assert!(cookie.contains("HttpOnly; SameSite=Strict") && !cookie.contains(TOKEN), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let headers = format!("Host: localhost\r\nCookie: {cookie}\r\n");
    assert_eq!(ask(&world, "GET", "/ready", &headers).await.status, 200);
    let session = ask(&world, "GET", "/api/v1/session", &headers).await.json();
    assert_eq!((&session["sign_in_required"], &session["signed_in"]), (&true.into(), &true.into()));
    assert_eq!(session["worker_command"], "squall worker --redis redis://10.0.0.5:6379 --fleet main");
    let mut socket = Socket::open_with(&world, "/api/v1/live", &format!("Cookie: {cookie}\r\n")).await;
    assert_eq!(socket.message().await["type"], "hello");
    let foreign = format!("{headers}Origin: http://evil.example\r\n");
    ask(&world, "GET", "/ready", &foreign).await.expect_error(403, "forbidden");
    let forged = "Host: localhost\r\nCookie: squall_session=9999999999.00\r\n";
    ask(&world, "GET", "/ready", forged).await.expect_error(401, "unauthorized");
    let out = ask(&world, "POST", "/api/v1/sign-out", &format!("{headers}Content-Length: 0\r\n")).await;
    assert!(out.head.contains("squall_session=; Path=/; Max-Age=0"), "{}", out.head);
}

#[tokio::test]
async fn wrong_tokens_are_refused_and_limited() {
    let world = world_with_token().await;
    let mut limited = false;
    for _ in 0..30 {
        let (response, cookie) = sign_in(&world, "not-the-right-token").await;
        assert_eq!(cookie, "");
        limited |= response.status == 429;
        assert!(response.status == 429 || response.status == 401, "{}", response.head);
    }
    assert!(limited, "30 wrong tokens in a row are too many");
}

#[tokio::test]
async fn wrong_bearer_tokens_are_limited_and_the_right_token_is_always_accepted() {
    let world = world_with_token().await;
    let ready = async |token: &str| {
        ask(&world, "GET", "/ready", &format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n")).await
    };
    let mut denied = ready("not-the-right-token").await;
    denied.expect_error(401, "unauthorized");
    for _ in 0..30 {
        denied = ready("not-the-right-token").await;
        if denied.status == 429 {
            break;
        }
    }
    denied.expect_error(429, "too_many_requests");
    assert_eq!(ready(TOKEN).await.status, 200);
    assert_eq!(sign_in(&world, TOKEN).await.0.status, 200);
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
async fn pages_of_an_allowed_origin_may_use_the_api() {
    let allowed_origins = vec![AllowedOrigin::new("http://ui.example:5173").unwrap()];
    let token = Some(ApiToken::new(TOKEN).unwrap());
    let world = world_with(1, WebConfig { token, allowed_origins, ..WebConfig::local("test") }).await;
    let allowed = |response: &RawResponse| {
        let head = response.head.to_ascii_lowercase();
        head.contains("access-control-allow-origin: http://ui.example:5173") && head.contains("vary: origin")
    };
    // A browser asks without the token, then sends the request with it.
    let from_page = "Host: localhost\r\nOrigin: http://ui.example:5173\r\n";
    let preflight = format!("{from_page}Access-Control-Request-Method: POST\r\n");
    let asked = ask(&world, "OPTIONS", "/start_test", &preflight).await;
    assert!(asked.status == 204 && allowed(&asked), "{}", asked.head);
    assert!(asked.head.to_ascii_lowercase().contains("access-control-allow-headers: authorization, content-type"));
    let with_token = format!("{from_page}Authorization: Bearer {TOKEN}\r\n");
    let ready = ask(&world, "GET", "/ready", &with_token).await;
    assert!(ready.status == 200 && allowed(&ready), "{}", ready.head);
    // The page can read why it is refused.
    let without_token = ask(&world, "GET", "/ready", from_page).await;
    assert!(without_token.status == 401 && allowed(&without_token), "{}", without_token.head);
    let other = "Host: localhost\r\nOrigin: http://other.example\r\n";
    for method in ["OPTIONS", "GET"] {
        let denied = ask(&world, method, "/ready", other).await;
        denied.expect_error(403, "forbidden");
        assert!(!denied.head.to_ascii_lowercase().contains("access-control"), "{}", denied.head);
    }
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

#[tokio::test]
async fn live_feed_ends_with_its_session() {
    let world = world_with_token().await;
    let (_, cookie) = sign_in(&world, TOKEN).await;
    assert!(cookie.contains("squall_session="));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let expiry = now + 3;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, TOKEN.as_bytes());
    let tag = ring::hmac::sign(&key, format!("squall session until {expiry}").as_bytes());
    let tag: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let cookie = format!("Cookie: squall_session={expiry}.{tag}\r\n");
    let mut socket = Socket::open_with(&world, "/api/v1/live", &cookie).await;
    let mut received = Vec::new();
    let end = timeout(TEST_TIMEOUT, socket.stream.read_to_end(&mut received)).await;
    end.expect("the feed ends").unwrap();
    assert!(String::from_utf8_lossy(&received).contains("hello"));
}
