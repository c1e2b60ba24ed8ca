//! What a seat says of a store that can be read and not written: once that it cannot be used, once that it can.

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

/// A server that is out of memory, or follows another one.
#[derive(Clone, Default)]
struct ReadOnly {
    store: MemoryLeaseStore,
    refuses: Arc<AtomicBool>,
}

impl ReadOnly {
    fn writing(&self) -> Result<&MemoryLeaseStore, StoreError> {
        match self.refuses.load(Relaxed) {
            true => Err(StoreError::Rejected("OOM".into())),
            false => Ok(&self.store),
        }
    }
}

impl LeaseStore for ReadOnly {
    async fn join(&self, member: &MemberId, ttl: Duration) -> Result<Revision, StoreError> {
        self.writing()?.join(member, ttl).await
    }
    async fn heartbeat(&self, member: &MemberId, ttl: Duration) -> Result<HeartbeatOutcome, StoreError> {
        self.writing()?.heartbeat(member, ttl).await
    }
    async fn mark_leaving(&self, member: &MemberId) -> Result<(), StoreError> {
        self.writing()?.mark_leaving(member).await
    }
    async fn leave(&self, member: &MemberId) -> Result<(), StoreError> {
        self.writing()?.leave(member).await
    }
    async fn sweep(&self) -> Result<Vec<MemberId>, StoreError> {
        self.writing()?.sweep().await
    }
    async fn snapshot(&self) -> Result<LeaseSnapshot, StoreError> {
        self.store.snapshot().await
    }
    async fn assign(&self, expected: Revision, assignment: &UnitAssignment) -> Result<bool, StoreError> {
        self.writing()?.assign(expected, assignment).await
    }
    async fn acquire(&self, member: &MemberId, units: &[UnitId]) -> Result<LeaseAcquireOutcome, StoreError> {
        self.writing()?.acquire(member, units).await
    }
    async fn release(&self, member: &MemberId, leases: &[Lease]) -> Result<usize, StoreError> {
        self.writing()?.release(member, leases).await
    }
    async fn wait_for_change(&self, seen: Revision, within: Duration) -> Result<(), StoreError> {
        self.store.wait_for_change(seen, within).await
    }
}

/// What was said to people since the last look.
fn said() -> Vec<String> {
    tracing_capture::take_thread_events(Level::INFO).iter().map(|event| event.message().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_reads_is_said_to_be_unusable_once() {
    tracing_capture::start_capture();
    let store = ReadOnly::default();
    let (seat, handle) = Membership::new(store.clone(), MembershipConfig::new(member("a"), units(4))).unwrap();
    let seat = tokio::spawn(seat.run(CancellationToken::new()));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(said(), ["joined"]);

    // Shorter than its membership lasts.
    store.refuses.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(said(), ["the store cannot be used; it is tried again"]);
    store.refuses.store(false, Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(said(), ["the store can be used again"]);

    // Longer, and a second time: then it is told what may help.
    for time in 1..=2 {
        store.refuses.store(true, Relaxed);
        tokio::time::sleep(Duration::from_secs(8)).await;
        let words = said();
        let [unusable, expired] = &*words else { panic!("time {time}: {words:?}") };
        assert_eq!(unusable, "the store cannot be used; it is tried again");
        assert!(expired.starts_with("membership expired"), "{expired}");
        assert_eq!(expired.contains("--expires-after"), time == 2, "{expired}");
        store.refuses.store(false, Relaxed);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(said(), ["joined", "the store can be used again"], "time {time}");
    }
    drop(handle);
    seat.abort();
}
