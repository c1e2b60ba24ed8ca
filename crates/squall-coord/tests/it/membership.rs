//! Memberships on one store: which units each member gets, and which events it receives.

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

/// A member that returns leases at once when they are requested, and records its events.
struct TestMember {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    held: Arc<Mutex<BTreeSet<UnitId>>>,
    events: Arc<Mutex<Vec<LeaseEvent>>>,
}

impl TestMember {
    fn start(store: impl LeaseStore, name: &str, count: u32) -> Self {
        let (membership, mut handle) =
            Membership::new(store, MembershipConfig::new(member(name), units(count))).unwrap();
        let (stop, held, events) =
            (CancellationToken::new(), Arc::<Mutex<BTreeSet<UnitId>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(membership.run(stop.clone()));
        let (own_units, log) = (held.clone(), events.clone());
        tasks.spawn(async move {
            while let Some(event) = handle.events.recv().await {
                log.lock().unwrap().push(event.clone());
                match event {
                    LeaseEvent::Granted(lease) => drop(own_units.lock().unwrap().insert(lease.unit)),
                    LeaseEvent::Lost(lease) => drop(own_units.lock().unwrap().remove(&lease.unit)),
                    LeaseEvent::ReturnRequested(lease) => {
                        own_units.lock().unwrap().remove(&lease.unit);
                        handle.release(lease);
                    }
                }
            }
        });
        Self { stop, tasks, held, events }
    }

    fn held_count(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn events(&self) -> Vec<LeaseEvent> {
        std::mem::take(&mut *self.events.lock().unwrap())
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
async fn single_member_acquires_all_units_after_the_join_delay() {
    let store = MemoryLeaseStore::new();
    let member_a = TestMember::start(store, "a", 8);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(member_a.held_count(), 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(member_a.held_count(), 8);
    member_a.leave().await;
}

#[tokio::test(start_paused = true)]
async fn rebalance_sends_no_events_for_units_that_stay() {
    let store = MemoryLeaseStore::new();
    let a = TestMember::start(store.clone(), "a", 8);
    seconds(1).await;
    a.events();
    let b = TestMember::start(store, "b", 8);
    seconds(1).await;
    assert_eq!((a.held_count(), b.held_count()), (4, 4));
    let events = a.events();
    assert_eq!(events.len(), 4, "four requests and nothing else: {events:?}");
    assert!(events.iter().all(|event| matches!(event, LeaseEvent::ReturnRequested(_))));
    a.leave().await;
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn leaving_member_hands_over_within_100ms() {
    let store = MemoryLeaseStore::new();
    let a = TestMember::start(store.clone(), "a", 8);
    let b = TestMember::start(store.clone(), "b", 8);
    seconds(2).await;
    let left_at = Instant::now();
    a.leave().await;
    while b.held_count() < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(left_at.elapsed() < Duration::from_millis(100), "{:?}", left_at.elapsed());
    b.leave().await;
    assert!(store.snapshot().await.unwrap().members.is_empty());
}

/// A worker needs this for its users' resources, which its membership holds too.
#[tokio::test(start_paused = true)]
async fn member_without_leases_keeps_its_membership_until_leave() {
    for membership_lost in [false, true] {
        let store = MemoryLeaseStore::new();
        let (membership, mut handle) =
            Membership::new(store.clone(), MembershipConfig::new(member("a"), units(8))).unwrap();
        let (stop, leave) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(membership.run_until(stop.clone(), leave.clone()));
        tasks.spawn(async move {
            while let Some(event) = handle.events.recv().await {
                if let LeaseEvent::ReturnRequested(lease) = event {
                    handle.release(lease);
                }
            }
        });
        let b = TestMember::start(store.clone(), "b", 8);
        seconds(2).await;
        stop.cancel();
        seconds(60).await;
        let snapshot = store.snapshot().await.unwrap();
        let leaving_member = snapshot.members.iter().find(|it| it.id == member("a")).expect("it has not left");
        assert!(leaving_member.leaving && b.held_count() == 8, "{snapshot:?}");
        if membership_lost {
            // A member that has lost its membership must not join again.
            store.leave(&member("a")).await.unwrap();
        } else {
            leave.cancel();
        }
        while tasks.join_next().await.is_some() {}
        assert_eq!(store.snapshot().await.unwrap().members.len(), 1);
        b.leave().await;
    }
}

#[tokio::test(start_paused = true)]
async fn units_of_a_crashed_member_move_within_5s() {
    let store = MemoryLeaseStore::new();
    let a = TestMember::start(store.clone(), "a", 8);
    let b = TestMember::start(store, "b", 8);
    seconds(2).await;
    let crashed_at = Instant::now();
    a.crash();
    while b.held_count() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(crashed_at.elapsed() < Duration::from_secs(5), "{:?}", crashed_at.elapsed());
    b.leave().await;
}

#[tokio::test(start_paused = true)]
async fn members_beyond_the_unit_count_hold_nothing() {
    let store = MemoryLeaseStore::new();
    let members: Vec<TestMember> = (0..5).map(|n| TestMember::start(store.clone(), &format!("m{n}"), 3)).collect();
    seconds(3).await;
    assert_eq!(members.iter().map(TestMember::held_count).sum::<usize>(), 3);
    assert!(members.iter().all(|member_a| member_a.held_count() <= 1));
}

#[test]
fn ttl_below_three_heartbeats_is_rejected() {
    let config = MembershipConfig { ttl: Duration::from_secs(2), ..MembershipConfig::new(member("a"), units(1)) };
    let expected =
        MembershipConfigError::TtlTooShort { heartbeat_interval: Duration::from_secs(1), ttl: Duration::from_secs(2) };
    assert_eq!(Membership::new(MemoryLeaseStore::new(), config).err(), Some(expected));
}
