//! Operations that are more than one request, as boxed futures. The driver passes a context to
//! record with and performs them like any other operation, in every mode. This file does not know
//! what they do; `long_connection` creates them.

use pyo3::prelude::*;
use squall_engine::ThreadRecorder;
use squall_http::Cookies;
use squall_metrics::MetricId;
use std::{pin::Pin, time::Duration};

use crate::driver::PythonThreadContext;

/// What a long operation may use.
pub(crate) struct OperationContext<'p> {
    pub(crate) thread: &'p PythonThreadContext,
    /// The user's cookies.
    pub(crate) cookies: Cookies,
    /// How much earlier a request counts as due.
    pub(crate) start_delay: Duration,
}

impl<'p> OperationContext<'p> {
    pub(crate) fn recorder(&self) -> &'p ThreadRecorder {
        self.thread.recorder()
    }

    /// The metric of spans that are not requests.
    pub(crate) fn custom_metric(&self, name: &str) -> MetricId {
        self.thread.custom_metric(name)
    }
}

/// A long operation that is running.
pub(crate) type OperationFuture<'p> = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + 'p>>;

type StartOperation = dyn for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync;

/// A long operation that has not started.
pub(crate) struct LongOperation {
    start: Box<StartOperation>,
    kind: LongOperationKind,
}

/// Whether an operation sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LongOperationKind {
    /// Sends the request that opens the connection.
    Open,
    /// Uses the connection if it is open.
    Use,
}

impl LongOperation {
    pub(crate) fn new(
        kind: LongOperationKind,
        start: impl for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync + 'static,
    ) -> LongOperation {
        LongOperation { start: Box::new(start), kind }
    }

    /// Starts the operation of a function that began `start_delay` late. The first operation that
    /// sends a request takes the delay.
    pub(crate) fn start<'p>(
        self,
        thread: &'p PythonThreadContext,
        cookies: &Cookies,
        start_delay: &mut Duration,
    ) -> OperationFuture<'p> {
        let start_delay = match self.kind {
            LongOperationKind::Open => std::mem::take(start_delay),
            LongOperationKind::Use => Duration::ZERO,
        };
        (self.start)(OperationContext { thread, cookies: cookies.clone(), start_delay })
    }
}
