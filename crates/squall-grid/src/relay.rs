//! Relays a WebSocket connection between a client and a worker, or between a worker's gateway and
//! its browser. It forwards bytes as they are and follows only the headers of frames, so it can put
//! pings and a close frame between them.
//! It does not decode messages, and it holds at most 256 KiB per direction, whatever the size of a
//! message. The server and the worker's gateway call it.

mod direction;
pub mod frame;
mod socket;
mod splice_pipe;
mod unix_socket;

use std::{fmt, pin::pin, time::Duration};

use tokio::{sync::oneshot, time::Instant};

pub use socket::Socket;
pub use unix_socket::UnixSocket;

use direction::{Direction, Step};
use frame::{CloseFrame, FrameError, FrameSender, encode_ping};

/// For clients: of a silent one, load balancers forget the connection after a minute.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(20);
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(60);

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

#[cfg(test)]
mod tests;
