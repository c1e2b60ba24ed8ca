//! The result of an exchange: a view on the session's buffers, valid until the next request.

use std::time::{Duration, Instant};

use crate::error::HttpError;
use crate::parse::ResponseParser;

/// What to do with a response's body. It is always read to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyMode {
    /// Count its bytes and drop them without decoding.
    Discard,
    /// Keep it, decoded, for a check or an extractor.
    Keep,
}

/// One request and its result.
#[derive(Debug)]
pub struct Exchange<'s> {
    /// The response with any status, or the error.
    pub result: Result<HttpResponse<'s>, HttpError>,
    /// When [`crate::Session::send`] began.
    pub started: Instant,
    /// When the last byte had been read, or the failure was known.
    pub ended: Instant,
    /// Bytes read, head and framing included (for HTTPS: after decryption).
    pub bytes_in: u64,
    /// Bytes written, head included (for HTTPS: before encryption).
    pub bytes_out: u64,
    /// The time of each phase; only with [`crate::HttpConfig::record_phases`].
    pub phases: Option<ExchangePhases>,
    /// Whether this request opened, or tried to open, a connection.
    pub new_connection: bool,
}

/// The time of each phase of one exchange; zero for a phase that did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangePhases {
    /// Resolving the name.
    pub dns: Duration,
    /// Connecting, through a proxy too.
    pub connect: Duration,
    /// TLS handshake.
    pub tls: Duration,
    /// From the start of writing to the first byte of the response.
    pub first_byte: Duration,
    /// From the first byte to the last.
    pub body: Duration,
}

/// A complete response.
#[derive(Clone, Copy)]
pub struct HttpResponse<'s> {
    /// Status code.
    pub status: u16,
    parser: &'s ResponseParser,
}

impl<'s> HttpResponse<'s> {
    pub(crate) fn new(parser: &'s ResponseParser) -> HttpResponse<'s> {
        HttpResponse { status: parser.parsed_head().status, parser }
    }

    /// The first value of a header, by name without regard to case. `None` also if the value is not UTF-8.
    pub fn header(&self, name: &str) -> Option<&'s str> {
        self.headers().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All headers in the order received, except those whose value is not UTF-8.
    pub fn headers(&self) -> HeaderIter<'s> {
        HeaderIter::from_head(self.parser.raw_head())
    }

    /// The raw head with its status line, for [`HeaderIter`].
    pub fn raw_head(&self) -> &'s [u8] {
        self.parser.raw_head()
    }

    /// The decoded body; empty without [`BodyMode::Keep`].
    pub fn body(&self) -> &'s [u8] {
        self.parser.body()
    }
}

impl std::fmt::Debug for HttpResponse<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers().collect::<Vec<_>>())
            .field("body_bytes", &self.body().len())
            .finish()
    }
}

/// Iterates over the header lines of a parsed head.
#[derive(Debug, Clone)]
pub struct HeaderIter<'s> {
    rest: &'s [u8],
}

impl<'s> HeaderIter<'s> {
    /// The headers of a kept [`HttpResponse::head`].
    pub fn from_head(head: &'s [u8]) -> HeaderIter<'s> {
        let mut headers = HeaderIter { rest: head };
        // httparse allows empty lines before the status line.
        while headers.next_line().is_some_and(<[u8]>::is_empty) {}
        headers
    }

    fn next_line(&mut self) -> Option<&'s [u8]> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

impl<'s> Iterator for HeaderIter<'s> {
    type Item = (&'s str, &'s str);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.next_line()?;
            let Some(colon) = line.iter().position(|&byte| byte == b':') else {
                continue;
            };
            let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) {
                return Some((name, value));
            }
        }
    }
}
