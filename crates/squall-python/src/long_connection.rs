//! Connections that a request opens and that outlive it: the base of streamed responses and
//! WebSockets. It records the request that opened the connection and counts the bytes transferred.
//! It does not send that request (`driver/python_request` does), and it does not read or write the
//! content: `streamed_response` and `websocket` do.

use pyo3::{exceptions::PyStopAsyncIteration, prelude::*};
use squall_http::{Connector, PreparedRequest, StreamingResponse};
use squall_metrics::Outcome;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::{
    driver::{OpenedResponse, OpeningCall, PythonThreadContext, RedirectMode, open_response},
    exceptions,
    long_operation::{LongOperation, LongOperationKind, OperationContext, OperationFuture},
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
    thread: &'p PythonThreadContext,
}

impl<S: TransferCounter> Drop for TransferGuard<'_, S> {
    fn drop(&mut self) {
        let transferred = self.connection.state().bytes_transferred();
        let mut opened = self.connection.opening_request();
        let Some(opened) = opened.as_mut() else { return };
        let before = std::mem::replace(&mut opened.recorded_bytes, transferred);
        let (read, written) = (transferred.0.saturating_sub(before.0), transferred.1.saturating_sub(before.1));
        if read + written > 0 {
            let metric = self.thread.request_metric(&opened.name);
            self.thread.recorder().add_bytes(metric, opened.due, read, written);
        }
    }
}

/// Why a response does not open the connection.
pub(crate) struct RejectedOpening {
    pub(crate) code: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) reason: String,
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
    pub(crate) fn operation<F>(&self, py: Python<'_>, kind: LongOperationKind, start: F) -> Operation
    where
        F: for<'p> FnOnce(Arc<LongConnectionState<S>>, OperationContext<'p>) -> OperationFuture<'p>
            + Send
            + Sync
            + 'static,
    {
        let connection = self.connection.clone();
        let operation = LongOperation::new(kind, move |context| {
            let transfer_guard = TransferGuard { connection: connection.clone(), thread: context.thread };
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
    /// response. Returns the response and when the first request was sent, before all redirects.
    pub(crate) async fn open(
        &self,
        context: &OperationContext<'_>,
        redirects: RedirectMode,
        check: impl FnOnce(&StreamingResponse) -> Result<(), RejectedOpening>,
    ) -> PyResult<(StreamingResponse, Instant)> {
        let call = OpeningCall { request: &self.request, name: &self.name, redirects };
        let OpenedResponse { response, request, name, first_sent } =
            open_response(context, &self.connector, call).await?;
        if let Err(RejectedOpening { code, outcome, reason }) = check(&response) {
            request.record_as_noted(outcome, Some(&reason));
            return Err(Python::attach(|py| exceptions::protocol_error(py, code, &reason, &name)));
        }
        let recorded_bytes = (response.received(), response.sent());
        *self.opening_request() = Some(OpeningRequest { name, due: request.intended(), recorded_bytes });
        request.record();
        Ok((response, first_sent))
    }
}

/// The end of a stream: `StopAsyncIteration` for an iteration, `None` for a call.
pub(crate) fn end_of_iteration(py: Python<'_>, iterating: bool) -> PyResult<Py<PyAny>> {
    match iterating {
        true => Err(PyStopAsyncIteration::new_err(())),
        false => Ok(py.None()),
    }
}
