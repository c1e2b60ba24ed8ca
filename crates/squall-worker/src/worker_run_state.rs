//! What a worker does of a run, from nothing to done, and how its part of it is built. When one stage follows another is the worker's
//! to say.

use squall_coord::{Epoch, MemberId, PoolStore, RunStore, StoreError};
use squall_model::Bundle;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

use crate::{
    resource_server::{PoolSlice, fill_pools, serve_fleet_pools},
    worker_run::{DriverFactory, RunnableBundle, WorkerRun},
};

/// How often a plan is asked for that a store does not give which is away, and the time between.
const MAX_FETCH_ATTEMPTS: usize = 100;
const FETCH_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What this worker does of the run.
pub(crate) enum WorkerRunState {
    Idle,
    /// A job is being built.
    Preparing {
        epoch: u64,
        build_tasks: JoinSet<Result<WorkerRun, String>>,
    },
    Active(Box<WorkerRun>),
    /// Everything of this run is in the store.
    Done {
        epoch: u64,
    },
}

/// What happened at a stage.
pub(crate) enum WorkerRunEvent {
    Prepared(Box<Result<WorkerRun, String>>),
    DeltaForwarded,
}

/// Whose job of which run is built, and within which bounds.
pub(crate) struct WorkerRunConfig {
    pub(crate) epoch: u64,
    pub(crate) instance: u64,
    pub(crate) member: MemberId,
    pub(crate) ttl: Duration,
    pub(crate) max_unshipped_deltas: usize,
}

impl WorkerRunState {
    /// Builds the job beside the worker's loop: reading a scenario may take long, and beats must not wait for it.
    pub(crate) fn prepare<H, R, P>(
        host: Arc<H>,
        (run, pools): (R, P),
        part: WorkerRunConfig,
        bundle: String,
    ) -> WorkerRunState
    where
        H: DriverFactory,
        R: RunStore,
        P: PoolStore,
    {
        let epoch = part.epoch;
        let mut making = JoinSet::new();
        making.spawn(async move { build_run(host, (run, pools), part, &bundle).await });
        WorkerRunState::Preparing { epoch, build_tasks: making }
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            WorkerRunState::Idle => None,
            WorkerRunState::Preparing { epoch, .. } | WorkerRunState::Done { epoch } => Some(*epoch),
            WorkerRunState::Active(job) => Some(job.epoch),
        }
    }

    /// What the users have borrowed may be others' by now.
    pub(crate) fn invalidate_resources(&self) {
        if let WorkerRunState::Active(job) = self {
            job.invalidate_resources();
        }
    }

    /// What happens next of itself; never, if nothing does.
    pub(crate) async fn next_event(&mut self) -> WorkerRunEvent {
        match self {
            WorkerRunState::Preparing { build_tasks: making, .. } => {
                let made = making.join_next().await.and_then(Result::ok);
                let failed = || Err("building the users failed; the log says why".to_owned());
                WorkerRunEvent::Prepared(Box::new(made.unwrap_or_else(failed)))
            }
            WorkerRunState::Active(job) => {
                job.forward_next_delta().await;
                WorkerRunEvent::DeltaForwarded
            }
            WorkerRunState::Idle | WorkerRunState::Done { .. } => std::future::pending().await,
        }
    }
}

async fn build_run<H: DriverFactory, R: RunStore, P: PoolStore>(
    host: Arc<H>,
    (run, pools): (R, P),
    part: WorkerRunConfig,
    bundle: &str,
) -> Result<WorkerRun, String> {
    let mut asked = 0;
    let bytes = loop {
        match run.get_bundle(bundle).await {
            // A store that is away for a moment does not make this worker useless for the whole run.
            Err(StoreError::Unreachable(_)) if asked < MAX_FETCH_ATTEMPTS => asked += 1,
            other => break other.map_err(|error| error.to_string())?,
        }
        tokio::time::sleep(FETCH_RETRY_INTERVAL).await;
    };
    let bytes = bytes.ok_or("the plan of this run is not in the store any more")?;
    let bundle: Bundle = serde_json::from_slice(&bytes).map_err(|error| format!("the plan cannot be read: {error}"))?;
    let bundle = Arc::new(bundle);
    let reading = bundle.clone();
    let opened: RunnableBundle<H::Driver> = tokio::task::spawn_blocking(move || host.open_bundle(&reading))
        .await
        .map_err(|error| format!("reading the plan failed: {error}"))??;
    let epoch = Epoch(part.epoch);
    fill_pools(&pools, &opened.pools, epoch, PoolSlice::ALL).await.map_err(|error| error.to_string())?;
    let lending = serve_fleet_pools(pools, part.member, epoch);
    let (of, bounds) = ((part.epoch, part.instance), (part.ttl, part.max_unshipped_deltas));
    WorkerRun::prepare(opened, &bundle, of, run, bounds, lending).await.map_err(|error| error.to_string())
}
