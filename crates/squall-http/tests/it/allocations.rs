//! The steady state allocates nothing. A counting allocator, which all tests of this binary use, shows it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use squall_http::{BodyMode, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, get};

thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

/// Counts allocations per thread, so that servers on other threads do not disturb.
struct Counting;

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter left.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller upholds the contract of this method.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

async fn taken_by_a_hundred_requests(response: &str, body: BodyMode) -> usize {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::send(response), ServerStep::Restart]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    for _ in 0..3 {
        session.send(&request, body).await.result.expect("a response");
    }
    let before = TAKEN.get();
    for _ in 0..100 {
        session.send(&request, body).await.result.expect("a response");
    }
    TAKEN.get() - before
}

#[tokio::test]
async fn a_steady_request_allocates_nothing() {
    let response = "HTTP/1.1 200 OK\r\nDate: today\r\nServer: x\r\nContent-Length: 65\r\n\r\n";
    let response = format!("{response}{}", "x".repeat(65));
    assert_eq!(taken_by_a_hundred_requests(&response, BodyMode::Discard).await, 0);
    assert_eq!(taken_by_a_hundred_requests(&response, BodyMode::Keep).await, 0);
}

#[tokio::test]
async fn a_steady_request_with_cookies_allocates_nothing() {
    let server = ScriptedServer::start(vec![
        ServerStep::Read,
        ServerStep::send("HTTP/1.1 200 OK\r\nSet-Cookie: session=abc\r\nContent-Length: 0\r\n\r\n"),
        ServerStep::Read,
        ServerStep::respond("x"),
        ServerStep::Goto(2),
    ]);
    let connector = connector(|_| {});
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    for _ in 0..3 {
        session.send(&request, BodyMode::Discard).await.result.expect("a response");
    }
    let before = TAKEN.get();
    for _ in 0..100 {
        session.send(&request, BodyMode::Discard).await.result.expect("a response");
    }
    assert_eq!(TAKEN.get() - before, 0);
    assert!(server.last_request().contains("\r\nCookie: session=abc\r\n"));
}

#[tokio::test]
async fn a_steady_chunked_response_allocates_nothing() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_eq!(taken_by_a_hundred_requests(response, BodyMode::Keep).await, 0);
}

#[tokio::test]
async fn patching_a_request_allocates_nothing() {
    let connector = connector(|_| {});
    let mut request = get(&connector, "http://127.0.0.1/");
    let mut patch = |page: usize| {
        let paths = ["/api/products?page=10", "/api/products?page=11"];
        request.update(paths[page % 2], &[("X-Request-Id", "123456")], b"{\"a\":1}").expect("a valid patch");
    };
    (0..3).for_each(&mut patch);
    let before = TAKEN.get();
    (0..100).for_each(patch);
    assert_eq!(TAKEN.get() - before, 0);
}

/// Ten thousand users hold one each; dialling, handshakes and HTTP/2 are boxed so that it stays small.
#[test]
fn the_future_of_a_request_is_small() {
    let connector = connector(|_| {});
    let request = get(&connector, "http://127.0.0.1/");
    let mut session = Session::new(&connector);
    let size = size_of_val(&session.send(&request, BodyMode::Discard));
    assert!(size <= 512, "{size} bytes");
    assert!(size_of::<Session>() <= 512, "{} bytes", size_of::<Session>());
}
