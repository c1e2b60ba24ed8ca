//! `/api/v1/scenarios`: the scenarios that the orchestrator offers. It lists, describes, checks and
//! starts them; the catalog reads the files, on a thread for blocking work.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_model::Bundle;
use std::sync::Arc;

use super::{ApiState, runs::in_background};
use crate::{
    SharedCatalog,
    error::{ApiError, ApiResult, json_ok, json_response},
    live::plan_json,
    path::Path,
    request_body::read_body,
    scenario_catalog::{CatalogError, OrderedRun, ScenarioDescription, StartOrder},
};

pub(crate) async fn list<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let Some(SharedCatalog(catalog)) = app.config.catalog.clone() else {
        return Ok(json_ok(&json!({"scenarios": []})));
    };
    in_background(move || Ok(json_ok(&json!({"scenarios": catalog.names()?})))).await
}

pub(crate) async fn describe<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(name): Path<String>,
) -> ApiResult {
    let SharedCatalog(catalog) = catalog(&app)?;
    in_background(move || {
        let ScenarioDescription { params, accepts_any_param, has_target, bundle } = catalog.describe(&name)?;
        Ok(json_ok(&json!({
            "name": name,
            "params": params,
            "accepts_any_param": accepts_any_param,
            "target": has_target.then_some(&bundle.plan.target),
            "plan": planned_run_json(&bundle),
        })))
    })
    .await
}

/// What would run. Sends nothing and starts nothing.
pub(crate) async fn check<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(name): Path<String>,
    body: Body,
) -> ApiResult {
    let run = build(&app, name, read_body(body).await?).await?;
    Ok(json_ok(&json!({"description": run.description, "command": run.command, "plan": planned_run_json(&run.bundle)})))
}

pub(crate) async fn start<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(name): Path<String>,
    body: Body,
) -> ApiResult {
    let order: StartOrder = read_body(body).await?;
    let params = order.params.clone();
    let run = build(&app, name, order).await?;
    let epoch = app.fleet.start(&run.bundle, params).await?;
    Ok(started(epoch, Some(&run.command)))
}

async fn build<C: FleetStores>(app: &ApiState<C>, name: String, order: StartOrder) -> Result<OrderedRun, ApiError> {
    let SharedCatalog(catalog) = catalog(app)?;
    let built = tokio::task::spawn_blocking(move || catalog.build(&name, &order)).await;
    let failed = |error| {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", format!("the check failed: {error}"))
    };
    Ok(built.map_err(failed)??)
}

fn catalog<C: FleetStores>(app: &ApiState<C>) -> Result<SharedCatalog, ApiError> {
    let message = "this orchestrator offers no scenarios: start it with --scenarios DIR or --scenario FILE";
    app.config.catalog.clone().ok_or_else(|| ApiError::not_found(message))
}

/// 201 with the number of the test.
pub(super) fn started(epoch: u64, command: Option<&str>) -> Response {
    let location = [(header::LOCATION, format!("/api/v1/tests/{epoch}"))];
    (location, json_response(StatusCode::CREATED, &json!({"epoch": epoch, "command": command}))).into_response()
}

/// Load and thresholds of a run that has not started.
fn planned_run_json(bundle: &Bundle) -> Value {
    let mut json = plan_json(&bundle.plan);
    json["thresholds"] = bundle.plan.thresholds.iter().map(ToString::to_string).collect();
    json
}

impl From<CatalogError> for ApiError {
    fn from(error: CatalogError) -> ApiError {
        match error {
            CatalogError::Unknown(_) => ApiError::not_found(error.to_string()),
            CatalogError::Refused { message, field } => {
                ApiError::bad_request(message).with_details(json!({"field": field}))
            }
        }
    }
}
