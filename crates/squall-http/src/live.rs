//! Connections that are more than one exchange: an answer that is read piece by piece while it comes, and the bare stream that is left
//! where HTTP goes on as something else. HTTP/1.1 only; reuses nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::connector::Connector;
use crate::cookies::Cookies;
use crate::decode::Unpacking;
use crate::dial::{self, Way};
use crate::error::{HttpError, RequestError};
use crate::io::Io;
use crate::lane::{Watch, from_parse};
use crate::parse::{Expect, Fed, Limits, Reader};
use crate::request::Prepared;
use crate::response::{Headers, Phases, Response};

/// Bytes read at once.
const PIECE: usize = 16 * 1024;

/// An answer whose body is still coming.
#[derive(Debug)]
pub struct LiveAnswer {
    io: Io,
    reader: Reader,
    /// Undoes the body's compression, if it has any.
    unpacking: Unpacking,
    /// Bytes that came after the answer.
    rest: Vec<u8>,
    sent: usize,
    done: bool,
}

impl LiveAnswer {
    /// Sends `request` on a connection of its own, with the user's cookies, and reads the head of the answer, all within the
    /// request's limit.
    pub async fn open(connector: &Connector, request: &Prepared, cookies: &Cookies) -> Result<LiveAnswer, HttpError> {
        let timeout = request.timeout.unwrap_or(connector.config().timeout);
        let watch = Watch { deadline: Instant::now() + timeout, timeout, phases: false };
        let opening = LiveAnswer::open_until(connector, request, cookies, watch);
        let opened = tokio::time::timeout_at(watch.deadline.into(), opening).await;
        opened.unwrap_or(Err(HttpError::Timeout { after: timeout }))
    }

    async fn open_until(
        connector: &Connector,
        request: &Prepared,
        cookies: &Cookies,
        watch: Watch,
    ) -> Result<LiveAnswer, HttpError> {
        let way = Way::new(connector, &request.origin).http1();
        let mut io = dial::dial(way, watch, &mut Phases::default()).await?.io;
        let mut with_cookies = Vec::new();
        let wire = cookies.add_to(request, Instant::now(), &mut with_cookies);
        io.write_all(wire).await.map_err(HttpError::from_io)?;
        io.flush().await.map_err(HttpError::from_io)?;
        let config = connector.config();
        // Pieces are forgotten as they are handed out, so a body may be of any length.
        let mut reader = Reader::new(Limits { head: config.max_head_bytes, body: usize::MAX });
        reader.begin(Expect { head_only: request.method == http::Method::HEAD, keep: true });
        let sent = wire.len();
        let mut answer =
            LiveAnswer { io, reader, unpacking: Unpacking::default(), rest: Vec::new(), sent, done: false };
        while !answer.done && (answer.reader.facts().status == 0 || answer.reader.facts().interim()) {
            std::future::poll_fn(|cx| answer.poll_more(cx)).await?;
        }
        let facts = answer.reader.facts();
        if facts.sets_cookie && config.cookies {
            cookies.take(request, Headers::of(answer.head()));
        }
        if config.decompress {
            answer.unpacking = Unpacking::new(facts.encoding, Headers::of(answer.head()), config.max_body_bytes)?;
        }
        Ok(answer)
    }

    pub fn status(&self) -> u16 {
        self.reader.facts().status
    }

    /// The head as it came; [`crate::Headers::of`] reads it.
    pub fn head(&self) -> &[u8] {
        self.reader.head()
    }

    /// Bytes read so far, head and framing included.
    pub fn received(&self) -> u64 {
        self.reader.received()
    }

    /// Bytes of the request.
    pub fn sent(&self) -> u64 {
        self.sent as u64
    }

    /// The request that it asks for instead, if it is a redirect of `request` that is to be followed.
    pub fn redirect(&self, request: &Prepared) -> Option<Result<Prepared, RequestError>> {
        request.redirect(&Response::new(&self.reader))
    }

    /// The next piece of the decoded body, of whatever size it came in; `None` at its end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, HttpError>> {
        loop {
            let piece = self.unpacking.feed(self.reader.take_piece())?;
            if !piece.is_empty() {
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.done {
                self.unpacking.end()?;
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
    }

    /// The connection, for what was agreed upon to come after the answer, and what has come of it already.
    pub fn into_stream(self) -> (RawStream, Vec<u8>) {
        let (read, written) = (self.received() + self.rest.len() as u64, self.sent());
        (RawStream { io: self.io, read, written }, self.rest)
    }

    /// Reads once.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        let mut piece = [0u8; PIECE];
        let mut buffer = ReadBuf::new(&mut piece);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)).map_err(HttpError::from_io)?;
        let limits = self.reader.limits();
        let input = buffer.filled();
        if input.is_empty() {
            self.done = true;
            return Poll::Ready(self.reader.finish().map_err(|error| from_parse(error, limits)));
        }
        if let Fed::Done(used) = self.reader.feed(input).map_err(|error| from_parse(error, limits))? {
            self.done = true;
            self.rest.extend_from_slice(&input[used..]);
        }
        Poll::Ready(Ok(()))
    }
}

/// A connection that does not speak HTTP any more.
#[derive(Debug)]
pub struct RawStream {
    io: Io,
    read: u64,
    written: u64,
}

impl RawStream {
    /// Bytes read and written so far, what was HTTP included.
    pub fn moved(&self) -> (u64, u64) {
        (self.read, self.written)
    }
}

impl AsyncRead for RawStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.read += (buf.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RawStream {
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
