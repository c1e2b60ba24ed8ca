//! Answers that are read while they come: `async with client.stream("GET", "/events") as answer`, then piece by piece. The request counts until
//! its head is there; the time to the first piece and to the last are series of their own.

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};
use squall_http::{Connector, HeaderIter, StreamingResponse, PreparedRequest};
use squall_metrics::{OutcomeCategory, Outcome};
use std::{
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    driver::failure,
    job::Means,
    live::{Link, Live, Moves, nothing_more},
    operation::Operation,
    port::Port,
    raise,
};

/// An answer whose body is read piece by piece.
#[pyclass(frozen, module = "squall._squall")]
pub(crate) struct StreamedAnswer(Live<State>);

#[derive(Default)]
struct State {
    answer: Option<StreamingResponse>,
    status: u16,
    head: Vec<u8>,
    begun: Option<Instant>,
    first: Option<Duration>,
    /// What was read and written by the time it was given up.
    moved: (u64, u64),
}

impl State {
    /// Gives the connection up; `false` if there was none.
    fn leave(&mut self) -> bool {
        self.moved = self.moved();
        self.answer.take().is_some()
    }
}

impl Moves for State {
    fn moved(&self) -> (u64, u64) {
        self.answer.as_ref().map_or(self.moved, |answer| (answer.received(), answer.sent()))
    }
}

impl StreamedAnswer {
    pub(crate) fn new(connector: Connector, request: PreparedRequest, name: String, port: Option<Py<Port>>) -> StreamedAnswer {
        StreamedAnswer(Live::new(connector, request, name, State::default(), port))
    }

    fn reading(&self, py: Python<'_>, iterating: bool) -> Operation {
        self.0.job(py, move |link, means| {
            Box::pin(async move {
                let piece = link.read(&means).await?;
                Python::attach(|py| match piece {
                    Some(piece) => Ok(PyBytes::new(py, &piece).into_any().unbind()),
                    None => nothing_more(py, iterating),
                })
            })
        })
    }
}

impl Link<State> {
    async fn read(&self, means: &Means<'_>) -> PyResult<Option<Vec<u8>>> {
        let piece = poll_fn(|cx| match &mut self.state().answer {
            Some(answer) => answer.poll_chunk(cx),
            None => Poll::Ready(Ok(None)),
        })
        .await;
        let now = Instant::now();
        let begun = self.state().begun.unwrap_or(now);
        let ok = Outcome::new(OutcomeCategory::Ok, "OK");
        match piece {
            Ok(Some(piece)) => {
                if self.state().first.is_none() {
                    self.state().first = Some(now - begun);
                    means.probe.record_span(means.custom(&format!("{} first chunk", self.name)), begun, now, ok);
                }
                Ok(Some(piece))
            }
            Ok(None) => {
                if self.state().leave() {
                    means.probe.record_span(means.custom(&format!("{} whole", self.name)), begun, now, ok);
                }
                Ok(None)
            }
            Err(error) => {
                self.state().leave();
                let (metric, outcome) = (means.custom(&format!("{} whole", self.name)), failure(&error));
                means.probe.note_error(metric, outcome, &error.to_string());
                means.probe.record_span(metric, begun, now, outcome);
                Err(Python::attach(|py| raise::underway(py, raise::request_failed(py, &error, &self.name))))
            }
        }
    }
}

#[pymethods]
impl StreamedAnswer {
    /// Sends the request and waits for the head of the answer; ends with itself.
    fn open(slf: &Bound<'_, Self>) -> Operation {
        let this = slf.clone().unbind();
        slf.get().0.job(slf.py(), move |link, means| {
            Box::pin(async move {
                let (answer, begun) = link.open_at_last(&means).await?;
                let (status, head) = (answer.status(), answer.raw_head().to_vec());
                let begun = Some(begun);
                *link.state() = State { answer: Some(answer), status, head, begun, ..State::default() };
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
        self.0.state().leave();
    }

    #[getter]
    fn status_code(&self) -> PyResult<u16> {
        match self.0.state().status {
            0 => Err(PyRuntimeError::new_err("the stream is not open yet: use `async with`")),
            status => Ok(status),
        }
    }

    /// The headers of the answer, by their names in lower case.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, value) in HeaderIter::from_head(&self.0.state().head) {
            found.set_item(name.to_ascii_lowercase(), value)?;
        }
        Ok(found)
    }

    /// From the start of the request to the first piece of its body.
    #[getter]
    fn first_chunk_ms(&self) -> Option<f64> {
        self.0.state().first.map(|first| first.as_secs_f64() * 1e3)
    }
}
