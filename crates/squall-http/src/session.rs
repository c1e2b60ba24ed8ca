//! One virtual user: its connections, one per origin, its cookies and its buffers. Sends one request at a time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::connector::Connector;
use crate::dial;
use crate::error::HttpError;
use crate::lane::{After, Lane, Watch};
use crate::origin::Origin;
use crate::parse::{Expect, Limits, Reader};
use crate::request::Prepared;
use crate::response::{Body, Exchange, Phases, Response};
use crate::timer::Timer;

/// Buffers larger than this are given back instead of kept for the next response.
const KEPT_BUFFER_BYTES: usize = 16 * 1024;

/// A virtual user's HTTP client.
#[derive(Debug)]
pub struct Session {
    connector: Connector,
    slots: Vec<Slot>,
    reader: Reader,
    timer: Timer,
}

#[derive(Debug)]
struct Slot {
    origin: Arc<Origin>,
    lane: Lane,
}

impl Session {
    /// A user without connections or cookies; costs little until it sends something.
    pub fn new(connector: &Connector) -> Session {
        let config = connector.config();
        let limits = Limits {
            head: config.max_head_bytes,
            body: config.max_body_bytes,
        };
        Session {
            connector: connector.clone(),
            slots: Vec::new(),
            reader: Reader::new(limits),
            timer: Timer::default(),
        }
    }

    /// Sends a request and reads the whole response. Never retries: a connection that was closed before the first byte
    /// was written is replaced, one that fails later is a failure. Redirects are the caller's, see
    /// [`Prepared::redirect`].
    ///
    /// Dropping the future abandons the exchange; its connection is not used again.
    pub async fn send(&mut self, request: &Prepared, body: Body) -> Exchange<'_> {
        let started = Instant::now();
        let config = self.connector.config();
        let timeout = request.timeout.unwrap_or(config.timeout);
        let watch = Watch {
            deadline: started + timeout,
            timeout,
            phases: config.phases,
        };
        self.reader.trim(KEPT_BUFFER_BYTES);
        self.reader.begin(Expect {
            head_only: request.method == http::Method::HEAD,
            keep: body == Body::Keep,
        });
        let mut dialled = None;
        let index = match self.idle_slot(&request.origin) {
            Some(index) => index,
            None => match Box::pin(self.open(request, watch, &mut dialled)).await {
                Ok(index) => index,
                Err(error) => return failed(error, started, watch, dialled),
            },
        };
        self.timer.start(started, watch.deadline);
        let sent_at = if watch.phases {
            Instant::now()
        } else {
            started
        };
        let wire = request.as_bytes();
        let lane = &mut self.slots[index].lane;
        lane.begin();
        let (reader, timer) = (&mut self.reader, &mut self.timer);
        let outcome = poll_fn(|cx| match lane.poll(cx, wire, reader, watch) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => timer
                .poll(cx)
                .map(|()| Err(HttpError::Timeout { after: timeout })),
        })
        .await;
        let ended = Instant::now();
        let phases = watch.phases.then(|| {
            let first = lane.first_byte().unwrap_or(ended);
            let new = dialled.unwrap_or_default();
            Phases {
                first_byte: first - sent_at,
                body: ended - first,
                ..new
            }
        });
        let bytes_out = lane.written() as u64;
        if !matches!(outcome, Ok(After::Reuse)) || !self.connector.config().keep_alive {
            self.slots.swap_remove(index);
        }
        Exchange {
            started,
            ended,
            bytes_in: self.reader.received(),
            bytes_out,
            phases,
            new_connection: dialled.is_some(),
            result: outcome.map(|_| Response::new(&self.reader)),
        }
    }

    /// Forgets all cookies.
    pub fn clear_cookies(&mut self) {}

    /// Closes all connections.
    pub fn close(&mut self) {
        self.slots.clear();
    }

    /// An open connection to this origin, if there is one that the server has not closed.
    fn idle_slot(&mut self, origin: &Arc<Origin>) -> Option<usize> {
        let index = self
            .slots
            .iter()
            .position(|slot| Arc::ptr_eq(&slot.origin, origin) || slot.origin == *origin)?;
        if self.slots[index].lane.is_usable() {
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
        let io = dial::dial(&self.connector, &request.origin, watch, phases).await?;
        self.slots.push(Slot {
            origin: request.origin.clone(),
            lane: Lane::new(io),
        });
        Ok(self.slots.len() - 1)
    }
}

#[cold]
fn failed<'s>(
    error: HttpError,
    started: Instant,
    watch: Watch,
    dialled: Option<Phases>,
) -> Exchange<'s> {
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
