//! `/api/v1/runs`: the runs of the history folder. It lists, searches, annotates, serves and deletes
//! them. squall-history reads and writes the files, on a thread for blocking work.

use axum::{
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use squall_coord::FleetStores;
use squall_history::{ReadRunError, RunFilter, RunFolder, RunId, WriteNoteError};
use squall_model::{Bundle, error_chain};
use squall_report::{RecordedRun, RestoreRunError, ResultFile, RunVerdict, hdr_log_of_run, html};
use std::{collections::BTreeMap, sync::Arc};

use super::{ApiState, scenarios::started};
use crate::{
    RunHistory,
    error::{ApiError, ApiResult, json_ok},
    path::Path,
    query::parse_query,
    request_body::read_body,
    requests::{EmptyRequest, RunNoteRequest},
};

/// Runs of a response, unless the query gives another number.
const DEFAULT_COUNT: usize = 200;
const MAX_COUNT: usize = 10_000;
const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

/// The query of the list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunsQuery {
    #[serde(default)]
    search: String,
    verdict: Option<RunVerdict>,
    #[serde(default = "default_count")]
    count: usize,
}

fn default_count() -> usize {
    DEFAULT_COUNT
}

pub(crate) async fn list<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<RunsQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    let count = crate::query::check_count(query.count, 1, MAX_COUNT)?;
    let filter = RunFilter { search: query.search, verdict: query.verdict };
    let Some(RunHistory { folder, baseline, .. }) = app.config.history.clone() else {
        return Ok(json_ok(&json!({"folder": null, "runs": [], "total": 0, "skipped": []})));
    };
    in_background(move || {
        let list = folder.list()?;
        let used: u64 = list.runs.iter().map(|run| run.bytes).sum();
        let total = list.runs.len();
        let matching: Vec<_> = list.runs.into_iter().filter(|run| filter.matches(run)).collect();
        Ok(json_ok(&json!({
            "folder": folder.path().display().to_string(),
            "limit_bytes": folder.limit_bytes(),
            "used_bytes": used,
            "has_baseline": baseline.is_file(),
            "total": total,
            "matching": matching.len(),
            "runs": matching.get(..count).unwrap_or(&matching),
            "skipped": list.skipped,
        })))
    })
    .await
}

pub(crate) async fn show<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, Path(id): Path<String>) -> ApiResult {
    with_run(&app, &id, |folder, id| Ok(json_ok(&folder.get(id)?))).await
}

/// The result file.
pub(crate) async fn result<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, Path(id): Path<String>) -> ApiResult {
    with_run(&app, &id, |folder, id| {
        folder.get(id)?;
        Ok(download(&format!("{id}.json"), "application/json", folder.read_text(id)?))
    })
    .await
}

/// Rights of a report that is shown as a page: its script runs, without the rights of the web UI.
const REPORT_POLICY: &str = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; frame-ancestors 'none'";

/// The query of a report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportQuery {
    /// Show it as a page instead of a download.
    #[serde(default)]
    view: bool,
}

impl ReportQuery {
    pub(super) fn response(&self, name: &str, html: String) -> Response {
        let mut response = download(name, "text/html; charset=utf-8", html);
        if self.view {
            let headers = response.headers_mut();
            headers.remove(header::CONTENT_DISPOSITION);
            headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(REPORT_POLICY));
        }
        response
    }
}

/// The HTML report, as a download or as a page.
pub(crate) async fn report<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(id): Path<String>,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    with_run(&app, &id, move |folder, id| {
        let run = restore(&folder.read(id)?)?;
        Ok(query.response(&format!("{id}.html"), html(&run.report_input())))
    })
    .await
}

/// The histograms of the whole run as an HdrHistogram log.
pub(crate) async fn histograms<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(id): Path<String>,
) -> ApiResult {
    with_run(&app, &id, |folder, id| {
        let run = restore(&folder.read(id)?)?;
        Ok(download(&format!("{id}.hlog"), "text/plain; charset=utf-8", hdr_log_of_run(&run.report_input())))
    })
    .await
}

pub(crate) async fn note<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(id): Path<String>,
    body: Body,
) -> ApiResult {
    let RunNoteRequest { note } = read_body(body).await?;
    with_run(&app, &id, move |folder, id| {
        folder.set_note(id, &note)?;
        Ok(json_ok(&folder.get(id)?))
    })
    .await
}

/// Starts a run of the history again, as it was.
pub(crate) async fn again<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path(id): Path<String>,
    body: Body,
) -> ApiResult {
    let _: EmptyRequest = read_body(body).await?;
    let (folder, id) = (history(&app)?.folder.clone(), parse_id(&id)?);
    let read = tokio::task::spawn_blocking(move || folder.read_bundle(&id).map_err(ApiError::from));
    let text = read.await.map_err(|error| ApiError::new(INTERNAL, "internal_error", error.to_string()))??;
    let Some(text) = text else {
        let message = "this run cannot start again: an orchestrator keeps what it needs, `squall run` does not";
        return Err(ApiError::new(StatusCode::CONFLICT, "invalid_state", message));
    };
    let bundle: Bundle = serde_json::from_str(&text).map_err(|error| {
        ApiError::bad_request(format!("this run cannot start again: its scenario cannot be read: {error}"))
    })?;
    Ok(started(app.fleet.start(&bundle, BTreeMap::new()).await?, None))
}

pub(crate) async fn delete<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, Path(id): Path<String>) -> ApiResult {
    with_run(&app, &id, |folder, id| {
        folder.remove(id)?;
        Ok(json_ok(&json!({"id": id})))
    })
    .await
}

/// Calls `work` with the folder and a valid id.
async fn with_run<C: FleetStores>(
    app: &ApiState<C>,
    id: &str,
    work: impl FnOnce(&RunFolder, &RunId) -> ApiResult + Send + 'static,
) -> ApiResult {
    let folder = history(app)?.folder.clone();
    let id = parse_id(id)?;
    in_background(move || work(&folder, &id)).await
}

pub(super) fn history<C: FleetStores>(app: &ApiState<C>) -> Result<&RunHistory, ApiError> {
    let message = "this server keeps no runs: start it with --history";
    app.config.history.as_ref().ok_or_else(|| ApiError::not_found(message))
}

pub(super) fn parse_id(text: &str) -> Result<RunId, ApiError> {
    RunId::new(text).ok_or_else(|| ApiError::validation(format!("`{text}` is not the id of a run")))
}

/// Runs `work` where it may block.
pub(super) async fn in_background(work: impl FnOnce() -> ApiResult + Send + 'static) -> ApiResult {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| {
        Err(ApiError::new(INTERNAL, "internal_error", format!("the work on the files of a run failed: {error}")))
    })
}

fn restore(result: &ResultFile) -> Result<RecordedRun, ApiError> {
    RecordedRun::restore(result).map_err(|error: RestoreRunError| ApiError::bad_request(error_chain(&error)))
}

pub(super) fn download(name: &str, content_type: &'static str, text: String) -> Response {
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    let headers = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\"")),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    (headers, text).into_response()
}

impl From<ReadRunError> for ApiError {
    fn from(error: ReadRunError) -> ApiError {
        let text = error_chain(&error);
        match error {
            ReadRunError::Unknown { id, .. } => ApiError::not_found(format!("no run `{id}` in the history")),
            ReadRunError::NotAResult { .. } => ApiError::bad_request(text),
            ReadRunError::Folder { .. } | ReadRunError::Read { .. } | ReadRunError::Remove { .. } => {
                tracing::warn!(error = text, "the history cannot be read");
                ApiError::new(INTERNAL, "internal_error", text)
            }
        }
    }
}

impl From<WriteNoteError> for ApiError {
    fn from(error: WriteNoteError) -> ApiError {
        match error {
            WriteNoteError::Run(error) => error.into(),
            WriteNoteError::TooLong { .. } => ApiError::validation(error.to_string()),
            WriteNoteError::Write { .. } => {
                let text = error_chain(&error);
                tracing::warn!(error = text, "a note cannot be written");
                ApiError::new(INTERNAL, "internal_error", text)
            }
        }
    }
}
