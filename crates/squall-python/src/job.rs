//! Something longer than a request that a scenario awaits: it is given the means to record itself and performed like any other
//! operation, in every mode. Knows nothing of what it does.

use pyo3::prelude::*;
use squall_engine::ThreadRecorder;
use squall_http::Cookies;
use squall_metrics::{MetricKind, MetricId, MetricKey};
use std::pin::Pin;

/// What a job has to work with.
pub(crate) struct Means<'p> {
    pub(crate) probe: &'p ThreadRecorder,
    /// The user's.
    pub(crate) cookies: Cookies,
    /// What the names of the scenario's series begin with.
    pub(crate) prefix: &'p str,
}

impl Means<'_> {
    /// The series of requests of this name.
    pub(crate) fn request(&self, name: &str) -> MetricId {
        self.probe.metric(MetricKey::request(format!("{}{name}", self.prefix)))
    }

    /// The series of times that are no requests.
    pub(crate) fn custom(&self, name: &str) -> MetricId {
        self.probe.metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(format!("{}{name}", self.prefix)) })
    }
}

/// A job under way.
pub(crate) type Running<'p> = Pin<Box<dyn Future<Output = PyResult<Py<PyAny>>> + 'p>>;

type Begin = dyn for<'p> FnOnce(Means<'p>) -> Running<'p> + Send + Sync;

/// A job that nobody has begun.
pub(crate) struct Job(Box<Begin>);

impl Job {
    pub(crate) fn new(begin: impl for<'p> FnOnce(Means<'p>) -> Running<'p> + Send + Sync + 'static) -> Job {
        Job(Box::new(begin))
    }

    pub(crate) fn begin(self, means: Means<'_>) -> Running<'_> {
        (self.0)(means)
    }
}
