//! The HTTP client of one virtual user: its connections, one per origin, its cookies and its buffers.
//! It sends one request at a time and follows no redirects. The drivers' request runner calls it.

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
    parser: ResponseParser,
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
            HttpConnection::Http1(http1) => http1.is_usable(),
            HttpConnection::Http2(http2) => http2.is_usable(),
        }
    }
}

impl Session {
    /// A session without connections or cookies. It costs little until it sends a request.
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
            parser: ResponseParser::new(limits),
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
        let options = ExchangeOptions { deadline: started + timeout, timeout, record_phases: config.record_phases };
        self.parser.trim(MAX_KEPT_BUFFER_BYTES);
        self.parser.begin(ResponseExpectation {
            head_only: request.method == http::Method::HEAD,
            keep_body: body == BodyMode::Keep,
        });
        let mut dialled = None;
        let index = match self.find_idle_connection(&request.origin) {
            Some(index) => index,
            None => match Box::pin(self.open_connection(request, options, &mut dialled)).await {
                Ok(index) => index,
                Err(error) => return failed_exchange(error, started, options, dialled),
            },
        };
        let sent_at = if options.record_phases { Instant::now() } else { started };
        let traffic = match &mut self.connections[index].connection {
            HttpConnection::Http1(http1) => {
                let wire = self.cookies.render_request(request, started, &mut self.request_buffer);
                self.timer.start(started, options.deadline);
                http1.begin_exchange();
                let (parser, timer) = (&mut self.parser, &mut self.timer);
                let outcome = poll_fn(|cx| match http1.poll(cx, wire, parser, options) {
                    Poll::Ready(outcome) => Poll::Ready(outcome),
                    Poll::Pending => timer.poll(cx).map(|()| Err(HttpError::Timeout { after: timeout })),
                })
                .await;
                ExchangeOutcome {
                    outcome,
                    bytes_in: parser.received(),
                    bytes_out: http1.written() as u64,
                    first_byte: http1.first_byte_at(),
                }
            }
            HttpConnection::Http2(http2) => {
                let cookies = self.cookies.cookie_header(request, started);
                Box::pin(exchange_h2(http2, request, &cookies, &mut self.parser, options, dialled.is_some())).await
            }
        };
        let ended = Instant::now();
        let phases = options.record_phases.then(|| traffic.phases(sent_at, ended, dialled));
        if !matches!(traffic.outcome, Ok(AfterExchange::Reuse)) || request.closes_connection() {
            self.connections.swap_remove(index);
        }
        if dialled.is_none() && matches!(traffic.outcome, Err(HttpError::H2Refused { .. })) {
            return Box::pin(self.send_again(request, body, started, traffic)).await;
        }
        let result = traffic.outcome.and_then(|_| self.finish_response(request));
        Exchange {
            started,
            ended,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            phases,
            new_connection: dialled.is_some(),
            result: result.map(|()| HttpResponse::new(&self.parser)),
        }
    }

    /// Sends a request again that an HTTP/2 server refused on a kept connection, because it is closing
    /// the connection or accepts no more streams. The server has not processed the request. A refusal
    /// on a new connection is the result.
    async fn send_again(
        &mut self,
        request: &PreparedRequest,
        body: BodyMode,
        started: Instant,
        refused: ExchangeOutcome,
    ) -> Exchange<'_> {
        let again = self.send(request, body).await;
        let (bytes_in, bytes_out) = (refused.bytes_in + again.bytes_in, refused.bytes_out + again.bytes_out);
        Exchange { started, bytes_in, bytes_out, ..again }
    }

    /// This user's cookies.
    pub fn cookies(&self) -> &Cookies {
        &self.cookies
    }

    /// Bytes read and written by an exchange whose future was dropped; its connection is closed.
    pub fn close_abandoned(&mut self) -> (u64, u64) {
        let mut moved = (0, 0);
        let received = self.parser.received();
        self.connections.retain(|slot| {
            let (bytes_in, bytes_out) = match &slot.connection {
                HttpConnection::Http1(http1) if http1.is_busy() => (received, http1.written() as u64),
                HttpConnection::Http2(http2) if http2.is_busy() => http2.exchange_bytes(),
                _ => return true,
            };
            moved = (moved.0 + bytes_in, moved.1 + bytes_out);
            false
        });
        moved
    }

    /// Closes all connections.
    pub fn close(&mut self) {
        self.connections.clear();
    }

    /// Frees the memory of the last response; useful before a long pause.
    pub fn trim(&mut self) {
        self.parser.trim(0);
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
        options: ExchangeOptions,
        dialled: &mut Option<ExchangePhases>,
    ) -> Result<usize, HttpError> {
        let phases = dialled.insert(ExchangePhases::default());
        let made = dial::dial(DialTarget::new(&self.connector, &request.origin), options, phases).await?;
        let connection = if made.http2 {
            let opening = Http2Connection::open(made.io, self.connector.config().max_head_bytes);
            let opened = tokio::time::timeout_at(options.deadline.into(), opening).await;
            HttpConnection::Http2(Box::new(opened.map_err(|_| HttpError::Timeout { after: options.timeout })??))
        } else {
            HttpConnection::Http1(Http1Connection::new(made.io))
        };
        self.connections.push(PooledConnection { origin: request.origin.clone(), connection });
        Ok(self.connections.len() - 1)
    }

    /// Stores cookies and decodes the body, outside the measured time.
    fn finish_response(&mut self, request: &PreparedRequest) -> Result<(), HttpError> {
        let head = *self.parser.parsed_head();
        if head.sets_cookie && self.connector.config().cookies {
            self.cookies.store_from_response(request, HttpResponse::new(&self.parser).headers());
        }
        if head.encoding != ContentEncoding::Identity
            && self.connector.config().decompress
            && !self.parser.body().is_empty()
            && let Some(decoded) = decode(
                head.encoding,
                HttpResponse::new(&self.parser).headers(),
                self.parser.body(),
                self.parser.limits().body,
            )
        {
            self.parser.replace_body(decoded?);
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

impl ExchangeOutcome {
    /// The phases of an exchange on a connection that took `dialled` to open.
    fn phases(&self, sent_at: Instant, ended: Instant, dialled: Option<ExchangePhases>) -> ExchangePhases {
        let first = self.first_byte.unwrap_or(ended);
        ExchangePhases { first_byte: first - sent_at, body: ended - first, ..dialled.unwrap_or_default() }
    }
}

async fn exchange_h2(
    http2: &mut Http2Connection,
    request: &PreparedRequest,
    cookies: &str,
    parser: &mut ResponseParser,
    options: ExchangeOptions,
    new: bool,
) -> ExchangeOutcome {
    http2.begin_exchange(new);
    let outcome = http2.exchange(request, cookies, parser, options).await;
    let (bytes_in, bytes_out) = http2.exchange_bytes();
    ExchangeOutcome {
        outcome: outcome.map(|()| AfterExchange::Reuse),
        bytes_in,
        bytes_out,
        first_byte: http2.first_byte_at(),
    }
}

#[cold]
fn failed_exchange<'s>(
    error: HttpError,
    started: Instant,
    options: ExchangeOptions,
    dialled: Option<ExchangePhases>,
) -> Exchange<'s> {
    Exchange {
        result: Err(error),
        started,
        ended: Instant::now(),
        bytes_in: 0,
        bytes_out: 0,
        phases: dialled.filter(|_| options.record_phases),
        new_connection: true,
    }
}
