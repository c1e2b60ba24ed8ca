//! One virtual user: its connections, one per origin, its cookies and its buffers. Sends one request at a time.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use crate::connector::Connector;
use crate::cookies::Cookies;
use crate::decode::decode;
use crate::dial::{self, DialTarget};
use crate::error::HttpError;
use crate::http1_connection::{AfterExchange, ExchangeOptions, Http1Connection};
use crate::http2_connection::Http2Connection;
use crate::origin::Origin;
use crate::parse::{ContentEncoding, ParseLimits, ResponseExpectation, ResponseParser};
use crate::request::PreparedRequest;
use crate::request_timer::RequestTimer;
use crate::response::{BodyMode, Exchange, ExchangePhases, HttpResponse};

/// Buffers larger than this are freed instead of kept for the next response.
const MAX_KEPT_BUFFER_BYTES: usize = 16 * 1024;

/// A virtual user's HTTP client. It stays on its thread, like everything that shares its cookies.
#[derive(Debug)]
pub struct Session {
    connector: Connector,
    connections: Vec<PooledConnection>,
    reader: ResponseParser,
    timer: RequestTimer,
    cookies: Cookies,
    /// The bytes to send, where cookies are added to the rendered request.
    request_buffer: Vec<u8>,
}

#[derive(Debug)]
struct PooledConnection {
    origin: Arc<Origin>,
    connection: HttpConnection,
}

/// HTTP/2 is boxed, because most users do not use it.
#[derive(Debug)]
enum HttpConnection {
    Http1(Http1Connection),
    Http2(Box<Http2Connection>),
}

impl HttpConnection {
    fn is_usable(&mut self) -> bool {
        match self {
            HttpConnection::Http1(lane) => lane.is_usable(),
            HttpConnection::Http2(h2) => h2.is_usable(),
        }
    }
}

impl Session {
    /// A user without connections or cookies. It costs little until it sends a request.
    pub fn new(connector: &Connector) -> Session {
        Session::with_cookies(connector, Cookies::default())
    }

    /// Another session of the user that owns these cookies.
    pub fn with_cookies(connector: &Connector, cookies: Cookies) -> Session {
        let config = connector.config();
        let limits = ParseLimits { head: config.max_head_bytes, body: config.max_body_bytes };
        Session {
            connector: connector.clone(),
            connections: Vec::new(),
            reader: ResponseParser::new(limits),
            timer: RequestTimer::default(),
            cookies,
            request_buffer: Vec::new(),
        }
    }

    /// Sends a request and reads the whole response. It never repeats a request that the server may
    /// have processed: it replaces a connection that closed before the first byte was written, or
    /// on which an HTTP/2 server returned the request unprocessed. A later failure is the result.
    /// The caller follows redirects, see [`PreparedRequest::redirect`].
    ///
    /// Dropping the future abandons the exchange; its connection is not used again.
    pub async fn send(&mut self, request: &PreparedRequest, body: BodyMode) -> Exchange<'_> {
        let started = Instant::now();
        let config = self.connector.config();
        let timeout = request.timeout.unwrap_or(config.timeout);
        let watch = ExchangeOptions { deadline: started + timeout, timeout, record_phases: config.record_phases };
        self.reader.trim(MAX_KEPT_BUFFER_BYTES);
        self.reader.begin(ResponseExpectation {
            head_only: request.method == http::Method::HEAD,
            keep_body: body == BodyMode::Keep,
        });
        let mut dialled = None;
        let index = match self.find_idle_connection(&request.origin) {
            Some(index) => index,
            None => match Box::pin(self.open_connection(request, watch, &mut dialled)).await {
                Ok(index) => index,
                Err(error) => return failed_exchange(error, started, watch, dialled),
            },
        };
        let sent_at = if watch.record_phases { Instant::now() } else { started };
        let traffic = match &mut self.connections[index].connection {
            HttpConnection::Http1(lane) => {
                let wire = self.cookies.render_request(request, started, &mut self.request_buffer);
                self.timer.start(started, watch.deadline);
                lane.begin_exchange();
                let (reader, timer) = (&mut self.reader, &mut self.timer);
                let outcome = poll_fn(|cx| match lane.poll(cx, wire, reader, watch) {
                    Poll::Ready(outcome) => Poll::Ready(outcome),
                    Poll::Pending => timer.poll(cx).map(|()| Err(HttpError::Timeout { after: timeout })),
                })
                .await;
                ExchangeOutcome {
                    outcome,
                    bytes_in: reader.received(),
                    bytes_out: lane.written() as u64,
                    first_byte: lane.first_byte_at(),
                }
            }
            HttpConnection::Http2(h2) => {
                let cookies = self.cookies.cookie_header(request, started);
                Box::pin(exchange_h2(h2, request, &cookies, &mut self.reader, watch, dialled.is_some())).await
            }
        };
        let ended = Instant::now();
        let phases = watch.record_phases.then(|| {
            let first = traffic.first_byte.unwrap_or(ended);
            ExchangePhases { first_byte: first - sent_at, body: ended - first, ..dialled.unwrap_or_default() }
        });
        if !matches!(traffic.outcome, Ok(AfterExchange::Reuse)) || request.closes_connection() {
            self.connections.swap_remove(index);
        }
        // A server may close an idle connection at any time. The session sends a request that
        // crossed that close on a new connection.
        if dialled.is_none() && matches!(traffic.outcome, Err(HttpError::H2Refused { .. })) {
            let again = Box::pin(self.send(request, body)).await;
            let (bytes_in, bytes_out) = (traffic.bytes_in + again.bytes_in, traffic.bytes_out + again.bytes_out);
            return Exchange { started, bytes_in, bytes_out, ..again };
        }
        let result = traffic.outcome.and_then(|_| self.finish_response(request));
        Exchange {
            started,
            ended,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            phases,
            new_connection: dialled.is_some(),
            result: result.map(|()| HttpResponse::new(&self.reader)),
        }
    }

    /// This user's cookies.
    pub fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    /// Bytes read and written by an exchange whose future was dropped; its connection is closed.
    pub fn close_abandoned(&mut self) -> (u64, u64) {
        let mut moved = (0, 0);
        let received = self.reader.received();
        self.connections.retain(|slot| {
            let (bytes_in, bytes_out) = match &slot.connection {
                HttpConnection::Http1(lane) if lane.is_busy() => (received, lane.written() as u64),
                HttpConnection::Http2(h2) if h2.is_busy() => h2.exchange_bytes(),
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
        self.connections.clear();
    }

    /// Frees the memory of the last response; useful before a long pause.
    pub fn trim(&mut self) {
        self.reader.trim(0);
        self.request_buffer = Vec::new();
    }

    /// An open connection to this origin that the server has not closed.
    fn find_idle_connection(&mut self, origin: &Arc<Origin>) -> Option<usize> {
        let index =
            self.connections.iter().position(|slot| Arc::ptr_eq(&slot.origin, origin) || slot.origin == *origin)?;
        if self.connections[index].connection.is_usable() {
            return Some(index);
        }
        self.connections.swap_remove(index);
        None
    }

    /// Opens a connection. This rare path is boxed, so that the usual future stays small.
    async fn open_connection(
        &mut self,
        request: &PreparedRequest,
        watch: ExchangeOptions,
        dialled: &mut Option<ExchangePhases>,
    ) -> Result<usize, HttpError> {
        let phases = dialled.insert(ExchangePhases::default());
        let made = dial::dial(DialTarget::new(&self.connector, &request.origin), watch, phases).await?;
        let connection = if made.http2 {
            let opening = Http2Connection::open(made.io, self.connector.config().max_head_bytes);
            let opened = tokio::time::timeout_at(watch.deadline.into(), opening).await;
            HttpConnection::Http2(Box::new(opened.map_err(|_| HttpError::Timeout { after: watch.timeout })??))
        } else {
            HttpConnection::Http1(Http1Connection::new(made.io))
        };
        self.connections.push(PooledConnection { origin: request.origin.clone(), connection });
        Ok(self.connections.len() - 1)
    }

    /// Stores cookies and decodes the body, outside the measured time.
    fn finish_response(&mut self, request: &PreparedRequest) -> Result<(), HttpError> {
        let facts = *self.reader.parsed_head();
        if facts.sets_cookie && self.connector.config().cookies {
            self.cookies.store_from_response(request, HttpResponse::new(&self.reader).headers());
        }
        if facts.encoding != ContentEncoding::Identity
            && self.connector.config().decompress
            && !self.reader.body().is_empty()
            && let Some(decoded) = decode(
                facts.encoding,
                HttpResponse::new(&self.reader).headers(),
                self.reader.body(),
                self.reader.limits().body,
            )
        {
            self.reader.replace_body(decoded?);
        }
        Ok(())
    }
}

/// The result of an exchange over either protocol.
struct ExchangeOutcome {
    outcome: Result<AfterExchange, HttpError>,
    bytes_in: u64,
    bytes_out: u64,
    first_byte: Option<Instant>,
}

async fn exchange_h2(
    h2: &mut Http2Connection,
    request: &PreparedRequest,
    cookies: &str,
    reader: &mut ResponseParser,
    watch: ExchangeOptions,
    new: bool,
) -> ExchangeOutcome {
    h2.begin_exchange(new);
    let outcome = h2.exchange(request, cookies, reader, watch).await;
    let (bytes_in, bytes_out) = h2.exchange_bytes();
    ExchangeOutcome {
        outcome: outcome.map(|()| AfterExchange::Reuse),
        bytes_in,
        bytes_out,
        first_byte: h2.first_byte_at(),
    }
}

#[cold]
fn failed_exchange<'s>(
    error: HttpError,
    started: Instant,
    watch: ExchangeOptions,
    dialled: Option<ExchangePhases>,
) -> Exchange<'s> {
    Exchange {
        result: Err(error),
        started,
        ended: Instant::now(),
        bytes_in: 0,
        bytes_out: 0,
        phases: dialled.filter(|_| watch.record_phases),
        new_connection: true,
    }
}
