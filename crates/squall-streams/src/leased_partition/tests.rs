//! Tests of the fenced steps against a real server, for plain and scripted reads.

use std::sync::atomic::Ordering::Relaxed;

use redis::{AsyncCommands, Value};
use squall_testkit::redis::RedisServer;

use super::{fetch::FetchedEntries, *};
use crate::entry::EntryBody;

const LEASE: Duration = Duration::from_secs(600);

struct TestRedis {
    _server: RedisServer,
    client: RedisClient,
}

impl TestRedis {
    async fn new() -> Self {
        let server = RedisServer::start();
        Self { client: RedisClient::open(&server.url()).await.unwrap(), _server: server }
    }

    fn owner(&self, name: &str, epoch: u64) -> LeasedPartition {
        let processor = ProcessorName::parse("shop.orders.printer").unwrap();
        LeasedPartition::new(
            &self.client,
            &Namespace::default(),
            &processor,
            3,
            (MemberId::new(name), LeaseEpoch(epoch), LEASE),
        )
    }

    /// An owner that reads by script, as on a cluster.
    fn scripted_owner(&self, name: &str, epoch: u64) -> LeasedPartition {
        LeasedPartition { read_progress: ReadProgress::new(true), ..self.owner(name, epoch) }
    }

    /// A plain and a scripted owner: both must keep every guarantee.
    fn plain_and_scripted(&self, name: &str, epoch: u64) -> [LeasedPartition; 2] {
        [self.owner(name, epoch), self.scripted_owner(name, epoch + 10)]
    }

    /// Adds events and returns their ids.
    async fn add(&self, partition: &LeasedPartition, count: usize) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for n in 0..count {
            let id: String = self.client.connection().xadd(&partition.events_key, "*", &[("data", n)]).await.unwrap();
            ids.push(EntryId::parse(id.as_bytes()).unwrap());
        }
        ids
    }

    async fn pending(&self, partition: &LeasedPartition) -> usize {
        let reply: redis::streams::StreamPendingReply =
            self.client.connection().xpending(&partition.events_key, "printer").await.unwrap();
        reply.count()
    }
}

/// Whether the server rejected the read, by the epoch of the lock or by the missing gate.
fn is_rejected(fetched: Result<FenceOutcome<FetchedEntries>, PartitionError>) -> bool {
    match fetched {
        Ok(FenceOutcome::FencedOff) => true,
        Ok(FenceOutcome::Done(fetched)) => panic!("it read {:?}", fetched.entries),
        Err(error) => error.is_group_missing(),
    }
}

fn ids(fetched: FenceOutcome<FetchedEntries>) -> Vec<EntryId> {
    match fetched {
        FenceOutcome::Done(fetched) => fetched.entries.into_iter().map(|entry| entry.id).collect(),
        FenceOutcome::FencedOff => panic!("the fence rejected the read"),
    }
}

#[tokio::test]
async fn fence_with_lower_epoch_or_other_owner_is_rejected() {
    let redis = TestRedis::new().await;
    assert_eq!(redis.owner("a", 5).fence().await.unwrap(), FenceOutcome::Done(false));
    assert_eq!(redis.owner("b", 4).fence().await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(redis.owner("b", 5).fence().await.unwrap(), FenceOutcome::FencedOff, "an epoch has one owner");
    assert_eq!(redis.owner("a", 5).fence().await.unwrap(), FenceOutcome::Done(false), "fencing twice is idempotent");
    assert_eq!(redis.owner("b", 6).fence().await.unwrap(), FenceOutcome::Done(false));
    assert_eq!(redis.owner("a", 5).fence().await.unwrap(), FenceOutcome::FencedOff);
}

#[tokio::test]
async fn stale_owner_is_rejected_at_every_step() {
    let redis = TestRedis::new().await;
    for (old, new) in redis.plain_and_scripted("a", 1).into_iter().zip(redis.plain_and_scripted("b", 2)) {
        check_stale_owner_is_rejected(&redis, old, new).await;
    }
}

async fn check_stale_owner_is_rejected(redis: &TestRedis, old: LeasedPartition, new: LeasedPartition) {
    old.fence().await.unwrap();
    let sent = redis.add(&old, 4).await;
    assert_eq!(ids(old.fetch(2, None).await.unwrap()), sent[..2]);
    new.fence().await.unwrap();

    assert!(is_rejected(old.fetch(2, None).await));
    assert!(
        is_rejected(old.fetch(2, Some(EntryId::default())).await),
        "the server also rejects a read of pending events"
    );
    assert_eq!(old.ack(&sent[..2]).await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(old.renew().await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(old.quarantine("{}").await.unwrap(), FenceOutcome::FencedOff);
    old.unfence().await.unwrap();

    assert_eq!(redis.pending(&new).await, 2, "neither read nor acknowledged by the stale owner");
    assert_eq!(new.renew().await.unwrap(), FenceOutcome::Done(false), "still the owner, and not quarantined");
    // The new owner reads the pending events first, then the new ones.
    assert_eq!(ids(new.fetch(10, Some(EntryId::default())).await.unwrap()), sent[..2]);
    assert_eq!(ids(new.fetch(10, None).await.unwrap()), sent[2..]);
    assert_eq!(new.ack(&sent).await.unwrap(), FenceOutcome::Done(()));
    assert_eq!(redis.pending(&new).await, 0);
}

#[tokio::test]
async fn owner_with_expired_lease_cannot_read_or_ack() {
    let redis = TestRedis::new().await;
    for owner in redis.plain_and_scripted("a", 1) {
        owner.fence().await.unwrap();
        let sent = redis.add(&owner, 2).await;
        assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
        let lapsed = LeasedPartition { ttl: Duration::ZERO, ..owner.clone() };
        lapsed.renew().await.unwrap();
        assert_eq!(owner.ack(&sent[..1]).await.unwrap(), FenceOutcome::FencedOff);
        assert!(is_rejected(owner.fetch(1, None).await));
        // No other owner has fenced the partition, so the owner may renew and continue.
        owner.renew().await.unwrap();
        assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[1..]);
        assert_eq!(owner.ack(&sent).await.unwrap(), FenceOutcome::Done(()));
    }
}

#[tokio::test]
async fn owner_after_unfence_cannot_read_or_ack() {
    let redis = TestRedis::new().await;
    let owner = redis.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = redis.add(&owner, 1).await;
    owner.fetch(1, None).await.unwrap();
    owner.unfence().await.unwrap();
    assert_eq!(owner.ack(&sent).await.unwrap(), FenceOutcome::FencedOff);
    assert!(is_rejected(owner.fetch(1, None).await));
    assert_eq!(redis.owner("b", 2).fence().await.unwrap(), FenceOutcome::Done(false));
}

#[tokio::test]
async fn fetch_from_caught_up_partition_returns_the_last_id() {
    let redis = TestRedis::new().await;
    let caught_up_at = |fetched: FenceOutcome<FetchedEntries>| match fetched {
        FenceOutcome::Done(fetched) => fetched.caught_up_at,
        FenceOutcome::FencedOff => panic!("the fence rejected the read"),
    };
    let mut last_id = EntryId::default();
    for owner in redis.plain_and_scripted("a", 1) {
        owner.fence().await.unwrap();
        assert_eq!(
            caught_up_at(owner.fetch(2, None).await.unwrap()),
            Some(last_id),
            "the last id delivered to earlier owners"
        );
        let sent = redis.add(&owner, 3).await;
        assert_eq!(caught_up_at(owner.fetch(2, None).await.unwrap()), None, "there may be more");
        assert_eq!(caught_up_at(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
        assert_eq!(caught_up_at(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
        assert_eq!(
            caught_up_at(owner.fetch(9, Some(last_id)).await.unwrap()),
            None,
            "a read of pending events does not know the last id"
        );
        last_id = sent[2];
    }
}

#[tokio::test]
async fn quarantine_is_reported_to_the_next_owner() {
    let redis = TestRedis::new().await;
    let owner = redis.owner("a", 1);
    owner.fence().await.unwrap();
    assert_eq!(owner.quarantine("{}").await.unwrap(), FenceOutcome::Done(()));
    assert_eq!(owner.renew().await.unwrap(), FenceOutcome::Done(true));
    assert_eq!(redis.owner("b", 2).fence().await.unwrap(), FenceOutcome::Done(true));
}

#[tokio::test]
async fn fetch_after_group_loss_reports_group_missing() {
    let redis = TestRedis::new().await;
    let owner = redis.owner("a", 1);
    owner.fence().await.unwrap();
    let _: i64 = redis.client.connection().del(&owner.events_key).await.unwrap();
    assert!(owner.fetch(1, None).await.unwrap_err().is_group_missing());
}

#[tokio::test]
async fn late_scripted_read_takes_no_event() {
    let redis = TestRedis::new().await;
    let owner = redis.scripted_owner("a", 1);
    let reads = &owner.read_progress.scripted_reads;
    owner.fence().await.unwrap();
    let sent = redis.add(&owner, 3).await;
    reads.store(1, Relaxed); // the first read is delayed
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
    reads.store(0, Relaxed); // the delayed read arrives now
    assert!(matches!(owner.fetch(1, None).await.unwrap(), FenceOutcome::FencedOff));
    reads.store(2, Relaxed);
    assert_eq!(ids(owner.fetch(5, None).await.unwrap()), sent[1..]);
    // The next owner starts its count at 0.
    let next = redis.scripted_owner("b", 2);
    next.fence().await.unwrap();
    assert_eq!(ids(next.fetch(5, Some(EntryId::default())).await.unwrap()), sent);
}

/// The plain read that this owner would send now.
fn plain_read(owner: &LeasedPartition) -> redis::Cmd {
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP")
        .arg("printer")
        .arg("1")
        .arg("STREAMS")
        .arg(owner.gate_key())
        .arg(&owner.events_key)
        .arg(">")
        .arg(">");
    read
}

#[tokio::test]
async fn late_plain_read_takes_no_event() {
    let redis = TestRedis::new().await;
    let owner = redis.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = redis.add(&owner, 3).await;
    let late = plain_read(&owner); // arrives later
    owner.read_progress.mark_response_lost();
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1], "through another gate");
    let arrived: Result<Value, RedisError> = late.query_async(&mut redis.client.connection()).await;
    assert_eq!(arrived.unwrap_err().code(), Some("NOGROUP"));
    assert_eq!(ids(owner.fetch(5, None).await.unwrap()), sent[1..]);
    // One gate is open, and it expires with the lease.
    let gates: Vec<String> = redis.client.connection().keys("*__gate*").await.unwrap();
    assert_eq!(gates, [owner.gate_key()]);
    let left: u64 = redis.client.connection().pttl(owner.gate_key()).await.unwrap();
    assert!(u128::from(left) <= LEASE.as_millis());
    owner.unfence().await.unwrap();
    assert!(redis.client.connection().keys::<_, Vec<String>>("*__gate*").await.unwrap().is_empty());
}

#[tokio::test]
async fn late_fence_does_not_reopen_an_old_gate() {
    let redis = TestRedis::new().await;
    let owner = redis.owner("a", 1);
    owner.fence().await.unwrap();
    // The next gate of this copy is the first one again.
    let old = LeasedPartition { read_progress: ReadProgress::new(false), ..owner.clone() };
    let first = plain_read(&owner);
    owner.read_progress.mark_response_lost();
    redis.add(&owner, 1).await;
    owner.fetch(0, None).await.unwrap();
    assert_eq!(old.fence().await.unwrap(), FenceOutcome::FencedOff);
    old.renew().await.unwrap();
    assert!(first.query_async::<Value>(&mut redis.client.connection()).await.is_err());
}

#[tokio::test]
async fn concurrent_fences_leave_one_gate_open() {
    let redis = TestRedis::new().await;
    let owners: Vec<LeasedPartition> = (1..9).map(|epoch| redis.owner("a", epoch)).collect();
    futures_util::future::join_all(owners.iter().map(LeasedPartition::fence)).await;
    let last = owners.last().unwrap();
    assert_eq!(redis.client.connection().keys::<_, Vec<String>>("*__gate*").await.unwrap(), [last.gate_key()]);
    let sent = redis.add(last, 1).await;
    for owner in &owners[..7] {
        assert!(is_rejected(owner.fetch(1, None).await));
    }
    assert_eq!(ids(last.fetch(1, None).await.unwrap()), sent);
}

#[tokio::test]
async fn plain_and_scripted_reads_return_equal_entries() {
    let redis = TestRedis::new().await;
    for owner in redis.plain_and_scripted("a", 1) {
        owner.fence().await.unwrap();
        let mut connection = redis.client.connection();
        let sent = redis.add(&owner, 1).await;
        let _: String = connection.xadd(&owner.events_key, "*", &[("a", "1"), ("data", "2")]).await.unwrap();
        let FenceOutcome::Done(new) = owner.fetch(9, None).await.unwrap() else {
            panic!("the fence rejected the read")
        };
        assert_eq!(new.entries[0].body, EntryBody::Data(b"0".to_vec()));
        let fields = vec![(b"a".to_vec(), b"1".to_vec()), (b"data".to_vec(), b"2".to_vec())];
        assert_eq!(new.entries[1].body, EntryBody::Fields(fields));
        let _: i64 = connection.xdel(&owner.events_key, &[sent[0].to_string()]).await.unwrap();
        let FenceOutcome::Done(pending) = owner.fetch(9, Some(EntryId::default())).await.unwrap() else {
            panic!("the fence rejected the read")
        };
        assert_eq!(pending.entries[0].body, EntryBody::Deleted);
        assert_eq!(pending.entries[1], new.entries[1]);
        let ids: Vec<EntryId> = new.entries.iter().map(|entry| entry.id).collect();
        owner.ack(&ids).await.unwrap();
    }
}
