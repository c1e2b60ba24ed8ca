//! The behaviour of a lease store, tested in memory and on a real server.

use std::time::Duration;

use squall_coord::{
    HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseEpoch, LeaseHolder, LeaseStore, MemoryLeaseStore, StoreError,
    UnitId,
};
use squall_testkit::redis::RedisServer;

use crate::support::{AdvanceClock, keys, member, redis_lease_store, units};

const TTL: Duration = Duration::from_secs(600);

/// Runs each case against the memory store and against Redis.
macro_rules! on_both_stores {
    ($($case:ident)*) => {
        mod in_memory {
            use super::*;
            $(#[tokio::test] async fn $case() { super::$case(MemoryLeaseStore::new()).await; })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $case() {
                let server = RedisServer::start();
                super::$case(redis_lease_store(&server, stringify!($case)).await).await;
            })*
        }
    };
}

on_both_stores! {
    second_join_only_renews_the_membership
    heartbeat_renews_the_membership_until_it_expires
    expired_member_loses_its_leases
    held_unit_is_not_granted_to_another_member
    each_grant_has_a_higher_epoch
    repeated_acquire_returns_the_same_grants
    release_with_another_holder_or_epoch_changes_nothing
    non_member_cannot_acquire_or_renew
    assignment_from_an_old_snapshot_is_rejected
    leave_releases_all_leases
    member_marked_as_leaving_keeps_its_leases
    change_wakes_a_waiting_client
    members_are_listed_in_join_order
}

async fn second_join_only_renews_the_membership(store: impl AdvanceClock) {
    let first = store.join(&member("a"), TTL).await.unwrap();
    assert_eq!(store.join(&member("a"), TTL).await.unwrap(), first);
    assert_eq!(store.snapshot().await.unwrap().members.len(), 1);
}

async fn heartbeat_renews_the_membership_until_it_expires(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.advance(TTL * 9 / 10);
    assert!(matches!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Alive { .. }));
    store.advance(TTL * 9 / 10);
    assert!(matches!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Alive { .. }));
    store.advance(TTL);
    assert_eq!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Expired);
    assert_eq!(store.snapshot().await.unwrap().members, []);
}

async fn expired_member_loses_its_leases(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(3)).await.unwrap();
    store.join(&member("b"), TTL * 3).await.unwrap();
    store.advance(TTL);
    assert_eq!(store.sweep().await.unwrap(), [member("a")]);
    assert_eq!(store.sweep().await.unwrap(), []);
    assert!(store.snapshot().await.unwrap().leases.is_empty());
    assert_eq!(
        store.acquire(&member("b"), &units(1)).await.unwrap(),
        LeaseAcquireOutcome::Granted(vec![Some(LeaseEpoch(4))])
    );
}

async fn held_unit_is_not_granted_to_another_member(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.join(&member("b"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    let outcome = store.acquire(&member("b"), &units(2)).await.unwrap();
    assert_eq!(outcome, LeaseAcquireOutcome::Granted(vec![None, Some(LeaseEpoch(2))]));
    assert_eq!(
        store.snapshot().await.unwrap().leases[&UnitId::from(0)],
        LeaseHolder { member: member("a"), epoch: LeaseEpoch(1) }
    );
}

async fn each_grant_has_a_higher_epoch(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    for round in 1..=5 {
        let outcome = store.acquire(&member("a"), &units(1)).await.unwrap();
        assert_eq!(outcome, LeaseAcquireOutcome::Granted(vec![Some(LeaseEpoch(round))]));
        let lease = Lease { unit: UnitId::from(0), epoch: LeaseEpoch(round) };
        assert_eq!(store.release(&member("a"), &[lease]).await.unwrap(), 1);
    }
}

/// The cluster client repeats a command whose reply was lost. If the repetition reported the units
/// as held, the member would not use its own leases.
async fn repeated_acquire_returns_the_same_grants(store: impl AdvanceClock) {
    for name in ["a", "b"] {
        store.join(&member(name), TTL).await.unwrap();
    }
    store.acquire(&member("b"), &units(1)).await.unwrap();
    let outcome = store.acquire(&member("a"), &units(3)).await.unwrap();
    assert_eq!(outcome, LeaseAcquireOutcome::Granted(vec![None, Some(LeaseEpoch(2)), Some(LeaseEpoch(3))]));
    let before = store.snapshot().await.unwrap();
    assert_eq!(store.acquire(&member("a"), &units(3)).await.unwrap(), outcome);
    let after = store.snapshot().await.unwrap();
    assert_eq!((after.leases, after.revision), (before.leases, before.revision));
}

async fn release_with_another_holder_or_epoch_changes_nothing(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.join(&member("b"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    let before = store.snapshot().await.unwrap();
    let lease = |epoch| Lease { unit: UnitId::from(0), epoch: LeaseEpoch(epoch) };
    assert_eq!(store.release(&member("b"), &[lease(1)]).await.unwrap(), 0);
    assert_eq!(store.release(&member("a"), &[lease(2)]).await.unwrap(), 0);
    let after = store.snapshot().await.unwrap();
    assert_eq!((before.revision, before.leases), (after.revision, after.leases));
}

async fn non_member_cannot_acquire_or_renew(store: impl AdvanceClock) {
    assert_eq!(store.acquire(&member("x"), &units(1)).await.unwrap(), LeaseAcquireOutcome::NotMember);
    assert_eq!(store.heartbeat(&member("x"), TTL).await.unwrap(), HeartbeatOutcome::Expired);
    store.leave(&member("x")).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().revision.0, 0);
}

async fn assignment_from_an_old_snapshot_is_rejected(store: impl AdvanceClock) {
    let old = store.join(&member("a"), TTL).await.unwrap();
    let new = store.join(&member("b"), TTL).await.unwrap();
    let wanted = [(member("a"), units(2)), (member("b"), vec![])].into();
    assert!(!store.assign(old, &wanted).await.unwrap());
    assert!(store.assign(new, &wanted).await.unwrap());
    assert_eq!(store.snapshot().await.unwrap().assignment, wanted);
}

async fn leave_releases_all_leases(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(5)).await.unwrap();
    store.leave(&member("a")).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.leases.is_empty() && snapshot.members.is_empty() && snapshot.assignment.is_empty());
}

async fn member_marked_as_leaving_keeps_its_leases(store: impl AdvanceClock) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    store.mark_leaving(&member("a")).await.unwrap();
    let revision = store.snapshot().await.unwrap().revision;
    store.mark_leaving(&member("a")).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.members[0].leaving);
    assert_eq!(snapshot.leases.len(), 1);
    assert_eq!(snapshot.revision, revision);
}

async fn change_wakes_a_waiting_client(store: impl AdvanceClock) {
    let seen = store.join(&member("a"), TTL).await.unwrap();
    let waiting = store.clone();
    let waiter = tokio::spawn(async move { waiting.wait_for_change(seen, Duration::from_secs(60)).await });
    store.join(&member("b"), TTL).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), waiter).await.expect("woken, not timed out").unwrap().unwrap();
    // A change that has happened already does not block.
    store.wait_for_change(seen, Duration::from_secs(60)).await.unwrap();
}

async fn members_are_listed_in_join_order(store: impl AdvanceClock) {
    for name in ["z", "a", "m"] {
        store.join(&member(name), TTL).await.unwrap();
    }
    let names: Vec<String> =
        store.snapshot().await.unwrap().members.into_iter().map(|member| member.id.to_string()).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[tokio::test]
async fn wrong_key_type_error_names_the_key() {
    let server = RedisServer::start();
    let client = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let keys = keys("taken");
    let _: () = ::redis::cmd("LPUSH").arg(&*keys.leases).arg("x").query_async(&mut client.connection()).await.unwrap();
    let store = squall_coord::RedisLeaseStore::new(&client, keys);
    let error = store.join(&member("a"), TTL).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::WrongType { key, expected: "hash", found } if key == "held:taken" && found == "list")
    );
    assert!(error.to_string().contains("`held:taken` holds a list"), "{error}");
}

#[tokio::test]
async fn foreign_members_record_error_names_the_key() {
    let server = RedisServer::start();
    let client = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let keys = keys("foreign");
    let _: () =
        ::redis::cmd("SET").arg(&*keys.members).arg("not json").query_async(&mut client.connection()).await.unwrap();
    let store = squall_coord::RedisLeaseStore::new(&client, keys);
    let error = store.join(&member("a"), TTL).await.unwrap_err();
    assert!(matches!(&error, StoreError::WrongType { key, .. } if key == "memb:foreign"), "{error}");
}

#[tokio::test]
async fn acquire_is_paused_while_the_admin_key_exists() {
    let server = RedisServer::start();
    let client = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let store = redis_lease_store(&server, "closed").await;
    let _: () = ::redis::cmd("SET").arg("admin:closed").arg("x").query_async(&mut client.connection()).await.unwrap();
    store.join(&member("a"), TTL).await.unwrap();
    assert_eq!(store.acquire(&member("a"), &units(1)).await.unwrap(), LeaseAcquireOutcome::GrantsPaused);
}

#[tokio::test]
async fn unreachable_server_returns_an_error() {
    let mut server = RedisServer::start();
    let store = redis_lease_store(&server, "unreachable").await;
    server.kill();
    assert!(matches!(store.join(&member("a"), TTL).await, Err(StoreError::Unreachable(_))));
}
