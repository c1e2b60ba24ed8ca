//! For those who operate an orchestrator: is it there, does its store answer, what does it count, what can it do.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, header};
use serde_json::json;
use squall_coord::{FleetStores, LeaseStore};
use squall_report::prometheus::{Format, Scrape, text};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

use super::App;
use crate::{
    error::{json_response, ok},
    own_metrics,
    router::OPENAPI,
};

/// A store that needs longer is none to rely on.
const ANSWER: Duration = Duration::from_secs(2);

pub(crate) async fn health() -> Response {
    ok(&json!({"status": "ok"}))
}

/// Ready means that the store answers, has a record that can be read (`/ready` names the key where it has not), and takes what it is told:
/// of one that only reads, every orchestrator has gone soon. How many workers there are is said beside it.
pub(crate) async fn readyz<C: FleetStores>(State(app): State<Arc<App<C>>>) -> Response {
    let asked = async {
        let orchestrators = app.fleet.cell().orchestrators().snapshot().await.ok()?;
        let status = app.fleet.status().await.ok()?;
        Some(status.workers).filter(|_| !orchestrators.members.is_empty())
    };
    match timeout(ANSWER, asked).await {
        Ok(Some(workers)) => {
            let alive = workers.iter().filter(|worker| worker.is_healthy()).count();
            ok(&json!({"ready": true, "alive_workers": alive}))
        }
        _ => json_response(StatusCode::SERVICE_UNAVAILABLE, &json!({"ready": false, "alive_workers": 0})),
    }
}

pub(crate) async fn prometheus<C: FleetStores>(State(app): State<Arc<App<C>>>) -> Response {
    let status = timeout(ANSWER, app.fleet.status()).await.ok().and_then(Result::ok);
    let mut body = own_metrics::render(status.as_ref(), app.live.subscribers(), &app.live.counters);
    if let Some(shown) = app.live.shown().await.as_ref() {
        body += &text(&Scrape {
            view: shown.view(),
            plan: &shown.bundle.plan,
            elapsed: shown.elapsed,
            generator: None,
            version: app.config.version,
        });
    }
    ([(header::CONTENT_TYPE, Format::Text.content_type())], body).into_response()
}

pub(crate) async fn openapi(_: HeaderMap) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}
