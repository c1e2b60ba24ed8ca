//! Plain HTTP/1.1: what is sent, what is read, when connections are kept.

use squall_http::{Body, Session};
use squall_testkit::hostile::{Hostile, Step};

use crate::{connector, get};

#[tokio::test]
async fn a_response_is_read_and_its_connection_is_reused() {
    let server = Hostile::start(vec![Step::Read, Step::respond("hello"), Step::Again]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/a?b=c"));
    let mut session = Session::new(&connector);
    for round in 0..3 {
        let exchange = session.send(&request, Body::Keep).await;
        assert_eq!(exchange.new_connection, round == 0);
        assert_eq!(exchange.bytes_out, request.as_bytes().len() as u64);
        let response = exchange.result.expect("a response");
        assert_eq!((response.status, response.body()), (200, &b"hello"[..]));
        assert_eq!(response.header("content-LENGTH"), Some("5"));
    }
    assert_eq!((server.connections(), server.requests()), (1, 3));
    assert!(server.last_request().starts_with("GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"));
}
