//! Notes to which node the driver sends a request, so that messages can name it: the driver's errors do
//! not. It chooses no node itself; the policy that it wraps does.

use super::AttemptTimes;
use scylla::{
    cluster::{ClusterState, Node, NodeRef},
    errors::RequestAttemptError,
    policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo},
    routing::Shard,
};
use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The node that the driver tried last. A session belongs to one engine thread, so it is the node of the
/// request that was polled last.
#[derive(Debug, Default)]
pub(super) struct TriedNode(AtomicU64);

/// A node in one word: half of its random identifier. 0 is no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NodeKey(u64);

impl NodeKey {
    pub(super) fn of(node: &Node) -> NodeKey {
        NodeKey(node.host_id.as_u64_pair().1)
    }
}

impl TriedNode {
    fn note(&self, node: &Node) {
        self.0.store(NodeKey::of(node).0, Ordering::Relaxed);
    }

    fn take(&self) -> Option<NodeKey> {
        let tried = NodeKey(self.0.load(Ordering::Relaxed));
        self.0.store(0, Ordering::Relaxed);
        (tried != NodeKey::default()).then_some(tried)
    }

    /// Waits for a request, and returns its output with the last node that the driver tried for it.
    pub(super) async fn follow<T>(&self, request: impl Future<Output = T>) -> (T, Option<NodeKey>) {
        let (mut request, mut node) = (pin!(request), None);
        let output = poll_fn(|context| {
            let polled = request.as_mut().poll(context);
            // Other requests are polled between two polls of this one, and note their own nodes.
            node = self.take().or(node);
            polled
        });
        (output.await, node)
    }
}

/// A policy that notes every node that the driver takes from it, and the times of its answers if asked to.
#[derive(Debug)]
pub(super) struct NotedNodes {
    policy: Arc<dyn LoadBalancingPolicy>,
    tried: Arc<TriedNode>,
    attempts: Option<Arc<AttemptTimes>>,
}

impl NotedNodes {
    pub(super) fn new(
        policy: Arc<dyn LoadBalancingPolicy>,
        tried: Arc<TriedNode>,
        attempts: Option<Arc<AttemptTimes>>,
    ) -> NotedNodes {
        NotedNodes { policy, tried, attempts }
    }
}

impl LoadBalancingPolicy for NotedNodes {
    fn pick<'a>(&'a self, request: &'a RoutingInfo, cluster: &'a ClusterState) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let picked = self.policy.pick(request, cluster);
        if let Some((node, _)) = picked {
            self.tried.note(node);
        }
        picked
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        let others = self.policy.fallback(request, cluster);
        Box::new(others.inspect(|(node, _)| self.tried.note(node)))
    }

    fn on_request_success(&self, request: &RoutingInfo, latency: Duration, node: NodeRef<'_>) {
        if let Some(attempts) = &self.attempts {
            attempts.add(latency);
        }
        self.policy.on_request_success(request, latency, node);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        self.policy.on_request_failure(request, latency, node, error);
    }

    fn name(&self) -> String {
        self.policy.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_request_keeps_its_node_while_others_are_sent() {
        let tried = TriedNode::default();
        let (answer, answered) = oneshot::channel();
        let slow = tried.follow(async {
            tried.0.store(1, Ordering::Relaxed);
            answered.await
        });
        let fast = async {
            let sent = tried.follow(async { tried.0.store(2, Ordering::Relaxed) }).await;
            answer.send(()).expect("the slow request waits");
            sent
        };
        let (slow, fast) = tokio::join!(slow, fast);
        assert_eq!((slow.1, fast.1), (Some(NodeKey(1)), Some(NodeKey(2))));
        // A request that no node was chosen for has none.
        assert_eq!(tried.follow(async {}).await.1, None);
    }
}
