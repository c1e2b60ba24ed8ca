//! Starts a fleet run and retries where waiting helps. It does not watch the run. Called by
//! `run_fleet`.

use squall_coord::{FleetStores, StoreError};
use squall_metrics::Collector;
use squall_model::{Bundle, FleetFacts, GeneratorStats, RunFacts, RunPhase, StopReason};
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

use super::{
    FleetRunError, POLL_INTERVAL, STORE_TIMEOUT, WAITING_MESSAGE_INTERVAL, unix_ms,
    waiting_messages::report_store_outage,
};
use crate::{
    ThresholdJudge,
    fleet::{FleetClient, FleetError},
    local_run::{RunObserver, RunResult},
    run_control::{RunControl, StopRequest},
};

/// How long a start waits for the first worker.
const WORKER_STARTUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a start waits for the previous run to end.
const PREVIOUS_RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// A start waits for a previous run only if no more than this is left of it.
const NEARLY_OVER: Duration = Duration::from_secs(5);

/// Starts the run. Waits for workers that are still starting, for a run that is about to end, and
/// for an unreachable store. Returns `None` if a stop request arrives before the run has started.
pub(super) async fn start_with_retry<C: FleetStores>(
    fleet: &FleetClient<C>,
    (run_id, bundle): (&str, &Bundle),
    params: BTreeMap<String, serde_json::Value>,
    control: &RunControl,
    observers: &mut [&mut dyn RunObserver],
) -> Result<Option<u64>, FleetRunError> {
    let began = Instant::now();
    let (mut store_silent_since, mut last_message) = (None, Instant::now());
    let mut stop_requests = control.subscribe();
    loop {
        let store_error = match fleet.start_once(run_id, bundle, params.clone()).await {
            Err(FleetError::NoWorkers) if began.elapsed() < WORKER_STARTUP_TIMEOUT => None,
            Err(FleetError::InvalidState { current: RunPhase::Stopping, .. })
                if began.elapsed() < PREVIOUS_RUN_TIMEOUT =>
            {
                None
            }
            // The leader of that run may have died with its command line. Our orchestrator then
            // ends it.
            Err(FleetError::InvalidState { .. })
                if began.elapsed() < PREVIOUS_RUN_TIMEOUT && is_nearly_over(fleet).await =>
            {
                None
            }
            Err(FleetError::Store(error @ StoreError::Unreachable(_))) => Some(error),
            Err(FleetError::InvalidState { .. }) => return Err(FleetRunError::Busy),
            other => return Ok(Some(other?)),
        };
        // A stop request is checked only between two attempts: the store may have executed one
        // whose response is still outstanding.
        let stop_requested = stop_requests.wait_for(|request| *request > StopRequest::None);
        let stop_requested = tokio::time::timeout(POLL_INTERVAL, stop_requested).await.is_ok();
        let Some(error) = store_error else {
            store_silent_since = None;
            if stop_requested {
                return Ok(None);
            }
            continue;
        };
        let silent = store_silent_since.get_or_insert_with(Instant::now).elapsed();
        // An error, not a cancelled run: the store may have started the run.
        if stop_requested || silent > STORE_TIMEOUT {
            return Err(FleetError::from(error).into());
        }
        if last_message.elapsed() > WAITING_MESSAGE_INTERVAL {
            last_message = Instant::now();
            report_store_outage(observers, &error.into(), silent);
        }
    }
}

/// Whether the current run is about to end, or only waits for a leader to end it.
async fn is_nearly_over<C: FleetStores>(fleet: &FleetClient<C>) -> bool {
    let Ok(status) = fleet.status().await else { return false };
    let Some(spec) = &status.spec else { return false };
    let left = remaining(spec.profile.duration(), status.elapsed_s);
    let mut busy = status.workers.iter().filter(|worker| worker.ready == status.epoch && worker.done != status.epoch);
    // A run that has not started has no busy worker either, so the elapsed time must be known.
    left <= NEARLY_OVER || status.elapsed_s.is_some() && busy.next().is_none()
}

/// What is left of a run of length `planned`. `elapsed_s` is `None` before its start.
fn remaining(planned: Duration, elapsed_s: Option<f64>) -> Duration {
    planned.saturating_sub(Duration::from_secs_f64(elapsed_s.unwrap_or(0.0).max(0.0)))
}

/// The result of a run that was cancelled before it started.
pub(super) fn cancelled_result(bundle: &Bundle, request: StopRequest) -> RunResult {
    let view = Collector::new([], 1).finish();
    let facts = RunFacts {
        started_unix_ms: unix_ms(),
        active: Duration::ZERO,
        elapsed: Duration::ZERO,
        stop: if request == StopRequest::Abort { StopReason::Aborted } else { StopReason::Interrupted },
        thresholds: ThresholdJudge::new(&bundle.plan).final_results(&view, Duration::ZERO),
        generator: GeneratorStats::default(),
        lost_at_most: 0,
        events: Vec::new(),
        fleet: Some(FleetFacts { workers: Vec::new(), events: Vec::new(), missed_starts: 0 }),
    };
    RunResult { plan: bundle.plan.clone(), view, facts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_before_the_start_is_the_planned_duration() {
        let planned = Duration::from_secs(8);
        let left = |elapsed_s| remaining(planned, elapsed_s).as_secs();
        assert_eq!([None, Some(-0.5), Some(3.0), Some(9.0)].map(left), [8, 8, 5, 0]);
    }
}
