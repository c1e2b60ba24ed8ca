use redis::AsyncCommands;
use squall_testkit::redis::RedisServer;

use super::*;

const LEASE: Duration = Duration::from_secs(600);

struct Place {
    _server: RedisServer,
    link: Link,
}

impl Place {
    async fn new() -> Self {
        let server = RedisServer::start();
        Self { link: Link::open(&server.url()).await.unwrap(), _server: server }
    }

    fn owner(&self, name: &str, epoch: u64) -> Partition {
        self.owner_for(name, epoch, LEASE)
    }

    fn owner_for(&self, name: &str, epoch: u64, ttl: Duration) -> Partition {
        let processor = ProcessorName::parse("shop.orders.printer").unwrap();
        Partition::new(&self.link, &Namespace::default(), &processor, 3, (MemberId::new(name), Epoch(epoch), ttl))
    }

    /// Adds events and answers their ids.
    async fn add(&self, partition: &Partition, count: usize) -> Vec<EntryId> {
        let mut ids = Vec::new();
        for n in 0..count {
            let id: String = self.link.commands().xadd(&partition.events, "*", &[("data", n)]).await.unwrap();
            ids.push(EntryId::parse(id.as_bytes()).unwrap());
        }
        ids
    }

    async fn pending(&self, partition: &Partition) -> usize {
        let reply: redis::streams::StreamPendingReply =
            self.link.commands().xpending(&partition.events, "printer").await.unwrap();
        reply.count()
    }
}

fn ids(fetched: Fenced<Fetched>) -> Vec<EntryId> {
    match fetched {
        Fenced::Done(fetched) => fetched.entries.into_iter().map(|entry| entry.id).collect(),
        Fenced::Refused => panic!("refused"),
    }
}

#[tokio::test]
async fn a_fence_is_passed_upwards_only() {
    let place = Place::new().await;
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), Fenced::Done(false));
    assert_eq!(place.owner("b", 4).fence().await.unwrap(), Fenced::Refused);
    assert_eq!(place.owner("b", 5).fence().await.unwrap(), Fenced::Refused, "an epoch has one owner");
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), Fenced::Done(false), "asking twice is asking once");
    assert_eq!(place.owner("b", 6).fence().await.unwrap(), Fenced::Done(false));
    assert_eq!(place.owner("a", 5).fence().await.unwrap(), Fenced::Refused);
}

#[tokio::test]
async fn a_stale_owner_is_refused_every_step_and_changes_nothing() {
    let place = Place::new().await;
    let (old, new) = (place.owner("a", 1), place.owner("b", 2));
    old.fence().await.unwrap();
    let sent = place.add(&old, 4).await;
    assert_eq!(ids(old.fetch(2, None).await.unwrap()), sent[..2]);
    new.fence().await.unwrap();

    assert!(matches!(old.fetch(2, None).await.unwrap(), Fenced::Refused));
    assert!(matches!(old.fetch(2, Some(EntryId::default())).await.unwrap(), Fenced::Refused));
    assert_eq!(old.ack(&sent[..2]).await.unwrap(), Fenced::Refused);
    assert_eq!(old.renew().await.unwrap(), Fenced::Refused);
    assert_eq!(old.quarantine("{}").await.unwrap(), Fenced::Refused);
    old.unfence().await.unwrap();

    assert_eq!(place.pending(&new).await, 2, "neither read nor acknowledged by the stale owner");
    assert_eq!(new.renew().await.unwrap(), Fenced::Done(false), "still the owner, and not quarantined");
    // The new owner meets what was left, then what is new.
    assert_eq!(ids(new.fetch(10, Some(EntryId::default())).await.unwrap()), sent[..2]);
    assert_eq!(ids(new.fetch(10, None).await.unwrap()), sent[2..]);
    assert_eq!(new.ack(&sent).await.unwrap(), Fenced::Done(()));
    assert_eq!(place.pending(&new).await, 0);
}

#[tokio::test]
async fn an_owner_whose_lease_has_run_out_can_neither_read_nor_acknowledge() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 2).await;
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
    let lapsed = place.owner_for("a", 1, Duration::ZERO);
    lapsed.renew().await.unwrap();
    assert_eq!(owner.ack(&sent[..1]).await.unwrap(), Fenced::Refused);
    assert!(matches!(owner.fetch(1, None).await.unwrap(), Fenced::Refused));
    // Nobody has passed it, so it may renew and go on.
    owner.renew().await.unwrap();
    assert_eq!(owner.ack(&sent[..1]).await.unwrap(), Fenced::Done(()));
}

#[tokio::test]
async fn an_owner_that_took_its_fence_down_is_out() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 1).await;
    owner.fetch(1, None).await.unwrap();
    owner.unfence().await.unwrap();
    assert_eq!(owner.ack(&sent).await.unwrap(), Fenced::Refused);
    assert_eq!(place.owner("b", 2).fence().await.unwrap(), Fenced::Done(false));
}

#[tokio::test]
async fn a_drained_partition_tells_from_where_to_watch() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let drained = |fetched: Fenced<Fetched>| match fetched {
        Fenced::Done(fetched) => fetched.drained,
        Fenced::Refused => panic!("refused"),
    };
    assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(EntryId::default()));
    let sent = place.add(&owner, 3).await;
    assert_eq!(drained(owner.fetch(2, None).await.unwrap()), None, "there may be more");
    assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
    assert_eq!(drained(owner.fetch(2, None).await.unwrap()), Some(sent[2]));
}

#[tokio::test]
async fn a_quarantine_is_seen_by_whoever_comes_next() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    assert_eq!(owner.quarantine("{}").await.unwrap(), Fenced::Done(()));
    assert_eq!(owner.renew().await.unwrap(), Fenced::Done(true));
    assert_eq!(place.owner("b", 2).fence().await.unwrap(), Fenced::Done(true));
}

#[tokio::test]
async fn a_vanished_group_is_told_apart() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let _: i64 = place.link.commands().del(&owner.events).await.unwrap();
    assert!(owner.fetch(1, None).await.unwrap_err().no_group());
}

#[tokio::test]
async fn a_read_that_was_given_up_on_takes_nothing_when_it_arrives_late() {
    let place = Place::new().await;
    let owner = place.owner("a", 1);
    owner.fence().await.unwrap();
    let sent = place.add(&owner, 3).await;
    owner.reads.store(1, Relaxed); // the first read is stuck on its way
    assert_eq!(ids(owner.fetch(1, None).await.unwrap()), sent[..1]);
    owner.reads.store(0, Relaxed); // and arrives now
    assert!(matches!(owner.fetch(1, None).await.unwrap(), Fenced::Refused));
    owner.reads.store(2, Relaxed);
    assert_eq!(ids(owner.fetch(5, None).await.unwrap()), sent[1..]);
    // The next owner counts from the beginning.
    let next = place.owner("b", 2);
    next.fence().await.unwrap();
    assert_eq!(ids(next.fetch(5, Some(EntryId::default())).await.unwrap()), sent);
}
