//! Counts the bytes of a stream, because h2 hides its framing, and detects a server that answers in HTTP/1.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection_stream::ConnectionStream;

/// Bytes read and written so far, and whether the first ones were those of HTTP/1.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteCounts(Arc<([AtomicU64; 2], AtomicBool)>);

impl ByteCounts {
    /// Whether the server answered in HTTP/1, whose bytes look like frames of absurd size.
    pub(super) fn saw_http1(&self) -> bool {
        self.0.1.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self) -> (u64, u64) {
        (self.0.0[0].load(Ordering::Relaxed), self.0.0[1].load(Ordering::Relaxed))
    }
}

/// A stream with its counters.
#[derive(Debug)]
pub(super) struct CountingStream {
    io: ConnectionStream,
    counts: ByteCounts,
}

impl CountingStream {
    pub(super) fn new(io: ConnectionStream) -> (CountingStream, ByteCounts) {
        let counts = ByteCounts::default();
        (CountingStream { io, counts: counts.clone() }, counts)
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        let (counts, http1) = &*self.counts.0;
        let read_before = counts[0].fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        if read_before == 0 && buf.filled()[before..].starts_with(b"HTTP/1") {
            http1.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &wrote {
            self.counts.0.0[1].fetch_add(*count as u64, Ordering::Relaxed);
        }
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
