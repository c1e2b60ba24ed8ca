//! The routes of sessions: reserve one, list, show and end them.
//! It relays nothing: a client connects to a reserved session by [`super::connect`].

use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use serde::Deserialize;
use serde_json::{Value, json};
use squall_coord::{SlotSessionId, SlotSessionView, SlotStore, api_key_name};
use std::time::Duration;
use tokio::time::Instant;

use super::{
    ServerState,
    access::ClientKey,
    api::{ApiResponse, json_response, text_response},
    connect::{Reservation, claim},
    refusal::Refusal,
    requested_session::{Protocol, RequestedSession},
};

const MAX_BODY: usize = 8 << 10;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The body of `POST /v1/sessions`; all fields may be omitted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a JSON object")]
struct ReserveBody {
    browser: Option<String>,
    playwright_version: Option<String>,
    protocol: Option<String>,
    isolation: Option<String>,
    keep_alive: Option<String>,
}

/// Claims a slot, which waits for a client to connect.
pub(crate) async fn reserve<S: SlotStore>(
    state: &ServerState<S>,
    request: Request<Incoming>,
    key: &ClientKey,
) -> Result<ApiResponse, Refusal> {
    let base = base_url(request.headers());
    let wanted: ReserveBody = read_json(request, MAX_BODY).await?;
    let protocol = match wanted.protocol.as_deref() {
        None | Some("playwright") => Protocol::Playwright,
        Some("cdp") => Protocol::Cdp,
        Some(other) => return Err(Refusal::UnknownProtocol(other.chars().take(64).collect())),
    };
    let mut requested = RequestedSession::new(key, protocol);
    requested.set_browser(wanted.browser)?;
    requested.set_isolation(wanted.isolation.clone())?;
    requested.set_keep_alive(wanted.keep_alive.clone())?;
    requested.set_version(wanted.playwright_version)?;
    if state.draining.is_cancelled() {
        return Err(Refusal::Draining);
    }
    let deadline = Instant::now() + state.config.queue_timeout;
    let mut session = state.registry.claim();
    let pending = state.config.pending_timeout;
    let grant = claim(state, &requested, &mut session, deadline, Reservation::Reserved(pending)).await?;
    // From here the session ends by the store, if no client connects in time.
    session.cause = None;
    let path = match protocol {
        Protocol::Playwright => format!("/sessions/{}", session.id),
        Protocol::Cdp => format!("/devtools/browser/{}", session.id),
    };
    let query: Vec<String> = [("isolation", wanted.isolation), ("keep_alive", wanted.keep_alive)]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name}={value}")))
        .collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let body = json!({
        "id": session.id.as_str(),
        "browser": requested.browser,
        "worker_id": grant.worker.to_string(),
        "playwright_version": grant.version,
        "status": "pending",
        "key": api_key_name(&requested.key),
        "url": format!("{base}{path}{query}"),
        "expires_in_seconds": pending.as_secs_f64(),
    });
    Ok(json_response(StatusCode::CREATED, &body))
}

pub(crate) async fn list<S: SlotStore>(state: &ServerState<S>, key: &ClientKey) -> Result<ApiResponse, Refusal> {
    let sessions: Vec<Value> = own_sessions(state, key).await?.iter().map(session_json).collect();
    Ok(json_response(StatusCode::OK, &json!({"sessions": sessions})))
}

pub(crate) async fn show<S: SlotStore>(
    state: &ServerState<S>,
    key: &ClientKey,
    id: &str,
) -> Result<ApiResponse, Refusal> {
    Ok(json_response(StatusCode::OK, &session_json(&find_session(state, key, id).await?)))
}

pub(crate) async fn end<S: SlotStore>(
    state: &ServerState<S>,
    key: &ClientKey,
    id: &str,
) -> Result<ApiResponse, Refusal> {
    let session = find_session(state, key, id).await?;
    state.store.end_session(&session.id).await?;
    Ok(text_response(StatusCode::NO_CONTENT, String::new()))
}

/// The URL under which the client reached the server, for WebSockets.
pub(crate) fn base_url(headers: &HeaderMap) -> String {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = if text("x-forwarded-proto") == Some("https") { "wss" } else { "ws" };
    format!("{scheme}://{}", text(header::HOST.as_str()).unwrap_or("localhost"))
}

/// Reads a body as JSON; an empty one is `{}`.
pub(crate) async fn read_json<T: for<'a> Deserialize<'a>>(
    request: Request<Incoming>,
    limit: usize,
) -> Result<T, Refusal> {
    let refusal = || Refusal::Body(format!("it is incomplete or larger than {limit} bytes"));
    if request.body().size_hint().lower() > limit as u64 {
        return Err(refusal());
    }
    let reading = Limited::new(request.into_body(), limit).collect();
    let body = tokio::time::timeout(BODY_TIMEOUT, reading).await.map_err(|_| refusal())?;
    let bytes = body.map_err(|_| refusal())?.to_bytes();
    let bytes = if bytes.is_empty() { b"{}".as_slice() } else { &bytes };
    serde_json::from_slice(bytes).map_err(|error| Refusal::Body(error.to_string()))
}

/// A key sees its own sessions; an administrator sees all.
async fn own_sessions<S: SlotStore>(state: &ServerState<S>, key: &ClientKey) -> Result<Vec<SlotSessionView>, Refusal> {
    let mut sessions = state.store.snapshot().await?.sessions;
    sessions.retain(|session| key.admin || session.key == key.id);
    Ok(sessions)
}

async fn find_session<S: SlotStore>(
    state: &ServerState<S>,
    key: &ClientKey,
    id: &str,
) -> Result<SlotSessionView, Refusal> {
    let wanted = SlotSessionId::parse(id);
    let sessions = own_sessions(state, key).await?;
    let found = sessions.into_iter().find(|session| Some(&session.id) == wanted.as_ref());
    found.ok_or_else(|| Refusal::NoSession(id.chars().take(64).collect()))
}

fn session_json(view: &SlotSessionView) -> Value {
    json!({
        "id": view.id.as_str(),
        "browser": view.worker.kind(),
        "worker_id": view.worker.to_string(),
        "playwright_version": view.version,
        "status": view.state(),
        "key": view.key_name(),
        "server": view.server.as_str(),
        "age_seconds": view.age.as_secs_f64(),
    })
}
