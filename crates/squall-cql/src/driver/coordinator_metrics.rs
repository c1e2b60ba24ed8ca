//! The latency of each node that coordinates operations, in custom metrics such as `coordinator:10.0.0.2 (dc1)`.
//! Failed tries are no part of it: their messages name the node.

use crate::{
    Database,
    database::{NodeKey, TriedRequest},
};
use squall_engine::ThreadRecorder;
use squall_metrics::{MetricId, MetricKey, MetricKind};
use std::{cell::RefCell, collections::HashMap, time::Instant};

/// What stands before the address of a node.
pub(super) const COORDINATOR: &str = "coordinator:";

/// The metric of each node that has coordinated an operation of this thread.
#[derive(Debug, Default)]
pub(super) struct CoordinatorMetrics {
    metrics: RefCell<HashMap<NodeKey, MetricId>>,
}

impl CoordinatorMetrics {
    /// Records a successful operation, which ended at `ended`.
    pub(super) fn record(&self, database: &Database, recorder: &ThreadRecorder, request: TriedRequest, ended: Instant) {
        let (Some(node), Some(sent)) = (request.node, request.sent) else { return };
        let known = self.metrics.borrow().get(&node).copied();
        // A node may join during the run.
        let Some(metric) = known.or_else(|| self.add(database, recorder, node)) else { return };
        recorder.record_span(metric, sent, ended, super::user::OK);
    }

    fn add(&self, database: &Database, recorder: &ThreadRecorder, node: NodeKey) -> Option<MetricId> {
        let (address, datacenter) = database.node_place(node)?;
        let name = format!("{COORDINATOR}{address} ({datacenter})");
        let metric = recorder.metric(MetricKey { kind: MetricKind::Custom, ..MetricKey::request(name) });
        self.metrics.borrow_mut().insert(node, metric);
        Some(metric)
    }
}
