//! Routes for operators: health, readiness, Prometheus metrics and the OpenAPI document.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use squall_coord::{FleetStores, LeaseStore};
use squall_report::prometheus::{ExpositionFormat, ScrapeInput, text};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

use super::{
    ApiState,
    vikhry_metrics::{self, MetricsQuery},
};
use crate::{
    api_metrics,
    error::{ApiResult, json_ok, json_response},
    router::OPENAPI,
};

/// A store that takes longer counts as unavailable.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn health() -> Response {
    json_ok(&json!({"status": "ok"}))
}

/// Ready means that the store responds, has a readable record (`/ready` names an unreadable key)
/// and accepts writes: in a store that rejects writes, every orchestrator's lease expires soon. The
/// response also has the number of workers.
pub(crate) async fn readyz<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> Response {
    let check = async {
        let orchestrators = app.fleet.stores().orchestrators().snapshot().await.ok()?;
        let status = app.fleet.status().await.ok()?;
        Some(status.workers).filter(|_| !orchestrators.members.is_empty())
    };
    match timeout(STORE_TIMEOUT, check).await {
        Ok(Some(workers)) => {
            let alive = workers.iter().filter(|worker| worker.is_healthy()).count();
            json_ok(&json!({"ready": true, "alive_workers": alive}))
        }
        _ => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"ready": false, "alive_workers": 0})),
    }
}

pub(crate) async fn prometheus<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> Response {
    let status = timeout(STORE_TIMEOUT, app.fleet.status()).await.ok().and_then(Result::ok);
    let subscribers = app.watcher.live.subscriber_count() + app.watcher.vikhry_subscriber_count();
    let mut body = api_metrics::render(status.as_ref(), subscribers, &app.watcher.counters);
    if let Some(watched) = app.watcher.current_run().await.as_ref() {
        body += &text(&ScrapeInput {
            view: watched.view(),
            plan: &watched.plan,
            elapsed: watched.elapsed,
            generator: None,
            version: app.config.version,
        });
    }
    ([(header::CONTENT_TYPE, ExpositionFormat::Text.content_type())], body).into_response()
}

/// `/metrics`: Prometheus text for scrapers, vikhry's JSON for everyone else, because vikhry's clients name
/// no format.
pub(crate) async fn metrics<C: FleetStores>(
    app: State<Arc<ApiState<C>>>,
    headers: HeaderMap,
    query: Result<Query<MetricsQuery>, QueryRejection>,
) -> ApiResult {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let response = match ExpositionFormat::is_named_by(accept) {
        true => prometheus(app).await,
        false => vikhry_metrics::metrics(app, query).await?,
    };
    Ok(([(header::VARY, "Accept")], response).into_response())
}

pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
