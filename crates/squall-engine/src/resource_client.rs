//! How users lease resources of pools, each of which only one user may hold at a time. It keeps no
//! resources: it sends requests to the pools' keeper, in this process or for a whole fleet. A
//! user's resource returns to its pool when its [`ResourceLease`] is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// A request to the keeper of the pools.
#[derive(Debug)]
pub enum ResourceRequest {
    /// Lease a resource of a pool, after all earlier requests. The keeper drops the request when
    /// its reply is closed.
    Acquire { pool: String, wait: Duration, reply: AcquireReply },
    /// Allocate a number below `limit` for a resource that the user is about to create. Each number
    /// is allocated once.
    AllocateNumber { pool: String, limit: Option<u64>, reply: oneshot::Sender<Result<Option<u64>, ResourceError>> },
    /// Add a resource that the user has created.
    Add { pool: String, id: String, payload: String, reply: oneshot::Sender<Result<(), ResourceError>> },
    /// Return the resource with this lease id.
    Release(u64),
}

/// A resource that the keeper has leased.
#[derive(Debug)]
pub struct GrantedResource {
    /// The keeper's own number of the lease.
    pub lease_id: u64,
    /// The resource's name in its pool.
    pub id: String,
    pub payload: String,
}

/// Sends a leased resource to its user. The message is already a [`ResourceLease`]: if the user
/// ends before it receives or reads the message, dropping the lease returns the resource.
#[derive(Debug)]
pub struct AcquireReply {
    sender: oneshot::Sender<Result<ResourceLease, ResourceError>>,
    lease_generation: u64,
    client: ResourceClient,
}

impl AcquireReply {
    /// Waits until the user no longer waits for the reply.
    pub async fn closed(&mut self) {
        self.sender.closed().await;
    }

    /// Replies, whether or not the user still waits.
    pub fn send(self, outcome: Result<GrantedResource, ResourceError>) {
        let AcquireReply { sender, lease_generation, client } = self;
        // If the user has ended, the lease is dropped here, which returns it.
        let _ = sender.send(outcome.map(|resource| ResourceLease { resource, lease_generation, client }));
    }
}

/// Why no resource was leased.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// All resources are leased, and none was returned in time.
    #[error("{0}")]
    Exhausted(String),
    /// The resource cannot be leased, however long the user waits.
    #[error("{0}")]
    Refused(String),
}

impl ResourceError {
    /// The code of the outcome in reports.
    pub fn code(&self) -> &'static str {
        match self {
            ResourceError::Exhausted(_) => "RESOURCE_EXHAUSTED",
            ResourceError::Refused(_) => "RESOURCE_REFUSED",
        }
    }
}

/// Sends requests to the keeper of the pools. Clones share the channel.
#[derive(Debug, Clone)]
pub struct ResourceClient {
    // Unbounded: a user waits for its reply, so there is at most one request per user, and returns
    // must not wait.
    requests: mpsc::UnboundedSender<ResourceRequest>,
    lease_generation: Arc<AtomicU64>,
}

impl ResourceClient {
    /// A client, and the receiver of its requests.
    pub fn new() -> (ResourceClient, mpsc::UnboundedReceiver<ResourceRequest>) {
        let (requests, received) = mpsc::unbounded_channel();
        (ResourceClient { requests, lease_generation: Arc::default() }, received)
    }

    /// Leases a resource of `pool` within `wait`; zero does not wait. The future may be dropped.
    pub async fn acquire(&self, pool: &str, wait: Duration) -> Result<ResourceLease, ResourceError> {
        // Read before the request: a lease granted in an earlier generation is not valid in a later
        // one.
        let lease_generation = self.lease_generation();
        let reply = |sender| AcquireReply { sender, lease_generation, client: self.clone() };
        self.request(|sender| ResourceRequest::Acquire { pool: pool.to_owned(), wait, reply: reply(sender) }).await
    }

    /// Allocates a number that no other user gets, for a resource that the user is about to create.
    pub async fn allocate_number(&self, pool: &str, limit: Option<u64>) -> Result<Option<u64>, ResourceError> {
        self.request(|reply| ResourceRequest::AllocateNumber { pool: pool.to_owned(), limit, reply }).await
    }

    /// Adds a resource that the user has created to `pool`.
    pub async fn add(&self, pool: &str, id: String, payload: String) -> Result<(), ResourceError> {
        self.request(|reply| ResourceRequest::Add { pool: pool.to_owned(), id, payload, reply }).await
    }

    /// How often this process may have lost all its leases.
    pub(crate) fn lease_generation(&self) -> u64 {
        self.lease_generation.load(Ordering::Acquire)
    }

    /// Invalidates all leases of this process, because it may have lost its membership. Users are
    /// created anew after their iteration.
    pub fn invalidate_leases(&self) {
        self.lease_generation.fetch_add(1, Ordering::AcqRel);
    }

    async fn request<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, ResourceError>>) -> ResourceRequest,
    ) -> Result<T, ResourceError> {
        let closed = || ResourceError::Refused("the pools are closed: the run is over".to_owned());
        let (reply, received) = oneshot::channel();
        self.requests.send(make(reply)).map_err(|_| closed())?;
        received.await.map_err(|_| closed())?
    }
}

/// A resource that a user holds. Dropping it returns the resource to its pool.
#[derive(Debug)]
pub struct ResourceLease {
    resource: GrantedResource,
    lease_generation: u64,
    client: ResourceClient,
}

impl ResourceLease {
    /// The resource's name in its pool.
    pub fn id(&self) -> &str {
        &self.resource.id
    }

    pub fn payload(&self) -> &str {
        &self.resource.payload
    }

    /// Whether no other user can hold the resource.
    pub fn is_valid(&self) -> bool {
        self.lease_generation == self.client.lease_generation()
    }
}

impl Drop for ResourceLease {
    fn drop(&mut self) {
        // Fails only if the keeper has ended, and then the pools end too.
        let _ = self.client.requests.send(ResourceRequest::Release(self.resource.lease_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    /// A user that is cancelled before or after the reply never reads the lease.
    #[test]
    fn lease_is_returned_when_its_user_is_cancelled() {
        let (client, mut requests) = ResourceClient::new();
        for (number, early) in [(7, false), (8, true)] {
            let mut acquiring = Box::pin(client.acquire("users", Duration::ZERO));
            assert!(acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let Ok(ResourceRequest::Acquire { reply, .. }) = requests.try_recv() else {
                panic!("a request is expected")
            };
            let acquiring = Some(acquiring).filter(|_| !early);
            reply.send(Ok(GrantedResource { lease_id: number, id: "0".into(), payload: "{}".into() }));
            drop(acquiring);
            assert!(matches!(requests.try_recv(), Ok(ResourceRequest::Release(returned)) if returned == number));
        }
        drop(client);
        assert!(
            matches!(requests.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)),
            "no clone of the client is left"
        );
    }
}
