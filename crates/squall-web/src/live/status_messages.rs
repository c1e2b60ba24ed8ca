//! Messages about the fleet and its run record: `hello`, `state`, `fleet` and `alive`.

use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_history::RunId;
use squall_metrics::coarse_bucket_bounds;
use squall_model::{LoadModel, Plan, ProfileStage, RunPhase};
use squall_orchestrator::{FleetStatus, WorkerActivity, WorkerInfo};
use squall_report::result_summary;

use super::{
    columns::{column_names, micros},
    figures::TABLE_COLUMNS,
};
use crate::{routes::vikhry::lasts_until_stopped, run_watcher::WatchedRun};

/// The version of the messages. A page of another version asks for a reload.
const SCHEMA: &str = "squall.live/5";

pub(crate) fn hello_message(version: &str) -> String {
    json!({
        "type": "hello",
        "schema": SCHEMA,
        "version": version,
        "columns": column_names(),
        "table_columns": TABLE_COLUMNS,
        "bucket_ns": coarse_bucket_bounds().collect::<Vec<_>>(),
    })
    .to_string()
}

/// `elapsed_s` is the age of the run, by which a reader knows how old its latest second is.
pub(crate) fn alive_message(elapsed_s: Option<f64>) -> String {
    json!({"type": "alive", "elapsed_s": elapsed_s}).to_string()
}

/// The state while the store does not respond: `last`, the latest one that was read, which may be outdated.
pub(super) fn state_without_store(last: Option<Value>) -> Value {
    let mut json = last.unwrap_or_else(|| json!({"type": "state"}));
    json["store_up"] = false.into();
    json
}

/// Phase, plan and load of the run.
pub(super) fn state_json<C: FleetStores>(
    status: &FleetStatus,
    watched: Option<&WatchedRun<C>>,
    version: &'static str,
) -> Value {
    let spec = status.spec.as_ref();
    let stop = spec.and_then(|spec| spec.stop.as_ref());
    let watched = watched.filter(|watched| watched.is_run_of(status));
    json!({
        "type": "state",
        "store_up": true,
        "phase": status.phase,
        "epoch": status.epoch,
        "revision": status.revision,
        "run": watched.map(WatchedRun::run_id),
        "paused": spec.is_some_and(|spec| spec.paused.is_some() && status.phase != RunPhase::Idle),
        "stop": stop.map(|stop| json!({"reason": stop.reason, "abort": stop.abort, "message": stop.message})),
        "plan": watched.map(watched_plan_json),
        "result": watched.and_then(|watched| result_json(watched, version)),
    })
}

fn watched_plan_json<C: FleetStores>(watched: &WatchedRun<C>) -> Value {
    let plan = &watched.plan;
    let mut json = plan_json(plan);
    json["warm_up_s"] = plan.load.warm_up.as_secs_f64().into();
    json["max_users"] = watched.bundle.limits.max_users.into();
    json["started_ms"] = watched.started_ms.into();
    json["until_stopped"] = lasts_until_stopped(&watched.bundle.plan.load).into();
    json
}

/// The load of a plan, as the page draws and names it.
pub(crate) fn plan_json(plan: &Plan) -> Value {
    let stage = |stage: &ProfileStage| json!([stage.duration.as_secs_f64(), stage.from, stage.to]);
    let profile = plan.load.model.profile();
    json!({
        "name": plan.name,
        "target": plan.target,
        "model": match plan.load.model { LoadModel::Open { .. } => "open", LoadModel::Closed { .. } => "closed" },
        "driven_by": plan.load.model.unit().name(),
        "stages": profile.pieces().iter().map(stage).collect::<Vec<_>>(),
        "duration_s": profile.duration().as_secs_f64(),
        "iterations": plan.load.iterations,
    })
}

/// The verdict on a finished run.
fn result_json<C: FleetStores>(watched: &WatchedRun<C>, version: &'static str) -> Option<Value> {
    let facts = watched.facts()?;
    let summary = result_summary(&watched.report_input(version)?);
    Some(json!({
        "verdict": summary.verdict,
        "lines": summary.lines(),
        "exit_code": summary.exit_code,
        "saved_as": watched.saved_as.as_ref().map(RunId::as_str),
        "stop": facts.stop,
        "elapsed_s": facts.elapsed.as_secs_f64(),
        "saturated_because": facts.generator.saturated_because,
        "accounting": summary.accounting,
    }))
}

/// Every worker that reports now, and those that took part in the run and do not report.
pub(super) fn fleet_message(workers: &[WorkerInfo], activity: &[WorkerActivity], now_ms: u64, revision: u64) -> String {
    let part_of = |worker: &WorkerInfo| activity.iter().find(|part| part.instance == worker.instance);
    let present = workers.iter().map(|worker| worker_json(worker, part_of(worker), now_ms));
    let is_present = |part: &&WorkerActivity| workers.iter().any(|worker| worker.instance == part.instance);
    let absent = activity.iter().filter(|part| !is_present(part)).map(absent_json);
    let workers: Vec<Value> = present.chain(absent).collect();
    json!({"type": "fleet", "revision": revision, "workers": workers}).to_string()
}

fn worker_json(worker: &WorkerInfo, part: Option<&WorkerActivity>, now_ms: u64) -> Value {
    let age_s = (now_ms as f64 / 1e3 - worker.last_report_at).max(0.0);
    let mut json = json!({
        "id": worker.id,
        "present": true,
        "status": worker.status,
        "age_s": (age_s * 10.0).round() / 10.0,
        "shares": worker.shares,
        "cpu_percent": worker.cpu_percent,
        "rss_bytes": worker.rss_bytes,
        "threads": worker.threads,
        "revision": worker.revision,
        "waiting": worker.waiting,
        "message": worker.message,
    });
    add_part(&mut json, part);
    json
}

fn absent_json(part: &WorkerActivity) -> Value {
    let mut json = json!({"id": part.id, "present": false, "shares": 0});
    add_part(&mut json, Some(part));
    json
}

fn add_part(json: &mut Value, part: Option<&WorkerActivity>) {
    json["state"] = part.map(|part| part.state).into();
    json["joined_s"] = part.map(|part| part.joined_s).into();
    json["ended_s"] = part.and_then(|part| part.ended_s).into();
    json["lost_at_most"] = part.map_or(0, |part| part.lost_at_most).into();
    let latest = part.and_then(|part| part.latest);
    json["second"] = latest.map_or(Value::Null, |latest| {
        json!([latest.t_s, latest.requests, latest.users, latest.busy, micros(latest.lag_p99)])
    });
}
