//! Log messages of a membership on a read-only store: one when it becomes unusable, one when it is
//! usable again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use squall_coord::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseSnapshot, LeaseStore, MemberId, Membership, MembershipConfig,
    MemoryLeaseStore, Revision, StoreError, UnitAssignment, UnitId,
};
use squall_testkit::tracing_capture;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::support::{member, units};

/// Behaves like a server that is out of memory, or like a replica.
#[derive(Clone, Default)]
struct ReadOnlyStore {
    store: MemoryLeaseStore,
    read_only: Arc<AtomicBool>,
}

impl ReadOnlyStore {
    fn writable(&self) -> Result<&MemoryLeaseStore, StoreError> {
        match self.read_only.load(Relaxed) {
            true => Err(StoreError::Rejected("OOM".into())),
            false => Ok(&self.store),
        }
    }
}

impl LeaseStore for ReadOnlyStore {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        self.writable()?.join(member, ttl).await
    }
    async fn heartbeat(&self, member: &MemberId, ttl: Duration) -> Result<HeartbeatOutcome, StoreError> {
        self.writable()?.heartbeat(member, ttl).await
    }
    async fn mark_leaving(&self, member: &MemberId) -> Result<(), StoreError> {
        self.writable()?.mark_leaving(member).await
    }
    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        self.writable()?.leave(member).await
    }
    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        self.writable()?.sweep().await
    }
    async fn snapshot(&self) -> Result<LeaseSnapshot, StoreError> {
        self.store.snapshot().await
    }
    async fn assign(&self, expected: Revision, assignment: &UnitAssignment) -> Result<bool, StoreError> {
        self.writable()?.assign(expected, assignment).await
    }
    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<LeaseAcquireOutcome, StoreError> {
        self.writable()?.acquire(member, units).await
    }
    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        self.writable()?.release(member, leases).await
    }
    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        self.store.wait_for_change(seen, within).await
    }
}

/// Messages at info level and above since the last call.
fn logged_messages() -> Vec<String> {
    tracing_capture::take_thread_events(Level::INFO).iter().map(|event| event.message().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn read_only_store_is_logged_once_per_outage() {
    tracing_capture::start_capture();
    let store = ReadOnlyStore::default();
    let (membership, handle) = Membership::new(store.clone(), MembershipConfig::new(member("a"), units(4))).unwrap();
    let membership = tokio::spawn(membership.run(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(logged_messages(), ["joined"]);

    // Shorter than the TTL.
    store.read_only.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(logged_messages(), ["the store is not usable; retrying"]);
    store.read_only.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(logged_messages(), ["the store is usable again"]);

    // Longer than the TTL. The second expiry names the remedy.
    for outage in 1..=2 {
        store.read_only.store(true, Relaxed);
        tokio::time::sleep(Duration::from_secs(8)).await;
        let messages = logged_messages();
        let [unusable, expired] = &*messages else { panic!("time {outage}: {messages:?}") };
        assert_eq!(unusable, "the store is not usable; retrying");
        assert!(expired.starts_with("membership expired"), "{expired}");
        assert_eq!(expired.contains("--expires-after"), outage == 2, "{expired}");
        store.read_only.store(false, Relaxed);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(logged_messages(), ["joined", "the store is usable again"], "time {outage}");
    }
    drop(handle);
    membership.abort();
}
