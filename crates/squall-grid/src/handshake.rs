//! Heads of HTTP/1.1 requests and responses on raw connections: reads one, writes one, and dials a
//! WebSocket. It accepts no body except the short one of a refusal.
//! The server dials workers with it; a worker's gateway reads requests and dials browsers with it.

use std::{fmt::Write, io};

use crate::{
    relay::{RelaySide, Socket},
    server::DEBUG_LOG_HEADER,
};

/// The most bytes and headers of a head. The server accepts half of both from a client, because it adds
/// headers of its own for the worker.
pub(crate) const MAX_HEAD: usize = 16 << 10;
pub(crate) const MAX_HEADERS: usize = 128;
/// The most bytes of a refusal's body that are passed on.
const MAX_BODY: usize = 8 << 10;

/// Headers by name, in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(Vec<(String, String)>);

impl Headers {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn push(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_ascii_lowercase(), value.into()));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn from_parsed(parsed: &[httparse::Header<'_>]) -> Result<Self, HandshakeError> {
        let mut headers = Self::default();
        for header in parsed {
            let value = std::str::from_utf8(header.value).map_err(|_| HandshakeError::Malformed)?;
            headers.push(header.name, value);
        }
        Ok(headers)
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    /// The connection failed.
    #[error("the connection failed")]
    Connection(#[from] io::Error),
    /// The connection ended before the head did.
    #[error("the connection ended before the head did")]
    Ended,
    /// The head is too large.
    #[error("the head has more than {MAX_HEAD} bytes or {MAX_HEADERS} headers")]
    TooLarge,
    /// The head is not HTTP/1.1.
    #[error("the head is not one of HTTP/1.1")]
    Malformed,
    /// The peer refused the WebSocket.
    #[error("refused with status {status}: {body}")]
    Refused {
        /// The status.
        status: u16,
        /// The body, usually a sentence.
        body: String,
    },
}

/// Headers of a client that Playwright gets, besides `x-playwright-…`.
const FORWARDED: [&str; 7] = [
    "user-agent",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
];

/// Whether Playwright gets this header of a client. Without compression, client and browser must not
/// agree on an extension.
pub(crate) fn is_forwarded(name: &str, compression: bool) -> bool {
    let playwright = name.starts_with("x-playwright-") && name != "x-playwright-launch-options";
    playwright || FORWARDED.contains(&name) && (compression || name != "sec-websocket-extensions")
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Headers,
}

/// Reads the head of a request, and returns the bytes after it too.
pub(crate) async fn read_request(socket: &Socket) -> Result<(RequestHead, Vec<u8>), HandshakeError> {
    let (head, rest) = read_head(socket).await?;
    let mut parsed = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut parsed);
    request.parse(&head).map_err(parse_error)?;
    let method = request.method.ok_or(HandshakeError::Malformed)?.to_owned();
    let path = request.path.ok_or(HandshakeError::Malformed)?.to_owned();
    Ok((RequestHead { method, path, headers: Headers::from_parsed(request.headers)? }, rest))
}

/// Sends the head of a WebSocket request and reads the response, which must be 101.
pub(crate) async fn open_websocket(
    socket: Socket,
    path: &str,
    headers: &Headers,
) -> Result<(Headers, RelaySide), HandshakeError> {
    let mut head = format!("GET {path} HTTP/1.1\r\n");
    for (name, value) in headers.iter() {
        // Writing to a string cannot fail.
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes()).await?;
    let (head, rest) = read_head(&socket).await?;
    let mut parsed = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut parsed);
    response.parse(&head).map_err(parse_error)?;
    let (Some(status), headers) = (response.code, Headers::from_parsed(response.headers)?) else {
        return Err(HandshakeError::Malformed);
    };
    match status {
        101 => Ok((headers, RelaySide { socket, received: rest })),
        status => Err(HandshakeError::Refused { status, body: read_body(&socket, &headers, rest).await }),
    }
}

/// Writes a response with a short body, and what Playwright prints in its call log; ends the connection.
pub(crate) async fn refuse(socket: &Socket, status: u16, body: &str, log: Option<&str>) -> io::Result<()> {
    let log = log.map_or_else(String::new, |log| format!("{DEBUG_LOG_HEADER}: {log}\r\n"));
    let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("");
    let response = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         {log}connection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(response.as_bytes()).await?;
    socket.shut_down_write();
    Ok(())
}

/// Writes the head of a 101 response.
pub(crate) async fn accept_websocket(socket: &Socket, headers: &Headers) -> io::Result<()> {
    let mut head = String::from("HTTP/1.1 101 Switching Protocols\r\n");
    for (name, value) in headers.iter() {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes()).await
}

async fn read_head(socket: &Socket) -> Result<(Vec<u8>, Vec<u8>), HandshakeError> {
    let (mut head, mut buffer) = (Vec::new(), [0; 2048]);
    loop {
        let searched = head.len().saturating_sub(3);
        match socket.read_some(&mut buffer).await? {
            0 => return Err(HandshakeError::Ended),
            read => head.extend_from_slice(&buffer[..read]),
        }
        if let Some(at) = head[searched..].windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = head.split_off(searched + at + 4);
            return if head.len() > MAX_HEAD { Err(HandshakeError::TooLarge) } else { Ok((head, rest)) };
        }
        if head.len() > MAX_HEAD {
            return Err(HandshakeError::TooLarge);
        }
    }
}

fn parse_error(error: httparse::Error) -> HandshakeError {
    match error {
        httparse::Error::TooManyHeaders => HandshakeError::TooLarge,
        _ => HandshakeError::Malformed,
    }
}

async fn read_body(socket: &Socket, headers: &Headers, mut body: Vec<u8>) -> String {
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(MAX_BODY);
    let (length, mut buffer) = (length.min(MAX_BODY), [0; 1024]);
    while body.len() < length {
        match socket.read_some(&mut buffer).await {
            Ok(read) if read > 0 => body.extend_from_slice(&buffer[..read]),
            _ => break,
        }
    }
    body.truncate(length);
    String::from_utf8_lossy(&body).trim().to_owned()
}
