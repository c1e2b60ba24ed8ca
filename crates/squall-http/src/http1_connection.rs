//! One HTTP/1.1 exchange on one open connection. It opens nothing and retries nothing.
//!
//! The connection writes the rendered request at once, and reads the response into one buffer per
//! thread, where it is parsed. In the steady state an exchange is one `send` and one `recv`,
//! without allocation or timer operation.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::AsyncWrite;

use crate::connection_stream::ConnectionStream;
use crate::error::HttpError;
use crate::parse::{ParseError, ParseProgress, ResponseParser};

const READ_BUFFER_BYTES: usize = 64 * 1024;

thread_local! {
    /// Borrowed only inside one poll, so one buffer serves all connections of a thread.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BUFFER_BYTES].into());
}

/// One HTTP/1.1 connection.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    io: ConnectionStream,
    written: usize,
    flushed: bool,
    /// Set between the first byte written and the last byte read. It stays set if the exchange was abandoned.
    busy: bool,
    /// The peer stopped reading. Only a response that it has already sent can still arrive.
    write_error: Option<io::Error>,
    first_byte_at: Option<Instant>,
}

/// Whether a connection may carry another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterExchange {
    Reuse,
    Close,
}

impl Http1Connection {
    pub(crate) fn new(io: ConnectionStream) -> Http1Connection {
        Http1Connection { io, written: 0, flushed: false, busy: false, write_error: None, first_byte_at: None }
    }

    /// False if the server closed the connection, sent bytes without a request, or an exchange was abandoned.
    pub(crate) fn is_usable(&mut self) -> bool {
        !self.busy && self.io.is_idle()
    }

    /// Whether an exchange is in progress or was abandoned.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Starts an exchange; [`Http1Connection::poll`] does the rest.
    pub(crate) fn begin_exchange(&mut self) {
        self.written = 0;
        self.flushed = matches!(self.io, ConnectionStream::Plain(_));
        self.busy = true;
        self.first_byte_at = None;
    }

    /// Bytes of the request that have been handed to the socket.
    pub(crate) fn written(&self) -> usize {
        self.written
    }

    /// When the first byte of the response arrived; only if phases are recorded.
    pub(crate) fn first_byte_at(&self) -> Option<Instant> {
        self.first_byte_at
    }

    /// Continues the exchange. Pending means that it waits for bytes, and the caller's timer
    /// watches the deadline. Between two reads that both find data, the connection checks
    /// `options.deadline` itself, so that a server that never stops sending cannot pass it.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        wire: &[u8],
        parser: &mut ResponseParser,
        options: ExchangeOptions,
    ) -> Poll<Result<AfterExchange, HttpError>> {
        let sent = self.poll_send(cx, wire);
        loop {
            let read = READ_BUFFER.with_borrow_mut(|scratch| self.poll_receive(cx, scratch, parser));
            if options.record_phases && self.first_byte_at.is_none() && read.is_ready() {
                self.first_byte_at = Some(Instant::now());
            }
            match ready!(read) {
                Ok(ReceiveProgress::Done(after)) => {
                    self.busy = false;
                    let whole = sent.is_ready() && self.write_error.is_none();
                    return Poll::Ready(Ok(if whole { after } else { AfterExchange::Close }));
                }
                Ok(ReceiveProgress::More) if Instant::now() >= options.deadline => {
                    return Poll::Ready(Err(HttpError::Timeout { after: options.timeout }));
                }
                Ok(ReceiveProgress::More) => {}
                Err(HttpError::Closed) if self.write_error.is_some() => {
                    let source = self.write_error.take().expect("checked above");
                    return Poll::Ready(Err(HttpError::from_io(source)));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Writes the rest of the request. A write error is kept for later, because the response may
    /// say why the server stopped reading.
    fn poll_send(&mut self, cx: &mut Context<'_>, wire: &[u8]) -> Poll<()> {
        while self.written < wire.len() && self.write_error.is_none() {
            let rest = &wire[self.written..];
            let wrote = match self.io.try_write(rest) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(Pin::new(&mut self.io).poll_write(cx, rest))
                }
                wrote => wrote,
            };
            match wrote {
                Ok(count) => self.written += count,
                Err(error) => self.write_error = Some(error),
            }
        }
        if !self.flushed {
            if let Err(error) = ready!(Pin::new(&mut self.io).poll_flush(cx)) {
                self.write_error = Some(error);
            }
            self.flushed = true;
        }
        Poll::Ready(())
    }

    /// One read.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
        parser: &mut ResponseParser,
    ) -> Poll<Result<ReceiveProgress, HttpError>> {
        let input = match ready!(self.io.poll_recv(cx, scratch)) {
            Ok(count) => &scratch[..count],
            Err(error) => return Poll::Ready(Err(read_error(error, parser))),
        };
        let limits = parser.limits();
        if input.is_empty() {
            let ended = parser.finish().map_err(|error| from_parse(error, limits));
            return Poll::Ready(ended.map(|()| ReceiveProgress::Done(AfterExchange::Close)));
        }
        let fed = parser.feed(input).map_err(|error| from_parse(error, limits))?;
        Poll::Ready(Ok(match fed {
            ParseProgress::NeedsMore => ReceiveProgress::More,
            // Unrequested bytes must never be taken for the next response.
            ParseProgress::Complete(used) if used < input.len() || !parser.parsed_head().keep_alive => {
                ReceiveProgress::Done(AfterExchange::Close)
            }
            ParseProgress::Complete(_) => ReceiveProgress::Done(AfterExchange::Reuse),
        }))
    }
}

/// The limits of one exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeOptions {
    pub(crate) deadline: Instant,
    pub(crate) timeout: std::time::Duration,
    pub(crate) record_phases: bool,
}

enum ReceiveProgress {
    More,
    Done(AfterExchange),
}

#[cold]
fn read_error(error: io::Error, parser: &mut ResponseParser) -> HttpError {
    // TLS closed without close_notify: the stream has ended, but such an end must not complete a body.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        let ended = parser.finish().err().unwrap_or(ParseError::Truncated);
        return from_parse(ended, parser.limits());
    }
    HttpError::from_io(error)
}

/// Turns a parse error into the outcome of an exchange.
#[cold]
pub(crate) fn from_parse(error: ParseError, limits: crate::parse::ParseLimits) -> HttpError {
    match error {
        ParseError::Malformed(reason) => HttpError::Malformed { reason },
        ParseError::HeadTooLarge => HttpError::HeadTooLarge { limit: limits.head },
        ParseError::BodyTooLarge => HttpError::BodyTooLarge { limit: limits.body },
        ParseError::Closed => HttpError::Closed,
        ParseError::Truncated => HttpError::Truncated,
    }
}
