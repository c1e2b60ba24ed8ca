//! The byte streams under a connection: TCP, Unix or TLS over either. Moves bytes; interprets none.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A plain socket.
#[derive(Debug)]
pub(crate) enum PlainSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection's stream. TLS is boxed: its state is large and most users have none.
#[derive(Debug)]
pub(crate) enum ConnectionStream {
    Plain(PlainSocket),
    Tls(Box<TlsStream<PlainSocket>>),
}

/// Raw system calls. The C library's wrappers first check for thread cancellation, which costs time.
impl PlainSocket {
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            PlainSocket::Tcp(stream) => stream.poll_read_ready(cx),
            PlainSocket::Unix(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Calls `attempt` if the socket may be ready; `WouldBlock` means that it is not, until epoll reports it again.
    fn try_io<T>(&self, interest: Interest, attempt: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            PlainSocket::Tcp(stream) => stream.try_io(interest, || attempt(stream.as_fd())),
            PlainSocket::Unix(stream) => stream.try_io(interest, || attempt(stream.as_fd())),
        }
    }

    fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, |fd| Ok(retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL))?))
    }

    /// Reads once. A read that does not fill the buffer has emptied the socket, so it also clears
    /// the readiness. The next exchange then saves a `recv` that would find nothing.
    fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut short = None;
            let tried = self.try_io(Interest::READABLE, |fd| {
                let count = retry_on_intr(|| rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()))?.0;
                if count == 0 || count == buffer.len() {
                    return Ok(count);
                }
                short = Some(count);
                Err(io::ErrorKind::WouldBlock.into())
            });
            match (short, tried) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, tried) => return Poll::Ready(tried),
            }
        }
    }
}

impl ConnectionStream {
    /// Writes what the socket accepts now, without a timer or a waker.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            ConnectionStream::Plain(socket) => socket.try_send(bytes),
            ConnectionStream::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads once; 0 bytes mean the end of the stream.
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            ConnectionStream::Plain(socket) => socket.poll_recv(cx, buffer),
            ConnectionStream::Tls(stream) => {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(stream.as_mut()).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// True while an idle connection is open and silent. Costs no system call unless epoll has reported something:
    /// `try_read` looks at the stored readiness first, and a short read has cleared that.
    pub(crate) fn is_idle(&mut self) -> bool {
        let mut probe = [0u8; 1];
        let read = match self {
            ConnectionStream::Plain(PlainSocket::Tcp(stream)) => stream.try_read(&mut probe),
            ConnectionStream::Plain(PlainSocket::Unix(stream)) => stream.try_read(&mut probe),
            // The server may send session tickets and key updates at any time. Only TLS can tell them from data.
            ConnectionStream::Tls(stream) => {
                let mut cx = Context::from_waker(Waker::noop());
                let mut buffer = ReadBuf::new(&mut probe);
                return Pin::new(stream.as_mut()).poll_read(&mut cx, &mut buffer).is_pending();
            }
        };
        // Tokio's own "not ready" error carries no OS code. Asking for its kind would cost more
        // than the rest of this function.
        match read {
            Ok(_) => false,
            Err(error) => error.raw_os_error().is_none() || error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

macro_rules! delegate {
    ($type:ty, $($variant:pat => $stream:expr),+) => {
        impl AsyncRead for $type {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant => Pin::new($stream).poll_read(cx, buf)),+ }
            }
        }
        impl AsyncWrite for $type {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($variant => Pin::new($stream).poll_write(cx, bytes)),+ }
            }
            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant => Pin::new($stream).poll_flush(cx)),+ }
            }
            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($variant => Pin::new($stream).poll_shutdown(cx)),+ }
            }
        }
    };
}

delegate!(PlainSocket, PlainSocket::Tcp(stream) => stream, PlainSocket::Unix(stream) => stream);
delegate!(ConnectionStream, ConnectionStream::Plain(socket) => socket, ConnectionStream::Tls(stream) => stream.as_mut());
