//! `/api/v1/fleet`: who leads, and what each worker did in the current run over time. The live feed has only
//! the latest figures of each worker.

use axum::extract::State;
use serde_json::{Value, json};
use squall_coord::{FleetStores, LeaseStore};
use std::sync::Arc;

use super::ApiState;
use crate::{
    error::{ApiResult, json_ok},
    worker_history::{WorkerHistory, WorkerPoint},
};

pub(crate) async fn show<C: FleetStores>(State(app): State<Arc<ApiState<C>>>) -> ApiResult {
    let orchestrators = app.fleet.stores().orchestrators().snapshot().await?;
    // Orchestrators lease one unit: the right to lead. A member is a name and a unique part after a dot.
    let leader = orchestrators.leases.values().next().map(|holder| holder.member.as_str());
    let leader = leader.map(|member| member.rsplit_once('.').map_or(member, |(name, _)| name));
    let watched = app.watcher.current_run().await;
    let watched = watched.as_ref();
    let history = watched.map(|watched| &watched.workers);
    Ok(json_ok(&json!({
        "leader": leader,
        "orchestrators": orchestrators.members.len(),
        "run": watched.map(|watched| watched.run_id()),
        "t": history.map_or_else(Vec::new, WorkerHistory::times),
        "workers": history.map_or_else(Vec::new, workers_json),
    })))
}

fn workers_json(history: &WorkerHistory) -> Vec<Value> {
    let worker = |(id, points): (&str, Vec<WorkerPoint>)| {
        let cpu = points.iter().map(|point| point.cpu_percent);
        let lag = points.iter().map(|point| point.lag_p99);
        json!({"id": id, "cpu_percent": cpu.collect::<Vec<_>>(), "lag_p99": lag.collect::<Vec<_>>()})
    };
    history.workers().map(worker).collect()
}
