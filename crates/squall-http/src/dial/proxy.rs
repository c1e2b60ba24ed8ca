//! Connections through a proxy: forwarded (http), tunnelled with CONNECT, or over SOCKS5. Every
//! failure names the proxy.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Host;

use super::tcp;
use crate::config::HttpVersion;
use crate::connection_stream::PlainSocket;
use crate::connector::{Connector, ProxyKind, ProxySettings};
use crate::error::HttpError;
use crate::origin::{Origin, UrlScheme};
use crate::response::ExchangePhases;

/// Longest accepted response to CONNECT.
const MAX_CONNECT_RESPONSE_BYTES: usize = 16 * 1024;

/// Whether requests name the origin themselves, so that no tunnel is needed.
pub(crate) fn uses_forward_proxy(connector: &Connector, origin: &Origin) -> bool {
    let config = connector.config();
    config.unix_socket.is_none()
        && origin.scheme == UrlScheme::Http
        && config.version != HttpVersion::Http2
        && connector.proxy().is_some_and(|proxy| proxy.kind == ProxyKind::Http)
}

/// Opens a connection that leads to `origin`.
pub(super) async fn open(
    connector: &Connector,
    proxy: &ProxySettings,
    origin: &Origin,
    deadline: Instant,
    phases: &mut ExchangePhases,
) -> Result<PlainSocket, HttpError> {
    let begin = Instant::now();
    let opened = tcp::open(connector, &proxy.host, proxy.port, deadline, phases).await;
    let mut stream = opened.map_err(|error| match error {
        HttpError::LocalLimit { .. } => error,
        error => HttpError::Proxy { reason: error.to_string() },
    })?;
    let tunnel = match proxy.kind {
        ProxyKind::Http if uses_forward_proxy(connector, origin) => Ok(()),
        ProxyKind::Http => connect_tunnel(&mut stream, proxy, origin).await,
        ProxyKind::Socks5 => socks5_handshake(&mut stream, proxy, origin).await,
    };
    tunnel.map_err(|refusal| HttpError::Proxy { reason: refusal.to_string() })?;
    phases.connect = begin.elapsed().saturating_sub(phases.dns);
    Ok(PlainSocket::Tcp(stream))
}

async fn connect_tunnel(stream: &mut TcpStream, proxy: &ProxySettings, origin: &Origin) -> std::io::Result<()> {
    let authority = origin.authority();
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(value) = &proxy.authorization {
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await?;
    // Reads byte by byte, because bytes after the response belong to the tunnel.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await?);
        if answer.len() > MAX_CONNECT_RESPONSE_BYTES {
            return Err(std::io::Error::other("the answer to CONNECT is endless"));
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(&answer);
    match (parsed, response.code) {
        (Ok(_), Some(200..=299)) => Ok(()),
        (Ok(_), Some(407)) => Err(std::io::Error::other("it asks for credentials (407)")),
        (Ok(_), Some(code)) => Err(std::io::Error::other(format!("it refused to connect with status {code}"))),
        _ => Err(std::io::Error::other("its answer to CONNECT is not HTTP")),
    }
}

/// RFC 1928, with the user name and password of RFC 1929. Names are resolved by the proxy.
async fn socks5_handshake(stream: &mut TcpStream, proxy: &ProxySettings, origin: &Origin) -> std::io::Result<()> {
    let refuse = |reason: &'static str| Err(std::io::Error::other(reason));
    let methods: &[u8] = if proxy.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
    stream.write_all(methods).await?;
    match (stream.read_u8().await?, stream.read_u8().await?, &proxy.credentials) {
        (5, 0, _) => {}
        (5, 2, Some((user, password))) => {
            let (Ok(user_length), Ok(password_length)) = (u8::try_from(user.len()), u8::try_from(password.len()))
            else {
                return refuse("user name or password is longer than 255 bytes");
            };
            let mut message = vec![1, user_length];
            message.extend_from_slice(user.as_bytes());
            message.push(password_length);
            message.extend_from_slice(password.as_bytes());
            stream.write_all(&message).await?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer).await?;
            if answer[1] != 0 {
                return refuse("it refused the credentials");
            }
        }
        (5, _, _) => return refuse("it accepts none of our ways to log in"),
        _ => return refuse("it does not speak SOCKS5"),
    }
    let mut message = vec![5, 1, 0];
    match &origin.host {
        Host::Ipv4(address) => {
            message.push(1);
            message.extend_from_slice(&address.octets());
        }
        Host::Ipv6(address) => {
            message.push(4);
            message.extend_from_slice(&address.octets());
        }
        Host::Domain(name) => {
            let Ok(length) = u8::try_from(name.len()) else { return refuse("the host name is too long for SOCKS5") };
            message.extend_from_slice(&[3, length]);
            message.extend_from_slice(name.as_bytes());
        }
    }
    message.extend_from_slice(&origin.port.to_be_bytes());
    stream.write_all(&message).await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    if answer[1] != 0 {
        return Err(std::io::Error::other(format!("it could not connect (SOCKS5 reply {})", answer[1])));
    }
    skip_bound_address(stream, answer[3]).await
}

async fn skip_bound_address(stream: &mut TcpStream, kind: u8) -> std::io::Result<()> {
    let length = match kind {
        1 => size_of::<std::net::Ipv4Addr>(),
        4 => size_of::<std::net::Ipv6Addr>(),
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(std::io::Error::other("it answered with an unknown address type")),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await?;
    Ok(())
}
