//! `/api/v1/compare`: two runs of the history, or one and the baseline, with the numbers of
//! `squall compare`. squall-report compares them and renders the page.

use axum::extract::{Query, State, rejection::QueryRejection};
use serde::Deserialize;
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_history::RunFolder;
use squall_model::error_chain;
use squall_report::{ResultFile, RunComparison, compare, comparison_html};
use std::{fs, path::Path, sync::Arc};

use super::{
    ApiState,
    runs::{download, history, in_background, parse_id},
};
use crate::{
    RunHistory,
    error::{ApiError, ApiResult, json_ok},
    query::parse_query,
};

/// Stands for the baseline in place of an id. No id begins with a dot.
const BASELINE: &str = ".baseline";
const DEFAULT_TOLERANCE: f64 = 0.05;

/// The query of a comparison.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompareQuery {
    /// An id, or [`BASELINE`].
    base: String,
    new: String,
    /// A fraction.
    #[serde(default = "default_tolerance")]
    tolerance: f64,
}

fn default_tolerance() -> f64 {
    DEFAULT_TOLERANCE
}

pub(crate) async fn show<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<CompareQuery>, QueryRejection>,
) -> ApiResult {
    let (query, history) = (parse_compare_query(query)?, history(&app)?.clone());
    in_background(move || {
        let Compared { base, new, comparison } = read_and_compare(&history, &query)?;
        Ok(json_ok(&json!({
            "base": entry(&history.folder, &query.base, &base),
            "new": entry(&history.folder, &query.new, &new),
            "comparison": comparison,
            "view": comparison.view(&base, &new),
        })))
    })
    .await
}

/// The comparison as one HTML file.
pub(crate) async fn report<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<CompareQuery>, QueryRejection>,
) -> ApiResult {
    let (query, history) = (parse_compare_query(query)?, history(&app)?.clone());
    in_background(move || {
        let Compared { base, new, comparison } = read_and_compare(&history, &query)?;
        let [base_name, new_name] = [&query.base, &query.new].map(|id| id.trim_start_matches('.'));
        let name = format!("squall-compare-{base_name}-{new_name}.html");
        Ok(download(&name, "text/html; charset=utf-8", comparison_html(&comparison, &base, &new)))
    })
    .await
}

fn parse_compare_query(query: Result<Query<CompareQuery>, QueryRejection>) -> Result<CompareQuery, ApiError> {
    let query = parse_query(query)?;
    match (0.0..1000.0).contains(&query.tolerance) {
        true => Ok(query),
        false => Err(ApiError::validation("tolerance: give a fraction of 0 or more, such as 0.05 for 5 %")),
    }
}

struct Compared {
    base: ResultFile,
    new: ResultFile,
    comparison: RunComparison,
}

fn read_and_compare(history: &RunHistory, query: &CompareQuery) -> Result<Compared, ApiError> {
    let read = |id: &str| match id {
        BASELINE => read_baseline(&history.baseline),
        id => Ok(history.folder.read(&parse_id(id)?)?),
    };
    let (base, new) = (read(&query.base)?, read(&query.new)?);
    let comparison = compare(&base, &new, query.tolerance);
    Ok(Compared { base, new, comparison })
}

fn read_baseline(path: &Path) -> Result<ResultFile, ApiError> {
    let missing = || ApiError::not_found("no baseline: make one with `squall run … --save-baseline`");
    let text = fs::read_to_string(path).map_err(|_| missing())?;
    ResultFile::parse(&text).map_err(|error| ApiError::bad_request(format!("the baseline: {}", error_chain(&error))))
}

/// What the page shows of a run besides the comparison.
fn entry(folder: &RunFolder, id: &str, result: &ResultFile) -> Value {
    let note = parse_id(id).ok().and_then(|id| folder.get(&id).ok()).map(|run| run.note).unwrap_or_default();
    json!({
        "id": id,
        "name": result.run.name,
        "target": result.run.target,
        "started": result.run.started,
        "started_unix_ms": result.run.started_unix_ms,
        "load": result.run.load.text,
        "active_s": result.run.active_s,
        "verdict": result.verdict,
        "breached_thresholds": result.thresholds.iter().filter(|threshold| !threshold.passed).count(),
        "workers": result.fleet.as_ref().map(|fleet| fleet.workers.len()),
        "note": note,
    })
}
