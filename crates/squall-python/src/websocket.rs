//! WebSockets: `async with client.websocket("/feed") as feed`, then `send`, `receive` and iteration. Opening one is measured like a request,
//! each wait for a message as a series of its own. A connection is its user's alone and is not reused.

use futures_util::{Sink, Stream};
use pyo3::{
    exceptions::{PyStopAsyncIteration, PyTypeError},
    prelude::*,
    types::{PyBytes, PyString, PyTuple},
};
use squall_http::{Connector, Prepared, RawStream};
use squall_metrics::{Category, Outcome};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue, http::header::HeaderName},
};

use crate::{
    driver::failure,
    job::{Job, Means},
    operation::{Operation, Work},
    port::Port,
    raise,
};

/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// A WebSocket of one user.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct WebSocket {
    link: Arc<Link>,
    port: Option<Py<Port>>,
}

struct Link {
    connector: Connector,
    /// Where it leads.
    request: Prepared,
    name: String,
    headers: Vec<(String, String)>,
    timeout: Duration,
    /// Locked only while it is polled, so that one may send while one waits for a message.
    socket: Mutex<Option<WebSocketStream<RawStream>>>,
}

impl WebSocket {
    pub(crate) fn new(
        connector: Connector,
        request: Prepared,
        name: String,
        headers: Vec<(String, String)>,
        timeout: Duration,
        port: Option<Py<Port>>,
    ) -> WebSocket {
        WebSocket {
            link: Arc::new(Link { connector, request, name, headers, timeout, socket: Mutex::default() }),
            port,
        }
    }

    fn job(
        &self,
        py: Python<'_>,
        begin: impl for<'p> FnOnce(Means<'p>) -> crate::job::Running<'p> + Send + Sync + 'static,
    ) -> Operation {
        Operation::new(Work::Job(Job::new(begin)), self.port.as_ref().map(|port| port.clone_ref(py)))
    }

    fn receiving(&self, py: Python<'_>, ends: bool) -> Operation {
        let link = self.link.clone();
        self.job(py, move |means| {
            Box::pin(async move {
                let begun = Instant::now();
                let got = link.receive().await;
                let metric = means.custom(&format!("{} receive", link.name));
                let outcome = match &got {
                    Ok(Some(_)) => Outcome::new(Category::Ok, "OK"),
                    Ok(None) => Outcome::new(Category::Ok, "CLOSED"),
                    Err(_) => Outcome::new(Category::TransportError, "WEBSOCKET_FAILED"),
                };
                means.probe.span(metric, begun, Instant::now(), outcome);
                Python::attach(|py| match got {
                    Ok(Some(Message::Text(text))) => Ok(PyString::new(py, text.as_str()).into_any().unbind()),
                    Ok(Some(other)) => Ok(PyBytes::new(py, &other.into_data()).into_any().unbind()),
                    Ok(None) if ends => Err(PyStopAsyncIteration::new_err(())),
                    Ok(None) => Ok(py.None()),
                    Err(error) => Err(raise::bad_redirect(py, "WEBSOCKET_FAILED", &error.to_string(), &link.name)),
                })
            })
        })
    }
}

impl Link {
    async fn connect(&self, means: Means<'_>) -> PyResult<()> {
        let metric = means.request(&self.name);
        let started = Instant::now();
        let Some(flight) = means.probe.begin(metric, started, started) else {
            return Err(Python::attach(|py| raise::fenced(py, &self.name)));
        };
        let stream = match RawStream::open(&self.connector, &self.request).await {
            Ok(stream) => stream,
            Err(error) => {
                let outcome = failure(&error);
                means.probe.note(metric, outcome, &error.to_string());
                match error.never_left() {
                    true => flight.never_left(Instant::now(), outcome),
                    false => flight.end(Instant::now(), outcome, 0, 0),
                }
                return Err(Python::attach(|py| raise::request_failed(py, &error, &self.name)));
            }
        };
        let shaken = tokio::time::timeout(self.timeout, self.shake_hands(stream)).await;
        let (outcome, reason) = match shaken {
            Ok(Ok(socket)) => {
                *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
                flight.end(Instant::now(), Outcome::of_status(101), 0, 0);
                return Ok(());
            }
            Ok(Err(Error::Http(answer))) => {
                let status = answer.status().as_u16();
                (Outcome::of_status(status), format!("the server answered {status} instead of opening a WebSocket"))
            }
            Ok(Err(error)) => (Outcome::new(Category::ProtocolError, "WEBSOCKET_FAILED"), error.to_string()),
            Err(_) => (Outcome::new(Category::Timeout, "TIMEOUT"), format!("no answer within {:?}", self.timeout)),
        };
        // A status below 400 would pass for a success; it is none.
        let outcome = if outcome.is_error() { outcome } else { Outcome::new(Category::ProtocolError, "NO_WEBSOCKET") };
        means.probe.note(metric, outcome, &reason);
        flight.end(Instant::now(), outcome, 0, 0);
        Err(Python::attach(|py| raise::bad_redirect(py, "WEBSOCKET_FAILED", &reason, &self.name)))
    }

    async fn shake_hands(&self, stream: RawStream) -> Result<WebSocketStream<RawStream>, Error> {
        // `http` becomes `ws`, `https` becomes `wss`.
        let url = format!("ws{}", &self.request.url().as_str()["http".len()..]);
        let mut request = url.into_client_request()?;
        for (name, value) in &self.headers {
            let name =
                HeaderName::try_from(name.as_str()).map_err(tokio_tungstenite::tungstenite::http::Error::from)?;
            let value =
                HeaderValue::try_from(value.as_str()).map_err(tokio_tungstenite::tungstenite::http::Error::from)?;
            request.headers_mut().append(name, value);
        }
        Ok(client_async(request, stream).await?.0)
    }

    /// The next message that is for people; `None` once the other side has closed.
    async fn receive(&self) -> Result<Option<Message>, Error> {
        loop {
            let next = poll_fn(|cx| self.with(cx, |socket, cx| socket.poll_next(cx))).await;
            match next {
                None | Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Ok(None),
                Some(Ok(Message::Close(_))) => {
                    // The answer to the goodbye, if the other side still listens; nothing more can come.
                    self.close().await;
                    return Ok(None);
                }
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => return Ok(Some(message)),
                // Pings are answered by the library.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
            }
        }
    }

    async fn send(&self, message: Message) -> Result<(), Error> {
        let closed = || Some(Err(Error::AlreadyClosed));
        let ready = poll_fn(|cx| self.with(cx, |socket, cx| socket.poll_ready(cx).map(Some))).await;
        ready.or_else(closed).unwrap_or(Ok(()))?;
        let mut message = Some(message);
        let begun = poll_fn(|cx| {
            self.with(cx, |socket, _| Poll::Ready(message.take().map(|message| socket.start_send(message))))
        })
        .await;
        begun.or_else(closed).unwrap_or(Ok(()))?;
        let flushed = poll_fn(|cx| self.with(cx, |socket, cx| socket.poll_flush(cx).map(Some))).await;
        flushed.or_else(closed).unwrap_or(Ok(()))
    }

    async fn close(&self) {
        let goodbye = poll_fn(|cx| self.with(cx, |socket, cx| socket.poll_close(cx).map(Some)));
        // Whoever does not answer a goodbye is left all the same.
        let _ = tokio::time::timeout(GOODBYE, goodbye).await;
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Polls the open socket; `None` if there is none.
    fn with<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut WebSocketStream<RawStream>>, &mut Context<'_>) -> Poll<Option<T>>,
    ) -> Poll<Option<T>> {
        match &mut *self.socket.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(socket) => poll(Pin::new(socket), cx),
            None => Poll::Ready(None),
        }
    }
}

#[pymethods]
impl WebSocket {
    /// Opens it; ends with itself.
    fn connect(slf: &Bound<'_, Self>) -> Operation {
        let (this, link) = (slf.clone().unbind(), slf.get().link.clone());
        slf.get().job(slf.py(), move |means| {
            Box::pin(async move {
                link.connect(means).await?;
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
            return Err(PyTypeError::new_err("a WebSocket sends str or bytes"));
        };
        let link = self.link.clone();
        Ok(self.job(py, move |_| {
            Box::pin(async move {
                let sent = link.send(message).await;
                Python::attach(|py| match sent {
                    Ok(()) => Ok(py.None()),
                    Err(error) => Err(raise::bad_redirect(py, "WEBSOCKET_FAILED", &error.to_string(), &link.name)),
                })
            })
        }))
    }

    /// Waits for the next message: text as `str`, binary as `bytes`, None once the other side has closed.
    fn receive(&self, py: Python<'_>) -> Operation {
        self.receiving(py, false)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> Operation {
        self.receiving(py, true)
    }

    /// Says goodbye and closes.
    fn close(&self, py: Python<'_>) -> Operation {
        let link = self.link.clone();
        self.job(py, move |_| {
            Box::pin(async move {
                link.close().await;
                Ok(Python::attach(|py| py.None()))
            })
        })
    }
}
