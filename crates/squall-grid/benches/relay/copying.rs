//! The ways to copy between two connections that the bench compares. Only [`Kind::Relay`] is the
//! relay of this crate; the others are what a program could do instead, and so what this machine can do.
//! It measures nothing. Both parts of the bench use it.

use std::{cell::RefCell, future::Future, io, net::TcpStream, os::fd::OwnedFd, time::Duration};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use squall_grid::relay::{RelaySide, RelayTimeouts, Socket, frame::CloseFrame, relay};
use tokio::{io::Interest, sync::oneshot};

/// The buffer that all connections of a thread share, as much as the raw copy reads at once.
const SHARED_BUFFER: usize = 64 << 10;
/// As much as the relay holds back. A larger pipe would be faster.
const PIPE: usize = 256 << 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SHARED_BUFFER]);
}

/// Who copies.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Relay,
    /// Tokio's, with buffers of 8 KiB.
    CopyBidirectional,
    /// Reads into [`BUFFER`] and writes from it.
    SharedBuffer,
    /// The kernel moves bytes through a pipe, whatever they are.
    Splice,
}

/// Copies between two connections until one ends, or until `stopped` fires.
pub(super) async fn copy(
    kind: Kind,
    from_client: TcpStream,
    to_worker: TcpStream,
    stopped: oneshot::Receiver<CloseFrame>,
) {
    let [mut client, mut worker] = [from_client, to_worker].map(|stream| {
        stream.set_nonblocking(true).expect("a socket");
        tokio::net::TcpStream::from_std(stream).expect("a runtime")
    });
    match kind {
        Kind::Relay => run_relay(client, worker, stopped).await,
        Kind::CopyBidirectional => drop(tokio::io::copy_bidirectional(&mut client, &mut worker).await),
        Kind::SharedBuffer => both_ways(copy_shared(&client, &worker), copy_shared(&worker, &client)).await,
        Kind::Splice => both_ways(copy_spliced(&client, &worker), copy_spliced(&worker, &client)).await,
    }
}

async fn run_relay(
    client: tokio::net::TcpStream,
    worker: tokio::net::TcpStream,
    stopped: oneshot::Receiver<CloseFrame>,
) {
    let side = |stream| RelaySide { socket: Socket::Tcp(stream), received: Vec::new() };
    let timeouts = RelayTimeouts {
        ping_after: Some(Duration::from_secs(20)),
        lost_after: Some(Duration::from_secs(60)),
        close_grace: Duration::ZERO,
    };
    let ended = relay(side(client), side(worker), timeouts, stopped).await;
    ended.close(CloseFrame::new(1011, "lost")).await;
}

async fn both_ways(up: impl Future<Output = io::Result<()>>, down: impl Future<Output = io::Result<()>>) {
    tokio::select! { _ = up => {}, _ = down => {} }
}

async fn copy_shared(from: &tokio::net::TcpStream, to: &tokio::net::TcpStream) -> io::Result<()> {
    let mut pending = Vec::new();
    loop {
        from.readable().await?;
        let read = BUFFER.with_borrow_mut(|buffer| {
            let read = unless_blocked(from.try_read(buffer))?;
            let written = read.map_or(Ok(Some(0)), |read| unless_blocked(to.try_write(&buffer[..read])))?;
            pending.extend_from_slice(&buffer[written.unwrap_or(0)..read.unwrap_or(0)]);
            io::Result::Ok(read)
        })?;
        if read == Some(0) {
            return Ok(());
        }
        while !pending.is_empty() {
            to.writable().await?;
            if let Some(written) = unless_blocked(to.try_write(&pending))? {
                pending.drain(..written);
            }
        }
    }
}

async fn copy_spliced(from: &tokio::net::TcpStream, to: &tokio::net::TcpStream) -> io::Result<()> {
    let (out, into): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    fcntl_setpipe_size(&into, PIPE)?;
    loop {
        from.readable().await?;
        let fill = || Ok(splice(from, None, &into, None, PIPE, flags)?);
        let Some(mut filled) = unless_blocked(from.try_io(Interest::READABLE, fill))? else { continue };
        if filled == 0 {
            return Ok(());
        }
        while filled > 0 {
            let empty = || Ok(splice(&out, None, to, None, filled, flags)?);
            match unless_blocked(to.try_io(Interest::WRITABLE, empty))? {
                Some(moved) => filled -= moved,
                None => to.writable().await?,
            }
        }
    }
}

fn unless_blocked(moved: io::Result<usize>) -> io::Result<Option<usize>> {
    match moved {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        moved => moved.map(Some),
    }
}
