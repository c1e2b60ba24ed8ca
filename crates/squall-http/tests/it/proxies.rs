//! Requests through a proxy: forwarded, tunnelled, over SOCKS5, and every way a proxy can refuse.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;

use squall_http::{Connector, HttpConfig};
use squall_testkit::scripted_server::{ScriptedServer, ServerStep, refused_address};
use squall_testkit::tls::{CertificateAuthority, CertificateValidity, wrap_tls};

use crate::{connector, fetch};

fn through(proxy: &str, change: impl FnOnce(&mut HttpConfig)) -> Connector {
    connector(|config| {
        config.proxy = Some(proxy.parse().expect("a URL"));
        change(config);
    })
}

/// Accepts one client, lets `greet` negotiate the target, then copies both ways. Returns the client's request.
fn relay(
    greet: impl FnOnce(&mut TcpStream) -> (String, SocketAddr) + Send + 'static,
    accepted: &'static [u8],
) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let (asked, target) = greet(&mut client);
        tx.send(asked).expect("a test that waits");
        let mut server = TcpStream::connect(target).expect("a target");
        client.write_all(accepted).expect("a client");
        let mut back = (server.try_clone().expect("a handle"), client.try_clone().expect("a handle"));
        std::thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let _ = std::io::copy(&mut client, &mut server);
    });
    (address, rx)
}

fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn read_bytes<const N: usize>(client: &mut TcpStream) -> [u8; N] {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).expect("bytes");
    bytes
}

#[tokio::test]
async fn http_requests_are_forwarded_with_absolute_url_and_proxy_credentials() {
    let proxy =
        ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("from the proxy"), ServerStep::Restart]);
    let connector = through(&format!("http://me:s%40fe@{}", proxy.address()), |_| {});
    assert_eq!(fetch(&connector, "http://shop.test:81/a?b").await, Ok((200, "from the proxy".into())));
    let request = proxy.last_request();
    assert!(request.starts_with("GET http://shop.test:81/a?b HTTP/1.1\r\nHost: shop.test:81\r\n"), "{request}");
    assert!(request.contains("\r\nProxy-Authorization: Basic bWU6c0BmZQ==\r\n"), "{request}");
}

#[tokio::test]
async fn https_uses_a_connect_tunnel() {
    let authority = CertificateAuthority::new();
    let identity = authority.issue(&["shop.test"], CertificateValidity::Current);
    let config = CertificateAuthority::server_config(&identity, None, &[]);
    let server = ScriptedServer::start_with(vec![ServerStep::Read, ServerStep::respond("secret")], wrap_tls(config));
    let target = server.address();
    let (address, asked) =
        relay(move |client| (read_head(client), target), b"HTTP/1.1 200 Connection established\r\n\r\n");
    let connector = through(&format!("http://me:pw@{address}"), |config| config.tls.ca = Some(authority.ca_file()));
    assert_eq!(fetch(&connector, "https://shop.test/a").await, Ok((200, "secret".into())));
    let asked = asked.recv().expect("a tunnel");
    assert!(asked.starts_with("CONNECT shop.test:443 HTTP/1.1\r\nHost: shop.test:443\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{asked}");
    let inner = server.last_request();
    assert!(inner.starts_with("GET /a HTTP/1.1\r\n") && !inner.contains("Proxy-"), "{inner}");
}

#[tokio::test]
async fn socks5_with_credentials_connects_to_the_named_host() {
    let server = ScriptedServer::start(vec![ServerStep::Read, ServerStep::respond("hello")]);
    let target = server.address();
    let (address, asked) = relay(
        move |client| {
            assert_eq!(read_bytes(client), [5, 2, 0, 2]);
            client.write_all(&[5, 2]).expect("a client");
            assert_eq!(&read_bytes::<7>(client), b"\x01\x02me\x02pw");
            client.write_all(&[1, 0]).expect("a client");
            let [.., length] = read_bytes::<5>(client);
            let mut name = vec![0; usize::from(length) + 2];
            client.read_exact(&mut name).expect("a name");
            (String::from_utf8_lossy(&name[..name.len() - 2]).into_owned(), target)
        },
        &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    );
    let connector = through(&format!("socks5://me:pw@{address}"), |_| {});
    assert_eq!(fetch(&connector, "http://shop.test/").await, Ok((200, "hello".into())));
    assert_eq!(asked.recv().expect("a tunnel"), "shop.test");
    assert!(server.last_request().starts_with("GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_proxy_failure_names_the_proxy() {
    let failure = Err("PROXY_FAILURE".to_owned());
    let refused = through(&format!("http://{}", refused_address()), |_| {});
    assert_eq!(fetch(&refused, "http://shop.test/").await, failure);
    for script in [
        vec![ServerStep::Read, ServerStep::send("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")],
        vec![ServerStep::Read, ServerStep::send("HTTP/1.1 502 Bad Gateway\r\n\r\n")],
        vec![ServerStep::Read, ServerStep::send("nonsense\r\n\r\n"), ServerStep::Hang],
        vec![ServerStep::Read, ServerStep::Close],
        vec![ServerStep::Read, ServerStep::SendForever(b"HTTP/1.1 200 OK\r\n".to_vec())],
    ] {
        let proxy = ScriptedServer::start(script);
        let connector = through(&format!("http://{}", proxy.address()), |_| {});
        assert_eq!(fetch(&connector, "https://shop.test/").await, failure);
    }
    for answer in [vec![5, 0xff], vec![4, 0], vec![5, 0, 5, 5, 0, 1]] {
        let proxy = ScriptedServer::start(vec![ServerStep::Send(answer), ServerStep::Hang]);
        let connector = through(&format!("socks5://{}", proxy.address()), |_| {});
        assert_eq!(fetch(&connector, "http://shop.test/").await, failure);
    }
}
