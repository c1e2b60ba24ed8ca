//! Responses that are read chunk by chunk while they arrive, and the raw stream that remains after
//! an upgrade (WebSocket). HTTP/1.1 only; connections are not reused. It does not open them:
//! `stream_opener` does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::config::HttpConfig;
use crate::connection_stream::ConnectionStream;
use crate::decode::BodyDecoder;
use crate::error::HttpError;
use crate::http1_connection::from_parse;
use crate::parse::{ParseLimits, ParseProgress, ResponseExpectation, ResponseParser};
use crate::request::PreparedRequest;
use crate::response::HttpResponse;

/// Bytes per read.
const READ_CHUNK_BYTES: usize = 16 * 1024;

/// A response whose body is still arriving.
#[derive(Debug)]
pub struct StreamingResponse {
    io: ConnectionStream,
    parser: ResponseParser,
    /// Decodes a compressed body.
    decoder: BodyDecoder,
    /// Bytes received after the response.
    leftover: Vec<u8>,
    bytes_sent: usize,
    done: bool,
}

impl StreamingResponse {
    /// The response to `request`, of which nothing has been sent yet.
    pub(crate) fn new(io: ConnectionStream, config: &HttpConfig, request: &PreparedRequest) -> StreamingResponse {
        // Chunks are removed as they are returned, so a body may have any length.
        let mut parser = ResponseParser::new(ParseLimits { head: config.max_head_bytes, body: usize::MAX });
        parser.begin(ResponseExpectation { head_only: request.method == http::Method::HEAD, keep_body: true });
        let decoder = BodyDecoder::default();
        StreamingResponse { io, parser, decoder, leftover: Vec::new(), bytes_sent: 0, done: false }
    }

    /// Sends the request as rendered in `wire`.
    pub(crate) async fn write_request(&mut self, wire: &[u8]) -> Result<(), HttpError> {
        while self.bytes_sent < wire.len() {
            match self.io.write(&wire[self.bytes_sent..]).await.map_err(HttpError::from_io)? {
                0 => return Err(HttpError::from_io(io::ErrorKind::WriteZero.into())),
                written => self.bytes_sent += written,
            }
        }
        self.io.flush().await.map_err(HttpError::from_io)
    }

    /// Whether the head of the final response has arrived.
    pub(crate) fn has_head(&self) -> bool {
        let head = self.parser.parsed_head();
        self.done || (head.status != 0 && !head.is_interim())
    }

    pub(crate) fn sets_cookie(&self) -> bool {
        self.parser.parsed_head().sets_cookie
    }

    /// Decodes the body from here on. A decoded body may have at most `max_body_bytes`.
    pub(crate) fn start_decoding(&mut self, max_body_bytes: usize) -> Result<(), HttpError> {
        let encoding = self.parser.parsed_head().encoding;
        self.decoder = BodyDecoder::new(encoding, self.head().headers(), max_body_bytes)?;
        Ok(())
    }

    /// The head, as a response without a body.
    pub(crate) fn head(&self) -> HttpResponse<'_> {
        HttpResponse::new(&self.parser)
    }

    pub fn status(&self) -> u16 {
        self.parser.parsed_head().status
    }

    /// The raw head, for [`crate::HeaderIter`].
    pub fn raw_head(&self) -> &[u8] {
        self.parser.raw_head()
    }

    /// Bytes read so far, head and framing included.
    pub fn received(&self) -> u64 {
        self.parser.received()
    }

    /// Bytes of the request that have been sent.
    pub fn sent(&self) -> u64 {
        self.bytes_sent as u64
    }

    /// The next chunk of the decoded body, in any size; `None` at the end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, HttpError>> {
        loop {
            let piece = self.decoder.feed(self.parser.take_body_chunk())?;
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.done {
                self.decoder.finish()?;
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_read_once(cx))?;
        }
    }

    /// The connection for the upgraded protocol, with the bytes of it that have already arrived.
    pub fn into_upgraded(self) -> (UpgradedStream, Vec<u8>) {
        let (read, written) = (self.received() + self.leftover.len() as u64, self.sent());
        (UpgradedStream { io: self.io, read, written }, self.leftover)
    }

    /// Reads once.
    pub(crate) fn poll_read_once(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        let mut piece = [0u8; READ_CHUNK_BYTES];
        let mut buffer = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)).map_err(HttpError::from_io)?;
        let limits = self.parser.limits();
        let input = buffer.filled();
        if input.is_empty() {
            self.done = true;
            return Poll::Ready(self.parser.finish().map_err(|error| from_parse(error, limits)));
        }
        if let ParseProgress::Complete(used) = self.parser.feed(input).map_err(|error| from_parse(error, limits))? {
            self.done = true;
            self.leftover.extend_from_slice(&input[used..]);
        }
        Poll::Ready(Ok(()))
    }
}

/// A connection after an upgrade from HTTP.
#[derive(Debug)]
pub struct UpgradedStream {
    io: ConnectionStream,
    read: u64,
    written: u64,
}

impl UpgradedStream {
    /// Bytes read and written so far, including HTTP.
    pub fn bytes_transferred(&self) -> (u64, u64) {
        (self.read, self.written)
    }
}

impl AsyncRead for UpgradedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.read += (buf.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpgradedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.io).poll_write(cx, bytes))?;
        this.written += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
