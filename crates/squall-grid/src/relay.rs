//! Relays a WebSocket connection between a client and a worker, or between a worker's gateway and
//! its browser. It forwards bytes as they are and follows only the headers of frames, so it can put
//! pings and a close frame between them.
//! It does not decode messages, and it holds at most 256 KiB per direction, whatever the size of a
//! message. The server and the worker's gateway call it.

pub mod frame;
mod socket;
mod splice_pipe;
mod unix_socket;

use std::{cell::RefCell, fmt, io, pin::pin, time::Duration};

use tokio::{sync::oneshot, time::Instant};

pub use socket::Socket;
pub use unix_socket::UnixSocket;

use frame::{CloseFrame, FrameError, FrameSender, FrameTracker, MAX_HEADER, encode_ping};
use splice_pipe::SplicePipe;

/// One read, and so the most that a direction copies and holds back. Each read and each write may wake the
/// peer, which costs more than copying a few pages.
const BUFFER: usize = SplicePipe::CAPACITY;
/// A direction whose last read had at least this many bytes moves the next ones through a pipe, which is
/// cheaper than copying them. For fewer bytes it is not, because it takes more system calls.
const BULK: usize = 32 << 10;
/// Payloads from this size on are skipped while the relay follows the frames in a pipe. Smaller ones are
/// read, because skipping one takes longer than copying it.
const SKIPPED_PAYLOAD: u64 = 8 << 10;

/// For clients: of a silent one, load balancers forget the connection after a minute.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(20);
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(60);

thread_local! {
    /// All relays of a thread read into one buffer, because none keeps bytes in it across an await.
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Timeouts of a relay.
#[derive(Clone, Copy, Debug)]
pub struct RelayTimeouts {
    /// Pings a side that has sent nothing for this long; `None` never pings.
    pub ping_after: Option<Duration>,
    /// Gives a side up that has sent nothing for this long, not even the answer to a ping.
    pub lost_after: Option<Duration>,
    /// How long a side may take to read the last bytes and to close.
    pub close_grace: Duration,
}

/// One side with the bytes that were read with its handshake.
#[derive(Debug)]
pub struct RelaySide {
    /// The connection.
    pub socket: Socket,
    /// Bytes of the WebSocket stream that are already read.
    pub received: Vec<u8>,
}

/// Why a relay ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayEnd {
    /// The client closed; with its close frame, if it sent one.
    Client(Option<CloseFrame>),
    /// The worker closed, with a close frame.
    Worker(CloseFrame),
    /// The worker's connection ended without a close frame, or it went silent.
    WorkerLost,
    /// The client went silent.
    ClientLost,
    /// A side broke the WebSocket protocol.
    Violation(FrameSender, FrameError),
    /// The caller asked for the end, with this close frame.
    Stopped(CloseFrame),
}

impl fmt::Display for RelayEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, close) = match self {
            Self::Client(None) => ("the client left", None),
            Self::Client(Some(close)) => ("the client closed", Some(close)),
            Self::Worker(close) => ("the worker closed", Some(close)),
            Self::WorkerLost => ("the worker was lost", None),
            Self::ClientLost => ("the client was silent", None),
            Self::Violation(FrameSender::Client, error) => return write!(f, "the client broke the protocol: {error}"),
            Self::Violation(FrameSender::Server, error) => return write!(f, "the worker broke the protocol: {error}"),
            Self::Stopped(close) => ("the server closed", Some(close)),
        };
        f.write_str(what)?;
        // A reason is another program's text, so it is quoted.
        match close.map(|close| (close.code, &close.reason)) {
            Some((Some(code), reason)) => write!(f, " with {code} {reason:?}"),
            _ => Ok(()),
        }
    }
}

/// A relay that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayReport {
    /// Why.
    pub end: RelayEnd,
    /// Bytes from the client.
    pub bytes_up: u64,
    /// Bytes to the client.
    pub bytes_down: u64,
}

/// Relays until a side ends, or until `stop` has a close frame for the client.
pub async fn relay(
    client: RelaySide,
    worker: RelaySide,
    timeouts: RelayTimeouts,
    stop: oneshot::Receiver<CloseFrame>,
) -> EndedRelay {
    let mut relay = Relay {
        up: Direction::new(FrameSender::Client),
        down: Direction::new(FrameSender::Server),
        client: client.socket,
        worker: worker.socket,
        timeouts,
    };
    let end = match relay.begin(&client.received, &worker.received) {
        Some(end) => end,
        None => relay.run(stop).await,
    };
    EndedRelay { relay, end }
}

/// A relay that forwards nothing more, and whose sides are not closed yet.
#[must_use]
pub struct EndedRelay {
    relay: Relay,
    end: RelayEnd,
}

impl EndedRelay {
    /// Delivers what is left and closes both sides, within [`RelayTimeouts::close_grace`]. `lost` is the
    /// close frame for a client whose worker is lost.
    pub async fn close(mut self, lost: CloseFrame) -> RelayReport {
        // On the heap, because the task of a session would otherwise have its buffer all the time.
        Box::pin(self.relay.finish(&self.end, lost)).await;
        RelayReport { end: self.end, bytes_up: self.relay.up.bytes, bytes_down: self.relay.down.bytes }
    }
}

struct Relay {
    up: Direction,
    down: Direction,
    client: Socket,
    worker: Socket,
    timeouts: RelayTimeouts,
}

/// What one step of a direction did.
enum Step {
    Moved,
    /// The sender's stream is over.
    SenderEnded,
    /// The receiver takes no more bytes.
    ReceiverGone,
    Violation(FrameError),
}

impl Relay {
    /// Forwards what was received with the handshakes.
    fn begin(&mut self, from_client: &[u8], from_worker: &[u8]) -> Option<RelayEnd> {
        let up = self.up.forward(from_client, &self.worker);
        if let Some(end) = self.end_of(FrameSender::Client, up) {
            return Some(end);
        }
        let down = self.down.forward(from_worker, &self.client);
        self.end_of(FrameSender::Server, down)
    }

    async fn run(&mut self, stop: oneshot::Receiver<CloseFrame>) -> RelayEnd {
        let mut stop = pin!(stop);
        let mut stoppable = true;
        // Bytes move the deadline, and the timer only when it fires: a timer for every read is costly.
        let mut silence = pin!(tokio::time::sleep_until(self.timeouts.next_deadline(&self.up, &self.down)));
        loop {
            let Self { up, down, client, worker, .. } = self;
            let (sender, step) = tokio::select! {
                step = up.step(client, worker) => (FrameSender::Client, step),
                step = down.step(worker, client) => (FrameSender::Server, step),
                reason = &mut stop, if stoppable => match reason {
                    Ok(reason) => return RelayEnd::Stopped(reason),
                    // The caller cannot ask any more.
                    Err(_) => {
                        stoppable = false;
                        continue;
                    }
                },
                () = &mut silence => {
                    if let Some(end) = self.break_silence() {
                        return end;
                    }
                    silence.as_mut().reset(self.timeouts.next_deadline(&self.up, &self.down));
                    continue;
                }
            };
            if let Some(end) = self.end_of(sender, step) {
                return end;
            }
        }
    }

    fn end_of(&self, sender: FrameSender, step: Step) -> Option<RelayEnd> {
        let client_end = || RelayEnd::Client(self.up.tracker.close().cloned());
        let worker_end = || self.down.tracker.close().cloned().map_or(RelayEnd::WorkerLost, RelayEnd::Worker);
        match (step, sender) {
            (Step::Moved, _) => None,
            (Step::Violation(error), sender) => Some(RelayEnd::Violation(sender, error)),
            // After the client's close frame, the worker closes the connection.
            (Step::SenderEnded, FrameSender::Server) | (Step::ReceiverGone, FrameSender::Client) => {
                Some(if self.up.tracker.close().is_some() { client_end() } else { worker_end() })
            }
            (Step::SenderEnded, FrameSender::Client) | (Step::ReceiverGone, FrameSender::Server) => {
                Some(match self.down.tracker.close() {
                    Some(close) if self.up.tracker.close().is_none() => RelayEnd::Worker(close.clone()),
                    _ => client_end(),
                })
            }
        }
    }

    /// Pings silent sides, and gives up those that stay silent.
    fn break_silence(&mut self) -> Option<RelayEnd> {
        let (now, timeouts) = (Instant::now(), self.timeouts);
        let is_over = |limit: Option<Duration>, since: Instant| limit.is_some_and(|limit| now >= since + limit);
        let expected = ExpectedSenders::new(&self.up, &self.down);
        if expected.worker && is_over(timeouts.lost_after, self.down.last_received) {
            return Some(RelayEnd::WorkerLost);
        }
        if expected.client && is_over(timeouts.lost_after, self.up.last_received) {
            return Some(RelayEnd::ClientLost);
        }
        if expected.worker && is_over(timeouts.ping_after, self.down.last_heard_or_pinged()) {
            self.up.inject(encode_ping(FrameSender::Client), &self.worker);
            self.down.last_pinged = now;
        }
        if expected.client && is_over(timeouts.ping_after, self.up.last_heard_or_pinged()) {
            self.down.inject(encode_ping(FrameSender::Server), &self.client);
            self.up.last_pinged = now;
        }
        None
    }

    /// Delivers what is left and the last close frame, and waits until the sides have read it.
    async fn finish(&mut self, end: &RelayEnd, lost: CloseFrame) {
        let close = match end {
            RelayEnd::Client(_) | RelayEnd::Worker(_) => None,
            RelayEnd::ClientLost => {
                let silence = self.timeouts.lost_after.unwrap_or_default();
                Some(CloseFrame::new(1001, format!("squall: the client was silent for {silence:?}; connect again")))
            }
            RelayEnd::WorkerLost => Some(lost),
            RelayEnd::Violation(sender, error) => {
                let side = if *sender == FrameSender::Client { "client" } else { "worker" };
                Some(CloseFrame::new(1002, format!("squall: the {side} broke the WebSocket protocol: {error}")))
            }
            RelayEnd::Stopped(close) => Some(close.clone()),
        };
        let grace = self.timeouts.close_grace;
        let Self { up, down, client, worker, .. } = self;
        let to_worker = async {
            let _ = up.flush(worker).await;
            worker.shut_down_write();
        };
        let to_client = async {
            if matches!(end, RelayEnd::Client(_)) && !down.holds_back() {
                return;
            }
            let sent = down.flush(client).await.is_ok();
            if let Some(close) = close.filter(|_| sent && down.can_inject()) {
                let _ = client.write_all(&close.encode()).await;
            }
            client.shut_down_write();
            // A connection that is dropped with unread bytes is reset, and the client could miss the
            // close frame.
            read_to_end(client).await;
        };
        let _ = tokio::time::timeout(grace, async { tokio::join!(to_worker, to_client) }).await;
    }
}

async fn read_to_end(socket: &Socket) {
    let mut buffer = [0; 4096];
    while matches!(socket.read_some(&mut buffer).await, Ok(read) if read > 0) {}
}

/// The sides whose silence means something. The relay does not read from a side whose bytes the other side
/// does not take.
struct ExpectedSenders {
    client: bool,
    worker: bool,
}

impl ExpectedSenders {
    fn new(up: &Direction, down: &Direction) -> Self {
        let worker = !down.holds_back();
        // If neither side reads, the client is given up.
        Self { client: !up.holds_back() || !worker, worker }
    }
}

impl RelayTimeouts {
    /// When a side has been silent long enough to act.
    fn next_deadline(&self, up: &Direction, down: &Direction) -> Instant {
        let expected = ExpectedSenders::new(up, down);
        let of = |direction: &Direction| {
            let ping = self.ping_after.map(|after| direction.last_heard_or_pinged() + after);
            let lost = self.lost_after.map(|after| direction.last_received + after);
            [ping, lost].into_iter().flatten().min()
        };
        let far = || Instant::now() + Duration::from_secs(3600);
        let (client, worker) = (expected.client.then(|| of(up)), expected.worker.then(|| of(down)));
        [client, worker].into_iter().flatten().flatten().min().unwrap_or_else(far)
    }
}

/// The bytes from one side to the other.
struct Direction {
    tracker: FrameTracker,
    /// Bytes that the receiver has not taken. Reading stops until it is empty.
    pending: Vec<u8>,
    /// The same for bytes that are in a pipe.
    moving: Option<SplicePipe>,
    bytes: u64,
    /// How many of them came last.
    last_read: usize,
    /// When the last bytes came, or when reading began again.
    last_received: Instant,
    last_pinged: Instant,
}

impl Direction {
    fn new(sender: FrameSender) -> Self {
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

    fn last_heard_or_pinged(&self) -> Instant {
        self.last_received.max(self.last_pinged)
    }

    /// Waits until bytes can move, and moves them. Loses nothing if it is dropped while it waits.
    async fn step(&mut self, from: &Socket, to: &Socket) -> Step {
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
    fn holds_back(&self) -> bool {
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
    fn forward(&mut self, bytes: &[u8], to: &Socket) -> Step {
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
    fn can_inject(&self) -> bool {
        self.tracker.at_boundary() && self.tracker.close().is_none()
    }

    /// Sends a frame of the relay, unless the stream is inside a frame or blocked.
    fn inject(&mut self, frame: &[u8], to: &Socket) {
        if self.can_inject() && !self.holds_back() {
            // A failure shows at the next step.
            let _ = self.write(frame, to);
        }
    }

    async fn flush(&mut self, to: &Socket) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
