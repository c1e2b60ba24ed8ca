//! Cookies belong to one user, obey domain and path, and expire.

use squall_http::{BodyMode, HttpRequest, PreparedRequest, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, get, server};

fn cookie_line(server: &ScriptedServer) -> Option<String> {
    server.last_request().lines().find_map(|line| line.strip_prefix("Cookie: ").map(str::to_owned))
}

fn setting(cookies: &[&str]) -> ScriptedServer {
    let lines: String = cookies.iter().map(|cookie| format!("Set-Cookie: {cookie}\r\n")).collect();
    server(&format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n"))
}

#[tokio::test]
async fn a_cookie_is_sent_only_by_the_user_that_received_it() {
    let server = setting(&["session=abc; Path=/", "theme=dark"]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(cookie_line(&server), None);
    let exchange = session.send(&request, BodyMode::Discard).await;
    assert!(exchange.result.is_ok());
    assert!(exchange.bytes_out > request.as_bytes().len() as u64);
    let mut sent: Vec<String> = cookie_line(&server).expect("cookies").split("; ").map(str::to_owned).collect();
    sent.sort();
    assert_eq!(sent, ["session=abc", "theme=dark"]);

    assert!(Session::new(&connector).send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(cookie_line(&server), None);
}

#[tokio::test]
async fn path_secure_expiry_and_domain_are_respected() {
    let server = setting(&["a=1; Path=/private", "b=2; Secure", "c=3; Max-Age=0", "d=4; Domain=other.example", "e=5"]);
    // Uses a host name, because on loopback Secure cookies are sent without TLS, as in browsers.
    let connector = connector(|config| config.resolve = vec![("shop.test".into(), server.address())]);
    let mut session = Session::new(&connector);
    let open = get(&connector, "http://shop.test/");
    for _ in 0..2 {
        assert!(session.send(&open, BodyMode::Discard).await.result.is_ok());
    }
    assert_eq!(cookie_line(&server).as_deref(), Some("e=5"));
}

#[tokio::test]
async fn cookies_of_the_request_and_the_jar_share_one_header() {
    let server = setting(&["jar=1"]);
    let connector = connector(|_| {});
    let mut request = HttpRequest::get(&server.url("/")).expect("a URL");
    request.headers.push(("Cookie".into(), "own=1".into()));
    let mut request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(cookie_line(&server).as_deref(), Some("own=1"));
    request.update("/next", &[("cookie", "extra=2")], b"").expect("a valid patch");
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(cookie_line(&server).as_deref(), Some("own=1; extra=2; jar=1"));
    request.update("/next", &[("cookie", "jar=2; ajar=3")], b"").expect("a valid patch");
    assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    assert_eq!(
        cookie_line(&server).as_deref(),
        Some("own=1; jar=2; ajar=3"),
        "what the request says stands in for the jar's"
    );
}

#[tokio::test]
async fn cookies_can_be_turned_off() {
    let server = setting(&["a=1"]);
    let connector = connector(|config| config.cookies = false);
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        assert!(session.send(&get(&connector, &server.url("/")), BodyMode::Discard).await.result.is_ok());
    }
    assert_eq!(cookie_line(&server), None);
}

#[tokio::test]
async fn adding_cookies_leaves_the_body_unchanged() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nContent-Length: 0\r\n\r\n"),
        ServerStep::Restart,
    ]);
    let connector = connector(|_| {});
    let mut request = HttpRequest::new(http::Method::POST, &server.url("/")).expect("a URL");
    request.body = "payload".into();
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    for _ in 0..2 {
        assert!(session.send(&request, BodyMode::Discard).await.result.is_ok());
    }
    assert!(server.last_request().ends_with("\r\nContent-Length: 7\r\nCookie: a=1\r\n\r\npayload"));
}
