//! Answers that are read while they come: `async with client.stream("GET", "/events") as answer`, then piece by piece. The request counts until
//! its head is there; the time to the first piece and to the last are series of their own.

use pyo3::{
    exceptions::{PyRuntimeError, PyStopAsyncIteration},
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};
use squall_http::{Connector, Headers, LiveAnswer, Prepared};
use squall_metrics::{Category, Outcome};
use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    driver::failure,
    job::{Job, Means, Running},
    operation::{Operation, Work},
    port::Port,
    raise,
};

/// An answer whose body is read piece by piece.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamedAnswer {
    link: Arc<Link>,
    port: Option<Py<Port>>,
}

struct Link {
    connector: Connector,
    request: Prepared,
    name: String,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answer: Option<LiveAnswer>,
    status: u16,
    head: Vec<u8>,
    begun: Option<Instant>,
    first: Option<Duration>,
}

impl StreamedAnswer {
    pub(crate) fn new(
        connector: Connector,
        request: Prepared,
        name: String,
        timeout: Duration,
        port: Option<Py<Port>>,
    ) -> StreamedAnswer {
        StreamedAnswer { link: Arc::new(Link { connector, request, name, timeout, state: Mutex::default() }), port }
    }

    fn job(
        &self,
        py: Python<'_>,
        begin: impl for<'p> FnOnce(Means<'p>) -> Running<'p> + Send + Sync + 'static,
    ) -> Operation {
        Operation::new(Work::Job(Job::new(begin)), self.port.as_ref().map(|port| port.clone_ref(py)))
    }

    fn reading(&self, py: Python<'_>, ends: bool) -> Operation {
        let link = self.link.clone();
        self.job(py, move |means| {
            Box::pin(async move {
                let piece = link.read(means).await?;
                Python::attach(|py| match piece {
                    Some(piece) => Ok(PyBytes::new(py, &piece).into_any().unbind()),
                    None if ends => Err(PyStopAsyncIteration::new_err(())),
                    None => Ok(py.None()),
                })
            })
        })
    }
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self, means: Means<'_>) -> PyResult<()> {
        let metric = means.request(&self.name);
        let started = Instant::now();
        let Some(flight) = means.probe.begin(metric, started, started) else {
            return Err(Python::attach(|py| raise::fenced(py, &self.name)));
        };
        let opened = tokio::time::timeout(self.timeout, LiveAnswer::open(&self.connector, &self.request)).await;
        let opened = opened.unwrap_or(Err(squall_http::HttpError::Timeout { after: self.timeout }));
        match opened {
            Ok(answer) => {
                flight.end(Instant::now(), Outcome::of_status(answer.status()), answer.received(), 0);
                let (status, head) = (answer.status(), answer.head().to_vec());
                *self.state() = State { answer: Some(answer), status, head, begun: Some(started), first: None };
                Ok(())
            }
            Err(error) => {
                let outcome = failure(&error);
                means.probe.note(metric, outcome, &error.to_string());
                match error.never_left() {
                    true => flight.never_left(Instant::now(), outcome),
                    false => flight.end(Instant::now(), outcome, 0, 0),
                }
                Err(Python::attach(|py| raise::request_failed(py, &error, &self.name)))
            }
        }
    }

    async fn read(&self, means: Means<'_>) -> PyResult<Option<Vec<u8>>> {
        let piece = poll_fn(|cx| match &mut self.state().answer {
            Some(answer) => answer.poll_chunk(cx),
            None => Poll::Ready(Ok(None)),
        })
        .await;
        let now = Instant::now();
        let begun = self.state().begun.unwrap_or(now);
        let ok = Outcome::new(Category::Ok, "OK");
        match piece {
            Ok(Some(piece)) => {
                if self.state().first.is_none() {
                    self.state().first = Some(now - begun);
                    means.probe.span(means.custom(&format!("{} first chunk", self.name)), begun, now, ok);
                }
                Ok(Some(piece))
            }
            Ok(None) => {
                if self.state().answer.take().is_some() {
                    means.probe.span(means.custom(&format!("{} whole", self.name)), begun, now, ok);
                }
                Ok(None)
            }
            Err(error) => {
                self.state().answer = None;
                let (metric, outcome) = (means.custom(&format!("{} whole", self.name)), failure(&error));
                means.probe.note(metric, outcome, &error.to_string());
                means.probe.span(metric, begun, now, outcome);
                Err(Python::attach(|py| raise::request_failed(py, &error, &self.name)))
            }
        }
    }
}

#[pymethods]
impl StreamedAnswer {
    /// Sends the request and waits for the head of the answer; ends with itself.
    fn open(slf: &Bound<'_, Self>) -> Operation {
        let (this, link) = (slf.clone().unbind(), slf.get().link.clone());
        slf.get().job(slf.py(), move |means| {
            Box::pin(async move {
                link.open(means).await?;
                Ok(this.into_any())
            })
        })
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> Operation {
        StreamedAnswer::open(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Operation {
        self.close();
        Operation::done(py.None())
    }

    /// The next piece of the body; None at its end.
    fn chunk(&self, py: Python<'_>) -> Operation {
        self.reading(py, false)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> Operation {
        self.reading(py, true)
    }

    /// Gives the connection up, whatever may still come.
    fn close(&self) {
        self.link.state().answer = None;
    }

    #[getter]
    fn status_code(&self) -> PyResult<u16> {
        match self.link.state().status {
            0 => Err(PyRuntimeError::new_err("the stream is not open yet: use `async with`")),
            status => Ok(status),
        }
    }

    /// The headers of the answer, by their names in lower case.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, value) in Headers::of(&self.link.state().head) {
            found.set_item(name.to_ascii_lowercase(), value)?;
        }
        Ok(found)
    }

    /// From the start of the request to the first piece of its body.
    #[getter]
    fn first_chunk_ms(&self) -> Option<f64> {
        self.link.state().first.map(|first| first.as_secs_f64() * 1e3)
    }
}
