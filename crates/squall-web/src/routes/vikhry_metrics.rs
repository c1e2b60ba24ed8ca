//! vikhry's routes for metrics and probes. They render the view of the run and compute no
//! statistics.

use axum::extract::{Query, State, rejection::QueryRejection};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::json;
use squall_coord::FleetStores;
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    query::{check_count, parse_query},
    vikhry_json::{self, MetricsFilter},
    vikhry_probes::{self, ProbeFilter},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsQuery {
    metric_id: Option<String>,
    count: Option<usize>,
    #[serde(default, deserialize_with = "deserialize_bool_word")]
    include_events: Option<bool>,
}

/// Called by `/metrics` if the request names no Prometheus format.
pub(crate) async fn metrics<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<MetricsQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    let count = check_count(query.count.unwrap_or(100), 1, 1000)?;
    let wanted =
        MetricsFilter { metric_id: query.metric_id, count, include_events: query.include_events.unwrap_or(true) };
    Ok(json_ok(&vikhry_json::metrics_json(app.watcher.current_run().await.as_ref(), &wanted, &app.watcher.counters)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsHistoryQuery {
    range: Option<String>,
    /// Seconds since 1970.
    from_ts: Option<u64>,
}

pub(crate) async fn history<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<MetricsHistoryQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    let range = query.range.unwrap_or_else(|| "all".to_owned());
    let minutes = match range.as_str() {
        "5m" => Some(5),
        "15m" => Some(15),
        "30m" => Some(30),
        "all" => None,
        _ => return Err(ApiError::validation(format!("range: unknown value `{range}`; give 5m, 15m, 30m or all"))),
    };
    let watched = app.watcher.current_run().await;
    let duration_ms = watched.as_ref().map_or(0, |watched| watched.elapsed.as_millis() as u64);
    // `from_ts` takes precedence over `range`.
    let from_s = query.from_ts.or_else(|| {
        let end_s = watched.as_ref().map_or(0, |watched| (watched.started_ms + duration_ms) / 1000);
        minutes.map(|minutes: u64| end_s.saturating_sub(minutes * 60))
    });
    let points =
        watched.as_ref().map_or_else(Vec::new, |watched| vikhry_json::history_json(watched, from_s.unwrap_or(0)));
    Ok(json_ok(&json!({
        "generated_at": vikhry_json::unix_s(),
        "range": range,
        "from_ts": from_s,
        "count": points.len(),
        "duration_ms": duration_ms,
        "points": points,
    })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbesQuery {
    probe_name: Option<String>,
    count: Option<usize>,
    #[serde(default, deserialize_with = "deserialize_bool_word")]
    include_events: Option<bool>,
}

pub(crate) async fn probes<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<ProbesQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    let wanted = ProbeFilter {
        name: query.probe_name,
        count: check_count(query.count.unwrap_or(20), 0, 1000)?,
        include_events: query.include_events.unwrap_or(true),
    };
    let declared = app.config.scenario.as_ref().map_or(&[][..], |scenario| &scenario.probes);
    Ok(json_ok(&vikhry_probes::probes_json(app.watcher.current_run().await.as_ref(), declared, &wanted)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProbeHistoryQuery {
    probe_name: String,
    count: Option<usize>,
}

pub(crate) async fn probes_history<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    query: Result<Query<ProbeHistoryQuery>, QueryRejection>,
) -> ApiResult {
    let query = parse_query(query)?;
    if query.probe_name.trim().is_empty() {
        return Err(ApiError::bad_request("probe_name: give the name of a probe; /probes lists all"));
    }
    let count = check_count(query.count.unwrap_or(100), 0, 1000)?;
    Ok(json_ok(&vikhry_probes::probe_history_json(app.watcher.current_run().await.as_ref(), &query.probe_name, count)))
}

/// Accepts the boolean words that vikhry accepts.
fn deserialize_bool_word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let word = String::deserialize(from)?.trim().to_ascii_lowercase();
    match word.as_str() {
        "1" | "true" | "yes" | "on" => Ok(Some(true)),
        "0" | "false" | "no" | "off" => Ok(Some(false)),
        _ => Err(D::Error::custom(format!("`{word}` is not a boolean; give true or false"))),
    }
}
