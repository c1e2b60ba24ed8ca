//! One direction of a relay: reads from one side, follows the frames, and writes to the other side.
//! It does not know what the other direction does, and never closes a side. The relay steps it.

use std::{cell::RefCell, io};

use tokio::time::Instant;

use super::{
    Socket,
    frame::{FrameError, FrameSender, FrameTracker, MAX_HEADER},
    splice_pipe::SplicePipe,
};

/// One read, and so the most that a direction copies and holds back. Each read and each write may wake the
/// peer, which costs more than copying a few pages.
pub(super) const BUFFER: usize = SplicePipe::CAPACITY;
/// A direction whose last read had at least this many bytes moves the next ones through a pipe, which is
/// cheaper than copying them. For fewer bytes it is not, because it takes more system calls.
pub(super) const BULK: usize = 32 << 10;
/// Payloads from this size on are skipped while the relay follows the frames in a pipe. Smaller ones are
/// read, because skipping one takes longer than copying it.
const SKIPPED_PAYLOAD: u64 = 8 << 10;

thread_local! {
    /// All relays of a thread read into one buffer, because none keeps bytes in it across an await.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// What one step of a direction did.
pub(super) enum Step {
    Moved,
    /// The sender's stream is over.
    SenderEnded,
    /// The receiver takes no more bytes.
    ReceiverGone,
    Violation(FrameError),
}

/// The bytes from one side to the other.
pub(super) struct Direction {
    pub(super) tracker: FrameTracker,
    /// Bytes that the receiver has not taken. Reading stops until it is empty.
    pub(super) pending: Vec<u8>,
    /// The same for bytes that are in a pipe.
    pub(super) moving: Option<SplicePipe>,
    pub(super) bytes: u64,
    /// How many of them came last.
    pub(super) last_read: usize,
    /// When the last bytes came, or when reading began again.
    pub(super) last_received: Instant,
    pub(super) last_pinged: Instant,
}

impl Direction {
    pub(super) fn new(sender: FrameSender) -> Self {
        let now = Instant::now();
        Self {
            tracker: FrameTracker::new(sender),
            pending: Vec::new(),
            moving: None,
            bytes: 0,
            last_read: 0,
            last_received: now,
            last_pinged: now,
        }
    }

    pub(super) fn last_heard_or_pinged(&self) -> Instant {
        self.last_received.max(self.last_pinged)
    }

    /// Waits until bytes can move, and moves them. Loses nothing if it is dropped while it waits.
    pub(super) async fn step(&mut self, from: &Socket, to: &Socket) -> Step {
        if self.holds_back() {
            return match to.writable().await {
                Ok(()) => self.write_held_back(to),
                Err(_) => Step::ReceiverGone,
            };
        }
        if from.readable().await.is_err() {
            return Step::SenderEnded;
        }
        if self.last_read >= BULK
            && let Some(step) = self.move_piped(from, to)
        {
            return step;
        }
        READ_BUFFER.with_borrow_mut(|buffer| match from.try_read(buffer) {
            Ok(0) => Step::SenderEnded,
            Ok(read) => self.forward(&buffer[..read], to),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Step::Moved,
            Err(_) => Step::SenderEnded,
        })
    }

    /// Moves what there is through a pipe. `None` if the process has no more file descriptors.
    fn move_piped(&mut self, from: &Socket, to: &Socket) -> Option<Step> {
        let mut pipe = SplicePipe::open().ok()?;
        match pipe.fill(from) {
            Ok(0) => return Some(Step::SenderEnded),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(Step::Moved),
            Err(_) => return Some(Step::SenderEnded),
        }
        let mut tracker = self.tracker.clone();
        let step = READ_BUFFER.with_borrow_mut(|buffer| match observe_piped(&mut tracker, &pipe, buffer) {
            Ok(Ok(())) => {
                self.tracker = tracker;
                self.count(pipe.filled());
                self.moving = Some(pipe);
                self.write_held_back(to)
            }
            Ok(Err(error)) => Step::Violation(error),
            Err(_) => self.forward_copied(&mut pipe, buffer, to),
        });
        Some(step)
    }

    /// Forwards the bytes of a pipe whose frames cannot be followed there.
    fn forward_copied(&mut self, pipe: &mut SplicePipe, buffer: &mut [u8], to: &Socket) -> Step {
        match pipe.read(buffer) {
            Ok(read) => self.forward(&buffer[..read], to),
            Err(_) => Step::SenderEnded,
        }
    }

    /// Whether the receiver has not taken bytes that were read.
    pub(super) fn holds_back(&self) -> bool {
        !self.pending.is_empty() || self.moving.is_some()
    }

    fn write_held_back(&mut self, to: &Socket) -> Step {
        let Some(pipe) = &mut self.moving else { return self.write_pending(to) };
        match pipe.empty(to) {
            Ok(()) if pipe.filled() == 0 => {
                self.moving = None;
                self.last_received = Instant::now();
            }
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Step::ReceiverGone,
        }
        Step::Moved
    }

    /// Forwards bytes of the sender, unless they break the protocol.
    pub(super) fn forward(&mut self, bytes: &[u8], to: &Socket) -> Step {
        if bytes.is_empty() {
            return Step::Moved;
        }
        let boundary = self.tracker.clone();
        if let Err(error) = self.tracker.observe(bytes) {
            self.tracker = boundary;
            return Step::Violation(error);
        }
        self.count(bytes.len());
        self.write(bytes, to)
    }

    fn count(&mut self, read: usize) {
        self.bytes += read as u64;
        self.last_read = read;
        self.last_received = Instant::now();
    }

    fn write(&mut self, bytes: &[u8], to: &Socket) -> Step {
        let written = match to.try_write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return Step::ReceiverGone,
        };
        self.pending.extend_from_slice(&bytes[written..]);
        Step::Moved
    }

    fn write_pending(&mut self, to: &Socket) -> Step {
        match to.try_write(&self.pending) {
            Ok(written) if written == self.pending.len() => {
                self.pending = Vec::new();
                self.last_received = Instant::now();
            }
            Ok(written) => drop(self.pending.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Step::ReceiverGone,
        }
        Step::Moved
    }

    /// Whether a frame of the relay can follow what was forwarded.
    pub(super) fn can_inject(&self) -> bool {
        self.tracker.at_boundary() && self.tracker.close().is_none()
    }

    /// Sends a frame of the relay, unless the stream is inside a frame or blocked.
    pub(super) fn inject(&mut self, frame: &[u8], to: &Socket) {
        if self.can_inject() && !self.holds_back() {
            // A failure shows at the next step.
            let _ = self.write(frame, to);
        }
    }

    pub(super) async fn flush(&mut self, to: &Socket) -> io::Result<()> {
        while self.holds_back() {
            to.writable().await?;
            if matches!(self.write_held_back(to), Step::ReceiverGone) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        Ok(())
    }
}

/// Follows the frames in a pipe. Fails if the process cannot look at them there.
fn observe_piped(
    tracker: &mut FrameTracker,
    pipe: &SplicePipe,
    buffer: &mut [u8],
) -> io::Result<Result<(), FrameError>> {
    if tracker.payload_left() >= pipe.filled() as u64 {
        tracker.skip_payload(pipe.filled() as u64);
        return Ok(Ok(()));
    }
    let mut copy = pipe.duplicate()?;
    while copy.filled() > 0 {
        let are_skipped = tracker.last_payload() >= SKIPPED_PAYLOAD;
        if are_skipped && tracker.payload_left() > 0 {
            let skipped = copy.skip(tracker.payload_left())?;
            tracker.skip_payload(skipped as u64);
            continue;
        }
        let read = copy.read(if are_skipped { &mut buffer[..MAX_HEADER] } else { buffer })?;
        if let Err(error) = tracker.observe(&buffer[..read]) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}
