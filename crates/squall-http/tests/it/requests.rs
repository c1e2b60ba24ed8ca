//! Rendered requests, and what rendering rejects.

use http::Method;
use squall_http::{HttpRequest, PreparedRequest, RequestError, basic_auth};

use crate::connector;

fn prepare(request: &HttpRequest) -> Result<String, RequestError> {
    let connector = connector(|config| config.decompress = false);
    let prepared = PreparedRequest::new(request, &connector)?;
    Ok(String::from_utf8_lossy(prepared.as_bytes()).into_owned())
}

fn with_header(name: &str, value: &str) -> HttpRequest {
    let mut request = HttpRequest::get("http://localhost:8080/a").expect("a URL");
    request.headers.push((name.into(), value.into()));
    request
}

#[test]
fn a_request_is_rendered_with_its_required_headers() {
    let version = env!("CARGO_PKG_VERSION");
    let mut request = HttpRequest::new(Method::POST, "http://localhost:8080/a b?q=é#frag").expect("a URL");
    request.headers.push(("Content-Type".into(), "text/plain".into()));
    request.body = "hi".into();
    assert_eq!(
        prepare(&request).expect("a valid request"),
        format!(
            "POST /a%20b?q=%C3%A9 HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: squall/{version}\r\nAccept: */*\r\n\
             Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
        )
    );
}

#[test]
fn the_users_own_headers_replace_the_defaults() {
    for (name, value) in [("host", "shop.example"), ("User-Agent", "mine"), ("accept", "text/html")] {
        let text = prepare(&with_header(name, value)).expect("a valid request");
        assert_eq!(text.to_ascii_lowercase().matches(&format!("{}: ", name.to_ascii_lowercase())).count(), 1, "{text}");
        assert!(text.contains(&format!("{name}: {value}\r\n")), "{text}");
    }
}

#[test]
fn default_ports_are_left_out_of_the_host_header() {
    for (url, host) in [
        ("http://localhost/", "localhost"),
        ("http://localhost:443/", "localhost:443"),
        ("https://localhost:443/", "localhost"),
        ("http://[::1]:81/", "[::1]:81"),
    ] {
        let text = prepare(&HttpRequest::get(url).expect("a URL")).expect("a valid request");
        assert!(text.contains(&format!("\r\nHost: {host}\r\n")), "{text}");
    }
}

#[test]
fn credentials_in_the_url_become_basic_authentication() {
    let text = prepare(&HttpRequest::get("http://al%40x:p%3Aw@localhost/").expect("a URL")).expect("a valid request");
    assert!(text.contains(&format!("\r\nAuthorization: {}\r\n", basic_auth("al@x", "p:w"))), "{text}");
    assert_eq!(basic_auth("al@x", "p:w"), "Basic YWxAeDpwOnc=");
    assert!(!text.contains("al%40x"), "{text}");
}

#[test]
fn line_breaks_in_headers_and_paths_are_rejected() {
    for value in ["a\r\nX: y", "a\nb", "a\0b", "a\rb", "\x7f"] {
        let refused = prepare(&with_header("X-Test", value));
        assert_eq!(refused, Err(RequestError::InvalidHeaderValue { name: "X-Test".into() }), "{value:?}");
    }
    for name in ["", "a b", "a:b", "a\r\nb", "é"] {
        assert_eq!(prepare(&with_header(name, "v")), Err(RequestError::InvalidHeaderName { name: name.into() }));
    }
}

#[test]
fn content_length_and_transfer_encoding_cannot_be_overridden() {
    assert!(matches!(prepare(&with_header("Transfer-Encoding", "chunked")), Err(RequestError::ReservedHeader { .. })));
    let text = prepare(&with_header("Content-Length", "999")).expect("ignored");
    assert!(!text.contains("999"), "{text}");
}

#[test]
fn invalid_urls_are_rejected() {
    assert!(matches!(HttpRequest::get("not a url"), Err(RequestError::BadUrl { .. })));
    let ftp = HttpRequest::get("ftp://localhost/").expect("a URL");
    assert_eq!(prepare(&ftp), Err(RequestError::UnsupportedScheme { scheme: "ftp".into() }));
}

#[test]
fn a_patch_changes_path_headers_and_body_and_nothing_else() {
    let connector = connector(|_| {});
    let mut base = HttpRequest::new(Method::PUT, "http://localhost/old").expect("a URL");
    base.headers.push(("X-Constant".into(), "1".into()));
    let mut prepared = PreparedRequest::new(&base, &connector).expect("a valid request");
    prepared.update("/new?a=b c", &[("X-Dynamic", "2")], b"body").expect("a valid patch");
    let text = String::from_utf8_lossy(prepared.as_bytes()).into_owned();
    assert!(text.starts_with("PUT /new?a=b%20c HTTP/1.1\r\nHost: localhost\r\n"), "{text}");
    assert!(text.contains("X-Constant: 1\r\nX-Dynamic: 2\r\nContent-Length: 4\r\n\r\nbody"), "{text}");
    assert_eq!(prepared.url().as_str(), "http://localhost/new?a=b%20c");

    prepared
        .update("/x", &[("accept", "text/html"), ("HOST", "other"), ("x-constant", "3")], b"")
        .expect("a valid patch");
    let text = String::from_utf8_lossy(prepared.as_bytes()).to_lowercase();
    for (name, value) in [("accept", "text/html"), ("host", "other"), ("x-constant", "3")] {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{name}:"))).collect();
        assert_eq!(lines, [format!("{name}: {value}")], "a header of a patch stands in for the constant one");
    }

    let injected = prepared.update("/x", &[("X-Dynamic", "2\r\nEvil: 1")], b"");
    assert_eq!(injected, Err(RequestError::InvalidHeaderValue { name: "X-Dynamic".into() }));
    assert!(matches!(prepared.update("/x\r\nEvil: 1", &[], b""), Err(RequestError::InvalidPath { .. })));
    assert!(matches!(prepared.update("relative", &[], b""), Err(RequestError::InvalidPath { .. })));
}

#[test]
fn a_rejected_patch_leaves_the_request_unchanged() {
    let connector = connector(|_| {});
    let mut prepared = PreparedRequest::new(&HttpRequest::get("http://localhost/old").expect("a URL"), &connector)
        .expect("a valid request");
    let before = prepared.as_bytes().to_vec();
    assert!(prepared.update("/x\r\n", &[], b"").is_err());
    assert!(prepared.update("/x", &[("bad name", "x")], b"").is_err());
    assert_eq!(prepared.as_bytes(), before);
}
