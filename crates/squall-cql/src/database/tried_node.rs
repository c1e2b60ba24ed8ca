//! Notes to which node the driver sends a request, so that messages can name it: the driver's errors do
//! not. Notes when, too, so that the encoding of values and the reading of rows are no part of a service time.
//! It chooses no node itself; the policy that it wraps does.

use super::AttemptTimes;
use scylla::{
    cluster::{ClusterState, Node, NodeRef},
    errors::RequestAttemptError,
    policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo},
    routing::Shard,
};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The node that the driver tried last. A session belongs to one engine thread, so it is the node of the
/// request that was polled last.
#[derive(Debug)]
pub(super) struct TriedNode {
    node: AtomicU64,
    /// The other times count from here.
    base: Instant,
    sent: NotedTime,
    answered: NotedTime,
}

/// Nanoseconds; 0 is none.
#[derive(Debug, Default)]
struct NotedTime(AtomicU64);

/// Where a request was sent, when, and when it was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TriedRequest {
    /// The last node that the driver tried.
    pub(crate) node: Option<NodeKey>,
    /// When the driver chose the first node.
    pub(crate) sent: Option<Instant>,
    /// When the last answer had arrived; `None` if there is none.
    pub(crate) answered: Option<Instant>,
}

/// A node in one word: half of its random identifier. 0 is no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct NodeKey(u64);

impl NodeKey {
    pub(super) fn of(node: &Node) -> NodeKey {
        NodeKey(node.host_id.as_u64_pair().1)
    }
}

impl NotedTime {
    fn note(&self, base: Instant) {
        self.0.store(base.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    fn take(&self, base: Instant) -> Option<Instant> {
        let time = self.0.load(Ordering::Relaxed);
        if time == 0 {
            return None;
        }
        self.0.store(0, Ordering::Relaxed);
        Some(base + Duration::from_nanos(time))
    }
}

impl Default for TriedNode {
    fn default() -> TriedNode {
        let (node, sent, answered) = Default::default();
        TriedNode { node, base: Instant::now(), sent, answered }
    }
}

impl TriedNode {
    fn note(&self, node: &Node) {
        self.node.store(NodeKey::of(node).0, Ordering::Relaxed);
        self.sent.note(self.base);
    }

    fn take(&self) -> Option<NodeKey> {
        let tried = NodeKey(self.node.load(Ordering::Relaxed));
        if tried == NodeKey::default() {
            return None;
        }
        self.node.store(0, Ordering::Relaxed);
        Some(tried)
    }

    /// Waits for a request, and returns its output. The caller pins the request: the driver's futures take 12 kB,
    /// which each move would copy.
    pub(super) async fn follow<T>(&self, mut request: Pin<&mut impl Future<Output = T>>) -> (T, TriedRequest) {
        let mut followed = TriedRequest::default();
        let output = poll_fn(|context| {
            let polled = request.as_mut().poll(context);
            // Other requests are polled between two polls of this one, and note their own nodes.
            let sent = self.sent.take(self.base);
            followed = TriedRequest {
                node: self.take().or(followed.node),
                sent: followed.sent.or(sent),
                answered: self.answered.take(self.base).or(followed.answered),
            };
            polled
        });
        (output.await, followed)
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
        self.tried.answered.note(self.tried.base);
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
    use std::pin::pin;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_request_keeps_its_node_while_others_are_sent() {
        let tried = TriedNode::default();
        let (answer, answered) = oneshot::channel();
        let slow = pin!(async {
            tried.node.store(1, Ordering::Relaxed);
            answered.await
        });
        let slow = tried.follow(slow);
        let fast = async {
            let sent = tried.follow(pin!(async { tried.node.store(2, Ordering::Relaxed) })).await;
            answer.send(()).expect("the slow request waits");
            sent
        };
        let (slow, fast) = tokio::join!(slow, fast);
        assert_eq!((slow.1.node, fast.1.node), (Some(NodeKey(1)), Some(NodeKey(2))));
        // A request that no node was chosen for has none.
        assert_eq!(tried.follow(pin!(async {})).await.1.node, None);
    }

    #[tokio::test]
    async fn a_request_lasts_from_its_first_node_to_its_last_answer() {
        let tried = TriedNode::default();
        let at = |nanoseconds| Some(tried.base + Duration::from_nanos(nanoseconds));
        let request = pin!(async {
            for (sent, answered) in [(5, 8), (12, 20)] {
                tried.sent.0.store(sent, Ordering::Relaxed);
                tokio::task::yield_now().await;
                tried.answered.0.store(answered, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let (_, followed) = tried.follow(request).await;
        assert_eq!(followed, TriedRequest { node: None, sent: at(5), answered: at(20) });
        assert_eq!(tried.follow(pin!(async {})).await.1, TriedRequest::default());
    }
}
