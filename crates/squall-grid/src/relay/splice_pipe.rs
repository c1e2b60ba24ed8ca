//! A pipe through which the kernel moves bytes from one socket to another without copying them.
//! It does not know frames. The relay uses it when a side sends much at once.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io,
    os::fd::OwnedFd,
    sync::LazyLock,
};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};

use super::Socket;

/// Pipes that no relay of the thread uses.
const KEPT_PIPES: usize = 4;
const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);

thread_local! {
    static PIPES: RefCell<Vec<PipeEnds>> = const { RefCell::new(Vec::new()) };
}

/// What is moved into it is gone.
static NULL: LazyLock<io::Result<File>> = LazyLock::new(|| OpenOptions::new().write(true).open("/dev/null"));

#[derive(Debug)]
struct PipeEnds {
    out: OwnedFd,
    into: OwnedFd,
}

impl PipeEnds {
    fn open(capacity: usize) -> io::Result<Self> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Fails if the user has too many large pipes. The pipe then takes less at once.
        let _ = fcntl_setpipe_size(&into, capacity);
        Ok(Self { out, into })
    }
}

/// Bytes on their way. An empty pipe goes back to its thread when it is dropped.
#[derive(Debug)]
pub(super) struct SplicePipe {
    /// `None` only while it is dropped.
    ends: Option<PipeEnds>,
    filled: usize,
}

impl SplicePipe {
    /// The most that a pipe holds. The kernel's default of 64 KiB takes four times as many system calls,
    /// and wakes the peers more often.
    pub(super) const CAPACITY: usize = 256 << 10;

    /// Fails if the process has no more file descriptors.
    pub(super) fn open() -> io::Result<Self> {
        let ends = match PIPES.with_borrow_mut(Vec::pop) {
            Some(ends) => ends,
            None => PipeEnds::open(Self::CAPACITY)?,
        };
        Ok(Self { ends: Some(ends), filled: 0 })
    }

    /// Moves bytes from a socket into the empty pipe.
    pub(super) fn fill(&mut self, from: &Socket) -> io::Result<usize> {
        let Some(PipeEnds { into, .. }) = &self.ends else { return Ok(0) };
        self.filled = from.try_read_with(|socket| Ok(splice(socket, None, into, None, Self::CAPACITY, FLAGS)?))?;
        Ok(self.filled)
    }

    /// Another pipe with the same bytes, which the kernel does not copy.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        let mut other = Self::open()?;
        if let (Some(PipeEnds { out, .. }), Some(PipeEnds { into, .. })) = (&self.ends, &other.ends) {
            other.filled = tee(out, into, self.filled, FLAGS)?;
        }
        if other.filled < self.filled { Err(io::ErrorKind::StorageFull.into()) } else { Ok(other) }
    }

    /// Drops up to `most` bytes.
    pub(super) fn skip(&mut self, most: u64) -> io::Result<usize> {
        let Some(PipeEnds { out, .. }) = &self.ends else { return Ok(0) };
        let null = NULL.as_ref().map_err(io::Error::kind)?;
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(self.filled);
        let skipped = splice(out, None, null, None, most, FLAGS)?;
        self.filled -= skipped;
        Ok(skipped)
    }

    /// Takes bytes out.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(PipeEnds { out, .. }) = &self.ends else { return Ok(0) };
        let read = rustix::io::read(out, buffer)?;
        self.filled -= read;
        Ok(read)
    }

    /// Moves bytes of the pipe into a socket.
    pub(super) fn empty(&mut self, to: &Socket) -> io::Result<()> {
        let Some(PipeEnds { out, .. }) = &self.ends else { return Ok(()) };
        self.filled -= to.try_write_with(|socket| Ok(splice(out, None, socket, None, self.filled, FLAGS)?))?;
        Ok(())
    }

    pub(super) fn filled(&self) -> usize {
        self.filled
    }
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take().filter(|_| self.filled == 0) {
            keep(ends);
        }
    }
}

fn keep(ends: PipeEnds) {
    // Fails while the thread ends.
    let _ = PIPES.try_with(|pipes| {
        let mut pipes = pipes.borrow_mut();
        if pipes.len() < KEPT_PIPES {
            pipes.push(ends);
        }
    });
}

/// Gives this thread pipes of which the next one cannot be duplicated, because the one behind it is small.
#[cfg(test)]
pub(super) fn keep_small_pipe() {
    PIPES.with_borrow_mut(Vec::clear);
    for capacity in [4096, SplicePipe::CAPACITY] {
        keep(PipeEnds::open(capacity).unwrap());
    }
}
