//! `/api/v1/streams`: the streams of `--streams`, their processors, and how a partition leaves the
//! quarantine. All readers within a second share one read of the store.

use axum::{body::Body, extract::State};
use http::StatusCode;
use serde_json::{Value, json};
use squall_coord::FleetStores;
use squall_model::error_chain;
use squall_streams::{
    ProcessorName,
    admin::{AdminError, StreamAdmin, StreamOverview},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::Instant};

use super::ApiState;
use crate::{
    error::{ApiError, ApiResult, json_ok},
    path::Path,
    request_body::read_body,
    requests::ReleasePartitionRequest,
};

/// What was read is served again for this long, so that more readers cost the store nothing.
const CACHE_LIFETIME: Duration = Duration::from_secs(1);

/// What was last read of the streams.
#[derive(Default)]
pub(crate) struct CachedStreams(Mutex<Option<StreamsRead>>);

struct StreamsRead {
    at: Instant,
    streams: Vec<Value>,
    /// How many events each processor had acknowledged.
    processed: BTreeMap<String, u64>,
}

pub(crate) async fn list<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let admin = admin(&app)?;
    let mut cached = app.cached_streams.0.lock().await;
    let fresh = cached.as_ref().filter(|read| read.at.elapsed() < CACHE_LIFETIME);
    if let Some(read) = fresh {
        return Ok(json_ok(&json!({"streams": read.streams})));
    }
    let read = read_streams(admin, cached.as_ref()).await?;
    let answer = json_ok(&json!({"streams": read.streams}));
    *cached = Some(read);
    Ok(answer)
}

async fn read_streams(admin: &StreamAdmin, earlier: Option<&StreamsRead>) -> Result<StreamsRead, ApiError> {
    let at = Instant::now();
    let (mut streams, mut processed) = (Vec::new(), BTreeMap::new());
    for name in admin.streams().await? {
        match admin.overview(&name).await {
            Ok(overview) => {
                let counts =
                    overview.processors.iter().filter_map(|found| Some((found.name.clone(), found.processed?)));
                processed.extend(counts);
                streams.push(stream_json(&overview, earlier, at));
            }
            // It was removed meanwhile.
            Err(AdminError::NoStream(..)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(StreamsRead { at, streams, processed })
}

/// The overview, with the acknowledged events per second since the read before.
fn stream_json(overview: &StreamOverview, earlier: Option<&StreamsRead>, at: Instant) -> Value {
    let mut json = json!(overview);
    for (processor, found) in overview.processors.iter().zip(json["processors"].as_array_mut().into_iter().flatten()) {
        let before = earlier.and_then(|read| Some((read.at, *read.processed.get(&processor.name)?)));
        let rate = before.zip(processor.processed).map(|((since, count), now)| {
            now.saturating_sub(count) as f64 / at.duration_since(since).as_secs_f64().max(0.001)
        });
        found["rate"] = rate.into();
    }
    json
}

/// Lets a partition continue after a failure, with or without the events that failed.
pub(crate) async fn release<C: FleetStores>(
    State(app): State<Arc<ApiState<C>>>,
    Path((processor, partition)): Path<(String, String)>,
    body: Body,
) -> ApiResult {
    let ReleasePartitionRequest { skip } = read_body(body).await?;
    let admin = admin(&app)?;
    let name = ProcessorName::parse(&processor).map_err(|error| ApiError::validation(error.to_string()))?;
    let number: u32 = partition
        .parse()
        .map_err(|_| ApiError::validation(format!("`{partition}` is not the number of a partition")))?;
    if !admin.clear_quarantine(&name, number, skip).await? {
        let message = format!("partition {number} of {name} is not in quarantine");
        return Err(ApiError::new(StatusCode::CONFLICT, "invalid_state", message));
    }
    // The next reader must not see the partition in quarantine.
    *app.cached_streams.0.lock().await = None;
    Ok(json_ok(&json!({"processor": name.to_string(), "partition": number, "skipped": skip})))
}

fn admin<C: FleetStores>(app: &ApiState<C>) -> Result<&StreamAdmin, ApiError> {
    let message = "this orchestrator shows no streams: start it with --streams";
    app.config.streams.as_ref().map(|streams| &streams.admin).ok_or_else(|| ApiError::not_found(message))
}

impl From<AdminError> for ApiError {
    fn from(error: AdminError) -> ApiError {
        match error {
            AdminError::Store(error) => error.into(),
            AdminError::NoStream(..) | AdminError::NoPartition { .. } | AdminError::NoProcessor(..) => {
                ApiError::not_found(error.to_string())
            }
            AdminError::Redis(_) => {
                let text = error_chain(&error);
                tracing::warn!(error = text, "the streams cannot be read");
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "store_unreachable", text)
            }
            AdminError::AdminLocked(_) | AdminError::WorkersRunning(..) => {
                ApiError::new(StatusCode::CONFLICT, "invalid_state", error.to_string())
            }
            AdminError::InvalidDefinition(_) | AdminError::InvalidStart(_) | AdminError::ClusterScan => {
                ApiError::bad_request(error.to_string())
            }
        }
    }
}
