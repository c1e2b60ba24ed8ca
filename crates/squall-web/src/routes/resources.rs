//! vikhry's routes for resource pools: they list and fill pools. Workers lease the resources to
//! users.

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use squall_coord::{FillResult, FleetStores, ItemId, PoolItemStatus, PoolName, PoolStore};
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    path::Path,
    query::{check_count, parse_query},
    request_body::read_body,
    requests::FillPoolRequest,
    vikhry_json,
};

pub(crate) async fn list<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let (counts, unusable) = app.count_pools().await?;
    let resources: Vec<Value> = counts
        .iter()
        .map(|pool| {
            json!({
                "resource_name": pool.pool.as_str(),
                "count": pool.total,
                "available": pool.available,
                "held": pool.held,
                "waiting": pool.waiting,
            })
        })
        .collect();
    let declared = app.config.scenario.iter().flat_map(|scenario| &scenario.resources);
    let is_counted = |name: &&String| counts.iter().any(|pool| pool.pool.as_str() == name.as_str());
    let empty = declared
        .filter(|name| !is_counted(name) && !unusable.contains_key(*name))
        .map(|name| json!({"resource_name": name, "count": 0, "available": 0, "held": 0, "waiting": 0}));
    let resources: Vec<Value> = resources.into_iter().chain(empty).collect();
    let mut listed = json!({"generated_at": vikhry_json::unix_s(), "count": resources.len(), "resources": resources});
    if !unusable.is_empty() {
        listed["refused"] = json!(unusable);
    }
    Ok(json_ok(&listed))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemsQuery {
    count: Option<usize>,
}

pub(crate) async fn items<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(name): Path<String>,
    query: Result<Query<ItemsQuery>, QueryRejection>,
) -> ApiResult {
    let count = check_count(parse_query(query)?.count.unwrap_or(100), 1, 1000)?;
    let pool = parse_pool_name(name)?;
    let pools = app.fleet.stores().pools();
    let counts = pools.count(&pool).await?;
    let mut listed = pools.list(&pool, count).await?;
    // The store may return more items than requested.
    listed.truncate(count);
    let items: Vec<Value> = listed.iter().map(item_json).collect();
    Ok(json_ok(&json!({
        "resource_name": pool.as_str(),
        "total": counts.total,
        "count": items.len(),
        "items": items,
    })))
}

/// The fields of an item, its id, and who holds it if a user does.
fn item_json(item: &PoolItemStatus) -> Value {
    let mut fields = match serde_json::from_str(&item.payload) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => Map::from_iter([("payload".to_owned(), other)]),
        Err(_) => Map::from_iter([("payload".to_owned(), item.payload.as_str().into())]),
    };
    fields.insert("resource_id".to_owned(), item.id.as_str().into());
    if let Some(held) = &item.held {
        fields.insert("held".to_owned(), json!({"worker": held.member.as_str(), "epoch": held.run.0}));
    }
    fields.into()
}

pub(crate) async fn create<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let request: FillPoolRequest = read_body(body).await?;
    if request.count == 0 {
        return Err(ApiError::validation("count: give a number from 1 to 100000"));
    }
    let pool = parse_pool_name(request.name.clone())?;
    let (pools, payload_of) = (app.fleet.stores().pools(), |id| resource_payload(&app, &pool, id, &request.payload));
    let filled: Result<FillResult, ApiError> =
        squall_coord::add_pool_items(&pools, &pool, request.count, payload_of).await;
    let filled = filled?;
    Ok(json_ok(&json!({
        "resource_name": pool.as_str(),
        "count": filled.created.len(),
        "resource_ids": created_ids(&filled),
    })))
}

pub(crate) async fn ensure<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let request: FillPoolRequest = read_body(body).await?;
    let pool = parse_pool_name(request.name.clone())?;
    let (pools, payload_of) = (app.fleet.stores().pools(), |id| resource_payload(&app, &pool, id, &request.payload));
    let filled: Result<FillResult, ApiError> =
        squall_coord::ensure_pool_size(&pools, &pool, request.count, payload_of).await;
    let filled = filled?;
    Ok(json_ok(&json!({
        "resource_name": pool.as_str(),
        "target_count": request.count,
        "existing_count": filled.existing,
        "created_count": filled.created.len(),
        "current_count": filled.current,
        "created_resource_ids": created_ids(&filled),
    })))
}

fn parse_pool_name(name: String) -> Result<PoolName, ApiError> {
    PoolName::new(name).map_err(|error| ApiError::validation(error.to_string()))
}

fn created_ids(filled: &FillResult) -> Vec<&str> {
    filled.created.iter().map(ItemId::as_str).collect()
}

/// The payload of a new resource, as users see it: the fields of the scenario's factory, then those
/// of the request.
async fn resource_payload<C: FleetStores>(
    app: &ApiState<C>,
    pool: &PoolName,
    id: ItemId,
    payload: &Map<String, Value>,
) -> Result<String, ApiError> {
    let mut fields = factory_fields(app, pool, &id).await?;
    fields.extend(payload.clone());
    fields.insert("resource_name".into(), pool.as_str().into());
    fields.insert("resource_id".into(), id.as_str().into());
    fields.insert("created_at".into(), (vikhry_json::unix_s() as u64).into());
    Ok(Value::Object(fields).to_string())
}

/// What the scenario's factory for the pool makes; nothing if it has none.
async fn factory_fields<C: FleetStores>(
    app: &ApiState<C>,
    pool: &PoolName,
    id: &ItemId,
) -> Result<Map<String, Value>, ApiError> {
    let factory = app.config.scenario.as_ref().and_then(|scenario| scenario.resource_factory.clone());
    let (Some(factory), Ok(number)) = (factory, id.as_str().parse()) else { return Ok(Map::new()) };
    // In a thread of its own: the factory may send requests, and the API and the leader must not wait.
    let name = pool.as_str().to_owned();
    let made = tokio::task::spawn_blocking(move || (factory.0)(&name, number)).await;
    let failed = |reason: String| ApiError::bad_request(format!("the factory of `{pool}` failed for {id}: {reason}"));
    match made.map_err(|error| failed(error.to_string()))? {
        None => Ok(Map::new()),
        Some(Ok(text)) => serde_json::from_str(&text).map_err(|error| failed(error.to_string())),
        Some(Err(reason)) => Err(failed(reason)),
    }
}
