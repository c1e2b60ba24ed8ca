//! The target over real sockets: its responses, and that it counts every request exactly once.

use serde_json::Value;
use squall_target::{TargetEndpoint, TargetServer};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// Sends one request on a connection of its own and returns status and body.
fn ask(target: &TargetServer, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(target.addr()).expect("the target listens");
    let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
    let length = body.len();
    let request =
        format!("{first} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).expect("the target reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the target answers");
    let status = answer.split(' ').nth(1).expect("a status line").parse().expect("a status");
    (status, answer.split_once("\r\n\r\n").expect("a head").1.to_owned())
}

fn start() -> TargetServer {
    TargetServer::start("127.0.0.1:0").expect("a free port")
}

#[track_caller]
fn check(head: &str, body: &str, status: u16, part: &str) {
    let (got, answer) = ask(&start(), head, body);
    assert_eq!(got, status, "{head}: {answer}");
    assert!(answer.contains(part), "{head}: {answer}");
}

#[test]
fn every_endpoint_answers() {
    check("GET /", "", 200, "/auth/login");
    check("GET /health", "", 200, "ok");
    check("GET /api/products?page=20", "", 200, "\"page\":20");
    check("GET /api/products?page=21", "", 404, "no such page");
    check("GET /api/products/401", "", 404, "no product has this id");
    check("GET /api/orders/1001001", "", 404, "no order has this id");
    check("GET /api/products?page=x", "", 400, "page=x");
    check("GET /api/products/7", "", 200, "\"id\":7");
    check("GET /shop", "", 200, "href=\"/shop/20\"");
    check("GET /shop?page=21", "", 404, "catalogue");
    check("GET /shop/7", "", 200, "<form");
    check("GET /shop/401", "", 404, "no such page");
    check("GET /shop/assets/shop.js", "", 200, "addEventListener");
    check("GET /shop/assets/other.js", "", 404, "");
    check("GET /shop/orders", "", 405, "method");
    check("POST /shop/orders", "product_id=7&quantity=2&name=Ann", 303, "");
    check("POST /shop/orders", "product_id=x", 400, "product_id");
    check("GET /delay/5", "", 200, "\"delay_ms\":5");
    check("GET /delay/soon", "", 400, "milliseconds");
    check("GET /random-delay?min=1&max=1", "", 200, "\"delay_ms\":1");
    check("GET /random-delay?min=2&max=1", "", 400, "min");
    check("GET /fail?rate=1&status=503", "", 503, "as asked");
    check("GET /fail?rate=0", "", 200, "ok");
    check("GET /fail?status=200", "", 400, "400 to 599");
    for rate in ["2", "-0.1", "NaN", "x"] {
        check(&format!("GET /fail?rate={rate}"), "", 400, "from 0 to 1");
    }
    check("GET /redirect/2", "", 302, "{\"location\":\"/redirect/1\"}");
    check("DELETE /health", "", 405, "method");
    check("POST /api/products", "", 405, "method");
    check("POST /echo?a=1\nX-Name: ann\r\n", "hello", 200, "\"x-name\":\"ann\"");
    check("GET /nothing", "", 404, "no such path");
    check("GET /auth/login", "", 405, "method");
    check("POST /auth/login", "{}", 400, "username");
}

#[test]
fn an_order_is_found_by_its_id_after_login() {
    let target = start();
    let order = r#"{"product_id":7,"quantity":2}"#;
    assert_eq!(ask(&target, "POST /api/orders", order).0, 401);
    let (_, login) = ask(&target, "POST /auth/login", r#"{"username":"ann","password":"p"}"#);
    let login: Value = serde_json::from_str(&login).unwrap();
    let head = format!("POST /api/orders\nAuthorization: Bearer {}\r\n", login["access_token"].as_str().unwrap());
    let (status, placed) = ask(&target, &head, order);
    assert_eq!(status, 201, "{placed}");
    let id = serde_json::from_str::<Value>(&placed).unwrap()["id"].clone();
    assert_eq!(ask(&target, &format!("GET /api/orders/{id}"), ""), (200, placed));
    assert_eq!(target.requests_of(TargetEndpoint::Orders), 2);
}

#[test]
fn bodies_have_exactly_the_requested_length() {
    let target = start();
    for length in [0, 1, 65_536, 65_537, 300_000] {
        assert_eq!(ask(&target, &format!("GET /bytes/{length}"), "").1.len(), length);
    }
}

#[test]
fn stats_count_each_request_once_over_all_threads() {
    let target = TargetServer::start_on("127.0.0.1:0", 3).expect("a free port");
    for _ in 0..12 {
        ask(&target, "GET /health", "");
    }
    ask(&target, "GET /nothing", "");
    let stats: Value = serde_json::from_str(&ask(&target, "GET /stats", "").1).unwrap();
    assert_eq!(stats["total"], 13);
    assert_eq!((&stats["requests"]["/health"], &stats["requests"]["(other)"]), (&12.into(), &1.into()));
    let metrics = ask(&target, "GET /metrics", "").1;
    assert!(metrics.contains("\nsquall_shop_requests_total{endpoint=\"/health\"} 12\n"), "{metrics}");
    assert!(metrics.contains("\nsquall_shop_requests_total{endpoint=\"(other)\"} 1\n"), "{metrics}");
    assert_eq!(target.requests(), 13);
}

#[test]
fn a_freeze_delays_every_response() {
    let target = start();
    let begin = std::time::Instant::now();
    target.freeze(Duration::from_millis(150));
    ask(&target, "GET /health", "");
    assert!(begin.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_taken_or_malformed_address_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    assert!(TargetServer::start(&taken).unwrap_err().to_string().contains("cannot listen"));
    let other = start();
    assert!(TargetServer::start(&other.addr().to_string()).is_err(), "two targets must not share a port unnoticed");
    assert!(TargetServer::start("nonsense").unwrap_err().to_string().contains("HOST:PORT"));
}

#[test]
fn a_client_that_opens_with_http2_gets_http2() {
    let target = start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let version = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(target.addr()).await.unwrap();
        let (io, executor) = (hyper_util::rt::TokioIo::new(stream), hyper_util::rt::TokioExecutor::new());
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        let driving = tokio::spawn(connection);
        let request = http::Request::get(target.url("/health")).body(http_body_util::Empty::<bytes::Bytes>::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        drop(sender);
        let version = answer.version();
        drop(answer);
        driving.await.unwrap().unwrap();
        version
    });
    assert_eq!(version, http::Version::HTTP_2);
}
