//! Connections that are more than one exchange: a bare stream for what begins as HTTP and goes on as something else, and an answer that is
//! read piece by piece while it comes. HTTP/1.1 only; keeps no cookies and reuses nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::connector::Connector;
use crate::dial;
use crate::error::HttpError;
use crate::io::Io;
use crate::lane::{Watch, from_parse};
use crate::parse::{Expect, Fed, Limits, Reader};
use crate::request::Prepared;
use crate::response::Phases;

/// Bytes read at once.
const PIECE: usize = 16 * 1024;

/// An open connection on which nothing has been said yet.
#[derive(Debug)]
pub struct RawStream(Io);

impl RawStream {
    /// Connects to where `request` leads, within its own limit.
    pub async fn open(connector: &Connector, request: &Prepared) -> Result<RawStream, HttpError> {
        let timeout = request.timeout.unwrap_or(connector.config().timeout);
        let watch = Watch { deadline: Instant::now() + timeout, timeout, phases: false };
        let made = dial::dial(connector, &request.origin, watch, &mut Phases::default()).await?;
        if made.http2 {
            return Err(HttpError::H2 { reason: "this needs HTTP/1.1, and the server chose h2: add --http1".into() });
        }
        Ok(RawStream(made.io))
    }
}

impl AsyncRead for RawStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for RawStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

/// An answer whose body is still coming.
#[derive(Debug)]
pub struct LiveAnswer {
    io: RawStream,
    reader: Reader,
    /// Bytes of the body that were handed out.
    seen: usize,
    done: bool,
}

impl LiveAnswer {
    /// Sends `request` on a connection of its own and reads the head of the answer.
    pub async fn open(connector: &Connector, request: &Prepared) -> Result<LiveAnswer, HttpError> {
        let mut io = RawStream::open(connector, request).await?;
        io.write_all(request.as_bytes()).await.map_err(HttpError::from_io)?;
        io.flush().await.map_err(HttpError::from_io)?;
        let config = connector.config();
        let mut reader = Reader::new(Limits { head: config.max_head_bytes, body: config.max_body_bytes });
        reader.begin(Expect { head_only: request.method == http::Method::HEAD, keep: true });
        let mut answer = LiveAnswer { io, reader, seen: 0, done: false };
        while !answer.done && (answer.reader.facts().status == 0 || answer.reader.facts().interim()) {
            std::future::poll_fn(|cx| answer.poll_more(cx)).await?;
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

    /// The next piece of the body, of whatever size it came in; `None` at its end.
    pub fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Vec<u8>>, HttpError>> {
        loop {
            let body = self.reader.body();
            if body.len() > self.seen {
                let piece = body[self.seen..].to_vec();
                self.seen = body.len();
                return Poll::Ready(Ok(Some(piece)));
            }
            if self.done {
                return Poll::Ready(Ok(None));
            }
            ready!(self.poll_more(cx))?;
        }
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
        let fed = self.reader.feed(input).map_err(|error| from_parse(error, limits))?;
        self.done = matches!(fed, Fed::Done(_));
        Poll::Ready(Ok(()))
    }
}
