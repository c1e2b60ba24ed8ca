//! A TCP or Unix stream that is read and written without waiting, after it is ready.
//! It keeps no buffer. The relay and the dialler use it.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use tokio::{io::Interest, net::TcpStream};

use super::unix_socket::UnixSocket;

/// One side of a relay.
#[derive(Debug)]
pub enum Socket {
    /// A connection of a client, or to a worker.
    Tcp(TcpStream),
    /// A connection to a browser.
    Unix(UnixSocket),
}

impl Socket {
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.readable().await,
            Socket::Unix(stream) => stream.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.ready(Interest::WRITABLE).await.map(drop),
            Socket::Unix(stream) => stream.writable().await,
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = buffer.len();
        let mut all_there_was = None;
        let read = self.try_read_with(|socket| match rustix::io::read(socket, buffer)? {
            length if 0 < length && length < room => {
                all_there_was = Some(length);
                // Tokio then waits for the next event, without another read that would find nothing.
                Err(io::ErrorKind::WouldBlock.into())
            }
            length => Ok(length),
        });
        all_there_was.map_or(read, Ok)
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Reads with `read`, which fails with `WouldBlock` if there is nothing to read.
    pub(super) fn try_read_with<T>(&self, read: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            Socket::Tcp(stream) => stream.try_io(Interest::READABLE, || read(stream.as_fd())),
            Socket::Unix(stream) => stream.try_read_with(read),
        }
    }

    /// Writes with `write`, which fails with `WouldBlock` if the peer takes nothing.
    pub(super) fn try_write_with<T>(&self, write: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        match self {
            Socket::Tcp(stream) => stream.try_io(Interest::WRITABLE, || write(stream.as_fd())),
            Socket::Unix(stream) => stream.try_write_with(write),
        }
    }

    /// Writes all of `bytes`.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads some bytes; 0 at the end of the stream.
    pub(crate) async fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.readable().await?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Ends the writing half. Fails if the peer is gone, which needs no action.
    pub(crate) fn shut_down_write(&self) {
        let _ = match self {
            Socket::Tcp(stream) => socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write),
            Socket::Unix(stream) => socket2::SockRef::from(stream).shutdown(std::net::Shutdown::Write),
        };
    }
}
