//! Redirects: the next request and the headers it carries.

use http::Method;
use squall_http::{BodyMode, HttpRequest, PreparedRequest, RequestError, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, server};

fn redirecting(status: u16, location: &str) -> ScriptedServer {
    server(&format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"))
}

/// The request that follows a POST with body, credentials and a cookie of its own.
async fn next(status: u16, location: &str, hops: u32) -> Option<Result<PreparedRequest, RequestError>> {
    let server = redirecting(status, location);
    let connector = connector(|config| config.max_redirects = hops);
    let mut request = HttpRequest::new(Method::POST, &server.url("/shop/cart?x=1")).expect("a URL");
    request.headers =
        [("Authorization", "Bearer t"), ("Cookie", "own=1"), ("X-Trace", "7"), ("Content-Type", "text/plain")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
    request.body = "payload".into();
    let request = PreparedRequest::new(&request, &connector).expect("a valid request");
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Discard).await;
    request.redirect(&exchange.result.expect("a response"))
}

fn text(request: &PreparedRequest) -> String {
    String::from_utf8_lossy(request.as_bytes()).into_owned()
}

#[tokio::test]
async fn status_301_302_and_303_lead_to_get_without_the_body() {
    for status in [301, 302, 303] {
        let next = next(status, "../checkout?y=2", 5).await.expect("a redirect").expect("a valid request");
        let text = text(&next);
        assert!(text.starts_with("GET /checkout?y=2 HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("Authorization: Bearer t\r\n") && text.contains("X-Trace: 7\r\n"), "{text}");
        assert!(!text.contains("Content-") && text.ends_with("\r\n\r\n"), "{text}");
    }
}

#[tokio::test]
async fn status_307_and_308_repeat_the_request() {
    for status in [307, 308] {
        let next = next(status, "/other", 5).await.expect("a redirect").expect("a valid request");
        let text = text(&next);
        assert!(text.starts_with("POST /other HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("Content-Type: text/plain\r\n") && text.ends_with("\r\n\r\npayload"), "{text}");
        assert_eq!(text.matches("Content-Length").count(), 1);
    }
}

#[tokio::test]
async fn credentials_are_not_sent_to_another_origin() {
    let next = next(307, "http://other.example/", 5).await.expect("a redirect").expect("a valid request");
    let text = text(&next);
    assert!(text.contains("\r\nHost: other.example\r\n") && text.contains("X-Trace: 7"), "{text}");
    assert!(!text.contains("Authorization") && !text.contains("Cookie"), "{text}");
}

#[tokio::test]
async fn redirects_stop_at_the_limit() {
    assert!(next(200, "/x", 5).await.is_none());
    assert!(next(304, "/x", 5).await.is_none());
    assert!(next(302, "/x", 0).await.is_none());
    let refused = next(302, "ftp://host/file", 5).await.expect("a redirect");
    assert_eq!(refused.expect_err("an unknown scheme"), RequestError::UnsupportedScheme { scheme: "ftp".into() });
}

#[tokio::test]
async fn a_redirect_loop_ends_with_an_error() {
    let server = redirecting(302, "/again");
    let connector = connector(|config| config.max_redirects = 4);
    let mut request =
        PreparedRequest::new(&HttpRequest::get(&server.url("/")).expect("a URL"), &connector).expect("valid");
    let mut session = Session::new(&connector);
    let ended = loop {
        let exchange = session.send(&request, BodyMode::Discard).await;
        match request.redirect(&exchange.result.expect("a response")).expect("a redirect") {
            Ok(next) => request = next,
            Err(error) => break error,
        }
    };
    assert_eq!((ended.redirect_code(), ended), ("TOO_MANY_REDIRECTS", RequestError::TooManyRedirects));
    assert_eq!((server.requests(), server.connections()), (5, 1));
}

#[tokio::test]
async fn a_hostile_location_cannot_inject_a_header() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 302 Found\r\nLocation: /a b\x0bc\r\nContent-Length: 0\r\n\r\n"),
        ServerStep::Hang,
    ]);
    let connector = connector(|_| {});
    let request = PreparedRequest::new(&HttpRequest::get(&server.url("/")).expect("a URL"), &connector).expect("valid");
    let mut session = Session::new(&connector);
    let exchange = session.send(&request, BodyMode::Discard).await;
    // A control character makes the head itself malformed.
    assert_eq!(exchange.result.expect_err("a failure").code(), "MALFORMED_RESPONSE");
}
