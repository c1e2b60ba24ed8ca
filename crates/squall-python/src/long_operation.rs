//! Something longer than a request that a scenario awaits: it is given the means to record itself and performed like any other
//! operation, in every mode. Knows nothing of what it does.

use pyo3::prelude::*;
use squall_engine::ThreadRecorder;
use squall_http::Cookies;
use squall_metrics::{MetricId, MetricKey, MetricKind};
use std::pin::Pin;

/// What a job has to work with.
pub(crate) struct OperationContext<'p> {
    pub(crate) recorder: &'p ThreadRecorder,
    /// The user's.
    pub(crate) cookies: Cookies,
    /// What the names of the scenario's series begin with.
    pub(crate) prefix: &'p str,
}

impl OperationContext<'_> {
    /// The series of requests of this name.
    pub(crate) fn request_metric(&self, name: &str) -> MetricId {
        self.recorder.metric(MetricKey::request(format!("{}{name}", self.prefix)))
    }

    /// The series of times that are no requests.
    pub(crate) fn custom_metric(&self, name: &str) -> MetricId {
        self.recorder
            .metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(format!("{}{name}", self.prefix)) })
    }
}

/// A job under way.
pub(crate) type OperationFuture<'p> = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + 'p>>;

type StartOperation = dyn for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync;

/// A job that nobody has begun.
pub(crate) struct LongOperation(Box<StartOperation>);

impl LongOperation {
    pub(crate) fn new(
        begin: impl for<'p> FnOnce(OperationContext<'p>) -> OperationFuture<'p> + Send + Sync + 'static,
    ) -> LongOperation {
        LongOperation(Box::new(begin))
    }

    pub(crate) fn start(self, means: OperationContext<'_>) -> OperationFuture<'_> {
        (self.0)(means)
    }
}
