//! The seed's own routes and shapes: start, change and stop by users, live numbers, who is there. What a response lists follows from
//! the record; nothing is kept here.

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use squall_coord::Cell;
use squall_model::{Bundle, LoadModel, Pause, Profile, ProfileError, RunPhase, Stage, StopReason};
use squall_orchestrator::FleetStatus;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

use super::{App, By, add_params};
use crate::{
    body::read,
    config::Offer,
    error::{Answer, ApiError, ok},
    inputs::{ChangeUsers, Nothing, StartTest},
    shapes::{self, Wanted},
};

/// A test that is started by users lasts until it is stopped, but not for ever.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Workers have a minute to build their users; the leader then decides.
const PREPARED_WITHIN: Duration = Duration::from_secs(75);
/// Workers read the record at their next beat, if not before.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

pub(crate) async fn ready<C: Cell>(State(app): State<Arc<App<C>>>) -> Answer {
    let status = app.fleet.status().await?;
    let alive = alive(&status);
    let workers: Vec<Value> = status.workers.iter().map(|worker| shapes::worker(worker, status.now_ms)).collect();
    Ok(ok(&json!({
        "ready": !alive.is_empty(),
        "state": status.state,
        "epoch": status.epoch,
        "alive_workers": alive.len(),
        "workers": alive,
        "workers_status": workers,
    })))
}

pub(crate) async fn start_test<C: Cell>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let StartTest { target_users, init_params, spawn_interval_ms } = read(body).await?;
    let offer = app.config.offer.as_ref().ok_or_else(|| {
        ApiError::bad_request(
            "this orchestrator has no scenario: start it with --scenario FILE, or use POST /api/v1/tests",
        )
    })?;
    offer.check(&init_params)?;
    let mut bundle = offer.bundle.clone();
    by_users(&mut bundle, target_users, Duration::from_millis(spawn_interval_ms.saturating_mul(target_users)))
        .map_err(|error| ApiError::validation(error.to_string()))?;
    add_params(&mut bundle, &init_params);
    let epoch = app.fleet.start(&bundle, init_params.clone()).await?;
    let status = prepared(&app, epoch).await?;
    let delivered = status.workers.iter().filter(|worker| worker.ready == epoch).count();
    let expected = status.order.as_ref().map_or(0, |order| order.expected.len());
    Ok(ok(&json!({
        "epoch": epoch,
        "target_users": target_users,
        "init_params": init_params,
        "spawn_interval_ms": spawn_interval_ms,
        "prepare_result": {"workers": expected, "ready": delivered},
        "add_result": {
            "requested": target_users,
            "added": (1..=target_users).collect::<Vec<_>>(),
            "skipped_existing": [],
            "alive_workers": alive(&status),
            "aborted": false,
            "spawn_interval_ms": spawn_interval_ms,
        },
        "start_result": {"workers": expected, "delivered": delivered},
    })))
}

impl Offer {
    fn check(&self, given: &BTreeMap<String, Value>) -> Result<(), ApiError> {
        let known = |name: &String| self.takes_any || self.params.iter().any(|param| param.name == *name);
        if let Some(name) = given.keys().find(|name| !known(name)) {
            return Err(ApiError::validation(format!("init_params: the scenario has no parameter `{name}`")));
        }
        match self.params.iter().find(|param| param.required && !given.contains_key(&param.name)) {
            Some(param) => Err(ApiError::validation(format!("init_params: the scenario needs `{}`", param.name))),
            None => Ok(()),
        }
    }
}

/// Makes a number of users the load of a bundle, for as long as nobody stops it.
fn by_users(bundle: &mut Bundle, users: u64, ramp: Duration) -> Result<(), ProfileError> {
    let load = &mut bundle.plan.load;
    let pause = match load.model {
        LoadModel::Closed { pause, .. } => pause,
        LoadModel::Open { .. } => Pause::NONE,
    };
    let users = match users {
        // A test may begin without users and get them later; a profile must rise somewhere, so it does after the end.
        0 => Profile::from_stages(vec![
            Stage { duration: LONGEST, from: 0.0, to: 0.0 },
            Stage { duration: Duration::from_nanos(1), from: 0.0, to: 1.0 },
        ]),
        _ if ramp.is_zero() => Profile::constant(users as f64, LONGEST),
        _ => Profile::ramp(users as f64, ramp, LONGEST),
    }?;
    load.model = LoadModel::Closed { users, pause };
    load.iterations = None;
    Ok(())
}

/// Waits until workers have built their users, or the run has been given up.
async fn prepared<C: Cell>(app: &App<C>, epoch: u64) -> Result<FleetStatus, ApiError> {
    let give_up = Instant::now() + PREPARED_WITHIN;
    loop {
        let status = app.fleet.status().await?;
        if status.epoch == epoch && status.state == RunPhase::Running {
            return Ok(status);
        }
        if status.epoch != epoch || status.state != RunPhase::Preparing {
            let stop = status.order.and_then(|order| order.stop).and_then(|stop| stop.message);
            let why = stop.unwrap_or_else(|| "it was stopped".to_owned());
            return Err(ApiError::bad_request(format!("the test did not begin: {why}")));
        }
        if Instant::now() > give_up {
            let message = "nobody leads the fleet, so the test is still being prepared";
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message));
        }
        sleep(LOOK).await;
    }
}

pub(crate) async fn change_users<C: Cell>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let ChangeUsers { target_users, spawn_interval_ms } = read(body).await?;
    let status = app.fleet.status().await?;
    let order = status.order.as_ref().filter(|_| status.state == RunPhase::Running);
    let Some((order, elapsed)) = order.zip(status.elapsed_s) else {
        return Err(ApiError::invalid_state("change users", status.state.name(), "RUNNING"));
    };
    // On its way to a level it counts as having it.
    let current = order.profile.level(Duration::from_secs_f64(elapsed)).round() as u64;
    let difference = target_users.abs_diff(current);
    let answer = |epoch: u64, action: &str, result: Value| {
        Ok(ok(&json!({
            "epoch": epoch,
            "target_users": target_users,
            "current_users": current,
            "spawn_interval_ms": spawn_interval_ms,
            "action": action,
            "result": result,
        })))
    };
    if difference == 0 {
        return answer(status.epoch, "noop", json!({}));
    }
    let ramp = Duration::from_millis(spawn_interval_ms.saturating_mul(difference));
    let (epoch, _) = app.change_level(By::Users, target_users as f64, ramp).await?;
    let alive = alive(&status);
    match target_users > current {
        true => answer(
            epoch,
            "add",
            json!({
                "requested": difference,
                "added": (current + 1..=target_users).collect::<Vec<_>>(),
                "skipped_existing": [],
                "alive_workers": alive,
                "aborted": false,
                "spawn_interval_ms": spawn_interval_ms,
            }),
        ),
        false => answer(
            epoch,
            "remove",
            json!({
                "requested": difference,
                "removed": (target_users + 1..=current).collect::<Vec<_>>(),
                "alive_workers": alive,
            }),
        ),
    }
}

pub(crate) async fn stop_test<C: Cell>(State(app): State<Arc<App<C>>>, body: Body) -> Answer {
    let _: Nothing = read(body).await?;
    let epoch = app.fleet.stop(StopReason::Interrupted, false, None).await?;
    let give_up = Instant::now() + HEARD_WITHIN;
    let revision = app.fleet.status().await?.revision;
    loop {
        let status = app.fleet.status().await?;
        let working: Vec<_> = status.workers.iter().filter(|worker| worker.ready == epoch).collect();
        let heard = working.iter().filter(|worker| worker.revision >= revision || worker.done == epoch).count();
        // What workers have acknowledged is what was delivered.
        if heard == working.len() || status.epoch != epoch || Instant::now() > give_up {
            return Ok(ok(&json!({
                "epoch": epoch,
                "stop_result": {"workers": working.len(), "delivered": heard},
            })));
        }
        sleep(LOOK).await;
    }
}

fn alive(status: &FleetStatus) -> Vec<&str> {
    status.workers.iter().filter(|worker| worker.is_healthy()).map(|worker| worker.id.as_str()).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsQuery {
    metric_id: Option<String>,
    count: Option<usize>,
    include_events: Option<bool>,
}

pub(crate) async fn metrics<C: Cell>(
    State(app): State<Arc<App<C>>>,
    query: Result<Query<MetricsQuery>, QueryRejection>,
) -> Answer {
    let query = valid(query)?;
    let count = within(query.count.unwrap_or(100), 1, 1000)?;
    let wanted = Wanted { metric_id: query.metric_id, count, events: query.include_events.unwrap_or(true) };
    Ok(ok(&shapes::metrics(app.live.shown().await.as_ref(), &wanted, &app.live.counters)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    range: Option<String>,
    /// Milliseconds since 1970.
    from_ts: Option<u64>,
}

pub(crate) async fn history<C: Cell>(
    State(app): State<Arc<App<C>>>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Answer {
    let query = valid(query)?;
    let range = query.range.unwrap_or_else(|| "5m".to_owned());
    let minutes = match range.as_str() {
        "5m" => Some(5),
        "15m" => Some(15),
        "30m" => Some(30),
        "all" => None,
        _ => return Err(ApiError::validation(format!("range: `{range}` is none of 5m, 15m, 30m, all"))),
    };
    let shown = app.live.shown().await;
    let duration_ms = shown.as_ref().map_or(0, |shown| shown.elapsed.as_millis() as u64);
    let points = shown.as_ref().map_or_else(Vec::new, |shown| {
        let end = shown.started_ms + duration_ms;
        let from = minutes.map_or(0, |minutes: u64| end.saturating_sub(minutes * 60_000));
        shapes::history(shown, from.max(query.from_ts.unwrap_or(0)))
    });
    Ok(ok(&json!({
        "generated_at": shapes::unix_s(),
        "range": range,
        "from_ts": query.from_ts,
        "duration_ms": duration_ms,
        "points": points,
    })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbesQuery {
    probe_name: Option<String>,
    count: Option<usize>,
    include_events: Option<bool>,
}

/// Scenarios have no probes of their own yet, so the list is empty, and says so in the seed's shape.
pub(crate) async fn probes(query: Result<Query<ProbesQuery>, QueryRejection>) -> Answer {
    let query = valid(query)?;
    let count = within(query.count.unwrap_or(20), 0, 1000)?;
    Ok(ok(&json!({
        "generated_at": shapes::unix_s(),
        "probe_name": query.probe_name,
        "probes": [],
        "count": count,
        "include_events": query.include_events.unwrap_or(true),
    })))
}

pub(crate) async fn probes_history(query: Result<Query<ProbesQuery>, QueryRejection>) -> Answer {
    let query = valid(query)?;
    let count = within(query.count.unwrap_or(100), 0, 1000)?;
    Ok(ok(&json!({"generated_at": shapes::unix_s(), "probe_name": query.probe_name, "count": count, "events": []})))
}

pub(crate) async fn workers<C: Cell>(State(app): State<Arc<App<C>>>) -> Answer {
    let status = app.fleet.status().await?;
    let workers: Vec<Value> = status
        .workers
        .iter()
        .map(|worker| {
            let mut shown = shapes::worker(worker, status.now_ms);
            shown["memory_percent"] = worker.memory_percent.into();
            shown["shares"] = worker.shares.into();
            shown
        })
        .collect();
    Ok(ok(&json!({"generated_at": shapes::unix_s(), "count": workers.len(), "workers": workers})))
}

pub(crate) async fn on_init_params<C: Cell>(State(app): State<Arc<App<C>>>) -> Answer {
    let offer = app.config.offer.as_ref();
    Ok(ok(&json!({
        "configured": offer.is_some(),
        "scenario_path": offer.map(|offer| offer.path.display().to_string()),
        "vu_class": offer.map(|offer| &offer.bundle.plan.name),
        "params": offer.map_or(&[][..], |offer| &offer.params),
        "accepts_arbitrary_kwargs": offer.is_some_and(|offer| offer.takes_any),
    })))
}

fn valid<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::validation(error.body_text()))
}

fn within(count: usize, least: usize, most: usize) -> Result<usize, ApiError> {
    match (least..=most).contains(&count) {
        true => Ok(count),
        false => Err(ApiError::validation(format!("count: give a number from {least} to {most}"))),
    }
}
