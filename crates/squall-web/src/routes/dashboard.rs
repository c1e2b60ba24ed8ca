//! `GET /api/v1/tests/current/dashboard`: what a dashboard shows of the current test. It computes nothing;
//! squall-report builds the snapshot from the watched run.

use axum::extract::{Query, State, rejection::QueryRejection};
use serde::Deserialize;
use serde_json::json;
use squall_coord::FleetStores;
use squall_model::{RunPhase, RunSpec};
use squall_orchestrator::FleetStatus;
use squall_report::{LiveRun, LiveRunPhase, LiveRunState};
use std::{sync::Arc, time::Duration};

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    query::parse_query,
    run_watcher::WatchedRun,
};

/// Seconds in a response, if the client does not say how many.
const DEFAULT_SECONDS: usize = 180;
/// An hour.
const MAX_SECONDS: usize = 3600;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DashboardQuery {
    seconds: Option<usize>,
}

pub(crate) async fn dashboard<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<DashboardQuery>, QueryRejection>,
) -> ApiResult {
    let seconds = parse_query(query)?.seconds.unwrap_or(DEFAULT_SECONDS);
    if seconds > MAX_SECONDS {
        return Err(ApiError::validation(format!("seconds: give a number from 0 to {MAX_SECONDS}")));
    }
    let status = app.fleet.status().await?;
    app.watcher.catch_up(&status).await;
    let watched = app.watcher.current_run().await;
    let watched = watched.as_ref().filter(|watched| watched.is_run_of(&status));
    let run = watched.map(|watched| {
        let state = live_state(watched, &status);
        LiveRun::new(&watched.plan, watched.view(), state, seconds)
    });
    Ok(json_ok(&json!({
        "epoch": status.epoch,
        "state": status.phase,
        "scheduled_level": status.scheduled_level().filter(|_| status.phase == RunPhase::Running),
        "workers": {"alive": status.workers.iter().filter(|worker| worker.is_healthy()).count()},
        "run": run,
    })))
}

fn live_state<C: FleetStores>(watched: &WatchedRun<C>, status: &FleetStatus) -> LiveRunState {
    let spec = status.spec.as_ref();
    let phase = phase(watched, status);
    let elapsed = match phase {
        LiveRunPhase::Done => watched.elapsed,
        _ => Duration::try_from_secs_f64(status.elapsed_s.unwrap_or(0.0)).unwrap_or_default(),
    };
    let has_load = matches!(phase, LiveRunPhase::WarmUp | LiveRunPhase::Running);
    LiveRunState {
        phase,
        elapsed_s: elapsed.as_secs_f64(),
        planned_end_s: spec.map_or(0.0, |spec| spec.planned_end(elapsed).as_secs_f64()),
        level: spec.filter(|_| has_load).map_or(0.0, |spec| spec.profile.level(elapsed)),
        resumes_at: spec.and_then(RunSpec::resumes_at),
        busy_users: watched.view().engine.busy,
        cpu_s: status.workers.iter().map(|worker| worker.cpu_s).sum(),
        rss_bytes: status.workers.iter().map(|worker| worker.rss_bytes).sum(),
        thresholds: watched.thresholds(),
    }
}

fn phase<C: FleetStores>(watched: &WatchedRun<C>, status: &FleetStatus) -> LiveRunPhase {
    match (status.phase, status.elapsed_s) {
        (RunPhase::Idle, _) => LiveRunPhase::Done,
        (RunPhase::Stopping, _) => LiveRunPhase::Draining,
        (RunPhase::Preparing, _) | (RunPhase::Running, None) => LiveRunPhase::Starting,
        (RunPhase::Running, Some(elapsed)) if elapsed < watched.plan.load.warm_up.as_secs_f64() => LiveRunPhase::WarmUp,
        (RunPhase::Running, Some(_)) => LiveRunPhase::Running,
    }
}
