//! Pools of things that users borrow: what there is, and filling them. Lending is the workers' business.

use axum::{
    body::Body,
    extract::{Path, Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use squall_coord::{FillResult, FleetStores, ItemId, PoolName, PoolStore, StoreError};
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    query::{check_count, parse_query},
    request_body::read_body,
    requests::FillPoolRequest,
    vikhry_json,
};

pub(crate) async fn list<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let (counts, refused) = app.count_pools().await?;
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
    let mut listed = json!({"generated_at": vikhry_json::unix_s(), "count": resources.len(), "resources": resources});
    if !refused.is_empty() {
        listed["refused"] = json!(refused);
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
    if !pools.names().await?.contains(&pool) {
        return Err(ApiError::not_found(format!("there is no resource `{pool}`; /resources lists all")));
    }
    let counts = pools.count(&pool).await?;
    let mut listed = pools.list(&pool, count).await?;
    // A listing may give more than asked for.
    listed.truncate(count);
    let items: Vec<Value> = listed
        .iter()
        .map(|item| {
            let held = item.held.as_ref().map(|(holder, run, _)| json!({"worker": holder.as_str(), "epoch": run.0}));
            json!({
                "resource_id": item.id.as_str(),
                "payload": serde_json::from_str::<Value>(&item.payload).unwrap_or_else(|_| item.payload.clone().into()),
                "held": held,
            })
        })
        .collect();
    Ok(json_ok(&json!({"resource_name": pool.as_str(), "count": counts.total, "items": items})))
}

pub(crate) async fn create<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let stock: FillPoolRequest = read_body(body).await?;
    if stock.count == 0 {
        return Err(ApiError::validation("count: give a number from 1 to 100000"));
    }
    let pool = parse_pool_name(stock.name.clone())?;
    let (pools, make) = (app.fleet.stores().pools(), |id| resource_payload(&pool, id, &stock.payload));
    let stocked: Result<FillResult, StoreError> = squall_coord::add_pool_items(&pools, &pool, stock.count, make).await;
    let stocked = stocked?;
    Ok(json_ok(&json!({
        "resource_name": pool.as_str(),
        "count": stocked.created.len(),
        "resource_ids": created_ids(&stocked),
    })))
}

pub(crate) async fn ensure<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let stock: FillPoolRequest = read_body(body).await?;
    let pool = parse_pool_name(stock.name.clone())?;
    let (pools, make) = (app.fleet.stores().pools(), |id| resource_payload(&pool, id, &stock.payload));
    let stocked: Result<FillResult, StoreError> =
        squall_coord::ensure_pool_size(&pools, &pool, stock.count, make).await;
    let stocked = stocked?;
    Ok(json_ok(&json!({
        "resource_name": pool.as_str(),
        "target_count": stock.count,
        "existing_count": stocked.existing,
        "created_count": stocked.created.len(),
        "current_count": stocked.current,
        "created_resource_ids": created_ids(&stocked),
    })))
}

fn parse_pool_name(name: String) -> Result<PoolName, ApiError> {
    PoolName::new(name).map_err(|error| ApiError::validation(error.to_string()))
}

fn created_ids(stocked: &FillResult) -> Vec<&str> {
    stocked.created.iter().map(ItemId::as_str).collect()
}

/// What a borrower gets to see of a new thing.
async fn resource_payload(pool: &PoolName, id: ItemId, payload: &Map<String, Value>) -> Result<String, StoreError> {
    let mut payload = payload.clone();
    payload.insert("resource_name".into(), pool.as_str().into());
    payload.insert("resource_id".into(), id.as_str().into());
    payload.insert("created_at".into(), vikhry_json::unix_s().into());
    Ok(Value::Object(payload).to_string())
}
