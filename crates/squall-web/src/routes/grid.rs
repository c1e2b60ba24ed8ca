//! `/api/v1/grid`: the browser grid of `--grid`, from its store. It shows workers, sessions and the
//! queue, ends a session and drains a worker; it connects to no worker.

use axum::{body::Body, extract::State};
use http::StatusCode;
use serde_json::{Value, json};
use squall_coord::{
    FleetStores, RedisSlotStore, SlotSessionId, SlotSessionView, SlotSnapshot, SlotStore, SlotWorkerId, SlotWorkerView,
};
use std::{collections::BTreeMap, sync::Arc};

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok, json_response},
    path::Path,
    request_body::read_body,
    requests::EmptyRequest,
};

pub(crate) async fn show<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    Ok(json_ok(&grid_json(&store(&app)?.snapshot().await?)))
}

/// Asks the worker of a session to end it.
pub(crate) async fn end_session<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(id): Path<String>,
    body: Body,
) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let unknown = || ApiError::not_found(format!("the grid has no session `{id}`; it may have ended"));
    let session = SlotSessionId::parse(&id).ok_or_else(unknown)?;
    match store(&app)?.end_session(&session).await? {
        true => Ok(json_response(StatusCode::ACCEPTED, &json!({"session": id}))),
        false => Err(unknown()),
    }
}

/// Asks a worker to take no more sessions and to leave when it has none.
pub(crate) async fn drain<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path((browser, name)): Path<(String, String)>,
    body: Body,
) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let unknown = || ApiError::not_found(format!("the grid has no worker `{browser}:{name}`"));
    let worker = SlotWorkerId::new(&browser, &name).ok_or_else(unknown)?;
    match store(&app)?.drain(&worker).await? {
        true => Ok(json_response(StatusCode::ACCEPTED, &json!({"worker": worker.to_string()}))),
        false => Err(unknown()),
    }
}

fn store<C: FleetStores>(app: &ApiState<C>) -> Result<&RedisSlotStore, ApiError> {
    let message = "this orchestrator shows no grid: start it with --grid NAME";
    app.config.grid.as_ref().map(|grid| &grid.store).ok_or_else(|| ApiError::not_found(message))
}

fn grid_json(snapshot: &SlotSnapshot) -> Value {
    let mut waiting: BTreeMap<&str, u64> = BTreeMap::new();
    for browser in &snapshot.waiting {
        *waiting.entry(browser).or_default() += 1;
    }
    let (mut slots, mut free, mut draining) = (0, 0, 0);
    for worker in &snapshot.workers {
        let open = worker.slots.saturating_sub(worker.active);
        slots += worker.slots;
        if worker.draining || worker.unreachable { draining += open } else { free += open }
    }
    json!({
        "slots": {"all": slots, "used": snapshot.sessions.len(), "free": free, "closed": draining},
        "waiting": waiting,
        "queue_oldest_ms": snapshot.queue_oldest_ms,
        "servers": snapshot.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "workers": snapshot.workers.iter().map(worker_json).collect::<Vec<_>>(),
        "sessions": snapshot.sessions.iter().map(session_json).collect::<Vec<_>>(),
    })
}

fn worker_json(view: &SlotWorkerView) -> Value {
    json!({
        "browser": view.worker.kind(),
        "name": view.worker.name(),
        "version": view.versions.join(", "),
        "slots": view.slots,
        "active": view.active,
        "lifetime": view.lifetime,
        "max_lifetime": view.max_lifetime,
        "state": view.state(),
    })
}

fn session_json(view: &SlotSessionView) -> Value {
    json!({
        "id": view.id.as_str(),
        "worker": view.worker.to_string(),
        "server": view.server.to_string(),
        "key": view.key_name(),
        "age_s": view.age.as_secs_f64(),
        "state": view.state(),
    })
}
