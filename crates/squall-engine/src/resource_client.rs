//! How users come by things of which every one may be in use only once: a line to whoever keeps the pools, in this process or for a
//! whole fleet. Keeps nothing itself; what a user has borrowed goes back when its [`ResourceLease`] is dropped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// What is asked of the keeper of the pools.
#[derive(Debug)]
pub enum ResourceRequest {
    /// Something out of a pool, after everybody who came earlier; given up when nobody waits for the answer any more.
    Acquire { pool: String, wait: Duration, reply: AcquireReply },
    /// A number below `limit` that nobody else is given, for a thing that is about to be made.
    AllocateNumber { pool: String, limit: Option<u64>, reply: oneshot::Sender<Result<Option<u64>, ResourceError>> },
    /// A thing that was made.
    Add { pool: String, id: String, payload: String, reply: oneshot::Sender<Result<(), ResourceError>> },
    /// What was lent under this number is not needed any more.
    Release(u64),
}

/// Something lent.
#[derive(Debug)]
pub struct GrantedResource {
    /// Under which number; the keeper's own.
    pub lease_id: u64,
    /// Its name in the pool.
    pub id: String,
    pub payload: String,
}

/// Where something that was asked for goes. What is sent is the user's [`ResourceLease`] already: whether the user is gone before the answer, or
/// before it has looked at it, its number is returned.
#[derive(Debug)]
pub struct AcquireReply {
    sender: oneshot::Sender<Result<ResourceLease, ResourceError>>,
    lease_generation: u64,
    client: ResourceClient,
}

impl AcquireReply {
    /// Waits until nobody waits for the answer any more.
    pub async fn closed(&mut self) {
        self.sender.closed().await;
    }

    /// Answers, whether or not anybody waits.
    pub fn send(self, outcome: Result<GrantedResource, ResourceError>) {
        let AcquireReply { sender: user, lease_generation: lapse, client: lender } = self;
        // Not wanted: then it is dropped here, which returns it.
        let _ =
            user.send(outcome.map(|lent| ResourceLease { resource: lent, lease_generation: lapse, client: lender }));
    }
}

/// Why nothing was lent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// All are held, and none came back in time.
    #[error("{0}")]
    Exhausted(String),
    /// It cannot be had, however long one waits.
    #[error("{0}")]
    Refused(String),
}

impl ResourceError {
    /// A word for the report.
    pub fn code(&self) -> &'static str {
        match self {
            ResourceError::Exhausted(_) => "RESOURCE_EXHAUSTED",
            ResourceError::Refused(_) => "RESOURCE_REFUSED",
        }
    }
}

/// A line to the keeper of the pools. Cloning shares it.
#[derive(Debug, Clone)]
pub struct ResourceClient {
    // Unbounded: a user asks and waits, so there are never more than users; returns must not wait.
    requests: mpsc::UnboundedSender<ResourceRequest>,
    lease_generation: Arc<AtomicU64>,
}

impl ResourceClient {
    /// A line, and its other end.
    pub fn new() -> (ResourceClient, mpsc::UnboundedReceiver<ResourceRequest>) {
        let (asks, received) = mpsc::unbounded_channel();
        (ResourceClient { requests: asks, lease_generation: Arc::default() }, received)
    }

    /// Borrows something out of `pool`, within `wait`; zero does not wait. May be dropped.
    pub async fn acquire(&self, pool: &str, wait: Duration) -> Result<ResourceLease, ResourceError> {
        // Before the question: what was lent before a lapse is not held after it.
        let lapse = self.lease_generation();
        let answer = |user| AcquireReply { sender: user, lease_generation: lapse, client: self.clone() };
        self.request(|user| ResourceRequest::Acquire { pool: pool.to_owned(), wait, reply: answer(user) }).await
    }

    /// A number that nobody else is given, for a thing that is about to be made.
    pub async fn allocate_number(&self, pool: &str, limit: Option<u64>) -> Result<Option<u64>, ResourceError> {
        self.request(|answer| ResourceRequest::AllocateNumber { pool: pool.to_owned(), limit, reply: answer }).await
    }

    /// Puts a thing that was made into `pool`.
    pub async fn add(&self, pool: &str, id: String, payload: String) -> Result<(), ResourceError> {
        self.request(|answer| ResourceRequest::Add { pool: pool.to_owned(), id, payload, reply: answer }).await
    }

    /// How often this process may have lost everything it had borrowed.
    pub(crate) fn lease_generation(&self) -> u64 {
        self.lease_generation.load(Ordering::Acquire)
    }

    /// Says that this process may have lost everything it had borrowed: it was away for too long. Users begin anew when their
    /// iteration is over.
    pub fn invalidate_leases(&self) {
        self.lease_generation.fetch_add(1, Ordering::AcqRel);
    }

    async fn request<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, ResourceError>>) -> ResourceRequest,
    ) -> Result<T, ResourceError> {
        let closed = || ResourceError::Refused("nobody keeps the pools any more: the run is over".to_owned());
        let (answer, told) = oneshot::channel();
        self.requests.send(make(answer)).map_err(|_| closed())?;
        told.await.map_err(|_| closed())?
    }
}

/// Something that a user holds; dropping it gives it back.
#[derive(Debug)]
pub struct ResourceLease {
    resource: GrantedResource,
    lease_generation: u64,
    client: ResourceClient,
}

impl ResourceLease {
    /// Its name in the pool.
    pub fn id(&self) -> &str {
        &self.resource.id
    }

    pub fn payload(&self) -> &str {
        &self.resource.payload
    }

    /// Whether it is certainly nobody else's.
    pub fn is_valid(&self) -> bool {
        self.lease_generation == self.client.lease_generation()
    }
}

impl Drop for ResourceLease {
    fn drop(&mut self) {
        // Nobody there: then nobody else has it for long either.
        let _ = self.client.requests.send(ResourceRequest::Release(self.resource.lease_id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    /// A user that is cancelled, before the answer or after it, has never seen what it was lent.
    #[test]
    fn what_nobody_looked_at_is_returned() {
        let (lender, mut asks) = ResourceClient::new();
        for (number, early) in [(7, false), (8, true)] {
            let mut taking = Box::pin(lender.acquire("users", Duration::ZERO));
            assert!(taking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            let Ok(ResourceRequest::Acquire { reply: answer, .. }) = asks.try_recv() else { panic!("nobody asks") };
            let taking = Some(taking).filter(|_| !early);
            answer.send(Ok(GrantedResource { lease_id: number, id: "0".into(), payload: "{}".into() }));
            drop(taking);
            assert!(matches!(asks.try_recv(), Ok(ResourceRequest::Release(returned)) if returned == number));
        }
        drop(lender);
        assert!(
            matches!(asks.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)),
            "the line has no other holder"
        );
    }
}
