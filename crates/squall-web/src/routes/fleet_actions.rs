//! Actions of people that change no load: a note on the current run, and the drain of a worker.

use axum::{body::Body, extract::State, response::IntoResponse};
use http::StatusCode;
use serde_json::json;
use squall_coord::FleetStores;
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiResult, json_response},
    path::Path,
    request_body::read_body,
    requests::{AddNoteRequest, EmptyRequest},
};

/// Adds a note, which becomes an event of the run.
pub(crate) async fn add_note<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, body: Body) -> ApiResult {
    let note: AddNoteRequest = read_body(body).await?;
    let (epoch, event) = app.fleet.add_note(note.text.trim(), note.t_s).await?;
    Ok(json_response(StatusCode::CREATED, &json!({"epoch": epoch, "t_s": event.t_s, "text": event.text}))
        .into_response())
}

/// Asks a worker to leave. Its report says when it has begun to: its status is no longer `healthy`.
pub(crate) async fn drain<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(worker): Path<String>,
    body: Body,
) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let worker = app.fleet.drain_worker(&worker).await?;
    let answer = json!({"worker": worker.id, "shares": worker.shares});
    Ok(json_response(StatusCode::ACCEPTED, &answer).into_response())
}
