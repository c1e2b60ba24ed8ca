//! A processor: a name, a stream, a function over the events of one partition, its failure policy
//! and its settings. Does not run itself; a [`crate::AppWorker`] runs it.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use squall_coord::RedisClient;

use crate::{
    events::PartitionEvents,
    failure_policy::FailurePolicy,
    metrics::StreamMetrics,
    middleware::{BoxError, Middleware},
    names::{NameError, Namespace, ProcessorName},
    partition_buffer::PartitionBuffer,
    raw_events::RawPartitionEvents,
    stream::RecordStream,
};

/// Timings and sizes of a processor.
#[derive(Clone, Debug)]
pub struct ProcessorSettings {
    /// The time between heartbeats. Default 1 s.
    pub heartbeat_interval: Duration,
    /// How long a silent worker keeps its partitions; at least three heartbeats. Default 3.5 s, so
    /// that other workers take over within 5 s.
    pub lease_ttl: Duration,
    /// How long a new worker waits for other new workers before partitions move to it. Default 250
    /// ms.
    pub join_delay: Duration,
    /// How long the current iteration may take when a partition moves or the worker stops. Then the
    /// worker cancels it. Default 8 s.
    pub grace: Duration,
    /// How many events the worker fetches ahead per partition. It reads again when half of them are
    /// left. Default 256.
    pub prefetch: usize,
    /// The largest number of concurrent reads. Default 16.
    pub max_fetches: usize,
    /// How often the worker counts lag and logs progress as a tracing event. Default 10 s.
    pub report_interval: Duration,
}

/// A setting is zero, with which the processor could not work.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` must not be zero")]
pub struct ZeroSettingError(pub &'static str);

impl ProcessorSettings {
    pub(crate) fn check(&self) -> Result<(), ZeroSettingError> {
        let zero = [
            ("heartbeat_interval", self.heartbeat_interval.is_zero()),
            ("prefetch", self.prefetch == 0),
            ("max_fetches", self.max_fetches == 0),
            ("report_interval", self.report_interval.is_zero()),
        ];
        zero.into_iter().find(|(_, zero)| *zero).map_or(Ok(()), |(name, _)| Err(ZeroSettingError(name)))
    }
}

impl Default for ProcessorSettings {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_secs(1),
            lease_ttl: Duration::from_millis(3500),
            join_delay: Duration::from_millis(250),
            grace: Duration::from_secs(8),
            prefetch: 256,
            max_fetches: 16,
            report_interval: Duration::from_secs(10),
        }
    }
}

/// The middleware of a processor, in the order in which it sees events.
pub(crate) type MiddlewareChain = Arc<[Arc<dyn Middleware>]>;

pub(crate) type ProcessorFn =
    Arc<dyn Fn(Arc<PartitionBuffer>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A function over a stream, with one call per partition.
pub struct Processor {
    pub(crate) name: Result<ProcessorName, NameError>,
    pub(crate) client: RedisClient,
    pub(crate) namespace: Namespace,
    pub(crate) partitions: u32,
    pub(crate) settings: ProcessorSettings,
    pub(crate) policy: FailurePolicy,
    pub(crate) metrics: Arc<StreamMetrics>,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
    function_factory: Box<dyn FnOnce(MiddlewareChain) -> ProcessorFn + Send>,
}

impl Processor {
    /// A processor of `stream`. The worker calls `function` once for each partition that it holds,
    /// and again whenever `function` returns while the worker still holds the partition.
    pub fn new<R, F, Fut, E>(name: &str, stream: &RecordStream<R>, function: F) -> Self
    where
        R: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: Fn(PartitionEvents<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let codec = stream.codec();
        Self::with_factory(name, stream, move |middleware| {
            Arc::new(move |buffer| {
                let running = function(PartitionEvents::new(buffer, codec, middleware.clone()));
                async move { running.await.map_err(Into::into) }.boxed()
            })
        })
    }

    /// As [`Processor::new`], for a function that decodes events itself. Its middleware sees
    /// failures only.
    pub fn raw<R, F, Fut>(name: &str, stream: &RecordStream<R>, function: F) -> Self
    where
        F: Fn(RawPartitionEvents) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::with_factory(name, stream, move |_| {
            Arc::new(move |buffer| function(RawPartitionEvents::new(buffer)).boxed())
        })
    }

    fn with_factory<R>(
        name: &str,
        stream: &RecordStream<R>,
        function_factory: impl FnOnce(MiddlewareChain) -> ProcessorFn + Send + 'static,
    ) -> Self {
        Self {
            name: stream.name().processor(name),
            client: stream.client().clone(),
            namespace: stream.namespace().clone(),
            partitions: stream.partitions(),
            settings: ProcessorSettings::default(),
            policy: FailurePolicy::default(),
            metrics: Arc::default(),
            middleware: Vec::new(),
            function_factory: Box::new(function_factory),
        }
    }

    /// What the worker does when processing fails. Default: halt.
    #[must_use]
    pub fn policy(mut self, policy: FailurePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Adds middleware between the stream and the function. Middleware sees events in the order in
    /// which it was added.
    #[must_use]
    pub fn middleware(mut self, step: Arc<dyn Middleware>) -> Self {
        self.middleware.push(step);
        self
    }

    /// Changes timings and sizes.
    #[must_use]
    pub fn settings(mut self, settings: ProcessorSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The counters of the processor. They stay readable while it runs.
    pub fn metrics(&self) -> Arc<StreamMetrics> {
        self.metrics.clone()
    }

    pub(crate) fn into_function(self) -> (ProcessorFn, MiddlewareChain) {
        let middleware: MiddlewareChain = self.middleware.into();
        ((self.function_factory)(middleware.clone()), middleware)
    }
}
