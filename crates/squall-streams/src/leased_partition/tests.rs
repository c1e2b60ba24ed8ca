use std::sync::atomic::Ordering::Relaxed;

use redis::{AsyncCommands, Value};
use squall_testkit::redis::RedisServer;

use super::{fetch::FetchedEntries, *};
use crate::entry::EntryBody;

const LEASE: Duration = Duration::from_secs(600);

struct Place {
    _server: RedisServer,
    link: RedisClient,
}

impl Place {
    async fn new() -> Self {
        let server = RedisServer::start();
        Self { link: RedisClient::open(&server.url()).await.unwrap(), _server: server }
    }

    fn owner(&self, name: &str, epoch: u64) -> LeasedPartition {
        let processor = ProcessorName::parse("shop.orders.printer").unwrap();
        LeasedPartition::new(
            &self.link,
            &Namespace::default(),
            &processor,
            3,
            (MemberId::new(name), Epoch(epoch), LEASE),
        )
    }

    /// As on a cluster.
    fn scripted_owner(&self, name: &str, epoch: u64) -> LeasedPartition {
        LeasedPartition { read_progress: ReadProgress::new(true), ..self.owner(name, epoch) }
    }

    /// Both ways to read must keep every promise.
    fn both(&self, name: &str, epoch: u64) -> [LeasedPartition; 2] {
        [self.owner(name, epoch), self.scripted_owner(name, epoch + 10)]
    }

    /// Adds events and answers their ids.
    async fn add(&self, partition: &LeasedPartition, count: usize) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for n in 0..count {
            let id: String = self.link.connection().xadd(&partition.events_key, "*", &[("data", n)]).await.unwrap();
            ids.push(EntryId::parse(id.as_bytes()).unwrap());
        }
        ids
    }

    async fn pending(&self, partition: &LeasedPartition) -> usize {
        let reply: redis::streams::StreamPendingReply =
            self.link.connection().xpending(&partition.events_key, "printer").await.unwrap();
        reply.count()
    }
}

/// Refused by the lock's epoch, or because there is no gate.
fn refused(fetched: Result<FenceOutcome<FetchedEntries>, PartitionError>) -> bool {
    match fetched {
        Ok(FenceOutcome::FencedOff) => true,
        Ok(FenceOutcome::Done(fetched)) => panic!("it read {:?}", fetched.entries),
        Err(error) => error.is_group_missing(),
    }
}

fn ids(fetched: FenceOutcome<FetchedEntries>) -> Vec<EntryId> {
    match fetched {
        FenceOutcome::Done(fetched) => fetched.entries.into_iter().map(|entry| entry.id).collect(),
        FenceOutcome::FencedOff => panic!("refused"),
    }
}

#[tokio::test]
async fn a_fence_is_passed_upwards_only() {
    let place = Place::new().await;
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), FenceOutcome::Done(false));
    assert_eq!(place.owner("b", 4).fence().await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(place.owner("b", 5).fence().await.unwrap(), FenceOutcome::FencedOff, "an epoch has one owner");
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), FenceOutcome::Done(false), "asking twice is asking once");
    assert_eq!(place.owner("b", 6).fence().await.unwrap(), FenceOutcome::Done(false));
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), FenceOutcome::FencedOff);
}

#[tokio::test]
async fn a_stale_owner_is_refused_every_step_and_changes_nothing() {
    let place = Place::new().await;
    for (old, new) in place.both("a", 1).into_iter().zip(place.both("b", 2)) {
        stale_owner_is_refused(&place, old, new).await;
    }
}

async fn stale_owner_is_refused(place: &Place, old: LeasedPartition, new: LeasedPartition) {
    old.fence().await.unwrap();
    let sent = place.add(&old, 4).await;
    assert_eq!(ids(old.fetch(2, None).await.unwrap()), sent[..2]);
    new.fence().await.unwrap();

    assert!(refused(old.fetch(2, None).await));
    assert!(refused(old.fetch(2, Some(EntryId::default())).await), "asking again changes nothing");
    assert_eq!(old.ack(&sent[..2]).await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(old.renew().await.unwrap(), FenceOutcome::FencedOff);
    assert_eq!(old.quarantine("{}").await.unwrap(), FenceOutcome::FencedOff);
    old.unfence().await.unwrap();

    assert_eq!(place.pending(&new).await, 2, "neither read nor acknowledged by the stale owner");
    assert_eq!(new.renew().await.unwrap(), FenceOutcome::Done(false), "still the owner, and not quarantined");
    // The new owner meets what was left, then what is new.
    assert_eq!(ids(new.fetch(10, Some(EntryId::default())).await.unwrap()), sent[..2]);
    assert_eq!(ids(new.fetch(10, None).await.unwrap()), sent[2..]);
    assert_eq!(new.ack(&sent).await.unwrap(), FenceOutcome::Done(()));
    assert_eq!(place.pending(&new).await, 0);
}

#[tokio::test]
async fn an_owner_whose_lease_has_run_out_can_neither_read_nor_acknowledge() {
    let place = Place::new().await;
    for owner in place.both("a", 1) {
        owner.fence().await.unwrap();
        let sent = place.add(&owner, 2).await;
        assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
        let lapsed = LeasedPartition { ttl: Duration::ZERO, ..owner.clone() };
        lapsed.renew().await.unwrap();
        assert_eq!(owner.ack(&sent[..1]).await.unwrap(), FenceOutcome::FencedOff);
        assert!(refused(owner.fetch(1, None).await));
        // Nobody has passed it, so it may renew and go on.
        owner.renew().await.unwrap();
        assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[1..]);
        assert_eq!(owner.ack(&sent).await.unwrap(), FenceOutcome::Done(()));
    }
}

#[tokio::test]
async fn an_owner_that_took_its_fence_down_is_out() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 1).await;
    owner.fetch(1, None).await.unwrap();
    owner.unfence().await.unwrap();
    assert_eq!(owner.ack(&sent).await.unwrap(), FenceOutcome::FencedOff);
    assert!(refused(owner.fetch(1, None).await));
    assert_eq!(place.owner("b", 2).fence().await.unwrap(), FenceOutcome::Done(false));
}

#[tokio::test]
async fn a_drained_partition_tells_from_where_to_watch() {
    let place = Place::new().await;
    let drained = |fetched: FenceOutcome<FetchedEntries>| match fetched {
        FenceOutcome::Done(fetched) => fetched.caught_up_at,
        FenceOutcome::FencedOff => panic!("refused"),
    };
    let mut before = EntryId::default();
    for owner in place.both("a", 1) {
        owner.fence().await.unwrap();
        assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(before), "what earlier owners were given");
        let sent = place.add(&owner, 3).await;
        assert_eq!(drained(owner.fetch(2, None).await.unwrap()), None, "there may be more");
        assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
        assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
        assert_eq!(drained(owner.fetch(9, Some(before)).await.unwrap()), None, "what is pending says nothing about it");
        before = sent[2];
    }
}

#[tokio::test]
async fn a_quarantine_is_seen_by_whoever_comes_next() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    assert_eq!(owner.quarantine("{}").await.unwrap(), FenceOutcome::Done(()));
    assert_eq!(owner.renew().await.unwrap(), FenceOutcome::Done(true));
    assert_eq!(place.owner("b", 2).fence().await.unwrap(), FenceOutcome::Done(true));
}

#[tokio::test]
async fn a_vanished_group_is_told_apart() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let _: i64 = place.link.connection().del(&owner.events_key).await.unwrap();
    assert!(owner.fetch(1, None).await.unwrap_err().is_group_missing());
}

#[tokio::test]
async fn a_read_by_script_that_was_given_up_on_takes_nothing_when_it_arrives_late() {
    let place = Place::new().await;
    let owner = place.scripted_owner("a", 1);
    let reads = &owner.read_progress.scripted_reads;
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 3).await;
    reads.store(1, Relaxed); // the first read is stuck on its way
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
    reads.store(0, Relaxed); // and arrives now
    assert!(matches!(owner.fetch(1, None).await.unwrap(), FenceOutcome::FencedOff));
    reads.store(2, Relaxed);
    assert_eq!(ids(owner.fetch(5, None).await.unwrap()), sent[1..]);
    // The next owner counts from the beginning.
    let next = place.scripted_owner("b", 2);
    next.fence().await.unwrap();
    assert_eq!(ids(next.fetch(5, Some(EntryId::default())).await.unwrap()), sent);
}

/// A plain read of this owner as it would be sent now.
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
async fn a_read_that_was_given_up_on_takes_nothing_when_it_arrives_late() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 3).await;
    let late = plain_read(&owner); // is stuck on its way
    owner.read_progress.mark_response_lost();
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1], "through another gate");
    let arrived: Result<Value, RedisError> = late.query_async(&mut place.link.connection()).await;
    assert_eq!(arrived.unwrap_err().code(), Some("NOGROUP"));
    assert_eq!(ids(owner.fetch(5, None).await.unwrap()), sent[1..]);
    // One gate is open, and it has the owner's lease.
    let gates: Vec<String> = place.link.connection().keys("*__gate*").await.unwrap();
    assert_eq!(gates, [owner.gate_key()]);
    let left: u64 = place.link.connection().pttl(owner.gate_key()).await.unwrap();
    assert!(u128::from(left) <= LEASE.as_millis());
    owner.unfence().await.unwrap();
    assert!(place.link.connection().keys::<_, Vec<String>>("*__gate*").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_fence_that_arrives_late_does_not_open_an_old_gate() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let old = LeasedPartition { read_progress: ReadProgress::new(false), ..owner.clone() }; // its next gate is the first one again
    let first = plain_read(&owner);
    owner.read_progress.mark_response_lost();
    place.add(&owner, 1).await;
    owner.fetch(0, None).await.unwrap();
    assert_eq!(old.fence().await.unwrap(), FenceOutcome::FencedOff);
    old.renew().await.unwrap();
    assert!(first.query_async::<Value>(&mut place.link.connection()).await.is_err());
}

#[tokio::test]
async fn owners_that_fence_at_once_leave_one_gate_open() {
    let place = Place::new().await;
    let owners: Vec<LeasedPartition> = (1..9).map(|epoch| place.owner("a", epoch)).collect();
    futures_util::future::join_all(owners.iter().map(LeasedPartition::fence)).await;
    let last = owners.last().unwrap();
    assert_eq!(place.link.connection().keys::<_, Vec<String>>("*__gate*").await.unwrap(), [last.gate_key()]);
    let sent = place.add(last, 1).await;
    for owner in &owners[..7] {
        assert!(refused(owner.fetch(1, None).await));
    }
    assert_eq!(ids(last.fetch(1, None).await.unwrap()), sent);
}

#[tokio::test]
async fn other_fields_and_deleted_events_read_alike_both_ways() {
    let place = Place::new().await;
    for owner in place.both("a", 1) {
        owner.fence().await.unwrap();
        let mut redis = place.link.connection();
        let sent = place.add(&owner, 1).await;
        let _: String = redis.xadd(&owner.events_key, "*", &[("a", "1"), ("data", "2")]).await.unwrap();
        let FenceOutcome::Done(new) = owner.fetch(9, None).await.unwrap() else { panic!("refused") };
        assert_eq!(new.entries[0].body, EntryBody::Data(b"0".to_vec()));
        let fields = vec![(b"a".to_vec(), b"1".to_vec()), (b"data".to_vec(), b"2".to_vec())];
        assert_eq!(new.entries[1].body, EntryBody::Fields(fields));
        let _: i64 = redis.xdel(&owner.events_key, &[sent[0].to_string()]).await.unwrap();
        let FenceOutcome::Done(pending) = owner.fetch(9, Some(EntryId::default())).await.unwrap() else {
            panic!("refused")
        };
        assert_eq!(pending.entries[0].body, EntryBody::Deleted);
        assert_eq!(pending.entries[1], new.entries[1]);
        let ids: Vec<EntryId> = new.entries.iter().map(|entry| entry.id).collect();
        owner.ack(&ids).await.unwrap();
    }
}
