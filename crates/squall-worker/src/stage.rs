//! What a worker does of a run, from nothing to done, and how its part of it is built. When one stage follows another is the worker's
//! to say.

use squall_coord::{Epoch, MemberId, PoolStore, RunStore, StoreError};
use squall_model::Bundle;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

use crate::{
    job::{Host, Job, Opened},
    lending::{Portion, fill, lend},
};

/// How often a plan is asked for that a store does not give which is away, and the time between.
const FETCHES: usize = 100;
const FETCH_AGAIN: Duration = Duration::from_millis(200);

/// What this worker does of the run.
pub(crate) enum Stage {
    Idle,
    /// A job is being built.
    Preparing {
        epoch: u64,
        making: JoinSet<Result<Job, String>>,
    },
    Working(Box<Job>),
    /// Everything of this run is in the store.
    Done {
        epoch: u64,
    },
}

/// What happened at a stage.
pub(crate) enum Progress {
    Prepared(Box<Result<Job, String>>),
    Pumped,
}

/// Whose job of which run is built, and within which bounds.
pub(crate) struct Part {
    pub(crate) epoch: u64,
    pub(crate) instance: u64,
    pub(crate) member: MemberId,
    pub(crate) ttl: Duration,
    pub(crate) most_waiting: usize,
}

impl Stage {
    /// Builds the job beside the worker's loop: reading a scenario may take long, and beats must not wait for it.
    pub(crate) fn prepare<H, R, P>(host: Arc<H>, (run, pools): (R, P), part: Part, bundle: String) -> Stage
    where
        H: Host,
        R: RunStore,
        P: PoolStore,
    {
        let epoch = part.epoch;
        let mut making = JoinSet::new();
        making.spawn(async move { build(host, (run, pools), part, &bundle).await });
        Stage::Preparing { epoch, making }
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        match self {
            Stage::Idle => None,
            Stage::Preparing { epoch, .. } | Stage::Done { epoch } => Some(*epoch),
            Stage::Working(job) => Some(job.epoch),
        }
    }

    /// What the users have borrowed may be others' by now.
    pub(crate) fn lapse(&self) {
        if let Stage::Working(job) = self {
            job.lapse();
        }
    }

    /// What happens next of itself; never, if nothing does.
    pub(crate) async fn progress(&mut self) -> Progress {
        match self {
            Stage::Preparing { making, .. } => {
                let made = making.join_next().await.and_then(Result::ok);
                let failed = || Err("building the users failed; the log says why".to_owned());
                Progress::Prepared(Box::new(made.unwrap_or_else(failed)))
            }
            Stage::Working(job) => {
                job.pump().await;
                Progress::Pumped
            }
            Stage::Idle | Stage::Done { .. } => std::future::pending().await,
        }
    }
}

async fn build<H: Host, R: RunStore, P: PoolStore>(
    host: Arc<H>,
    (run, pools): (R, P),
    part: Part,
    bundle: &str,
) -> Result<Job, String> {
    let mut asked = 0;
    let bytes = loop {
        match run.get_bundle(bundle).await {
            // A store that is away for a moment does not make this worker useless for the whole run.
            Err(StoreError::Unreachable(_)) if asked < FETCHES => asked += 1,
            other => break other.map_err(|error| error.to_string())?,
        }
        tokio::time::sleep(FETCH_AGAIN).await;
    };
    let bytes = bytes.ok_or("the plan of this run is not in the store any more")?;
    let bundle: Bundle = serde_json::from_slice(&bytes).map_err(|error| format!("the plan cannot be read: {error}"))?;
    let bundle = Arc::new(bundle);
    let reading = bundle.clone();
    let opened: Opened<H::Driver> = tokio::task::spawn_blocking(move || host.open(&reading))
        .await
        .map_err(|error| format!("reading the plan failed: {error}"))??;
    let epoch = Epoch(part.epoch);
    fill(&pools, &opened.stock, epoch, Portion::ALL).await.map_err(|error| error.to_string())?;
    let lending = lend(pools, part.member, epoch);
    let (of, bounds) = ((part.epoch, part.instance), (part.ttl, part.most_waiting));
    Job::prepare(opened, &bundle, of, run, bounds, lending).await.map_err(|error| error.to_string())
}
