//! For those who operate an orchestrator: is it there, does its store answer, what does it count, what can it do.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use squall_coord::{FleetStores, LeaseStore};
use squall_report::prometheus::{ExpositionFormat, ScrapeInput, text};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

use super::ApiState;
use crate::{
    api_metrics,
    error::{json_ok, json_response},
    router::OPENAPI,
};

/// A store that needs longer is none to rely on.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn health() -> Response {
    json_ok(&json!({"status": "ok"}))
}

/// Ready means that the store answers, has a record that can be read (`/ready` names the key where it has not), and takes what it is told:
/// of one that only reads, every orchestrator has gone soon. How many workers there are is said beside it.
pub(crate) async fn readyz<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> Response {
    let asked = async {
        let orchestrators = app.fleet.stores().orchestrators().snapshot().await.ok()?;
        let status = app.fleet.status().await.ok()?;
        Some(status.workers).filter(|_| !orchestrators.members.is_empty())
    };
    match timeout(STORE_TIMEOUT, asked).await {
        Ok(Some(workers)) => {
            let alive = workers.iter().filter(|worker| worker.is_healthy()).count();
            json_ok(&json!({"ready": true, "alive_workers": alive}))
        }
        _ => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"ready": false, "alive_workers": 0})),
    }
}

pub(crate) async fn prometheus<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> Response {
    let status = timeout(STORE_TIMEOUT, app.fleet.status()).await.ok().and_then(Result::ok);
    let mut body = api_metrics::render(status.as_ref(), app.watcher.subscriber_count(), &app.watcher.counters);
    if let Some(shown) = app.watcher.current_run().await.as_ref() {
        body += &text(&ScrapeInput {
            view: shown.view(),
            plan: &shown.bundle.plan,
            elapsed: shown.elapsed,
            generator: None,
            version: app.config.version,
        });
    }
    ([(header::CONTENT_TYPE, ExpositionFormat::Text.content_type())], body).into_response()
}

pub(crate) async fn openapi(_: HeaderMap) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
