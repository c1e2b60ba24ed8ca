//! The response body of every endpoint: one chunk of memory, repeated until the length is reached,
//! so that large bodies cost no memory of their own.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

/// A body of known length.
#[derive(Debug)]
pub(crate) struct RepeatingBody {
    chunk: Bytes,
    remaining: u64,
}

/// The chunk that large bodies repeat.
static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];

impl RepeatingBody {
    /// `length` bytes of the letter x.
    pub(crate) fn of_length(length: u64) -> RepeatingBody {
        RepeatingBody { chunk: Bytes::from_static(&FILLER), remaining: length }
    }
}

impl<T: Into<Bytes>> From<T> for RepeatingBody {
    fn from(bytes: T) -> RepeatingBody {
        let piece = bytes.into();
        RepeatingBody { remaining: piece.len() as u64, chunk: piece }
    }
}

impl Body for RepeatingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.remaining == 0 {
            return Poll::Ready(None);
        }
        let length = self.remaining.min(self.chunk.len() as u64);
        self.remaining -= length;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.slice(..length as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
