//! HTTP/2 behind the same session: one connection, one stream at a time. It is slower than the
//! HTTP/1.1 connection and not tuned.
//!
//! It uses `h2`, not hyper, because hyper detaches tasks. Here the connection owns its one task, which ends with it.

mod counting_stream;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use tokio::task::JoinHandle;

use crate::connection_stream::ConnectionStream;
use crate::error::HttpError;
use crate::http1_connection::ExchangeOptions;
use crate::parse::{ParseError, ResponseParser};
use crate::request::PreparedRequest;
use counting_stream::{ByteCounts, CountingStream};

/// Receive window: a response of this size needs no window update.
const WINDOW_BYTES: u32 = 1024 * 1024;

/// The most interim responses (1xx) to one request. h2 keeps them until the exchange takes them.
const MAX_INTERIM_RESPONSES: u32 = 64;

/// One HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    task: ConnectionTask,
    counts: ByteCounts,
    /// Counters at the start of the current exchange.
    counts_at_start: (u64, u64),
    busy: bool,
    first_byte_at: Option<Instant>,
}

/// The task that moves the connection's frames, also while the user pauses; ends when its owner is dropped.
#[derive(Debug)]
struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Http2Connection {
    /// Performs the HTTP/2 handshake.
    pub(crate) async fn open(io: ConnectionStream, max_head_bytes: usize) -> Result<Http2Connection, HttpError> {
        let (io, counts) = CountingStream::new(io);
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .max_header_list_size(u32::try_from(max_head_bytes).unwrap_or(u32::MAX))
            .handshake(io)
            .await
            .map_err(from_h2)?;
        let driver = ConnectionTask(tokio::spawn(async move {
            // A failure of the connection reaches the exchange through its stream.
            let _ = connection.await;
        }));
        Ok(Http2Connection { sender, task: driver, counts, counts_at_start: (0, 0), busy: false, first_byte_at: None })
    }

    /// False if the connection has ended or an exchange was abandoned.
    pub(crate) fn is_usable(&mut self) -> bool {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        !self.busy && !self.task.0.is_finished() && !matches!(self.sender.poll_ready(&mut cx), Poll::Ready(Err(_)))
    }

    /// Whether an exchange is in progress or was abandoned.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Starts an exchange; its bytes count from here, except on a new connection, where the handshake counts too.
    pub(crate) fn begin_exchange(&mut self, new: bool) {
        self.counts_at_start = if new { (0, 0) } else { self.counts.get() };
        self.busy = true;
        self.first_byte_at = None;
    }

    /// Bytes read and written in this exchange.
    pub(crate) fn exchange_bytes(&self) -> (u64, u64) {
        let (read, written) = self.counts.get();
        (read - self.counts_at_start.0, written - self.counts_at_start.1)
    }

    /// When the head of the response arrived.
    pub(crate) fn first_byte_at(&self) -> Option<Instant> {
        self.first_byte_at
    }

    /// Sends a request and reads its response into `parser`.
    pub(crate) async fn exchange(
        &mut self,
        request: &PreparedRequest,
        cookies: &str,
        parser: &mut ResponseParser,
        options: ExchangeOptions,
    ) -> Result<(), HttpError> {
        let outcome =
            tokio::time::timeout_at(options.deadline.into(), self.send_and_receive(request, cookies, parser)).await;
        match outcome {
            Ok(Ok(())) => {
                self.busy = false;
                Ok(())
            }
            Ok(Err(_)) if self.counts.saw_http1() => {
                Err(HttpError::H2 { reason: "the server answers in HTTP/1: leave --http2 out".into() })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(HttpError::Timeout { after: options.timeout }),
        }
    }

    async fn send_and_receive(
        &mut self,
        request: &PreparedRequest,
        cookies: &str,
        parser: &mut ResponseParser,
    ) -> Result<(), HttpError> {
        poll_fn(|cx| self.sender.poll_ready(cx)).await.map_err(from_h2)?;
        let body = request.body();
        let message = build_request(request, cookies)?;
        let (response, upload) = self.sender.send_request(message, body.is_empty()).map_err(from_h2)?;
        let (head, stream) = await_response_head(response, upload, Bytes::copy_from_slice(body)).await?.into_parts();
        self.first_byte_at = Some(Instant::now());
        parser.set_head(&render_head(&head)).map_err(|error| from_parse(error, parser))?;
        read_body(stream, parser).await
    }
}

/// Waits for the response head while the body is being sent, because a server may respond before it
/// has read all of it.
async fn await_response_head(
    response: ResponseFuture,
    upload: SendStream<Bytes>,
    body: Bytes,
) -> Result<http::Response<RecvStream>, HttpError> {
    let mut response = pin!(response);
    let mut upload = pin!(send_body(upload, body));
    let (mut sending, mut interim) = (true, 0);
    poll_fn(|cx| {
        // The response also says why the upload stopped, and says it better.
        sending = sending && upload.as_mut().poll(cx).is_pending();
        while let Poll::Ready(Some(Ok(_))) = response.poll_informational(cx) {
            interim += 1;
            if interim > MAX_INTERIM_RESPONSES {
                let reason = format!("the server sent more than {MAX_INTERIM_RESPONSES} interim responses (1xx)");
                return Poll::Ready(Err(HttpError::H2 { reason }));
            }
        }
        response.as_mut().poll(cx).map_err(from_h2)
    })
    .await
}

async fn send_body(mut stream: SendStream<Bytes>, mut body: Bytes) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(capacity) = poll_fn(|cx| stream.poll_capacity(cx)).await else { return Ok(()) };
        let part = body.split_to(capacity?.min(body.len()));
        stream.send_data(part, body.is_empty())?;
    }
    Ok(())
}

async fn read_body(mut stream: RecvStream, parser: &mut ResponseParser) -> Result<(), HttpError> {
    while let Some(part) = stream.data().await {
        let part = part.map_err(from_h2)?;
        parser.append_body(&part).map_err(|error| from_parse(error, parser))?;
        let _ = stream.flow_control().release_capacity(part.len());
    }
    stream.trailers().await.map_err(from_h2)?;
    Ok(())
}

/// The request in HTTP/2 form, made from the HTTP/1.1 header lines without connection headers.
fn build_request(request: &PreparedRequest, cookies: &str) -> Result<http::Request<()>, HttpError> {
    const CONNECTION: [&str; 6] = ["host", "connection", "keep-alive", "upgrade", "proxy-connection", "te"];
    let host = request.header_lines().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let scheme = request.origin.scheme.as_str();
    let authority = host.map_or_else(|| request.origin.host_header(), |(_, value)| value.to_owned());
    let mut builder = http::Request::builder()
        .method(request.method.clone())
        .version(http::Version::HTTP_2)
        .uri(format!("{scheme}://{authority}{}", request.path_and_query()));
    for (name, value) in request.header_lines() {
        let name = name.to_ascii_lowercase();
        if !CONNECTION.contains(&name.as_str()) {
            builder = builder.header(name, value);
        }
    }
    if !cookies.is_empty() {
        builder = builder.header(http::header::COOKIE, cookies);
    }
    builder.body(()).map_err(|error| HttpError::H2 { reason: error.to_string() })
}

/// The head in HTTP/1.1 form, so that headers are looked up in one way only.
fn render_head(head: &http::response::Parts) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} \r\n", head.status.as_u16()).into_bytes();
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn from_parse(error: ParseError, parser: &ResponseParser) -> HttpError {
    crate::http1_connection::from_parse(error, parser.limits())
}

fn from_h2(error: h2::Error) -> HttpError {
    // RFC 9113, 6.8 and 8.7: the server has not processed the request, so it may be sent again.
    match error.reason() {
        Some(h2::Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => {
            return HttpError::H2Refused { reason: "it was closing the connection (GOAWAY)" };
        }
        Some(h2::Reason::REFUSED_STREAM) if error.is_reset() && error.is_remote() => {
            return HttpError::H2Refused { reason: "it takes no more streams (REFUSED_STREAM)" };
        }
        _ => {}
    }
    match error.get_io().map(std::io::Error::kind) {
        // h2 reports a connection that ended with an open stream this way.
        Some(std::io::ErrorKind::BrokenPipe) => HttpError::Closed,
        Some(_) => HttpError::from_io(error.into_io().expect("it is an I/O error")),
        None => HttpError::H2 { reason: error.to_string() },
    }
}
