//! What each path does. Handlers read a strict body, ask the fleet, and answer in the documented shape.

pub(crate) mod feed;
pub(crate) mod looks;
pub(crate) mod ops;
pub(crate) mod resources;
pub(crate) mod seed;
pub(crate) mod tests;

use serde_json::Value;
use squall_coord::{FleetStores, AllPoolCounts, PoolCounts, PoolStore, StoreError};
use squall_model::{Bundle, LoadModel, RunPhase};
use squall_orchestrator::{Fleet, FleetStatus};
use std::{collections::BTreeMap, time::Duration};
use tokio_util::sync::CancellationToken;

use crate::{
    WebConfig,
    error::ApiError,
    live::{Counters, Live},
};

/// What all handlers share.
pub(crate) struct App<C: FleetStores> {
    pub(crate) fleet: Fleet<C>,
    pub(crate) live: Live<C>,
    pub(crate) config: WebConfig,
    pub(crate) stop: CancellationToken,
}

/// Who decides when iterations start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Users,
    Rate,
}

impl By {
    pub(crate) fn of(bundle: &Bundle) -> By {
        match bundle.plan.load.model {
            LoadModel::Open { .. } => By::Rate,
            LoadModel::Closed { .. } => By::Users,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            By::Users => "users",
            By::Rate => "rate",
        }
    }
}

impl<C: FleetStores> App<C> {
    /// Changes the level of the current run, if it is driven by `by`; gives the epoch and the level before.
    async fn change_level(&self, by: By, level: f64, ramp: Duration) -> Result<(u64, f64), ApiError> {
        let status = self.fleet.status().await?;
        if let Some(actual) = self.driven_by(&status).await?
            && actual != by
        {
            let (wanted, other) = (by.name(), actual.name());
            let text = format!("this run is driven by its {other}, not by its {wanted}: change the {other} instead");
            return Err(ApiError::bad_request(text));
        }
        Ok(self.fleet.ramp_level(level, ramp).await?)
    }

    /// Every pool that can be counted, and those that cannot with the reason in words; those are counted.
    async fn pools(&self) -> Result<(Vec<PoolCounts>, BTreeMap<String, String>), StoreError> {
        let AllPoolCounts { pools, failed: refused } = self.fleet.cell().pools().count_all().await?;
        for (pool, error) in &refused {
            Counters::count(&self.live.counters.refused_pools);
            tracing::warn!(%pool, %error, "a pool cannot be used");
        }
        Ok((pools, refused.into_iter().map(|(pool, error)| (pool.to_string(), error.to_string())).collect()))
    }

    /// `None` if there is no run whose plan could be read.
    async fn driven_by(&self, status: &FleetStatus) -> Result<Option<By>, ApiError> {
        // What the last run was driven by says nothing about the next.
        let Some(order) = status.order.as_ref().filter(|_| status.state != RunPhase::Idle) else { return Ok(None) };
        Ok(self.fleet.bundle(&order.bundle).await?.as_ref().map(By::of))
    }
}

/// Parameters reach the scenario as the flags that people would have typed.
pub(crate) fn add_params(bundle: &mut Bundle, params: &BTreeMap<String, Value>) {
    for (name, value) in params {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        bundle.arguments.extend(["--param".to_owned(), format!("{name}={value}")]);
    }
}
