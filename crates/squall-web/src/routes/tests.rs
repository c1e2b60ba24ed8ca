//! `/api/v1`: tests as bundles, steering the current one, results of those that are over.

use axum::{
    body::Body,
    extract::{Path, State},
    response::IntoResponse,
};
use http::{StatusCode, header};
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_model::{RunPhase, StopReason};
use squall_report::{Phase, Run, Tick, ending, json_line, result as result_of};
use std::{sync::Arc, time::Duration};

use super::{App, By, add_params};
use crate::{
    body::read,
    error::{Answer, ApiError, json_response, ok},
    inputs::{NewTest, Nothing, Rate, Scale, Stop},
    shapes,
};

pub(crate) async fn start<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let mut test: NewTest = read(body).await?;
    add_params(&mut test.bundle, &test.params);
    let epoch = app.fleet.start(&test.bundle, test.params).await?;
    let location = [(header::LOCATION, format!("/api/v1/tests/{epoch}"))];
    Ok((location, json_response(StatusCode::CREATED, &json!({"epoch": epoch}))).into_response())
}

/// The run as it is; between runs, how the last one was.
pub(crate) async fn current<C: FleetStores>(State(app): State<Arc<App<C>>>) -> Answer {
    let status = app.fleet.status().await?;
    app.live.catch_up(&status).await;
    let order = status.order.as_ref();
    let shown = app.live.shown().await;
    let shown = shown.as_ref().filter(|shown| shown.epoch == status.epoch);
    let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0).max(0.0));
    let active = matches!(status.state, RunPhase::Preparing | RunPhase::Running);
    let level = order.filter(|_| active).map_or(0.0, |order| order.profile.level(elapsed));
    let live = shown.map(|shown| {
        let phase = if shown.over { Phase::Done } else { Phase::at(&shown.bundle.plan, shown.elapsed) };
        let unix_ms = (shapes::unix_s() * 1e3) as u64;
        let (view, plan) = (shown.view(), &shown.bundle.plan);
        let line = json_line(&Tick { view, plan, elapsed: shown.elapsed, phase, unix_ms });
        serde_json::from_str::<Value>(&line).unwrap_or(Value::Null)
    });
    let ending = shown.and_then(|shown| {
        let (plan, view, version) = (&shown.bundle.plan, shown.view(), app.config.version);
        Some(ending(&Run { plan, view, facts: shown.facts()?, strict: false, command: None, version }))
    });
    let ending = ending.as_ref();
    let alive = status.workers.iter().filter(|worker| worker.is_healthy()).count();
    let ready = status.workers.iter().filter(|worker| worker.ready == status.epoch && status.epoch > 0).count();
    let stop = order.and_then(|order| order.stop.as_ref());
    Ok(ok(&json!({
        "state": status.state,
        "epoch": status.epoch,
        "revision": status.revision,
        "elapsed_s": if status.state == RunPhase::Idle { shown.map(|shown| shown.elapsed.as_secs_f64()) } else { status.elapsed_s },
        "measured_s": shown.map(|shown| shown.measured().as_secs_f64()),
        "planned_s": order.map(|order| order.planned_end(elapsed).as_secs_f64()),
        "name": shown.map(|shown| &shown.bundle.plan.name),
        "target": shown.map(|shown| &shown.bundle.plan.target),
        "driven_by": shown.map(|shown| By::of(&shown.bundle).name()),
        "level": level,
        "resumes_at": order.and_then(|order| order.paused.as_ref()?.first()).map(|rest| rest.from),
        "paused": order.is_some_and(|order| order.paused.is_some()),
        "stop": stop.map(|stop| json!({"reason": stop.reason, "abort": stop.abort, "message": stop.message})),
        "workers": {"alive": alive, "ready": ready},
        "live": live,
        "verdict": ending.map(|ending| ending.verdict),
        "exit_code": ending.map(|ending| ending.exit_code),
        "thresholds": ending.map(|ending| &ending.thresholds),
        "accounting": ending.map(|ending| &ending.accounting),
        "fleet": ending.and_then(|ending| ending.fleet.as_ref()),
    })))
}

/// `squall.result/1` of a run that is over.
pub(crate) async fn result<C: FleetStores>(State(app): State<Arc<App<C>>>, Path(epoch): Path<String>) -> Answer {
    let epoch: u64 =
        epoch.parse().map_err(|_| ApiError::validation(format!("`{epoch}` is not the number of a test")))?;
    let Some(run) = app.fleet.finished(epoch).await? else {
        let status = app.fleet.status().await?;
        return Err(match status.epoch == epoch && status.state != RunPhase::Idle {
            true => ApiError::invalid_state("read the result", status.state.name(), "IDLE"),
            false => ApiError::not_found(format!("nothing is known of test {epoch}: results are kept for a day")),
        });
    };
    let run = Run {
        plan: &run.bundle.plan,
        view: &run.view,
        facts: &run.facts,
        strict: false,
        command: None,
        version: app.config.version,
    };
    Ok(ok(&result_of(&run)))
}

pub(crate) async fn stop<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let stop: Stop = read(body).await?;
    let reason = if stop.abort { StopReason::Aborted } else { StopReason::Interrupted };
    let epoch = app.fleet.stop(reason, stop.abort, None).await?;
    Ok(ok(&json!({"epoch": epoch})))
}

pub(crate) async fn scale<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let scale: Scale = read(body).await?;
    let (epoch, before) = app.change_level(By::Users, scale.users as f64, Duration::ZERO).await?;
    Ok(ok(&json!({"epoch": epoch, "before": before.round(), "users": scale.users})))
}

pub(crate) async fn rate<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let rate: Rate = read(body).await?;
    let (epoch, before) = app.change_level(By::Rate, rate.rate, Duration::ZERO).await?;
    Ok(ok(&json!({"epoch": epoch, "before": before, "rate": rate.rate})))
}

pub(crate) async fn pause<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let _: Nothing = read(body).await?;
    Ok(ok(&json!({"epoch": app.fleet.pause().await?})))
}

pub(crate) async fn resume<C: FleetStores>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let _: Nothing = read(body).await?;
    Ok(ok(&json!({"epoch": app.fleet.resume().await?})))
}

pub(crate) async fn workers<C: FleetStores>(State(app): State<Arc<App<C>>>) -> Answer {
    Ok(ok(&json!({"workers": app.fleet.workers().await?})))
}
