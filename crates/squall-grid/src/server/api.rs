//! The routes of the server besides the WebSocket: capacity, workers, health and metrics, and the choice of the route.
//! They read one snapshot of the store and keep nothing.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use squall_coord::{ApiKeyScope, SlotStore, SlotWorkerId, SlotWorkerView};

use super::{
    MAX_CLIENT_HEAD, MAX_CLIENT_HEADERS, ServerState,
    access::check_origin,
    capacity::capacity,
    connect::{Target, connect},
    offers, percent_decode,
    refusal::{Refusal, RefusedRequest},
    requested_session::Protocol,
    sessions,
};

pub(crate) type ApiResponse = Response<Full<Bytes>>;

/// Answers one request.
pub(crate) async fn route<S: SlotStore>(
    state: &ServerState<S>,
    request: Request<Incoming>,
) -> Result<ApiResponse, RefusedRequest> {
    if request.uri().to_string().len() > 2048 {
        return Err(Refusal::LongUrl.into());
    }
    check_size(request.headers())?;
    check_origin(request.headers())?;
    // hyper leaves out the body of an answer to HEAD, which load balancers send.
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (&method, parts.as_slice()) {
        (&Method::GET, [""]) => connect(state, request, Protocol::Playwright, Target::New).await,
        (&Method::GET, ["sessions", id]) => connect(state, request, Protocol::Playwright, Target::Existing(id)).await,
        (&Method::GET, ["devtools", "browser"]) => connect(state, request, Protocol::Cdp, Target::New).await,
        (&Method::GET, ["devtools", "browser", id]) => {
            connect(state, request, Protocol::Cdp, Target::Existing(id)).await
        }
        // Playwright asks here where to connect if it was given an http:// URL.
        (&Method::GET, ["json"]) => Ok(json_response(StatusCode::OK, &json!({"wsEndpointPath": "/"}))),
        (&Method::GET, ["json", "version"]) => Ok(show_cdp_url(&request)),
        (&Method::GET, ["healthz"]) => Ok(text_response(StatusCode::OK, "ok\n".to_owned())),
        (&Method::GET, ["readyz"]) => Ok(ready(state)?),
        (&Method::GET, ["favicon.ico"]) => Ok(text_response(StatusCode::NO_CONTENT, String::new())),
        _ => Ok(route_with_key(state, request, &parts).await?),
    }
}

fn check_size(headers: &HeaderMap) -> Result<(), Refusal> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
    if bytes > MAX_CLIENT_HEAD || headers.len() > MAX_CLIENT_HEADERS { Err(Refusal::LongHead) } else { Ok(()) }
}

/// Answers a request to a route that needs an API key.
async fn route_with_key<S: SlotStore>(
    state: &ServerState<S>,
    request: Request<Incoming>,
    parts: &[&str],
) -> Result<ApiResponse, Refusal> {
    let method = request.method().clone();
    let scope = match (&method, parts) {
        (_, ["metrics"] | ["v1", "workers", _, "drain"]) => ApiKeyScope::Admin,
        (_, ["v1", "workers", "offer" | "leave"]) => ApiKeyScope::Worker,
        _ => ApiKeyScope::Client,
    };
    let key = state.authorize(&request, scope).await?;
    match (&method, parts) {
        (&Method::GET, ["metrics"]) => {
            let snapshot = state.store.snapshot().await?;
            Ok(text_response(StatusCode::OK, state.metrics.render(&snapshot, state.registry.count())))
        }
        (&Method::GET, ["v1", "capacity"]) => show_capacity(state).await,
        (&Method::GET, ["v1", "workers"]) => {
            let workers = state.store.snapshot().await?.workers;
            Ok(json_response(StatusCode::OK, &json!({"workers": workers.iter().map(worker_json).collect::<Vec<_>>()})))
        }
        (&Method::POST, ["v1", "workers", "offer"]) => offers::offer(state, request).await,
        (&Method::POST, ["v1", "workers", "leave"]) => offers::leave(state, request).await,
        (&Method::POST, ["v1", "workers", id, "drain"]) => drain(state, id).await,
        (&Method::POST, ["v1", "sessions"]) => sessions::reserve(state, request, &key).await,
        (&Method::GET, ["v1", "sessions"]) => sessions::list(state, &key).await,
        (&Method::GET, ["v1", "sessions", id]) => sessions::show(state, &key, id).await,
        (&Method::DELETE, ["v1", "sessions", id]) => sessions::end(state, &key, id).await,
        _ => {
            let allowed = allowed_methods(parts).ok_or(Refusal::NotFound)?;
            Err(Refusal::Method { method: method.to_string(), allowed })
        }
    }
}

/// The methods of a route.
fn allowed_methods(parts: &[&str]) -> Option<&'static str> {
    Some(match parts {
        ["" | "json" | "healthz" | "readyz" | "metrics" | "favicon.ico"]
        | ["json", "version"]
        | ["sessions", _]
        | ["devtools", "browser"]
        | ["devtools", "browser", _]
        | ["v1", "capacity" | "workers"] => "GET",
        ["v1", "workers", "offer" | "leave"] | ["v1", "workers", _, "drain"] => "POST",
        ["v1", "sessions"] => "GET, POST",
        ["v1", "sessions", _] => "GET, DELETE",
        _ => return None,
    })
}

/// Tells CDP clients that were given an `http://` URL where to connect. The URL repeats the key of the
/// query, because clients use the URL as it is.
fn show_cdp_url(request: &Request<Incoming>) -> ApiResponse {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    let passed: Vec<&str> =
        pairs.filter(|pair| pair.starts_with("token=") || pair.starts_with("keep_alive=")).collect();
    let query = if passed.is_empty() { String::new() } else { format!("?{}", passed.join("&")) };
    let url = format!("{}/devtools/browser{query}", sessions::base_url(request.headers()));
    let body = json!({"Browser": "Squall grid", "Protocol-Version": "1.3", "webSocketDebuggerUrl": url});
    json_response(StatusCode::OK, &body)
}

fn ready<S: SlotStore>(state: &ServerState<S>) -> Result<ApiResponse, Refusal> {
    if state.draining.is_cancelled() {
        return Err(Refusal::Draining);
    }
    if !state.is_member() {
        return Err(Refusal::NotMember);
    }
    Ok(text_response(StatusCode::OK, "ready\n".to_owned()))
}

async fn show_capacity<S: SlotStore>(state: &ServerState<S>) -> Result<ApiResponse, Refusal> {
    let snapshot = state.store.snapshot().await?;
    let body = json!({
        "browsers": capacity(&snapshot),
        "queued": snapshot.waiting.len(),
        "queue_oldest_ms": snapshot.queue_oldest_ms.values().max().unwrap_or(&0),
        // Of the sessions that this server has granted since its start.
        "queue_wait_p50_ms": state.metrics.queue_wait.quantile_ms(0.5),
        "queue_wait_p95_ms": state.metrics.queue_wait.quantile_ms(0.95),
        "max_queue_size": state.config.queue_limit,
        "servers": snapshot.servers.len(),
    });
    Ok(json_response(StatusCode::OK, &body))
}

async fn drain<S: SlotStore>(state: &ServerState<S>, id: &str) -> Result<ApiResponse, Refusal> {
    // Many clients encode the colon.
    let id = percent_decode(id);
    let snapshot = state.store.snapshot().await?;
    // Either `browser:name`, or the name alone.
    let wanted = |view: &&SlotWorkerView| view.worker.to_string() == id || view.worker.name() == id;
    let found: Option<SlotWorkerId> = snapshot.workers.iter().find(wanted).map(|view| view.worker.clone());
    let worker = found.ok_or_else(|| Refusal::NoWorker(id.chars().take(64).collect()))?;
    state.store.drain(&worker).await?;
    Ok(json_response(StatusCode::ACCEPTED, &json!({"id": worker.to_string(), "status": "draining"})))
}

fn worker_json(view: &SlotWorkerView) -> Value {
    json!({
        "id": view.worker.to_string(),
        "browser": view.worker.kind(),
        "address": view.endpoint,
        "playwright_version": view.versions.join(", "),
        "status": view.state(),
        "max_slots": view.slots,
        "active_sessions": view.active,
        "lifetime_sessions": view.lifetime,
        "max_lifetime_sessions": view.max_lifetime,
    })
}

pub(crate) fn json_response(status: StatusCode, body: &Value) -> ApiResponse {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "application/json");
    response.body(Full::from(body.to_string())).expect("valid headers")
}

pub(crate) fn text_response(status: StatusCode, body: String) -> ApiResponse {
    let response = Response::builder().status(status).header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    response.body(Full::from(body)).expect("valid headers")
}
