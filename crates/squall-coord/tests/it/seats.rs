//! Members with seats on one store: who ends up with what, and what those who keep their units notice.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use squall_coord::{
    LeaseEvent, LeaseStore, Membership, MembershipConfig, MembershipConfigError, MemoryLeaseStore, UnitId,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::support::{member, units};

/// A member that drains at once and writes down what it was told.
struct Node {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    held: Arc<Mutex<BTreeSet<UnitId>>>,
    told: Arc<Mutex<Vec<LeaseEvent>>>,
}

impl Node {
    fn start(store: impl LeaseStore, name: &str, count: u32) -> Self {
        let (seat, mut handle) = Membership::new(store, MembershipConfig::new(member(name), units(count))).unwrap();
        let (stop, held, told) =
            (CancellationToken::new(), Arc::<Mutex<BTreeSet<UnitId>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(seat.run(stop.clone()));
        let (mine, log) = (held.clone(), told.clone());
        tasks.spawn(async move {
            while let Some(notice) = handle.events.recv().await {
                log.lock().unwrap().push(notice.clone());
                match notice {
                    LeaseEvent::Granted(lease) => drop(mine.lock().unwrap().insert(lease.unit)),
                    LeaseEvent::Lost(lease) => drop(mine.lock().unwrap().remove(&lease.unit)),
                    LeaseEvent::Drain(lease) => {
                        mine.lock().unwrap().remove(&lease.unit);
                        handle.release(lease);
                    }
                }
            }
        });
        Self { stop, tasks, held, told }
    }

    fn holds(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn told(&self) -> Vec<LeaseEvent> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    async fn leave(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    fn crash(mut self) {
        self.tasks.abort_all();
    }
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_member_takes_everything_after_the_join_delay() {
    let store = MemoryLeaseStore::new();
    let node = Node::start(store, "a", 8);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(node.holds(), 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.holds(), 8);
    node.leave().await;
}

#[tokio::test(start_paused = true)]
async fn units_that_do_not_move_hear_nothing_of_a_rebalance() {
    let store = MemoryLeaseStore::new();
    let a = Node::start(store.clone(), "a", 8);
    seconds(1).await;
    a.told();
    let b = Node::start(store, "b", 8);
    seconds(1).await;
    assert_eq!((a.holds(), b.holds()), (4, 4));
    let told = a.told();
    assert_eq!(told.len(), 4, "four drains and nothing else: {told:?}");
    assert!(told.iter().all(|notice| matches!(notice, LeaseEvent::Drain(_))));
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_leaving_member_hands_over_at_once() {
    let store = MemoryLeaseStore::new();
    let a = Node::start(store.clone(), "a", 8);
    let b = Node::start(store.clone(), "b", 8);
    seconds(2).await;
    let left = Instant::now();
    a.leave().await;
    while b.holds() < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(left.elapsed() < Duration::from_millis(100), "{:?}", left.elapsed());
    b.leave().await;
    assert!(store.snapshot().await.unwrap().members.is_empty());
}

/// It may hold other things by its membership than units.
#[tokio::test(start_paused = true)]
async fn a_place_is_kept_until_its_holder_leaves() {
    for expires in [false, true] {
        let store = MemoryLeaseStore::new();
        let (seat, mut handle) = Membership::new(store.clone(), MembershipConfig::new(member("a"), units(8))).unwrap();
        let (stop, leave) = (CancellationToken::new(), CancellationToken::new());
        let mut sitting = JoinSet::new();
        sitting.spawn(seat.run_until(stop.clone(), leave.clone()));
        sitting.spawn(async move {
            while let Some(notice) = handle.events.recv().await {
                if let LeaseEvent::Drain(lease) = notice {
                    handle.release(lease);
                }
            }
        });
        let b = Node::start(store.clone(), "b", 8);
        seconds(2).await;
        stop.cancel();
        seconds(60).await;
        let view = store.snapshot().await.unwrap();
        let leaver = view.members.iter().find(|it| it.id == member("a")).expect("it has not left");
        assert!(leaver.leaving && b.holds() == 8, "{view:?}");
        if expires {
            // Whoever has lost its place has none to keep, and takes no new one.
            store.leave(&member("a")).await.unwrap();
        } else {
            leave.cancel();
        }
        while sitting.join_next().await.is_some() {}
        assert_eq!(store.snapshot().await.unwrap().members.len(), 1);
        b.leave().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_member_is_replaced_within_five_seconds() {
    let store = MemoryLeaseStore::new();
    let a = Node::start(store.clone(), "a", 8);
    let b = Node::start(store, "b", 8);
    seconds(2).await;
    let crashed = Instant::now();
    a.crash();
    while b.holds() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(crashed.elapsed() < Duration::from_secs(5), "{:?}", crashed.elapsed());
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn more_members_than_units_leaves_some_with_nothing() {
    let store = MemoryLeaseStore::new();
    let nodes: Vec<Node> = (0..5).map(|n| Node::start(store.clone(), &format!("m{n}"), 3)).collect();
    seconds(3).await;
    assert_eq!(nodes.iter().map(Node::holds).sum::<usize>(), 3);
    assert!(nodes.iter().all(|node| node.holds() <= 1));
}

#[test]
fn a_life_of_less_than_three_beats_is_refused() {
    let config = MembershipConfig { ttl: Duration::from_secs(2), ..MembershipConfig::new(member("a"), units(1)) };
    let expected =
        MembershipConfigError::TtlTooShort { heartbeat_interval: Duration::from_secs(1), ttl: Duration::from_secs(2) };
    assert_eq!(Membership::new(MemoryLeaseStore::new(), config).err(), Some(expected));
}
