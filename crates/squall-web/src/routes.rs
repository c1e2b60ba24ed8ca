//! The handlers of all routes. A handler parses the body, calls the fleet and responds with the
//! documented JSON. `router.rs` maps paths to handlers.

pub(crate) mod api_v1;
pub(crate) mod compare;
pub(crate) mod dashboard;
pub(crate) mod fleet;
pub(crate) mod fleet_actions;
pub(crate) mod grid;
pub(crate) mod live;
pub(crate) mod metric;
pub(crate) mod ops;
pub(crate) mod resources;
pub(crate) mod runs;
pub(crate) mod scenarios;
pub(crate) mod sign_in;
pub(crate) mod streams;
pub(crate) mod ui;
pub(crate) mod vikhry;
pub(crate) mod vikhry_feed;
pub(crate) mod vikhry_metrics;

use serde_json::Value;
use squall_coord::{AllPoolCounts, FleetStores, PoolCounts, PoolStore, StoreError};
use squall_model::{Bundle, LevelUnit, RunPhase};
use squall_orchestrator::{FleetClient, FleetStatus};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

use crate::{
    WebConfig,
    error::ApiError,
    run_watcher::{ApiCounters, RunWatcher},
    session::WrongTokenLimit,
};

/// The state that all handlers share.
pub(crate) struct ApiState<C: FleetStores> {
    pub(crate) fleet: FleetClient<C>,
    pub(crate) watcher: RunWatcher<C>,
    pub(crate) config: WebConfig,
    pub(crate) wrong_tokens: Arc<WrongTokenLimit>,
    pub(crate) cached_streams: streams::CachedStreams,
    pub(crate) stop: CancellationToken,
}

impl<C: FleetStores> ApiState<C> {
    /// Changes the level of the current run if its unit is `unit`. Returns the epoch and the
    /// previous level.
    async fn change_level(&self, unit: LevelUnit, level: f64, ramp: Duration) -> Result<(u64, f64), ApiError> {
        let status = self.fleet.status().await?;
        if let Some(actual) = self.level_unit(&status).await?
            && actual != unit
        {
            let (wanted, other) = (unit.name(), actual.name());
            let text = format!("this run is driven by its {other}, not by its {wanted}: change the {other} instead");
            return Err(ApiError::bad_request(text));
        }
        Ok(self.fleet.ramp_level(level, ramp).await?)
    }

    /// The counts of every usable pool, and the errors of the unusable ones. Counts and logs the
    /// errors.
    async fn count_pools(&self) -> Result<(Vec<PoolCounts>, BTreeMap<String, String>), StoreError> {
        let AllPoolCounts { pools, failed } = self.fleet.stores().pools().count_all().await?;
        for (pool, error) in &failed {
            ApiCounters::increment(&self.watcher.counters.unusable_pools);
            tracing::warn!(%pool, %error, "the pool is unusable");
        }
        Ok((pools, failed.into_iter().map(|(pool, error)| (pool.to_string(), error.to_string())).collect()))
    }

    /// The unit of the current run; `None` without a run or if the store has lost its bundle.
    async fn level_unit(&self, status: &FleetStatus) -> Result<Option<LevelUnit>, ApiError> {
        // The unit of the last run does not apply to the next one.
        let Some(spec) = status.spec.as_ref().filter(|_| status.phase != RunPhase::Idle) else { return Ok(None) };
        Ok(self.fleet.load_bundle(&spec.bundle).await?.map(|bundle| bundle.plan.load.model.unit()))
    }
}

/// Adds the parameters of a request to those of the bundle; the request's value wins.
pub(crate) fn add_params(bundle: &mut Bundle, params: &BTreeMap<String, Value>) {
    for (name, value) in params {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        bundle.params.insert(name.clone(), value);
    }
}
