//! Connecting to a server: names, address families, fixed addresses, Unix sockets, and the time of each phase.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use squall_http::{BodyMode, IpFamily, Session};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep};

use crate::{connector, fetch, get};

fn hello() -> ScriptedServer {
    ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("hello"), ServerStep::Restart])
}

#[tokio::test]
async fn each_address_of_a_name_is_tried_in_turn() {
    // localhost may mean ::1 first, where nothing listens.
    let server = hello();
    let url = format!("http://localhost:{}/", server.address().port());
    assert_eq!(fetch(&connector(|_| {}), &url).await, Ok((200, "hello".into())));
    let other = SocketAddr::from(([127, 0, 0, 3], server.address().port()));
    let connector = connector(|config| {
        config.resolve = vec![("shop.test".into(), other), ("shop.test".into(), server.address())];
    });
    assert_eq!(fetch(&connector, "http://shop.test/").await, Ok((200, "hello".into())));
    assert!(server.last_request().contains("\r\nHost: shop.test\r\n"));
}

#[tokio::test]
async fn a_fixed_address_without_port_uses_the_port_of_the_url() {
    let server = hello();
    let connector = connector(|config| config.resolve = vec![("SHOP.test".into(), (Ipv4Addr::LOCALHOST, 0).into())]);
    let url = format!("http://shop.test:{}/", server.address().port());
    assert_eq!(fetch(&connector, &url).await, Ok((200, "hello".into())));
}

#[tokio::test]
async fn an_address_family_that_the_host_lacks_is_a_dns_error() {
    let server = hello();
    let six = connector(|config| config.ip = IpFamily::V6);
    assert_eq!(fetch(&six, &server.url("/")).await, Err("DNS_FAILURE".into()));
    let four = connector(|config| config.ip = IpFamily::V4);
    assert_eq!(fetch(&four, &server.url("/")).await, Ok((200, "hello".into())));
}

#[tokio::test]
async fn ipv6_literals_work() {
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
        eprintln!("this machine has no IPv6 loopback");
        return;
    };
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || answer(&mut listener.accept().expect("a client").0));
    let connector = connector(|config| config.ip = IpFamily::V6);
    assert_eq!(fetch(&connector, &format!("http://{address}/")).await, Ok((200, "hi".into())));
}

#[tokio::test]
async fn a_unix_socket_replaces_the_address_of_the_host() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("server.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || answer(&mut listener.accept().expect("a client").0));
    let connector = connector(|config| config.unix_socket = Some(path));
    assert_eq!(fetch(&connector, "http://shop.test/").await, Ok((200, "hi".into())));

    let nowhere = crate::connector(|config| config.unix_socket = Some(directory.path().join("none")));
    assert_eq!(fetch(&nowhere, "http://shop.test/").await, Err("CONNECT_FAILED".into()));
}

fn answer(stream: &mut (impl Read + Write)) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        request.push(byte[0]);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").expect("a client");
}

#[tokio::test]
async fn phases_are_zero_for_connect_on_a_reused_connection() {
    let server = hello();
    let connector = connector(|config| config.record_phases = true);
    let request = get(&connector, &server.url("/"));
    let mut session = Session::new(&connector);
    let first = session.send(&request, BodyMode::Discard).await;
    let phases = first.phases.expect("asked for");
    assert!(phases.connect > Duration::ZERO && phases.first_byte > Duration::ZERO);
    assert_eq!(phases.tls, Duration::ZERO);
    let sum = phases.dns + phases.connect + phases.tls + phases.first_byte + phases.body;
    assert!(sum <= first.ended - first.started);
    let second = session.send(&request, BodyMode::Discard).await.phases.expect("asked for");
    assert_eq!((second.dns, second.connect), (Duration::ZERO, Duration::ZERO));

    let silent = crate::connector(|_| {});
    assert!(Session::new(&silent).send(&request, BodyMode::Discard).await.phases.is_none());
}
