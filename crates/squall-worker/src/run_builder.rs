//! Builds a worker's part in a run from the bundle in the store. It decides nothing about the run;
//! the worker starts it in a task of its own and waits for the result.

use squall_coord::{MemberId, PoolStore, RunEpoch, RunStore, StoreError};
use squall_model::Bundle;
use std::{sync::Arc, time::Duration};

use crate::{
    resource_server::{PoolSlice, fill_pools, serve_fleet_pools},
    worker_run::{DriverFactory, RunnableBundle, WorkerRun},
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
}

/// Fetches the bundle `bundle_name`, opens it, fills its pools and builds its users. The message of
/// an error is for people.
pub(crate) async fn build_run<F: DriverFactory, R: RunStore, P: PoolStore>(
    driver_factory: Arc<F>,
    (run_store, pools): (R, P),
    config: WorkerRunConfig,
    bundle_name: String,
) -> Result<WorkerRun, String> {
    let bundle = Arc::new(fetch_bundle(&run_store, &bundle_name).await?);
    let blocking_bundle = bundle.clone();
    let opened: RunnableBundle<F::Driver> =
        tokio::task::spawn_blocking(move || driver_factory.open_bundle(&blocking_bundle))
            .await
            .map_err(|error| format!("reading the plan failed: {error}"))??;
    let epoch = RunEpoch(config.epoch);
    fill_pools(&pools, &opened.pools, epoch, PoolSlice::ALL).await.map_err(|error| error.to_string())?;
    let resources = serve_fleet_pools(pools, config.member.clone(), epoch);
    WorkerRun::prepare(opened, &bundle, &config, run_store, resources).await.map_err(|error| error.to_string())
}

/// Retries while the store is unreachable: a short outage must not exclude this worker from the
/// whole run.
async fn fetch_bundle<R: RunStore>(run_store: &R, name: &str) -> Result<Bundle, String> {
    let mut attempts = 0;
    let bytes = loop {
        match run_store.get_bundle(name).await {
            Err(StoreError::Unreachable(_)) if attempts < MAX_FETCH_ATTEMPTS => attempts += 1,
            result => break result.map_err(|error| error.to_string())?,
        }
        tokio::time::sleep(FETCH_RETRY_INTERVAL).await;
    };
    let bytes = bytes.ok_or("the plan of this run is not in the store: start the run again")?;
    serde_json::from_slice(&bytes).map_err(|error| format!("the plan cannot be read: {error}"))
}
