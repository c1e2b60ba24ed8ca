//! Builds a worker's part in a run from the bundle in the store. It decides nothing about the run;
//! the worker starts it in a task of its own and waits for the result.

use squall_coord::{MemberId, PoolStore, RunEpoch, RunStore, StoreError};
use squall_engine::{EngineError, PlannedScenario};
use squall_model::Bundle;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinError;

use crate::{
    resource_server::{PoolFillError, PoolSlice, fill_pools, serve_fleet_pools},
    user_ids::{IdentifyingDriver, UserIds},
    worker_run::{DriverFactory, OpenBundleError, RunnableBundle, WorkerRun},
};

/// How often the worker asks an unreachable store for the bundle, and the time between two
/// attempts.
const MAX_FETCH_ATTEMPTS: usize = 100;
const FETCH_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The run to build, for which worker, and its limits.
pub(crate) struct WorkerRunConfig {
    pub(crate) epoch: u64,
    pub(crate) instance: u64,
    pub(crate) member: MemberId,
    pub(crate) ttl: Duration,
    pub(crate) max_unshipped_deltas: usize,
    pub(crate) run_probes: bool,
    /// The ids of the users in a test of vikhry's orchestrator.
    pub(crate) user_ids: Option<UserIds>,
    /// The worker's name in the events that it writes for vikhry's orchestrator; `None` without one.
    pub(crate) writes_events_as: Option<String>,
}

/// Why a worker cannot build its part of a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildRunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the plan of this run is not in the store: start the run again")]
    BundleMissing,
    #[error("the plan cannot be read")]
    BundleUnreadable(#[source] serde_json::Error),
    #[error(transparent)]
    Open(#[from] OpenBundleError),
    #[error("reading the plan failed")]
    OpenPanicked(#[source] JoinError),
    #[error(transparent)]
    Pools(#[from] PoolFillError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("building the users failed; the log says why")]
    BuildPanicked,
}

/// Fetches the bundle `bundle_name`, opens it, fills its pools and builds its users.
pub(crate) async fn build_run<F: DriverFactory, R: RunStore, P: PoolStore>(
    driver_factory: Arc<F>,
    (run_store, pools): (R, P),
    config: WorkerRunConfig,
    bundle_name: String,
) -> Result<WorkerRun, BuildRunError> {
    let bundle = Arc::new(fetch_bundle(&run_store, &bundle_name).await?);
    let blocking_bundle = bundle.clone();
    let mut opened: RunnableBundle<F::Driver> =
        tokio::task::spawn_blocking(move || driver_factory.open_bundle(&blocking_bundle))
            .await
            .map_err(BuildRunError::OpenPanicked)??;
    opened.scenarios.retain(|scenario| config.run_probes || !scenario.background);
    let epoch = RunEpoch(config.epoch);
    fill_pools(&pools, &opened.pools, epoch, PoolSlice::ALL).await?;
    let resources = serve_fleet_pools(pools, config.member.clone(), epoch);
    let opened = identify_users(opened, config.user_ids.as_ref());
    Ok(WorkerRun::prepare(opened, &bundle, &config, run_store, resources).await?)
}

/// Gives the users the ids of `ids`. Probes are one user that no command names.
fn identify_users<D>(opened: RunnableBundle<D>, ids: Option<&UserIds>) -> RunnableBundle<IdentifyingDriver<D>> {
    let RunnableBundle { scenarios, pools, shared_counters, hooks } = opened;
    let identify = |scenario: PlannedScenario<D>| {
        let ids = ids.filter(|_| !scenario.background).cloned();
        scenario.map_driver(|driver| IdentifyingDriver { driver, ids })
    };
    let scenarios = scenarios.into_iter().map(identify).collect();
    RunnableBundle { scenarios, pools, shared_counters, hooks }
}

/// Retries while the store is unreachable: a short outage must not exclude this worker from the
/// whole run.
async fn fetch_bundle<R: RunStore>(run_store: &R, name: &str) -> Result<Bundle, BuildRunError> {
    let mut attempts = 0;
    let bytes = loop {
        match run_store.get_bundle(name).await {
            Err(StoreError::Unreachable(_)) if attempts < MAX_FETCH_ATTEMPTS => attempts += 1,
            result => break result?,
        }
        tokio::time::sleep(FETCH_RETRY_INTERVAL).await;
    };
    let bytes = bytes.ok_or(BuildRunError::BundleMissing)?;
    serde_json::from_slice(&bytes).map_err(BuildRunError::BundleUnreadable)
}
