//! vikhry's control routes: start and stop a test, change its users, list the workers. Responses
//! follow from the run record; the handlers keep no state.

use axum::{body::Body, extract::State};
use http::StatusCode;
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_model::{
    Bundle, LevelUnit, Load, LoadModel, Pause, Profile, ProfileError, ProfileStage, RunPhase, SHARE_COUNT, StopReason,
    user_id,
};
use squall_orchestrator::{FleetStatus, WorkerInfo, share_holders};
use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep};

use super::{ApiState, add_params};
use crate::{
    config::{StartableParam, StartableScenario},
    error::{ApiError, ApiResult, json_ok},
    request_body::read_body,
    requests::{ChangeUsersRequest, EmptyRequest, StartTestRequest},
    vikhry_json,
};

/// A test that `/start_test` starts lasts until it is stopped, but no longer than this. The odd second tells it
/// from a test that a person planned for a week.
const MAX_TEST_DURATION: Duration = Duration::from_secs(7 * 24 * 3600 + 1);
/// Workers have a minute to build their users; then the leader starts or stops the run.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(75);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Workers read the record after their next report at the latest, and a report expires after a few
/// missed ones. The limit counts polls and not time, so that a machine that stalls does not
/// reach it sooner.
const MAX_POLLS: u32 = 200;

pub(crate) async fn ready<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let status = app.fleet.status().await?;
    let alive = alive_worker_ids(&status);
    let workers: Vec<Value> =
        status.workers.iter().map(|worker| vikhry_json::worker_json(worker, status.now_ms)).collect();
    Ok(json_ok(&json!({
        "ready": !alive.is_empty(),
        "state": status.phase,
        "epoch": status.epoch,
        "alive_workers": alive.len(),
        "workers": alive,
        "workers_status": workers,
    })))
}

pub(crate) async fn start_test<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let StartTestRequest { target_users, init_params, spawn_interval_ms } = read_body(body).await?;
    let scenario = app.config.scenario.as_ref().ok_or_else(|| {
        ApiError::bad_request(
            "this orchestrator has no scenario: start it with --scenario FILE, or use POST /api/v1/tests",
        )
    })?;
    scenario.check_params(&init_params)?;
    let mut bundle = scenario.bundle.clone();
    if bundle.has_multiple_scenarios() {
        return Err(ApiError::bad_request(
            "the file has several scenarios with a load each, so one number of users cannot set them: use POST /api/v1/tests",
        ));
    }
    set_user_load(&mut bundle, target_users, Duration::from_millis(spawn_interval_ms.saturating_mul(target_users)))
        .map_err(|error| ApiError::validation(error.to_string()))?;
    add_params(&mut bundle, &init_params);
    if !scenario.has_target {
        bundle.plan.target = first_url(&init_params).unwrap_or_default().to_owned();
    }
    let epoch = app.fleet.start(&bundle, init_params.clone()).await?;
    let status = wait_until_running(&app, epoch).await?;
    let ready: Vec<&str> = ready_workers(&status, epoch).map(|worker| worker.id.as_str()).collect();
    let expected = status.spec.as_ref().map_or(&[][..], |spec| &spec.expected);
    // The test runs, so an error while counting the pools must not fail the request.
    let (pools, _) = app.count_pools().await.unwrap_or_default();
    let pools: BTreeMap<&str, u64> = pools.iter().map(|pool| (pool.pool.as_str(), pool.total)).collect();
    Ok(json_ok(&json!({
        "epoch": epoch,
        "target_users": target_users,
        "init_params": init_params,
        "spawn_interval_ms": spawn_interval_ms,
        "prepare_result": {
            // Workers create what the scenario declares; the request creates nothing.
            "created": {},
            "target_users": target_users,
            "scenario_resources": scenario.resources,
            "mode": "manual",
            "resources": pools,
            "ready_workers": ready,
        },
        "add_result": add_result_json(&status, 0..target_users, spawn_interval_ms),
        "start_result": {"workers": expected, "delivered": ready.len()},
    })))
}

impl StartableScenario {
    fn check_params(&self, given: &BTreeMap<String, Value>) -> Result<(), ApiError> {
        let known = |name: &String| self.accepts_any_param || self.params.iter().any(|param| param.name == *name);
        if let Some(name) = given.keys().find(|name| !known(name)) {
            return Err(ApiError::validation(format!("init_params: the scenario has no parameter `{name}`")));
        }
        let scalar = |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
        let mut variables = self.params.iter().filter(|param| param.kind == StartableParam::KIND_VARIABLE);
        if let Some(param) = variables.find(|param| given.get(&param.name).is_some_and(|value| !scalar(value))) {
            let text = format!("init_params: `{}` must be a string, a number, true or false", param.name);
            return Err(ApiError::validation(text));
        }
        // A template could send what the scenario reads from the environment to another place.
        let is_template = |value: &Value| value.as_str().is_some_and(|text| text.contains("{{"));
        let mut variables = self.params.iter().filter(|param| param.kind == StartableParam::KIND_VARIABLE);
        if let Some(param) = variables.find(|param| given.get(&param.name).is_some_and(is_template)) {
            let text = format!("init_params: `{}` cannot contain `{{{{`: a value is no template", param.name);
            return Err(ApiError::validation(text));
        }
        match self.params.iter().find(|param| param.required && !given.contains_key(&param.name)) {
            Some(param) => Err(ApiError::validation(format!("init_params: the scenario needs `{}`", param.name))),
            None => Ok(()),
        }
    }
}

/// The first parameter that is a URL: the target of a scenario that gets it from the test.
fn first_url(params: &BTreeMap<String, Value>) -> Option<&str> {
    let is_url = |text: &&str| text.starts_with("http://") || text.starts_with("https://");
    params.values().filter_map(Value::as_str).find(is_url)
}

/// Whether the load, as its test started, has no end of its own.
pub(crate) fn lasts_until_stopped(load: &Load) -> bool {
    load.model.profile().duration().as_secs() == MAX_TEST_DURATION.as_secs()
}

/// Sets the load of the bundle to a constant number of users for [`MAX_TEST_DURATION`], after a
/// ramp.
fn set_user_load(bundle: &mut Bundle, users: u64, ramp: Duration) -> Result<(), ProfileError> {
    let load = &mut bundle.plan.load;
    let pause = match load.model {
        LoadModel::Closed { pause, .. } => pause,
        LoadModel::Open { .. } => Pause::NONE,
    };
    load.model = LoadModel::Closed { users: user_profile(users, ramp)?, pause };
    load.iterations = None;
    Ok(())
}

fn user_profile(users: u64, ramp: Duration) -> Result<Profile, ProfileError> {
    match users {
        // A test may start without users and get them later. A profile must rise, so it rises at
        // the end.
        0 => Profile::from_stages(vec![
            ProfileStage { duration: MAX_TEST_DURATION, from: 0.0, to: 0.0 },
            ProfileStage { duration: Duration::from_nanos(1), from: 0.0, to: 1.0 },
        ]),
        _ if ramp.is_zero() => Profile::constant(users as f64, MAX_TEST_DURATION),
        _ => Profile::ramp(users as f64, ramp, MAX_TEST_DURATION),
    }
}

/// The users and the workers that run them, with the ids that the keys of the store have.
fn users_with_workers(status: &FleetStatus, users: Range<u64>) -> Vec<Value> {
    let holders = share_holders(&status.workers);
    let worker_of = |user: u64| holders[(user % holders.len() as u64) as usize].map(|worker| worker.id.as_str());
    users.map(|user| json!({"user_id": user_id(user).to_string(), "worker_id": worker_of(user)})).collect()
}

fn add_result_json(status: &FleetStatus, users: Range<u64>, spawn_interval_ms: u64) -> Value {
    json!({
        "requested": users.end - users.start,
        "added": users_with_workers(status, users),
        // User numbers are unique within a run.
        "skipped_existing": [],
        "alive_workers": alive_worker_ids(status),
        // If the test is stopped during preparation, the request fails instead.
        "aborted": false,
        "spawn_interval_ms": spawn_interval_ms,
    })
}

/// Waits until the workers have built their users and hold all shares. Fails if the run is stopped
/// first.
async fn wait_until_running<C: FleetStores>(app: &ApiState<C>, epoch: u64) -> Result<FleetStatus, ApiError> {
    let deadline = Instant::now() + PREPARE_TIMEOUT;
    let mut polls = 0;
    loop {
        let status = app.fleet.status().await?;
        if status.epoch == epoch && status.phase == RunPhase::Running {
            if is_load_divided(&status.workers, epoch) || polls == MAX_POLLS {
                return Ok(status);
            }
            polls += 1;
            sleep(POLL_INTERVAL).await;
            continue;
        }
        if status.epoch != epoch || status.phase != RunPhase::Preparing {
            let stop = status.spec.and_then(|spec| spec.stop).and_then(|stop| stop.message);
            let reason = stop.unwrap_or_else(|| "it was stopped".to_owned());
            return Err(ApiError::bad_request(format!("the test did not start: {reason}")));
        }
        if Instant::now() > deadline {
            let message = "the fleet has no leader, so the test is still being prepared";
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Whether every share has one holder and every ready worker has its part. The shares of a vikhry
/// worker may still be with the other workers when the run starts.
fn is_load_divided(workers: &[WorkerInfo], epoch: u64) -> bool {
    let able = workers.iter().filter(|worker| worker.can_carry_out(epoch)).count();
    let part = SHARE_COUNT / u32::try_from(able).unwrap_or(u32::MAX).max(1);
    let held: u32 = workers.iter().map(|worker| worker.held.len()).sum();
    let mut ready = workers.iter().filter(|worker| worker.ready == epoch);
    let has_holders = share_holders(workers).iter().all(Option::is_some);
    has_holders && held == SHARE_COUNT && ready.all(|worker| worker.held.len() >= part)
}

pub(crate) async fn change_users<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let ChangeUsersRequest { target_users, spawn_interval_ms } = read_body(body).await?;
    let status = app.fleet.status().await?;
    let Some(level) = status.scheduled_level().filter(|_| status.phase == RunPhase::Running) else {
        return Err(ApiError::invalid_state("change users", status.phase.name(), "RUNNING"));
    };
    let current = level.round() as u64;
    let difference = target_users.abs_diff(current);
    let respond = |epoch: u64, action: &str, result: Value| {
        Ok(json_ok(&json!({
            "epoch": epoch,
            "target_users": target_users,
            "current_users": current,
            "spawn_interval_ms": spawn_interval_ms,
            "action": action,
            "result": result,
        })))
    };
    if difference == 0 {
        return respond(status.epoch, "noop", json!({"requested": 0}));
    }
    let ramp = Duration::from_millis(spawn_interval_ms.saturating_mul(difference));
    let (epoch, _) = app.change_level(LevelUnit::Users, target_users as f64, ramp).await?;
    match target_users > current {
        true => respond(epoch, "add", add_result_json(&status, current..target_users, spawn_interval_ms)),
        false => {
            let removed = users_with_workers(&status, target_users..current);
            respond(epoch, "remove", json!({"requested": difference, "removed": removed, "skipped_missing": []}))
        }
    }
}

pub(crate) async fn stop_test<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let before = app.fleet.status().await?;
    let epoch = app.fleet.stop(StopReason::Interrupted, false, None).await?;
    // Taken from the status before the stop, because no worker is ready for a finished run.
    let recipients: Vec<&str> = ready_workers(&before, epoch).map(|worker| worker.id.as_str()).collect();
    let revision = app.fleet.status().await?.revision;
    let mut polls = 0;
    loop {
        let status = app.fleet.status().await?;
        let present = status.workers.iter().filter(|worker| recipients.contains(&worker.id.as_str()));
        let (acknowledged, pending): (Vec<_>, Vec<_>) =
            present.partition(|worker| worker.revision >= revision || worker.done == epoch);
        // A delivery counts when the worker acknowledges it. Workers that have left are not waited
        // for.
        if pending.is_empty() || polls == MAX_POLLS {
            let result = json!({"workers": recipients, "delivered": acknowledged.len()});
            return Ok(json_ok(&json!({"epoch": epoch, "stop_result": result})));
        }
        polls += 1;
        sleep(POLL_INTERVAL).await;
    }
}

/// The workers that have built their users for the run.
fn ready_workers(status: &FleetStatus, epoch: u64) -> impl Iterator<Item = &WorkerInfo> {
    status.workers.iter().filter(move |worker| worker.ready == epoch)
}

fn alive_worker_ids(status: &FleetStatus) -> Vec<&str> {
    status.workers.iter().filter(|worker| worker.is_healthy()).map(|worker| worker.id.as_str()).collect()
}

/// The number of users that the profile requires now.
fn current_user_count(status: &FleetStatus) -> u64 {
    let loading = matches!(status.phase, RunPhase::Preparing | RunPhase::Running);
    let elapsed = Duration::from_secs_f64(status.elapsed_s.unwrap_or(0.0));
    let level = status.spec.as_ref().filter(|_| loading).map_or(0.0, |spec| spec.profile.level(elapsed));
    // Rounded down as the leader does; the margin keeps a whole level whole despite rounding
    // errors.
    (level + 1e-9).floor() as u64
}

pub(crate) async fn workers<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let status = app.fleet.status().await?;
    let by_users = app
        .watcher
        .current_run()
        .await
        .as_ref()
        .is_some_and(|watched| watched.plan.load.model.unit() == LevelUnit::Users);
    let level = if by_users { current_user_count(&status) } else { 0 };
    let workers: Vec<Value> = status
        .workers
        .iter()
        .map(|worker| {
            let users = worker.held.count_below(level);
            let active =
                status.phase == RunPhase::Running && worker.ready == status.epoch && worker.done != status.epoch;
            let mut entry = vikhry_json::worker_json(worker, status.now_ms);
            entry["users_count"] = users.into();
            entry["active_users_count"] = if active { users } else { 0 }.into();
            entry["memory_percent"] = worker.memory_percent.into();
            entry["shares"] = worker.shares.into();
            entry
        })
        .collect();
    Ok(json_ok(&json!({"generated_at": vikhry_json::unix_s(), "count": workers.len(), "workers": workers})))
}

pub(crate) async fn on_init_params<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let scenario = app.config.scenario.as_ref();
    Ok(json_ok(&json!({
        "configured": scenario.is_some(),
        "scenario_path": scenario.map(|scenario| scenario.path.display().to_string()),
        "vu_class": scenario.map(|scenario| &scenario.bundle.plan.name),
        "params": scenario.map_or(&[][..], |scenario| &scenario.params),
        "accepts_arbitrary_kwargs": scenario.is_some_and(|scenario| scenario.accepts_any_param),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_coord::ReportFields;
    use squall_model::{
        ShareSet,
        protocol::{WorkerHealth, WorkerReport},
    };

    fn worker(id: &str, shares: Range<u32>) -> WorkerInfo {
        let held: ShareSet = shares.collect();
        let report = WorkerReport {
            health: WorkerHealth::Healthy,
            instance: 1,
            ready: 3,
            share_count: held.len(),
            held,
            ..WorkerReport::default()
        };
        let fields: ReportFields = report.encode();
        WorkerInfo::parse(id, &fields)
    }

    #[test]
    fn users_are_listed_only_when_every_ready_worker_has_its_part() {
        let divided = |workers: &[WorkerInfo]| is_load_divided(workers, 3);
        assert!(divided(&[worker("sq1", 0..256)]));
        assert!(!divided(&[worker("sq1", 0..256), worker("v1", 0..0)]), "v1 gets its shares later");
        assert!(!divided(&[worker("sq1", 0..256), worker("v1", 128..256)]), "the report of sq1 is late");
        assert!(!divided(&[worker("sq1", 0..128), worker("v1", 128..200)]));
        assert!(divided(&[worker("sq1", 0..128), worker("v1", 128..256)]));
        assert!(divided(&[worker("a", 0..86), worker("b", 86..171), worker("c", 171..256)]));
    }

    #[test]
    fn test_of_a_week_has_an_end_and_one_of_vikhry_has_none() {
        let lasts = |profile: Profile| {
            let model = LoadModel::Closed { users: profile, pause: Pause::NONE };
            let load = Load { model, iterations: None, warm_up: Duration::ZERO };
            lasts_until_stopped(&load)
        };
        assert!(!lasts(Profile::constant(5.0, Duration::from_secs(7 * 24 * 3600)).unwrap()));
        assert!(!lasts(Profile::constant(5.0, Duration::from_secs(8 * 24 * 3600)).unwrap()));
        for (users, ramp) in [(0, Duration::ZERO), (5, Duration::ZERO), (5, Duration::from_millis(50))] {
            assert!(lasts(user_profile(users, ramp).unwrap()), "{users} users after {ramp:?}");
        }
    }
}
