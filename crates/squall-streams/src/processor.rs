//! A processor: a name, a stream, a function over the events of one partition, and how failures and hand-over are treated.
//! Refuses to run itself; a [`crate::Worker`] does.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use serde::{Serialize, de::DeserializeOwned};
use squall_coord::RedisClient;

use crate::{
    events::Events,
    lane::Lane,
    metrics::StreamMetrics,
    middleware::{BoxError, Middleware},
    names::{NameError, Namespace, ProcessorName},
    policy::Policy,
    raw::RawEvents,
    stream::Stream,
};

/// Timings and sizes of a processor.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between beats. Default 1 s.
    pub beat: Duration,
    /// How long a silent worker keeps its partitions; at least three beats. Default 3.5 s, so that others take over within 5 s.
    pub lease: Duration,
    /// How long a new worker waits for others before partitions move to it. Default 250 ms.
    pub join_delay: Duration,
    /// How long the iteration in hand may take when a partition moves or the worker stops; then it is cut off. Default 8 s.
    pub grace: Duration,
    /// Events fetched ahead per partition; fetched again when half are left. Default 256.
    pub prefetch: usize,
    /// Fetches on their way at once. Default 16.
    pub fetches: usize,
    /// How often lag is counted and progress is told as a tracing event. Default 10 s.
    pub report: Duration,
}

/// Settings under which nothing would ever happen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` must not be zero")]
pub struct ZeroSetting(pub &'static str);

impl Settings {
    pub(crate) fn check(&self) -> Result<(), ZeroSetting> {
        let zero = [
            ("beat", self.beat.is_zero()),
            ("prefetch", self.prefetch == 0),
            ("fetches", self.fetches == 0),
            ("report", self.report.is_zero()),
        ];
        zero.into_iter().find(|(_, zero)| *zero).map_or(Ok(()), |(name, _)| Err(ZeroSetting(name)))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            beat: Duration::from_secs(1),
            lease: Duration::from_millis(3500),
            join_delay: Duration::from_millis(250),
            grace: Duration::from_secs(8),
            prefetch: 256,
            fetches: 16,
            report: Duration::from_secs(10),
        }
    }
}

/// Middleware in the order events meet it.
pub(crate) type Steps = Arc<[Arc<dyn Middleware>]>;

pub(crate) type Invoke = Arc<dyn Fn(Arc<Lane>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A function over a stream, one call per partition.
pub struct Processor {
    pub(crate) name: Result<ProcessorName, NameError>,
    pub(crate) link: RedisClient,
    pub(crate) namespace: Namespace,
    pub(crate) partitions: u32,
    pub(crate) settings: Settings,
    pub(crate) policy: Policy,
    pub(crate) metrics: Arc<StreamMetrics>,
    pub(crate) middleware: Vec<Arc<dyn Middleware>>,
    make: Box<dyn FnOnce(Steps) -> Invoke + Send>,
}

impl Processor {
    /// A processor of `stream`. `function` is called once per partition this worker holds, and again whenever it returns while
    /// the partition is still here.
    pub fn new<R, F, Fut, E>(name: &str, stream: &Stream<R>, function: F) -> Self
    where
        R: Serialize + DeserializeOwned + Send + Sync + 'static,
        F: Fn(Events<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let codec = stream.codec();
        Self::made(name, stream, move |middleware| {
            Arc::new(move |lane| {
                let running = function(Events::new(lane, codec, middleware.clone()));
                async move { running.await.map_err(Into::into) }.boxed()
            })
        })
    }

    /// As [`Processor::new`], for a function that decodes events itself. Middleware of such a processor sees failures only.
    pub fn raw<R, F, Fut>(name: &str, stream: &Stream<R>, function: F) -> Self
    where
        F: Fn(RawEvents) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self::made(name, stream, move |_| Arc::new(move |lane| function(RawEvents::new(lane)).boxed()))
    }

    fn made<R>(name: &str, stream: &Stream<R>, make: impl FnOnce(Steps) -> Invoke + Send + 'static) -> Self {
        Self {
            name: stream.name().processor(name),
            link: stream.link().clone(),
            namespace: stream.namespace().clone(),
            partitions: stream.partitions(),
            settings: Settings::default(),
            policy: Policy::default(),
            metrics: Arc::default(),
            middleware: Vec::new(),
            make: Box::new(make),
        }
    }

    /// What happens when processing fails. Default: halt.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Adds a step between stream and function; steps see events in the order they were added.
    #[must_use]
    pub fn middleware(mut self, step: Arc<dyn Middleware>) -> Self {
        self.middleware.push(step);
        self
    }

    /// Changes timings and sizes.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Its counters, which stay readable while it runs.
    pub fn metrics(&self) -> Arc<StreamMetrics> {
        self.metrics.clone()
    }

    pub(crate) fn into_invoke(self) -> (Invoke, Steps) {
        let middleware: Steps = self.middleware.into();
        ((self.make)(middleware.clone()), middleware)
    }
}
