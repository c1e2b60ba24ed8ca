//! `/api/v1/tests/current/metrics/{id}`: one metric with its seconds, its distribution and its
//! outcomes. The live feed has only the latest second of each metric.

use axum::extract::State;
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_metrics::{Histogram, MetricSecond, MetricView, coarse_bucket_bounds};
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    live::{MAX_POINTS, mean_per_second, micros},
    path::Path,
};

const PERCENTILES: [f64; 9] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

pub(crate) async fn metric<C: FleetStores>(State(app): State<Arc<ApiState<C>>>, Path(id): Path<String>) -> ApiResult {
    let id: usize = id.parse().map_err(|_| ApiError::validation(format!("`{id}` is not the number of a metric")))?;
    let watched = app.watcher.current_run().await;
    let unknown = || ApiError::not_found(format!("unknown metric {id}: the feed /api/v1/live lists all"));
    let watched = watched.as_ref().ok_or_else(unknown)?;
    let metric = watched.view().metrics.get(id).ok_or_else(unknown)?;
    let outcomes = metric.outcomes.iter().map(|(outcome, n)| {
        json!({"category": outcome.category.name(), "code": outcome.code.to_string(), "error": outcome.is_error(), "count": n})
    });
    Ok(json_ok(&json!({
        "run": watched.run_id(),
        "id": id,
        "name": metric.key.id(),
        "requests": metric.requests,
        "errors": metric.errors,
        "bytes_in": metric.bytes_in,
        "bytes_out": metric.bytes_out,
        "seconds": seconds_json(metric),
        "response": distribution_json(&metric.response),
        "service": distribution_json(&metric.service),
        "wait": distribution_json(&metric.wait),
        "outcomes": outcomes.collect::<Vec<_>>(),
    })))
}

/// The seconds by column. Those of a long run are joined: counts become their mean, rounded up,
/// times their highest value.
fn seconds_json(metric: &MetricView) -> Value {
    let step = metric.timeline.len().div_ceil(MAX_POINTS).max(1);
    let column = |of: fn(&[MetricSecond]) -> u64| metric.timeline.chunks(step).map(of).collect::<Vec<_>>();
    json!({
        "t": column(|part| part.last().map_or(0, |second| second.t_s.into())),
        "requests": column(|part| mean(part, |second| second.requests)),
        "errors": column(|part| mean(part, |second| second.errors)),
        "p50": column(|part| highest(part, |second| second.p50)),
        "p95": column(|part| highest(part, |second| second.p95)),
        "p99": column(|part| highest(part, |second| second.p99)),
    })
}

fn mean(part: &[MetricSecond], of: fn(&MetricSecond) -> u32) -> u64 {
    let sum: u64 = part.iter().map(|second| u64::from(of(second))).sum();
    mean_per_second(sum, part.len())
}

fn highest(part: &[MetricSecond], of: fn(&MetricSecond) -> f32) -> u64 {
    micros(part.iter().map(of).fold(0.0, f32::max) as u64)
}

/// `percentiles`: `[percentile, µs]`; `buckets`: `[from µs, to µs, count]`, 8 per doubling.
fn distribution_json(histogram: &Histogram) -> Value {
    let bounds: Vec<u64> = coarse_bucket_bounds().collect();
    let bound = |index: usize| bounds.get(index).map_or_else(|| micros(histogram.max()), |nanos| micros(*nanos));
    let bucket = |(bucket, n): &(u16, u64)| json!([bound(usize::from(*bucket)), bound(usize::from(*bucket) + 1), n]);
    json!({
        "min": micros(histogram.min()),
        "mean": micros(histogram.mean() as u64),
        "max": micros(histogram.max()),
        "percentiles": PERCENTILES.map(|p| json!([p, micros(histogram.percentile(p))])),
        "buckets": histogram.coarse_buckets().iter().map(bucket).collect::<Vec<_>>(),
    })
}
