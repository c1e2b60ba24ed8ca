//! Carries out one run on a fleet for a command line: starts it, shows its progress, waits for its
//! end and fetches the result that its leader stored. It makes no load and judges nothing itself.
//!
//! It runs an orchestrator of its own, which leads only if no other orchestrator does. A fleet
//! therefore needs nothing but workers. `squall run --cluster` calls it.

mod last_known_status;
mod run_watch;
mod start;
mod waiting_messages;

use squall_coord::{FleetStores, StoreError, unique_id};
use squall_model::Bundle;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{FleetClient, FleetError, Orchestrator, OrchestratorConfig, RunAggregator};
use crate::{
    local_run::{RunObserver, RunResult},
    run_control::{RunControl, StopRequest},
};
use run_watch::RunWatch;
use start::{cancelled_result, start_with_retry};

/// Why a run on a fleet could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum FleetRunError {
    #[error(transparent)]
    Fleet(#[from] FleetError),
    #[error(
        "the fleet is running another test: wait until it ends, stop it with `squall test stop` (this needs an orchestrator, which \
         `squall orchestrator` starts), or use another fleet (`--fleet`)"
    )]
    Busy,
    #[error("the run ended before its load started: {reason}")]
    NotStarted { reason: String },
}

/// The command line gives up after the store has been unreachable for this long. Workers make no
/// load by then, and the store has lost what they measured.
const STORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two polls of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Shortest time between two messages about the same wait.
const WAITING_MESSAGE_INTERVAL: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug)]
pub struct FleetRunRequest<'a> {
    pub bundle: &'a Bundle,
    /// Parameters for the scenario, by name.
    pub params: BTreeMap<String, serde_json::Value>,
    /// How many of the latest seconds stay available with full histograms.
    pub histogram_window_s: u32,
}

/// Carries out `request` on the fleet in `stores`, until the run ends for any reason.
pub async fn run_fleet<C: FleetStores>(
    stores: &C,
    request: FleetRunRequest<'_>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, FleetRunError> {
    let leave = CancellationToken::new();
    let config = OrchestratorConfig::new(format!("run-{}", &unique_id()[..8]));
    let orchestrator = tokio::spawn(Orchestrator::new(stores.clone(), config).run(leave.clone()));
    let result = Box::pin(start_and_watch(stores, request, control, observers)).await;
    leave.cancel();
    // The orchestrator only hands leadership over here. A failure of that is not a failure of the
    // run.
    let _ = orchestrator.await;
    result
}

async fn start_and_watch<C: FleetStores>(
    stores: &C,
    request: FleetRunRequest<'_>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<RunResult, FleetRunError> {
    let FleetRunRequest { bundle, params, histogram_window_s } = request;
    let fleet = FleetClient::new(stores.clone());
    // Subscribes before the first wait, so that a stop request during any wait is noticed.
    let mut stop_requests = control.subscribe();
    if control.is_stopping() {
        stop_requests.mark_changed();
    }
    let run_id = unique_id();
    let started = start_with_retry(&fleet, (&run_id, bundle), params, control, observers).await?;
    let Some(epoch) = started else {
        return Ok(cancelled_result(bundle, *stop_requests.borrow()));
    };
    let aggregator = retry_while_unreachable(control, async || {
        RunAggregator::open(stores, epoch, &bundle.plan, histogram_window_s).await.map_err(FleetError::from)
    })
    .await?;
    RunWatch::new(&fleet, &run_id, bundle, aggregator).run(control, stop_requests, observers).await
}

/// Repeats `attempt` while the store is unreachable, until [`STORE_TIMEOUT`] or an abort.
async fn retry_while_unreachable<T>(
    control: &RunControl,
    mut attempt: impl AsyncFnMut() -> Result<T, FleetError>,
) -> Result<T, FleetError> {
    let began = Instant::now();
    let stop_requests = control.subscribe();
    loop {
        let may_retry = began.elapsed() < STORE_TIMEOUT && *stop_requests.borrow() < StopRequest::Abort;
        match attempt().await {
            Err(FleetError::Store(StoreError::Unreachable(_))) if may_retry => tokio::time::sleep(POLL_INTERVAL).await,
            other => return other,
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
