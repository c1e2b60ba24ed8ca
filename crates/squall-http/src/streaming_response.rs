//! Responses that are read chunk by chunk while they arrive, and the raw stream that remains after
//! an upgrade (WebSocket). HTTP/1.1 only; connections are not reused.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::connection_stream::ConnectionStream;
use crate::connector::Connector;
use crate::cookies::Cookies;
use crate::decode::BodyDecoder;
use crate::dial::{self, DialTarget};
use crate::error::{HttpError, RequestError};
use crate::http1_connection::{ExchangeOptions, from_parse};
use crate::parse::{ParseLimits, ParseProgress, ResponseExpectation, ResponseParser};
use crate::request::PreparedRequest;
use crate::response::{ExchangePhases, HeaderIter, HttpResponse};

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
    /// Sends `request` on a connection of its own, with the user's cookies, and reads the head of the response, all
    /// within the request's limit.
    pub async fn open(
        connector: &Connector,
        request: &PreparedRequest,
        cookies: &Cookies,
    ) -> Result<StreamingResponse, HttpError> {
        let timeout = request.timeout.unwrap_or(connector.config().timeout);
        let options = ExchangeOptions { deadline: Instant::now() + timeout, timeout, record_phases: false };
        let opening = StreamingResponse::open_before_deadline(connector, request, cookies, options);
        let opened = tokio::time::timeout_at(options.deadline.into(), opening).await;
        opened.unwrap_or(Err(HttpError::Timeout { after: timeout }))
    }

    async fn open_before_deadline(
        connector: &Connector,
        request: &PreparedRequest,
        cookies: &Cookies,
        options: ExchangeOptions,
    ) -> Result<StreamingResponse, HttpError> {
        let target = DialTarget::new(connector, &request.origin).force_http1();
        let mut io = dial::dial(target, options, &mut ExchangePhases::default()).await?.io;
        let mut with_cookies = Vec::new();
        let wire = cookies.render_request(request, Instant::now(), &mut with_cookies);
        io.write_all(wire).await.map_err(HttpError::from_io)?;
        io.flush().await.map_err(HttpError::from_io)?;
        let config = connector.config();
        // Chunks are removed as they are returned, so a body may have any length.
        let mut parser = ResponseParser::new(ParseLimits { head: config.max_head_bytes, body: usize::MAX });
        parser.begin(ResponseExpectation { head_only: request.method == http::Method::HEAD, keep_body: true });
        let sent = wire.len();
        let mut response = StreamingResponse {
            io,
            parser,
            decoder: BodyDecoder::default(),
            leftover: Vec::new(),
            bytes_sent: sent,
            done: false,
        };
        while !response.done
            && (response.parser.parsed_head().status == 0 || response.parser.parsed_head().is_interim())
        {
            std::future::poll_fn(|cx| response.poll_read_once(cx)).await?;
        }
        let head = response.parser.parsed_head();
        if head.sets_cookie && config.cookies {
            cookies.store_from_response(request, HeaderIter::from_head(response.raw_head()));
        }
        if config.decompress {
            response.decoder =
                BodyDecoder::new(head.encoding, HeaderIter::from_head(response.raw_head()), config.max_body_bytes)?;
        }
        Ok(response)
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

    /// Bytes of the request.
    pub fn sent(&self) -> u64 {
        self.bytes_sent as u64
    }

    /// The next request, if this response redirects `request` and redirects are followed.
    pub fn redirect(&self, request: &PreparedRequest) -> Option<Result<PreparedRequest, RequestError>> {
        request.redirect(&HttpResponse::new(&self.parser))
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
    fn poll_read_once(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
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
