//! `/api/v1`: starts tests from bundles, controls the current test and serves results of finished
//! tests.

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::IntoResponse,
};
use http::{StatusCode, header};
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_model::{LevelUnit, RunPhase, RunSpec, StopReason};
use squall_orchestrator::StoredRunResult;
use squall_report::{LiveSnapshot, LoadPhase, ReportInput, build_result, html, json_line, result_summary};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{ApiState, add_params, runs::ReportQuery, scenarios};
use crate::{
    error::{ApiError, ApiResult, json_ok, json_response},
    path::Path,
    query::parse_query,
    request_body::read_body,
    requests::{ChangeRateRequest, CreateTestRequest, EmptyRequest, ScaleUsersRequest, StopTestRequest},
    run_watcher::report_input,
    vikhry_json,
};

pub(crate) async fn start<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let mut test: CreateTestRequest = read_body(body).await?;
    add_params(&mut test.bundle, &test.params);
    let epoch = app.fleet.start(&test.bundle, test.params).await?;
    let location = [(header::LOCATION, format!("/api/v1/tests/{epoch}"))];
    Ok((location, json_response(StatusCode::CREATED, &json!({"epoch": epoch}))).into_response())
}

/// The current run; between runs, the last one with its result.
pub(crate) async fn current<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let status = app.fleet.status().await?;
    app.watcher.catch_up(&status).await;
    let spec = status.spec.as_ref();
    let watched = app.watcher.current_run().await;
    let watched = watched.as_ref().filter(|watched| watched.is_run_of(&status));
    let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0));
    let active = matches!(status.phase, RunPhase::Preparing | RunPhase::Running);
    let level = spec.filter(|_| active).map_or(0.0, |spec| spec.profile.level(elapsed));
    let live = watched.map(|watched| {
        let phase = if watched.finished { LoadPhase::Done } else { LoadPhase::at(&watched.plan, watched.elapsed) };
        let unix_ms = (vikhry_json::unix_s() * 1e3) as u64;
        let (view, plan) = (watched.view(), &watched.plan);
        let line = json_line(&LiveSnapshot { view, plan, elapsed: watched.elapsed, phase, unix_ms });
        serde_json::from_str::<Value>(&line).unwrap_or(Value::Null)
    });
    let summary = watched.and_then(|watched| Some(result_summary(&watched.report_input(app.config.version)?)));
    let summary = summary.as_ref();
    let alive = status.workers.iter().filter(|worker| worker.is_healthy()).count();
    let ready = status.workers.iter().filter(|worker| worker.ready == status.epoch && status.epoch > 0).count();
    let stop = spec.and_then(|spec| spec.stop.as_ref());
    Ok(json_ok(&json!({
        "state": status.phase,
        "epoch": status.epoch,
        "revision": status.revision,
        "elapsed_s": if status.phase == RunPhase::Idle { watched.map(|watched| watched.elapsed.as_secs_f64()) } else { status.elapsed_s },
        "measured_s": watched.map(|watched| watched.measured_duration().as_secs_f64()),
        "planned_s": spec.map(|spec| spec.planned_end(elapsed).as_secs_f64()),
        "name": watched.map(|watched| &watched.plan.name),
        "target": watched.map(|watched| &watched.plan.target),
        "driven_by": watched.map(|watched| watched.plan.load.model.unit().name()),
        "level": level,
        "resumes_at": spec.and_then(RunSpec::resumes_at),
        "paused": spec.is_some_and(|spec| spec.paused.is_some()),
        "stop": stop.map(|stop| json!({"reason": stop.reason, "abort": stop.abort, "message": stop.message})),
        "workers": {"alive": alive, "ready": ready},
        "live": live,
        "verdict": summary.map(|summary| summary.verdict),
        "exit_code": summary.map(|summary| summary.exit_code),
        "thresholds": summary.map(|summary| &summary.thresholds),
        "accounting": summary.map(|summary| &summary.accounting),
        "fleet": summary.and_then(|summary| summary.fleet.as_ref()),
    })))
}

/// `squall.result/1` of a finished run.
pub(crate) async fn result<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(epoch): Path<String>,
) -> ApiResult {
    let (_, run) = stored_run(&app, &epoch).await?;
    Ok(json_ok(&build_result(&stored_report(&run, &app))))
}

/// Starts the run of a finished test again, as it was.
pub(crate) async fn again<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(epoch): Path<String>,
    body: Body,
) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let (_, run) = stored_run(&app, &epoch).await?;
    Ok(scenarios::started(app.fleet.start(&run.bundle, BTreeMap::new()).await?, None))
}

/// The HTML report of a finished run. A download and not a page, because its inline script would
/// run with the rights of the web UI.
pub(crate) async fn report<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(epoch): Path<String>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    let (epoch, run) = stored_run(&app, &epoch).await?;
    Ok(query.response(&format!("squall-report-{epoch}.html"), html(&stored_report(&run, &app))))
}

async fn stored_run<C: FleetStores>(app: &ApiState<C>, epoch: &str) -> Result<(u64, StoredRunResult), ApiError> {
    let epoch: u64 = epoch.parse().map_err(|_| ApiError::validation(format!("`{epoch}` is not a test number")))?;
    if let Some(run) = app.fleet.stored_result(epoch).await? {
        return Ok((epoch, run));
    }
    let status = app.fleet.status().await?;
    Err(match status.epoch == epoch && status.phase != RunPhase::Idle {
        true => ApiError::invalid_state("read the result", status.phase.name(), "IDLE"),
        false => ApiError::not_found(format!("unknown test {epoch}: results are kept for a day")),
    })
}

fn stored_report<'a, C: FleetStores>(run: &'a StoredRunResult, app: &ApiState<C>) -> ReportInput<'a> {
    report_input(&run.bundle, (&run.plan, &run.view, &run.facts), app.config.version)
}

pub(crate) async fn stop<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let stop: StopTestRequest = read_body(body).await?;
    let reason = if stop.abort { StopReason::Aborted } else { StopReason::Interrupted };
    let epoch = app.fleet.stop(reason, stop.abort, None).await?;
    let revision = app.fleet.revision().await?;
    Ok(json_ok(&json!({"epoch": epoch, "revision": revision})))
}

pub(crate) async fn scale<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let scale: ScaleUsersRequest = read_body(body).await?;
    let (epoch, before) = app.change_level(LevelUnit::Users, scale.users as f64, Duration::ZERO).await?;
    let revision = app.fleet.revision().await?;
    Ok(json_ok(&json!({"epoch": epoch, "before": before.round(), "users": scale.users, "revision": revision})))
}

pub(crate) async fn rate<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let rate: ChangeRateRequest = read_body(body).await?;
    let (epoch, before) = app.change_level(LevelUnit::Rate, rate.rate, Duration::ZERO).await?;
    let revision = app.fleet.revision().await?;
    Ok(json_ok(&json!({"epoch": epoch, "before": before, "rate": rate.rate, "revision": revision})))
}

pub(crate) async fn pause<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let epoch = app.fleet.pause().await?;
    let revision = app.fleet.revision().await?;
    Ok(json_ok(&json!({"epoch": epoch, "revision": revision})))
}

pub(crate) async fn resume<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let (epoch, _) = app.fleet.resume().await?;
    let revision = app.fleet.revision().await?;
    Ok(json_ok(&json!({"epoch": epoch, "revision": revision})))
}

pub(crate) async fn workers<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    Ok(json_ok(&json!({"workers": app.fleet.workers().await?})))
}
