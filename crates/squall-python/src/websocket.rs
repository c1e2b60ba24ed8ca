//! WebSockets for scenario code: `async with client.websocket("/feed") as feed`, then `send`,
//! `receive` and iteration. Opening a WebSocket is recorded like a request, and each wait for a
//! message under a separate metric. A connection belongs to one user and is never reused.
//! `client.websocket` creates it.

use futures_util::{Sink, Stream};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyString, PyTuple},
};
use squall_http::{Connector, HeaderIter, HttpError, PreparedRequest, StreamingResponse, UpgradedStream};
use squall_metrics::{Outcome, OutcomeCategory};
use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        handshake::{client::generate_key, derive_accept_key},
        protocol::Role,
    },
};

use crate::{
    client::seconds_of,
    driver::{RedirectMode, http_error_outcome},
    exceptions,
    long_connection::{LongConnection, LongConnectionState, RejectedOpening, TransferCounter, end_of_iteration},
    long_operation::{LongOperationKind, OperationContext},
    operation::Operation,
    operation_queue::OperationQueue,
};

/// How long the closing handshake may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const WEBSOCKET_FAILED: &str = "WEBSOCKET_FAILED";

/// A WebSocket of one user.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct WebSocket(LongConnection<WebSocketState>);

/// The connection once it is open, and the accept key that the server must send to open it.
struct WebSocketState {
    accept: String,
    open: Option<WebSocketStream<UpgradedStream>>,
    /// Bytes read and written, once the connection is closed.
    bytes_transferred: (u64, u64),
}

impl TransferCounter for WebSocketState {
    fn bytes_transferred(&self) -> (u64, u64) {
        self.open.as_ref().map_or(self.bytes_transferred, |socket| socket.get_ref().bytes_transferred())
    }
}

/// The headers of a handshake request, and the accept key that must come back.
pub(crate) struct WebSocketHandshake {
    pub(crate) headers: Vec<(&'static str, String)>,
    accept: String,
}

impl WebSocketHandshake {
    pub(crate) fn new() -> WebSocketHandshake {
        let key = generate_key();
        let accept = derive_accept_key(key.as_bytes());
        let headers = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")];
        let mut headers: Vec<_> = headers.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        headers.push(("Sec-WebSocket-Key", key));
        WebSocketHandshake { headers, accept }
    }

    /// Checks that the server accepts the handshake.
    fn check(accept: &str, response: &StreamingResponse) -> Result<(), RejectedOpening> {
        let reject = |category, code, reason| {
            Err(RejectedOpening { code: WEBSOCKET_FAILED, outcome: Outcome::new(category, code), reason })
        };
        let status = response.status();
        if status != 101 {
            let mut reason = format!("the server responded with status {status} instead of opening a WebSocket");
            if (300..400).contains(&status)
                && let Some(location) = header(response, "location")
            {
                reason += &format!(
                    "; it redirects to {location}, and the client does not follow redirects of WebSockets: open that URL"
                );
            }
            let outcome = Outcome::of_status(status);
            return match outcome.is_error() {
                true => Err(RejectedOpening { code: WEBSOCKET_FAILED, outcome, reason }),
                // A status below 400 would count as a success, but no WebSocket was opened.
                false => reject(OutcomeCategory::ProtocolError, "NO_WEBSOCKET", reason),
            };
        }
        match header(response, "sec-websocket-accept") {
            Some(value) if value == accept => Ok(()),
            _ => reject(
                OutcomeCategory::ProtocolError,
                WEBSOCKET_FAILED,
                "the server's Sec-WebSocket-Accept does not match the handshake".to_owned(),
            ),
        }
    }
}

fn header<'a>(response: &'a StreamingResponse, name: &str) -> Option<&'a str> {
    HeaderIter::from_head(response.raw_head())
        .find(|(other, _)| other.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

impl WebSocket {
    pub(crate) fn new(
        connector: Connector,
        request: PreparedRequest,
        name: String,
        handshake: WebSocketHandshake,
        queue: Option<Py<OperationQueue>>,
    ) -> WebSocket {
        WebSocket(LongConnection::new(
            connector,
            request,
            name,
            WebSocketState { accept: handshake.accept, open: None, bytes_transferred: (0, 0) },
            queue,
        ))
    }

    fn receive_operation(&self, py: Python<'_>, iterating: bool, limit: Option<Duration>) -> Operation {
        self.0.operation(py, LongOperationKind::Use, move |connection, context| {
            Box::pin(async move {
                let started = Instant::now();
                let received = match limit {
                    None => connection.receive().await,
                    Some(limit) => match tokio::time::timeout(limit, connection.receive()).await {
                        Ok(received) => received,
                        Err(_) => return Err(connection.receive_timeout_error(&context, started, limit)),
                    },
                };
                let metric = context.custom_metric(&format!("{} receive", connection.name));
                let outcome = match &received {
                    Ok(Some(_)) => Outcome::new(OutcomeCategory::Ok, "OK"),
                    Ok(None) => Outcome::new(OutcomeCategory::Ok, "CLOSED"),
                    Err(_) => Outcome::new(OutcomeCategory::TransportError, WEBSOCKET_FAILED),
                };
                context.recorder().record_span(metric, started, Instant::now(), outcome);
                Python::attach(|py| match received {
                    Ok(Some(Message::Text(text))) => Ok(PyString::new(py, text.as_str()).into_any().unbind()),
                    Ok(Some(other)) => Ok(PyBytes::new(py, &other.into_data()).into_any().unbind()),
                    Ok(None) => end_of_iteration(py, iterating),
                    Err(error) => Err(connection.connection_error(py, &error)),
                })
            })
        })
    }
}

impl LongConnectionState<WebSocketState> {
    fn receive_timeout_error(&self, context: &OperationContext<'_>, started: Instant, after: Duration) -> PyErr {
        let error = HttpError::Timeout { after };
        let (metric, outcome) = (context.custom_metric(&format!("{} receive", self.name)), http_error_outcome(&error));
        context.recorder().note_error(metric, started, outcome, &error.to_string());
        context.recorder().record_span(metric, started, Instant::now(), outcome);
        Python::attach(|py| exceptions::mark_unrecorded(py, exceptions::request_failed(py, &error, &self.name)))
    }

    fn connection_error(&self, py: Python<'_>, error: &Error) -> PyErr {
        exceptions::mark_unrecorded(
            py,
            exceptions::protocol_error(py, WEBSOCKET_FAILED, &error.to_string(), &self.name),
        )
    }

    /// The next text or binary message; `None` once the server has closed the connection.
    async fn receive(&self) -> Result<Option<Message>, Error> {
        loop {
            let next = poll_fn(|cx| self.poll_socket(cx, |socket, cx| socket.poll_next(cx))).await;
            match next {
                None | Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Ok(None),
                Some(Ok(Message::Close(_))) => {
                    // Completes the closing handshake; no further message can arrive.
                    self.close().await;
                    return Ok(None);
                }
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => return Ok(Some(message)),
                // The library responds to pings.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
            }
        }
    }

    async fn send(&self, message: Message) -> Result<(), Error> {
        let closed = || Some(Err(Error::AlreadyClosed));
        let ready = poll_fn(|cx| self.poll_socket(cx, |socket, cx| socket.poll_ready(cx).map(Some))).await;
        ready.or_else(closed).unwrap_or(Ok(()))?;
        let mut message = Some(message);
        let started = poll_fn(|cx| {
            self.poll_socket(cx, |socket, _| Poll::Ready(message.take().map(|message| socket.start_send(message))))
        })
        .await;
        started.or_else(closed).unwrap_or(Ok(()))?;
        let flushed = poll_fn(|cx| self.poll_socket(cx, |socket, cx| socket.poll_flush(cx).map(Some))).await;
        flushed.or_else(closed).unwrap_or(Ok(()))
    }

    async fn close(&self) {
        let closing = poll_fn(|cx| self.poll_socket(cx, |socket, cx| socket.poll_close(cx).map(Some)));
        // Closes even if the server does not complete the closing handshake in time.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
        let mut state = self.state();
        state.bytes_transferred = state.bytes_transferred();
        state.open = None;
    }

    /// Polls the open socket; `None` if it is not open.
    fn poll_socket<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut WebSocketStream<UpgradedStream>>, &mut Context<'_>) -> Poll<Option<T>>,
    ) -> Poll<Option<T>> {
        match &mut self.state().open {
            Some(socket) => poll(Pin::new(socket), cx),
            None => Poll::Ready(None),
        }
    }
}

#[pymethods]
impl WebSocket {
    /// Opens the WebSocket and returns this object.
    fn connect(slf: &Bound<'_, Self>) -> Operation {
        let this = slf.clone().unbind();
        slf.get().0.operation(slf.py(), LongOperationKind::Open, move |connection, context| {
            Box::pin(async move {
                let accept = connection.state().accept.clone();
                let check = |response: &StreamingResponse| WebSocketHandshake::check(&accept, response);
                let (response, _) = connection.open(&context, RedirectMode::Return, check).await?;
                let (stream, rest) = response.into_upgraded();
                let socket = WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await;
                connection.state().open = Some(socket);
                Ok(this.into_any())
            })
        })
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> Operation {
        WebSocket::connect(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Operation {
        self.close(py)
    }

    /// Sends a text, or bytes as a binary message.
    fn send(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Operation> {
        let message = if let Ok(text) = message.cast::<PyString>() {
            Message::text(text.to_str()?.to_owned())
        } else if let Ok(bytes) = message.cast::<PyBytes>() {
            Message::binary(bytes.as_bytes().to_vec())
        } else {
            return Err(PyTypeError::new_err("a WebSocket sends only str or bytes"));
        };
        Ok(self.0.operation(py, LongOperationKind::Use, move |connection, _| {
            Box::pin(async move {
                let sent = connection.send(message).await;
                Python::attach(|py| match sent {
                    Ok(()) => Ok(py.None()),
                    Err(error) => Err(connection.connection_error(py, &error)),
                })
            })
        }))
    }

    /// Waits for the next message: text as `str`, binary as `bytes`, None once the server has
    /// closed the connection. After `timeout` seconds it raises RequestTimeout, and the connection
    /// stays open.
    #[pyo3(signature = (timeout = None))]
    fn receive(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Operation> {
        Ok(self.receive_operation(py, false, timeout.map(seconds_of).transpose()?))
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> Operation {
        self.receive_operation(py, true, None)
    }

    /// Closes the connection with a closing handshake.
    fn close(&self, py: Python<'_>) -> Operation {
        self.0.operation(py, LongOperationKind::Use, move |connection, _| {
            Box::pin(async move {
                connection.close().await;
                Ok(Python::attach(|py| py.None()))
            })
        })
    }
}
