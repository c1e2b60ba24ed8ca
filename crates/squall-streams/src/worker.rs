//! A worker of an app: one executor per processor, leader election, background tasks. Installs no
//! signal handlers: the caller stops the worker with a token.

use std::{sync::Arc, time::Duration};

use squall_coord::{RedisClient, find_wrong_type};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::{
    background_task::BackgroundTask,
    executor::{ExecutorError, execute},
    leader_election::{DEFAULT_LEADER_TTL, LeaderCandidate, compete_for_leadership},
    metrics::StreamMetrics,
    names::{Namespace, ProcessorName},
    processor::Processor,
};

/// Runs processors and background tasks until its token is cancelled.
pub struct AppWorker {
    app: String,
    id: String,
    client: RedisClient,
    namespace: Namespace,
    processors: Vec<Processor>,
    tasks: Vec<BackgroundTask>,
    leader_ttl: Duration,
}

impl AppWorker {
    pub(crate) fn new(app: String, client: RedisClient, namespace: Namespace) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        Self { app, id, client, namespace, processors: Vec::new(), tasks: Vec::new(), leader_ttl: DEFAULT_LEADER_TTL }
    }

    /// Adds a processor.
    #[must_use]
    pub fn processor(mut self, processor: Processor) -> Self {
        self.processors.push(processor);
        self
    }

    /// Adds a background task.
    #[must_use]
    pub fn task(mut self, task: BackgroundTask) -> Self {
        self.tasks.push(task);
        self
    }

    /// How long a silent leader stays the leader. At least 1 ms. Default 3.5 s.
    #[must_use]
    pub fn leader_ttl(mut self, ttl: Duration) -> Self {
        self.leader_ttl = ttl.max(Duration::from_millis(1));
        self
    }

    /// The counters of the processors, for [`StreamMetrics::render`].
    pub fn metrics(&self) -> Vec<(ProcessorName, Arc<StreamMetrics>)> {
        let named =
            self.processors.iter().filter_map(|processor| Some((processor.name.clone().ok()?, processor.metrics())));
        named.collect()
    }

    /// Runs until `stop` is cancelled, then drains all processors and hands the partitions over. If
    /// a processor halts, the worker drains the other processors and returns the error.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ExecutorError> {
        info!(app = self.app, worker = self.id, processors = self.processors.len(), "worker starts");
        let stop = stop.child_token();
        let (leading_sender, leading) = watch::channel(false);
        let mut background = JoinSet::new();
        if self.tasks.iter().any(BackgroundTask::is_leader_only) {
            let key = self.namespace.leader_key(&self.app);
            if let Some(error) = find_wrong_type(&mut self.client.connection(), &[(&key, "string")]).await {
                return Err(ExecutorError::UnusableLeaderKey(error));
            }
            let candidate =
                LeaderCandidate { client: self.client.clone(), key, worker: self.id.clone(), ttl: self.leader_ttl };
            background.spawn(compete_for_leadership(candidate, leading_sender, stop.clone()));
        }
        for task in self.tasks {
            background.spawn(task.run(leading.clone(), stop.clone()));
        }
        let mut executors = JoinSet::new();
        let without_processors = self.processors.is_empty();
        for processor in self.processors {
            executors.spawn(execute(processor, stop.clone()));
        }
        let mut outcome = Ok(());
        while let Some(result) = executors.join_next().await {
            let result = result.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            if outcome.is_ok() {
                outcome = result;
            }
            stop.cancel();
        }
        if without_processors {
            stop.cancelled().await;
        }
        while background.join_next().await.is_some() {}
        info!(app = self.app, worker = self.id, "worker ends");
        outcome
    }
}
