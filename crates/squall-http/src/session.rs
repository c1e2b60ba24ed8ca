//! One virtual user: its connections, one per origin, its cookies and its buffers. Sends one request at a time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::connector::Connector;
use crate::cookies::Cookies;
use crate::decode::decode;
use crate::dial::{self, Way};
use crate::error::HttpError;
use crate::h2::H2;
use crate::lane::{After, Lane, Watch};
use crate::origin::Origin;
use crate::parse::{Encoding, Expect, Limits, Reader};
use crate::request::Prepared;
use crate::response::{Body, Exchange, Phases, Response};
use crate::timer::Timer;

/// Buffers larger than this are given back instead of kept for the next response.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

/// A virtual user's HTTP client. Stays on its thread, with all that shares its cookies.
#[derive(Debug)]
pub struct Session {
    connector: Connector,
    slots: Vec<Slot>,
    reader: Reader,
    timer: Timer,
    cookies: Cookies,
    /// The request as sent, where cookies make it differ from its rendering.
    wire: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    origin: Arc<Origin>,
    connection: Connection,
}

/// HTTP/2 is boxed: most users have none.
#[derive(Debug)]
enum Connection {
    Lane(Lane),
    H2(Box<H2>),
}

impl Connection {
    fn is_usable(&mut self) -> bool {
        match self {
            Connection::Lane(lane) => lane.is_usable(),
            Connection::H2(h2) => h2.is_usable(),
        }
    }
}

impl Session {
    /// A user without connections or cookies; costs little until it sends something.
    pub fn new(connector: &Connector) -> Session {
        Session::with_cookies(connector, Cookies::default())
    }

    /// One more session of a user whose cookies these are.
    pub fn with_cookies(connector: &Connector, cookies: Cookies) -> Session {
        let config = connector.config();
        let limits = Limits { head: config.max_head_bytes, body: config.max_body_bytes };
        Session {
            connector: connector.clone(),
            slots: Vec::new(),
            reader: Reader::new(limits),
            timer: Timer::default(),
            cookies,
            wire: Vec::new(),
        }
    }

    /// Sends a request and reads the whole response. Never retries what may have been processed: a connection that was closed before the
    /// first byte was written, or on which an HTTP/2 server gave the request back, is replaced; one that fails later is a failure. Redirects are the caller's, see
    /// [`Prepared::redirect`].
    ///
    /// Dropping the future abandons the exchange; its connection is not used again.
    pub async fn send(&mut self, request: &Prepared, body: Body) -> Exchange<'_> {
        let started = Instant::now();
        let config = self.connector.config();
        let timeout = request.timeout.unwrap_or(config.timeout);
        let watch = Watch { deadline: started + timeout, timeout, phases: config.phases };
        self.reader.trim(KEPT_BUFFER_BYTES);
        self.reader.begin(Expect { head_only: request.method == http::Method::HEAD, keep: body == Body::Keep });
        let mut dialled = None;
        let index = match self.idle_slot(&request.origin) {
            Some(index) => index,
            None => match Box::pin(self.open(request, watch, &mut dialled)).await {
                Ok(index) => index,
                Err(error) => return failed(error, started, watch, dialled),
            },
        };
        let sent_at = if watch.phases { Instant::now() } else { started };
        let traffic = match &mut self.slots[index].connection {
            Connection::Lane(lane) => {
                let wire = self.cookies.add_to(request, started, &mut self.wire);
                self.timer.start(started, watch.deadline);
                lane.begin();
                let (reader, timer) = (&mut self.reader, &mut self.timer);
                let outcome = poll_fn(|cx| match lane.poll(cx, wire, reader, watch) {
                    Poll::Ready(outcome) => Poll::Ready(outcome),
                    Poll::Pending => timer.poll(cx).map(|()| Err(HttpError::Timeout { after: timeout })),
                })
                .await;
                Traffic {
                    outcome,
                    bytes_in: reader.received(),
                    bytes_out: lane.written() as u64,
                    first_byte: lane.first_byte(),
                }
            }
            Connection::H2(h2) => {
                let cookies = self.cookies.line(request, started);
                Box::pin(exchange_h2(h2, request, &cookies, &mut self.reader, watch, dialled.is_some())).await
            }
        };
        let ended = Instant::now();
        let phases = watch.phases.then(|| {
            let first = traffic.first_byte.unwrap_or(ended);
            Phases { first_byte: first - sent_at, body: ended - first, ..dialled.unwrap_or_default() }
        });
        if !matches!(traffic.outcome, Ok(After::Reuse)) || request.closes() {
            self.slots.swap_remove(index);
        }
        // A server may close a connection that it has kept for long enough; what crossed its goodbye goes out on a new one.
        if dialled.is_none() && matches!(traffic.outcome, Err(HttpError::H2Refused { .. })) {
            let again = Box::pin(self.send(request, body)).await;
            let (bytes_in, bytes_out) = (traffic.bytes_in + again.bytes_in, traffic.bytes_out + again.bytes_out);
            return Exchange { started, bytes_in, bytes_out, ..again };
        }
        let result = traffic.outcome.and_then(|_| self.finish(request));
        Exchange {
            started,
            ended,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            phases,
            new_connection: dialled.is_some(),
            result: result.map(|()| Response::new(&self.reader)),
        }
    }

    /// This user's cookies.
    pub fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    /// Bytes read and written by an exchange whose future was dropped; its connection is closed.
    pub fn abandon(&mut self) -> (u64, u64) {
        let mut moved = (0, 0);
        let received = self.reader.received();
        self.slots.retain(|slot| {
            let (bytes_in, bytes_out) = match &slot.connection {
                Connection::Lane(lane) if lane.is_busy() => (received, lane.written() as u64),
                Connection::H2(h2) if h2.is_busy() => h2.bytes(),
                _ => return true,
            };
            moved = (moved.0 + bytes_in, moved.1 + bytes_out);
            false
        });
        moved
    }

    /// Forgets all cookies.
    pub fn clear_cookies(&mut self) {
        self.cookies.clear();
    }

    /// Closes all connections.
    pub fn close(&mut self) {
        self.slots.clear();
    }

    /// Gives back the memory of the last response; worth calling before a long pause.
    pub fn trim(&mut self) {
        self.reader.trim(0);
        self.wire = Vec::new();
    }

    /// An open connection to this origin, if there is one that the server has not closed.
    fn idle_slot(&mut self, origin: &Arc<Origin>) -> Option<usize> {
        let index = self.slots.iter().position(|slot| Arc::ptr_eq(&slot.origin, origin) || slot.origin == *origin)?;
        if self.slots[index].connection.is_usable() {
            return Some(index);
        }
        self.slots.swap_remove(index);
        None
    }

    /// Makes a connection; a rare path, kept apart and boxed so that the usual future stays small.
    async fn open(
        &mut self,
        request: &Prepared,
        watch: Watch,
        dialled: &mut Option<Phases>,
    ) -> Result<usize, HttpError> {
        let phases = dialled.insert(Phases::default());
        let made = dial::dial(Way::new(&self.connector, &request.origin), watch, phases).await?;
        let connection = if made.http2 {
            let opening = H2::open(made.io, self.connector.config().max_head_bytes);
            let opened = tokio::time::timeout_at(watch.deadline.into(), opening).await;
            Connection::H2(Box::new(opened.map_err(|_| HttpError::Timeout { after: watch.timeout })??))
        } else {
            Connection::Lane(Lane::new(made.io))
        };
        self.slots.push(Slot { origin: request.origin.clone(), connection });
        Ok(self.slots.len() - 1)
    }

    /// What remains once the last byte has been read, outside the measured time: cookies and decoding.
    fn finish(&mut self, request: &Prepared) -> Result<(), HttpError> {
        let facts = *self.reader.facts();
        if facts.sets_cookie && self.connector.config().cookies {
            self.cookies.take(request, Response::new(&self.reader).headers());
        }
        if facts.encoding != Encoding::Identity
            && self.connector.config().decompress
            && !self.reader.body().is_empty()
            && let Some(decoded) = decode(
                facts.encoding,
                Response::new(&self.reader).headers(),
                self.reader.body(),
                self.reader.limits().body,
            )
        {
            self.reader.replace_body(decoded?);
        }
        Ok(())
    }
}

/// What an exchange left behind, over either protocol.
struct Traffic {
    outcome: Result<After, HttpError>,
    bytes_in: u64,
    bytes_out: u64,
    first_byte: Option<Instant>,
}

async fn exchange_h2(
    h2: &mut H2,
    request: &Prepared,
    cookies: &str,
    reader: &mut Reader,
    watch: Watch,
    new: bool,
) -> Traffic {
    h2.begin(new);
    let outcome = h2.exchange(request, cookies, reader, watch).await;
    let (bytes_in, bytes_out) = h2.bytes();
    Traffic { outcome: outcome.map(|()| After::Reuse), bytes_in, bytes_out, first_byte: h2.first_byte() }
}

#[cold]
fn failed<'s>(error: HttpError, started: Instant, watch: Watch, dialled: Option<Phases>) -> Exchange<'s> {
    Exchange {
        result: Err(error),
        started,
        ended: Instant::now(),
        bytes_in: 0,
        bytes_out: 0,
        phases: dialled.filter(|_| watch.phases),
        new_connection: true,
    }
}
