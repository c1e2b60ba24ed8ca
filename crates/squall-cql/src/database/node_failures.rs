//! Notes which node failed a request, so that messages can name it: the driver's errors do not. It
//! chooses no node itself; the policy that it wraps does.

use scylla::{
    cluster::{ClusterState, NodeRef},
    errors::RequestAttemptError,
    policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo},
    routing::Shard,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// The node that failed a request last. The users of a session run on one thread, so it belongs to the
/// request whose error a user has just received.
#[derive(Debug, Default)]
pub(super) struct FailedNode(Mutex<Option<String>>);

impl FailedNode {
    /// The address and the data centre. The next call returns nothing, because a request that is never
    /// sent has no node.
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A policy that notes failures. Successful requests cost nothing more.
#[derive(Debug)]
pub(super) struct NodeFailures {
    policy: Arc<dyn LoadBalancingPolicy>,
    failed: Arc<FailedNode>,
}

impl NodeFailures {
    pub(super) fn new(policy: Arc<dyn LoadBalancingPolicy>, failed: Arc<FailedNode>) -> NodeFailures {
        NodeFailures { policy, failed }
    }
}

impl LoadBalancingPolicy for NodeFailures {
    fn pick<'a>(&'a self, request: &'a RoutingInfo, cluster: &'a ClusterState) -> Option<(NodeRef<'a>, Option<Shard>)> {
        self.policy.pick(request, cluster)
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        self.policy.fallback(request, cluster)
    }

    fn on_request_success(&self, request: &RoutingInfo, latency: Duration, node: NodeRef<'_>) {
        self.policy.on_request_success(request, latency, node);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        let datacenter = node.datacenter.as_deref().unwrap_or("unknown");
        let name = format!("{}, data centre {datacenter}", node.address.ip());
        *self.failed.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        self.policy.on_request_failure(request, latency, node, error);
    }

    fn name(&self) -> String {
        self.policy.name()
    }
}
