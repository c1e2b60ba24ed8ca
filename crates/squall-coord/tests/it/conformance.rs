//! What every store must do, written once and run against memory and a real server.

use std::time::Duration;

use squall_coord::{
    Epoch, HeartbeatOutcome, Lease, LeaseAcquireOutcome, LeaseStore, MemoryLeaseStore, StoreError, UnitId,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Advance, keys, member, redis_space, units};

const TTL: Duration = Duration::from_secs(600);

/// Declares each case once and runs it against both back ends.
macro_rules! both {
    ($($case:ident)*) => {
        mod in_memory {
            use super::*;
            $(#[tokio::test] async fn $case() { super::$case(MemoryLeaseStore::new()).await; })*
        }
        mod on_redis {
            use super::*;
            $(#[tokio::test] async fn $case() {
                let server = RedisServer::start();
                super::$case(redis_space(&server, stringify!($case)).await).await;
            })*
        }
    };
}

both! {
    joining_twice_is_joining_once
    a_beat_renews_and_an_expired_one_is_gone
    an_expired_member_frees_what_it_held
    a_unit_has_one_holder
    every_grant_has_a_higher_epoch
    a_repeated_acquire_is_answered_as_it_was
    a_stale_release_changes_nothing
    strangers_get_nothing
    an_assignment_from_an_old_view_is_refused
    leaving_gives_everything_back
    retiring_is_seen_and_keeps_leases
    a_change_wakes_the_waiting
    members_are_listed_in_joining_order
}

async fn joining_twice_is_joining_once(store: impl Advance) {
    let first = store.join(&member("a"), TTL).await.unwrap();
    assert_eq!(store.join(&member("a"), TTL).await.unwrap(), first);
    assert_eq!(store.snapshot().await.unwrap().members.len(), 1);
}

async fn a_beat_renews_and_an_expired_one_is_gone(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.advance(TTL * 9 / 10);
    assert!(matches!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Alive { .. }));
    store.advance(TTL * 9 / 10);
    assert!(matches!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Alive { .. }));
    store.advance(TTL);
    assert_eq!(store.heartbeat(&member("a"), TTL).await.unwrap(), HeartbeatOutcome::Expired);
    assert_eq!(store.snapshot().await.unwrap().members, []);
}

async fn an_expired_member_frees_what_it_held(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(3)).await.unwrap();
    store.join(&member("b"), TTL * 3).await.unwrap();
    store.advance(TTL);
    assert_eq!(store.sweep().await.unwrap(), [member("a")]);
    assert_eq!(store.sweep().await.unwrap(), []);
    assert!(store.snapshot().await.unwrap().leases.is_empty());
    assert_eq!(
        store.acquire(&member("b"), &units(1)).await.unwrap(),
        LeaseAcquireOutcome::Granted(vec![Some(Epoch(4))])
    );
}

async fn a_unit_has_one_holder(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.join(&member("b"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    let answer = store.acquire(&member("b"), &units(2)).await.unwrap();
    assert_eq!(answer, LeaseAcquireOutcome::Granted(vec![None, Some(Epoch(2))]));
    assert_eq!(store.snapshot().await.unwrap().leases[&UnitId::from(0)], (member("a"), Epoch(1)));
}

async fn every_grant_has_a_higher_epoch(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    for round in 1..=5 {
        let answer = store.acquire(&member("a"), &units(1)).await.unwrap();
        assert_eq!(answer, LeaseAcquireOutcome::Granted(vec![Some(Epoch(round))]));
        let lease = Lease { unit: UnitId::from(0), epoch: Epoch(round) };
        assert_eq!(store.release(&member("a"), &[lease]).await.unwrap(), 1);
    }
}

/// The client of a cluster repeats a step whose answer got lost; told that somebody has the units, the member would not use its own.
async fn a_repeated_acquire_is_answered_as_it_was(store: impl Advance) {
    for name in ["a", "b"] {
        store.join(&member(name), TTL).await.unwrap();
    }
    store.acquire(&member("b"), &units(1)).await.unwrap();
    let answer = store.acquire(&member("a"), &units(3)).await.unwrap();
    assert_eq!(answer, LeaseAcquireOutcome::Granted(vec![None, Some(Epoch(2)), Some(Epoch(3))]));
    let before = store.snapshot().await.unwrap();
    assert_eq!(store.acquire(&member("a"), &units(3)).await.unwrap(), answer);
    let after = store.snapshot().await.unwrap();
    assert_eq!((after.leases, after.revision), (before.leases, before.revision));
}

async fn a_stale_release_changes_nothing(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.join(&member("b"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    let before = store.snapshot().await.unwrap();
    let lease = |epoch| Lease { unit: UnitId::from(0), epoch: Epoch(epoch) };
    assert_eq!(store.release(&member("b"), &[lease(1)]).await.unwrap(), 0);
    assert_eq!(store.release(&member("a"), &[lease(2)]).await.unwrap(), 0);
    let after = store.snapshot().await.unwrap();
    assert_eq!((before.revision, before.leases), (after.revision, after.leases));
}

async fn strangers_get_nothing(store: impl Advance) {
    assert_eq!(store.acquire(&member("x"), &units(1)).await.unwrap(), LeaseAcquireOutcome::NotMember);
    assert_eq!(store.heartbeat(&member("x"), TTL).await.unwrap(), HeartbeatOutcome::Expired);
    store.leave(&member("x")).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().revision.0, 0);
}

async fn an_assignment_from_an_old_view_is_refused(store: impl Advance) {
    let old = store.join(&member("a"), TTL).await.unwrap();
    let new = store.join(&member("b"), TTL).await.unwrap();
    let wanted = [(member("a"), units(2)), (member("b"), vec![])].into();
    assert!(!store.assign(old, &wanted).await.unwrap());
    assert!(store.assign(new, &wanted).await.unwrap());
    assert_eq!(store.snapshot().await.unwrap().assignment, wanted);
}

async fn leaving_gives_everything_back(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(5)).await.unwrap();
    store.leave(&member("a")).await.unwrap();
    let view = store.snapshot().await.unwrap();
    assert!(view.leases.is_empty() && view.members.is_empty() && view.assignment.is_empty());
}

async fn retiring_is_seen_and_keeps_leases(store: impl Advance) {
    store.join(&member("a"), TTL).await.unwrap();
    store.acquire(&member("a"), &units(1)).await.unwrap();
    store.mark_leaving(&member("a")).await.unwrap();
    let revision = store.snapshot().await.unwrap().revision;
    store.mark_leaving(&member("a")).await.unwrap();
    let view = store.snapshot().await.unwrap();
    assert!(view.members[0].leaving);
    assert_eq!(view.leases.len(), 1);
    assert_eq!(view.revision, revision);
}

async fn a_change_wakes_the_waiting(store: impl Advance) {
    let seen = store.join(&member("a"), TTL).await.unwrap();
    let waiting = store.clone();
    let waiter = tokio::spawn(async move { waiting.wait_for_change(seen, Duration::from_secs(60)).await });
    store.join(&member("b"), TTL).await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), waiter).await.expect("woken, not timed out").unwrap().unwrap();
    // What has happened already does not make anybody wait.
    store.wait_for_change(seen, Duration::from_secs(60)).await.unwrap();
}

async fn members_are_listed_in_joining_order(store: impl Advance) {
    for name in ["z", "a", "m"] {
        store.join(&member(name), TTL).await.unwrap();
    }
    let names: Vec<String> =
        store.snapshot().await.unwrap().members.into_iter().map(|member| member.id.to_string()).collect();
    assert_eq!(names, ["z", "a", "m"]);
}

#[tokio::test]
async fn wrong_key_types_are_reported_by_name() {
    let server = RedisServer::start();
    let link = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let keys = keys("taken");
    let _: () = ::redis::cmd("LPUSH").arg(&*keys.leases).arg("x").query_async(&mut link.connection()).await.unwrap();
    let store = squall_coord::RedisLeaseStore::new(&link, keys);
    let error = store.join(&member("a"), TTL).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::WrongType { key, expected: "hash", found } if key == "held:taken" && found == "list")
    );
    assert!(error.to_string().contains("`held:taken` holds a list"), "{error}");
}

#[tokio::test]
async fn a_members_record_of_another_kind_is_an_error_that_names_the_key() {
    let server = RedisServer::start();
    let link = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let keys = keys("foreign");
    let _: () =
        ::redis::cmd("SET").arg(&*keys.members).arg("not json").query_async(&mut link.connection()).await.unwrap();
    let store = squall_coord::RedisLeaseStore::new(&link, keys);
    let error = store.join(&member("a"), TTL).await.unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(cause.contains("memb:foreign"), "{error}: {cause}");
}

#[tokio::test]
async fn nothing_is_granted_while_an_administrator_has_closed_the_space() {
    let server = RedisServer::start();
    let link = squall_coord::RedisClient::open(&server.url()).await.unwrap();
    let store = redis_space(&server, "closed").await;
    let _: () = ::redis::cmd("SET").arg("admin:closed").arg("x").query_async(&mut link.connection()).await.unwrap();
    store.join(&member("a"), TTL).await.unwrap();
    assert_eq!(store.acquire(&member("a"), &units(1)).await.unwrap(), LeaseAcquireOutcome::Paused);
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_not_a_hang() {
    let mut server = RedisServer::start();
    let store = redis_space(&server, "away").await;
    server.kill();
    assert!(matches!(store.join(&member("a"), TTL).await, Err(StoreError::Unreachable(_))));
}
