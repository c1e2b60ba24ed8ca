//! Signing in to the web UI: exchanges the token for a session cookie, so that the page keeps no
//! token and WebSockets and downloads are authorized too.

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, header};
use serde_json::json;
use squall_coord::FleetStores;
use std::sync::Arc;

use super::ApiState;
use crate::{
    ServerMode,
    error::{ApiResult, json_ok},
    request_body::read_body,
    requests::{EmptyRequest, SignInRequest},
    session::{has_session, removed_cookie, session_cookie},
};

pub(crate) async fn session<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, headers: HeaderMap) -> Response {
    let signed_in = app.config.token.as_ref().is_none_or(|token| has_session(&headers, token));
    session_response(&app, signed_in, None)
}

pub(crate) async fn sign_in<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let SignInRequest { token: given } = read_body(body).await?;
    let Some(token) = &app.config.token else { return Ok(session_response(&app, true, None)) };
    app.wrong_tokens.check(token, given.as_bytes())?;
    Ok(session_response(&app, true, Some(session_cookie(token, app.config.tls.is_some()))))
}

pub(crate) async fn sign_out<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let cookie = removed_cookie(app.config.tls.is_some());
    Ok(session_response(&app, app.config.token.is_none(), Some(cookie)))
}

fn session_response<C: FleetStores>(app: &ApiState<C>, signed_in: bool, cookie: Option<HeaderValue>) -> Response {
    let required = app.config.token.is_some();
    let body = json!({
        "sign_in_required": required,
        "signed_in": signed_in,
        "results_only": app.config.mode == ServerMode::Results,
        "shows_streams": app.config.streams.is_some(),
        "shows_grid": app.config.grid.is_some(),
        "worker_command": app.config.worker_command.as_ref().filter(|_| signed_in),
        "version": app.config.version,
    });
    let mut response = json_ok(&body).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
