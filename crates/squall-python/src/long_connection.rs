//! Connections that a request opens and that outlive it: the base of streamed responses and
//! WebSockets. It sends the opening request with the user's cookies, records it like any request,
//! and counts the bytes transferred. It does not read or write the content; `streamed_response` and
//! `websocket` do.

use pyo3::{exceptions::PyStopAsyncIteration, prelude::*};
use squall_engine::ThreadRecorder;
use squall_http::{Connector, PreparedRequest, RequestError, StreamingResponse};
use squall_metrics::{MetricKey, Outcome, OutcomeCategory};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    driver::http_error_outcome,
    exceptions,
    long_operation::{LongOperation, OperationContext, OperationFuture},
    operation::{Operation, OperationWork},
    operation_queue::OperationQueue,
};

/// A connection of one user, which is never reused. `S` is the state of its protocol.
pub(crate) struct LongConnection<S> {
    connection: Arc<LongConnectionState<S>>,
    queue: Option<Py<OperationQueue>>,
}

/// The part that the operations of a connection share.
pub(crate) struct LongConnectionState<S> {
    connector: Connector,
    request: PreparedRequest,
    pub(crate) name: String,
    /// Locked only briefly, so that one task can send while another waits for a message.
    state: Mutex<S>,
    opening_request: Mutex<Option<OpeningRequest>>,
}

/// The request that opened a connection, and how many of the connection's bytes are recorded.
struct OpeningRequest {
    name: String,
    due: Instant,
    recorded_bytes: (u64, u64),
}

/// A connection state that counts transferred bytes.
pub(crate) trait TransferCounter {
    /// Bytes read and written since the connection was opened, including the request and the head
    /// of the response. The counts stay after the connection is closed.
    fn bytes_transferred(&self) -> (u64, u64);
}

/// Records the bytes that one operation transferred when it is dropped, also if the operation is
/// cancelled.
struct TransferGuard<'p, S: TransferCounter> {
    connection: Arc<LongConnectionState<S>>,
    recorder: &'p ThreadRecorder,
    prefix: &'p str,
}

impl<S: TransferCounter> Drop for TransferGuard<'_, S> {
    fn drop(&mut self) {
        let transferred = self.connection.state().bytes_transferred();
        let mut opened = self.connection.opening_request();
        let Some(opened) = opened.as_mut() else { return };
        let before = std::mem::replace(&mut opened.recorded_bytes, transferred);
        let (read, written) = (transferred.0.saturating_sub(before.0), transferred.1.saturating_sub(before.1));
        if read + written > 0 {
            let metric = self.recorder.metric(MetricKey::request(format!("{}{}", self.prefix, opened.name)));
            self.recorder.add_bytes(metric, opened.due, read, written);
        }
    }
}

/// Why a response does not open the connection.
pub(crate) struct RejectedOpening {
    pub(crate) code: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
}

impl RejectedOpening {
    fn from_redirect(error: RequestError) -> RejectedOpening {
        let (code, reason) = (error.redirect_code(), error.to_string());
        RejectedOpening { code, outcome: Outcome::new(OutcomeCategory::ProtocolError, code), reason }
    }
}

impl<S: TransferCounter + Send + 'static> LongConnection<S> {
    pub(crate) fn new(
        connector: Connector,
        request: PreparedRequest,
        name: String,
        state: S,
        queue: Option<Py<OperationQueue>>,
    ) -> LongConnection<S> {
        let (state, opened) = (Mutex::new(state), Mutex::default());
        LongConnection {
            connection: Arc::new(LongConnectionState { connector, request, name, state, opening_request: opened }),
            queue,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.connection.state()
    }

    /// An operation on this connection.
    pub(crate) fn operation<F>(&self, py: Python<'_>, start: F) -> Operation
    where
        F: for<'p> FnOnce(Arc<LongConnectionState<S>>, OperationContext<'p>) -> OperationFuture<'p>
            + Send
            + Sync
            + 'static,
    {
        let connection = self.connection.clone();
        let operation = LongOperation::new(move |context| {
            let transfer_guard =
                TransferGuard { connection: connection.clone(), recorder: context.recorder, prefix: context.prefix };
            let running = start(connection, context);
            Box::pin(async move {
                let _transfer_guard = transfer_guard;
                running.await
            })
        });
        Operation::new(OperationWork::Long(operation), self.queue.as_ref().map(|queue| queue.clone_ref(py)))
    }
}

impl<S> LongConnectionState<S> {
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opening_request(&self) -> MutexGuard<'_, Option<OpeningRequest>> {
        self.opening_request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request and waits for the head of the response. Fails if `check` rejects the
    /// response.
    pub(crate) async fn open(
        &self,
        context: &OperationContext<'_>,
        check: impl FnOnce(&StreamingResponse) -> Result<(), RejectedOpening>,
    ) -> PyResult<StreamingResponse> {
        let (response, _, ()) = self.send_opening_request(context, &self.request, &self.name, check).await?;
        Ok(response)
    }

    /// Sends the request, follows redirects as other requests do, and waits for the head of the
    /// last response. Returns the response and when the first request was sent.
    pub(crate) async fn open_following_redirects(
        &self,
        context: &OperationContext<'_>,
    ) -> PyResult<(StreamingResponse, Instant)> {
        let check = |request: &PreparedRequest, response: &StreamingResponse| {
            response.redirect(request).transpose().map_err(RejectedOpening::from_redirect)
        };
        let (mut response, first_sent, mut next) = self
            .send_opening_request(context, &self.request, &self.name, |response| check(&self.request, response))
            .await?;
        while let Some(request) = next {
            let name = format!("{} (redirect)", self.name);
            (response, _, next) =
                self.send_opening_request(context, &request, &name, |response| check(&request, response)).await?;
        }
        Ok((response, first_sent))
    }

    async fn send_opening_request<T>(
        &self,
        context: &OperationContext<'_>,
        request: &PreparedRequest,
        name: &str,
        check: impl FnOnce(&StreamingResponse) -> Result<T, RejectedOpening>,
    ) -> PyResult<(StreamingResponse, Instant, T)> {
        let metric = context.request_metric(name);
        let due = Instant::now();
        let started = context.recorder.wait_for_budget(due).await;
        let Some(in_flight) = context.recorder.begin(metric, due, started) else {
            return Err(Python::attach(|py| exceptions::worker_fenced(py, name)));
        };
        let response = match StreamingResponse::open(&self.connector, request, &context.cookies).await {
            Ok(response) => response,
            Err(error) => {
                let outcome = http_error_outcome(&error);
                context.recorder.note_error(metric, due, outcome, &error.to_string());
                match error.failed_before_sending() {
                    true => in_flight.end_unsent(Instant::now(), outcome),
                    false => in_flight.end(Instant::now(), outcome, 0, 0),
                }
                return Err(Python::attach(|py| exceptions::request_failed(py, &error, name)));
            }
        };
        let checked = check(&response);
        let outcome = checked.as_ref().err().map_or(Outcome::of_status(response.status()), |rejected| rejected.outcome);
        let bytes_transferred = (response.received(), response.sent());
        in_flight.end(Instant::now(), outcome, bytes_transferred.0, bytes_transferred.1);
        match checked {
            Ok(accepted) => {
                *self.opening_request() =
                    Some(OpeningRequest { name: name.to_owned(), due, recorded_bytes: bytes_transferred });
                Ok((response, started, accepted))
            }
            Err(RejectedOpening { code, reason, .. }) => {
                context.recorder.note_error(metric, due, outcome, &reason);
                Err(Python::attach(|py| exceptions::protocol_error(py, code, &reason, name)))
            }
        }
    }
}

/// The end of a stream: `StopAsyncIteration` for an iteration, `None` for a call.
pub(crate) fn end_of_iteration(py: Python<'_>, iterating: bool) -> PyResult<Py<PyAny>> {
    match iterating {
        true => Err(PyStopAsyncIteration::new_err(())),
        false => Ok(py.None()),
    }
}
