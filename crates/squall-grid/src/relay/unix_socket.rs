//! A Unix stream that the runtime watches for bytes to read only. The kernel reports that such a
//! stream can be written whenever its peer has read, and each report would wake the relay for nothing.
//! It keeps no buffer. The relay and the dialler use it for connections to browsers.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use socket2::{Domain, SockAddr, SockRef, Type};
use tokio::net::unix::pipe;

/// A connection to a browser.
#[derive(Debug)]
pub struct UnixSocket {
    /// A socket behind tokio's pipe type, which watches one direction.
    reading: pipe::Receiver,
}

impl UnixSocket {
    /// Connects to a listener.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A listener whose queue is full must not block the thread.
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Self::new(socket.into())
    }

    /// A connected stream, which becomes nonblocking.
    pub(crate) fn new(stream: OwnedFd) -> io::Result<Self> {
        SockRef::from(&stream).set_nonblocking(true)?;
        Ok(Self { reading: pipe::Receiver::from_owned_fd_unchecked(stream)? })
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.reading.readable().await
    }

    /// Watches for room to write until there is some.
    pub(super) async fn writable(&self) -> io::Result<()> {
        pipe::Sender::from_owned_fd_unchecked(self.reading.as_fd().try_clone_to_owned()?)?.writable().await
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        SockRef::from(&self.reading).send(bytes)
    }

    pub(super) fn try_read_with<T>(&self, read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        self.reading.try_io(|| read(self.reading.as_fd()))
    }

    pub(super) fn try_write_with<T>(&self, write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        write(self.reading.as_fd())
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }
}
