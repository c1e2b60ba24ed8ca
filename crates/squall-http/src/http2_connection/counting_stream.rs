//! Counts the bytes of a stream, because h2 hides its framing, and detects a server that answers in HTTP/1.
//! It interrupts long reads, so that the exchange can refuse what a server floods it with.

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

/// After this number of bytes the connection's task must give way to the exchange. h2 reads as long as
/// bytes arrive, keeps every head that it decodes, and compression lets a few bytes be a large head.
const MAX_BYTES_AT_ONCE: usize = 16 * 1024;

/// A stream with its counters.
#[derive(Debug)]
pub(super) struct CountingStream {
    io: ConnectionStream,
    counts: ByteCounts,
    /// Bytes read since the task last gave way.
    read_at_once: usize,
}

impl CountingStream {
    pub(super) fn new(io: ConnectionStream) -> (CountingStream, ByteCounts) {
        let counts = ByteCounts::default();
        (CountingStream { io, counts: counts.clone(), read_at_once: 0 }, counts)
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read_at_once >= MAX_BYTES_AT_ONCE {
            self.read_at_once = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        self.read_at_once = if read.is_pending() { 0 } else { self.read_at_once + buf.filled().len() - before };
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
