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
        let moved = self.connection.state().bytes_transferred();
        let mut opened = self.connection.opening_request();
        let Some(opened) = opened.as_mut() else { return };
        let before = std::mem::replace(&mut opened.recorded_bytes, moved);
        let (read, written) = (moved.0.saturating_sub(before.0), moved.1.saturating_sub(before.1));
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
        port: Option<Py<OperationQueue>>,
    ) -> LongConnection<S> {
        let (state, opened) = (Mutex::new(state), Mutex::default());
        LongConnection {
            connection: Arc::new(LongConnectionState { connector, request, name, state, opening_request: opened }),
            queue: port,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.connection.state()
    }

    /// An operation on this connection.
    pub(crate) fn operation<F>(&self, py: Python<'_>, begin: F) -> Operation
    where
        F: for<'p> FnOnce(Arc<LongConnectionState<S>>, OperationContext<'p>) -> OperationFuture<'p>
            + Send
            + Sync
            + 'static,
    {
        let link = self.connection.clone();
        let job = LongOperation::new(move |means| {
            let tally = TransferGuard { connection: link.clone(), recorder: means.recorder, prefix: means.prefix };
            let running = begin(link, means);
            Box::pin(async move {
                let _tally = tally;
                running.await
            })
        });
        Operation::new(OperationWork::Long(job), self.queue.as_ref().map(|port| port.clone_ref(py)))
    }
}

impl<S> LongConnectionState<S> {
    pub(crate) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opening_request(&self) -> MutexGuard<'_, Option<OpeningRequest>> {
        self.opening_request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the request and waits for the head of the response. Fails if `judge` rejects the
    /// response.
    pub(crate) async fn open(
        &self,
        means: &OperationContext<'_>,
        judge: impl FnOnce(&StreamingResponse) -> Result<(), RejectedOpening>,
    ) -> PyResult<StreamingResponse> {
        let (answer, _, ()) = self.send_opening_request(means, &self.request, &self.name, judge).await?;
        Ok(answer)
    }

    /// Sends the request, follows redirects as other requests do, and waits for the head of the
    /// last response. Returns the response and when the first request was sent.
    pub(crate) async fn open_following_redirects(
        &self,
        means: &OperationContext<'_>,
    ) -> PyResult<(StreamingResponse, Instant)> {
        let judge = |request: &PreparedRequest, answer: &StreamingResponse| {
            answer.redirect(request).transpose().map_err(RejectedOpening::from_redirect)
        };
        let (mut answer, begun, mut next) =
            self.send_opening_request(means, &self.request, &self.name, |answer| judge(&self.request, answer)).await?;
        while let Some(request) = next {
            let name = format!("{} (redirect)", self.name);
            (answer, _, next) =
                self.send_opening_request(means, &request, &name, |answer| judge(&request, answer)).await?;
        }
        Ok((answer, begun))
    }

    async fn send_opening_request<T>(
        &self,
        means: &OperationContext<'_>,
        request: &PreparedRequest,
        name: &str,
        judge: impl FnOnce(&StreamingResponse) -> Result<T, RejectedOpening>,
    ) -> PyResult<(StreamingResponse, Instant, T)> {
        let metric = means.request_metric(name);
        let due = Instant::now();
        let started = means.recorder.wait_for_budget(due).await;
        let Some(flight) = means.recorder.begin(metric, due, started) else {
            return Err(Python::attach(|py| exceptions::worker_fenced(py, name)));
        };
        let answer = match StreamingResponse::open(&self.connector, request, &means.cookies).await {
            Ok(answer) => answer,
            Err(error) => {
                let outcome = http_error_outcome(&error);
                means.recorder.note_error(metric, outcome, &error.to_string());
                match error.failed_before_sending() {
                    true => flight.end_unsent(Instant::now(), outcome),
                    false => flight.end(Instant::now(), outcome, 0, 0),
                }
                return Err(Python::attach(|py| exceptions::request_failed(py, &error, name)));
            }
        };
        let judged = judge(&answer);
        let outcome = judged.as_ref().err().map_or(Outcome::of_status(answer.status()), |refused| refused.outcome);
        let counted = (answer.received(), answer.sent());
        flight.end(Instant::now(), outcome, counted.0, counted.1);
        match judged {
            Ok(verdict) => {
                *self.opening_request() = Some(OpeningRequest { name: name.to_owned(), due, recorded_bytes: counted });
                Ok((answer, started, verdict))
            }
            Err(RejectedOpening { code, reason, .. }) => {
                means.recorder.note_error(metric, outcome, &reason);
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
