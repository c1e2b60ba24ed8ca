//! A pipe through which the kernel moves bytes from one socket to another without copying them.
//! It does not know frames. The relay uses it for large payloads.

use std::{cell::RefCell, io, os::fd::OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};

use super::Socket;

/// Pipes that no relay of the thread uses.
const KEPT_PIPES: usize = 4;

thread_local! {
    static PIPES: RefCell<Vec<(OwnedFd, OwnedFd)>> = const { RefCell::new(Vec::new()) };
}

/// Bytes on their way. An empty pipe goes back to its thread when it is dropped.
#[derive(Debug)]
pub(super) struct SplicePipe {
    /// `None` only while it is dropped.
    ends: Option<(OwnedFd, OwnedFd)>,
    filled: usize,
}

impl SplicePipe {
    /// Fails if the process has no more file descriptors.
    pub(super) fn open() -> io::Result<Self> {
        let ends = match PIPES.with_borrow_mut(Vec::pop) {
            Some(ends) => ends,
            None => pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?,
        };
        Ok(Self { ends: Some(ends), filled: 0 })
    }

    /// Moves up to `most` bytes from a socket into the empty pipe.
    pub(super) fn fill(&mut self, from: &Socket, most: usize) -> io::Result<usize> {
        let Some((_, into)) = &self.ends else { return Ok(0) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.filled = from.try_read_with(|socket| Ok(splice(socket, None, into, None, most, flags)?))?;
        Ok(self.filled)
    }

    /// Moves bytes of the pipe into a socket.
    pub(super) fn empty(&mut self, to: &Socket) -> io::Result<()> {
        let Some((out, _)) = &self.ends else { return Ok(()) };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        self.filled -= to.try_write_with(|socket| Ok(splice(out, None, socket, None, self.filled, flags)?))?;
        Ok(())
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take().filter(|_| self.filled == 0) {
            // Fails while the thread ends.
            let _ = PIPES.try_with(|pipes| {
                let mut pipes = pipes.borrow_mut();
                if pipes.len() < KEPT_PIPES {
                    pipes.push(ends);
                }
            });
        }
    }
}
