//! Responses that the scenario reads in chunks while they arrive: `async with client.stream("GET",
//! "/events") as response`. The request is recorded until the head arrives; the times to the first
//! and to the last chunk are separate metrics. It does not open the connection: `long_connection`
//! does. `client.stream` creates it.

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyBytes, PyDict, PyTuple},
};
use squall_http::{Connector, HeaderIter, PreparedRequest, StreamingResponse};
use squall_metrics::{Outcome, OutcomeCategory};
use std::{
    future::poll_fn,
    task::Poll,
    time::{Duration, Instant},
};

use crate::{
    driver::{RedirectMode, http_error_outcome},
    exceptions,
    long_connection::{LongConnection, LongConnectionState, TransferCounter, end_of_iteration},
    long_operation::{LongOperationKind, OperationContext},
    operation::Operation,
    operation_queue::OperationQueue,
};

/// A response whose body is read in chunks.
#[pyclass(name = "StreamedAnswer", frozen, module = "squall._squall")]
pub(crate) struct PyStreamedResponse(LongConnection<StreamedResponseState>);

#[derive(Default)]
struct StreamedResponseState {
    response: Option<StreamingResponse>,
    status: u16,
    head: Vec<u8>,
    started: Option<Instant>,
    first_chunk: Option<Duration>,
    /// Bytes read and written, once the connection is closed.
    bytes_transferred: (u64, u64),
}

impl StreamedResponseState {
    /// Closes the connection. Returns `false` if it was not open.
    fn close(&mut self) -> bool {
        self.bytes_transferred = self.bytes_transferred();
        self.response.take().is_some()
    }
}

impl TransferCounter for StreamedResponseState {
    fn bytes_transferred(&self) -> (u64, u64) {
        self.response.as_ref().map_or(self.bytes_transferred, |response| (response.received(), response.sent()))
    }
}

impl PyStreamedResponse {
    pub(crate) fn new(
        connector: Connector,
        request: PreparedRequest,
        name: String,
        queue: Option<Py<OperationQueue>>,
    ) -> PyStreamedResponse {
        PyStreamedResponse(LongConnection::new(connector, request, name, StreamedResponseState::default(), queue))
    }

    fn read_operation(&self, py: Python<'_>, iterating: bool) -> Operation {
        self.0.operation(py, LongOperationKind::Use, move |connection, context| {
            Box::pin(async move {
                let chunk = connection.read(&context).await?;
                Python::attach(|py| match chunk {
                    Some(chunk) => Ok(PyBytes::new(py, &chunk).into_any().unbind()),
                    None => end_of_iteration(py, iterating),
                })
            })
        })
    }
}

impl LongConnectionState<StreamedResponseState> {
    async fn read(&self, context: &OperationContext<'_>) -> PyResult<Option<Vec<u8>>> {
        let chunk = poll_fn(|cx| match &mut self.state().response {
            Some(response) => response.poll_chunk(cx),
            None => Poll::Ready(Ok(None)),
        })
        .await;
        let now = Instant::now();
        let started = self.state().started.unwrap_or(now);
        let ok = Outcome::new(OutcomeCategory::Ok, "OK");
        match chunk {
            Ok(Some(chunk)) => {
                if self.state().first_chunk.is_none() {
                    self.state().first_chunk = Some(now - started);
                    context.recorder().record_span(
                        context.custom_metric(&format!("{} first chunk", self.name)),
                        started,
                        now,
                        ok,
                    );
                }
                Ok(Some(chunk))
            }
            Ok(None) => {
                if self.state().close() {
                    context.recorder().record_span(
                        context.custom_metric(&format!("{} whole", self.name)),
                        started,
                        now,
                        ok,
                    );
                }
                Ok(None)
            }
            Err(error) => {
                self.state().close();
                let (metric, outcome) =
                    (context.custom_metric(&format!("{} whole", self.name)), http_error_outcome(&error));
                context.recorder().note_error(metric, started, outcome, &error.to_string());
                context.recorder().record_span(metric, started, now, outcome);
                Err(Python::attach(|py| {
                    exceptions::mark_unrecorded(py, exceptions::request_failed(py, &error, &self.name))
                }))
            }
        }
    }
}

#[pymethods]
impl PyStreamedResponse {
    /// Sends the request, waits for the head of the response, and returns this object.
    fn open(slf: &Bound<'_, Self>) -> Operation {
        let this = slf.clone().unbind();
        slf.get().0.operation(slf.py(), LongOperationKind::Open, move |connection, context| {
            Box::pin(async move {
                let (response, started) = connection.open(&context, RedirectMode::Follow, |_| Ok(())).await?;
                let (status, head) = (response.status(), response.raw_head().to_vec());
                let started = Some(started);
                *connection.state() = StreamedResponseState {
                    response: Some(response),
                    status,
                    head,
                    started,
                    ..StreamedResponseState::default()
                };
                Ok(this.into_any())
            })
        })
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> Operation {
        PyStreamedResponse::open(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __aexit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Operation {
        self.close();
        Operation::completed(py.None())
    }

    /// Reads the next chunk of the body; None at its end.
    fn chunk(&self, py: Python<'_>) -> Operation {
        self.read_operation(py, false)
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(&self, py: Python<'_>) -> Operation {
        self.read_operation(py, true)
    }

    /// Closes the connection, even if the body has not ended.
    fn close(&self) {
        self.0.state().close();
    }

    #[getter]
    fn status_code(&self) -> PyResult<u16> {
        match self.0.state().status {
            0 => Err(PyRuntimeError::new_err("the stream is not open yet: open it with `async with`")),
            status => Ok(status),
        }
    }

    /// The headers of the response, with names in lower case.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, value) in HeaderIter::from_head(&self.0.state().head) {
            found.set_item(name.to_ascii_lowercase(), value)?;
        }
        Ok(found)
    }

    /// Milliseconds from the start of the request to the first chunk of the body.
    #[getter]
    fn first_chunk_ms(&self) -> Option<f64> {
        self.0.state().first_chunk.map(|first| first.as_secs_f64() * 1e3)
    }
}
