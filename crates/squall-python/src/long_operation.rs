//! Operations that are more than one request, as boxed futures. The driver passes a context to
//! record with and performs them like any other operation, in every mode. This file does not know
//! what they do; `long_connection` creates them.

use pyo3::prelude::*;
use squall_engine::ThreadRecorder;
use squall_http::Cookies;
use squall_metrics::{MetricId, MetricKey, MetricKind};
use std::pin::Pin;

/// What a long operation may use.
pub(crate) struct OperationContext<'p> {
    pub(crate) recorder: &'p ThreadRecorder,
    /// The user's cookies.
    pub(crate) cookies: Cookies,
    /// The prefix of the scenario's metric names.
    pub(crate) prefix: &'p str,
}

impl OperationContext<'_> {
    /// The metric of requests with this name.
    pub(crate) fn request_metric(&self, name: &str) -> MetricId {
        self.recorder.metric(MetricKey::request(format!("{}{name}", self.prefix)))
    }

    /// The metric of spans that are not requests.
    pub(crate) fn custom_metric(&self, name: &str) -> MetricId {
        self.recorder
            .metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(format!("{}{name}", self.prefix)) })
    }
}

/// A long operation that is running.
pub(crate) type OperationFuture<'p> = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + 'p>>;

type StartOperation = dyn for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync;

/// A long operation that has not started.
pub(crate) struct LongOperation(Box<StartOperation>);

impl LongOperation {
    pub(crate) fn new(
        start: impl for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync + 'static,
    ) -> LongOperation {
        LongOperation(Box::new(start))
    }

    pub(crate) fn start(self, context: OperationContext<'_>) -> OperationFuture<'_> {
        (self.0)(context)
    }
}
