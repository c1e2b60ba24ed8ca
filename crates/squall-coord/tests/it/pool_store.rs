//! The behaviour of a pool store, tested in memory and on a real server.

use std::time::{Duration, Instant};

use squall_coord::{
    AcquireError, ItemId, LeaseStore, PoolCounts, PoolHolder, PoolItem, PoolLease, PoolName, PoolReleaseOutcome,
    PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, RedisClient, RedisPoolStore, ResourceHolder, RunEpoch,
    StoreError, TURN_TIMEOUT, add_pool_items, ensure_pool_size,
};
use squall_testkit::redis::RedisServer;

use crate::support::{AdvanceClock, RedisTestStores, TestStores, member, on_both_stores};

const TTL: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(120);
const RUN: RunEpoch = RunEpoch(1);

on_both_stores! {
    held_item_is_not_granted_again
    concurrent_puts_grant_no_item_twice
    ensure_pool_size_adds_only_missing_items
    release_needs_the_holder_and_its_current_grant
    ended_run_cannot_release_and_sweep_frees_its_items
    items_of_an_expired_holder_become_free
    non_member_and_missing_pool_have_different_outcomes
    repeated_request_returns_the_same_lease
    waiters_are_served_in_order
    expired_waiter_does_not_block_the_queue
    notified_waiter_loses_its_turn_after_the_timeout
    released_item_goes_to_a_waiter
    acquire_fails_at_its_deadline
    aborted_acquire_leaves_no_request_in_the_queue
    release_all_frees_items_and_queued_requests
    list_shows_items_with_their_holders
    put_for_an_ended_run_adds_nothing
    number_of_an_item_never_created_is_reused_in_the_next_run
}

fn accounts() -> PoolName {
    PoolName::new("accounts").unwrap()
}

fn items(count: u64) -> Vec<PoolItem> {
    (1..=count).map(|n| PoolItem { id: ItemId::from(n), payload: format!("{{\"n\":{n}}}") }).collect()
}

fn request_by(who: &str) -> PoolRequest {
    PoolRequest { pool: accounts(), holder: member(who), run: RUN, request_id: PoolRequestId::unique() }
}

async fn fill_and_join(stores: &impl TestStores, count: u64, members: &[&str]) {
    for name in members {
        stores.members().join(&member(name), TTL).await.unwrap();
    }
    stores.pools().put(&accounts(), &items(count), None, None).await.unwrap();
}

async fn acquire_now(stores: &impl TestStores, who: &str) -> PoolLease {
    match stores.pools().try_acquire(&request_by(who), Duration::ZERO).await.unwrap() {
        PoolRequestOutcome::Granted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

async fn counts(stores: &impl TestStores) -> (u64, u64, u64, u64) {
    let PoolCounts { total, available, held, waiting, .. } = stores.pools().count_all().await.unwrap().pools.remove(0);
    (total, available, held, waiting)
}

async fn queue(stores: &impl TestStores, who: &str, ahead: u64) -> PoolRequest {
    let request_by = request_by(who);
    match stores.pools().try_acquire(&request_by, LONG).await.unwrap() {
        PoolRequestOutcome::Queued { ahead: found, .. } => assert_eq!(found, ahead),
        other => panic!("{other:?}"),
    }
    request_by
}

async fn is_granted(stores: &impl TestStores, request_by: &PoolRequest) -> bool {
    matches!(stores.pools().try_acquire(request_by, LONG).await.unwrap(), PoolRequestOutcome::Granted(_))
}

async fn held_item_is_not_granted_again(stores: impl TestStores) {
    fill_and_join(&stores, 3, &["a", "b"]).await;
    let leases = [acquire_now(&stores, "a").await, acquire_now(&stores, "b").await, acquire_now(&stores, "a").await];
    let mut ids: Vec<String> = leases.iter().map(|lease| lease.id.to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["1", "2", "3"]);
    assert!(leases.iter().all(|lease| lease.payload == format!("{{\"n\":{}}}", lease.id)));
    assert_eq!(
        stores.pools().try_acquire(&request_by("b"), Duration::ZERO).await.unwrap(),
        PoolRequestOutcome::NoneAvailable
    );
    assert_eq!(counts(&stores).await, (3, 0, 3, 0));
    assert_eq!(stores.pools().release(&leases[0]).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(acquire_now(&stores, "b").await.id, leases[0].id);
}

/// In vikhry, two workers that had both read the old size freed an item that was in use.
async fn concurrent_puts_grant_no_item_twice(stores: impl TestStores) {
    fill_and_join(&stores, 10, &["a", "b"]).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(acquire_now(&stores, "a").await.id);
    }
    // Both workers know 10 items and want 20. The second worker repeats the put after the first has
    // acquired a new item.
    let all = items(20);
    assert_eq!(stores.pools().put(&accounts(), &all, Some(20), None).await.unwrap().len(), 10);
    held.push(acquire_now(&stores, "a").await.id);
    assert_eq!(stores.pools().put(&accounts(), &all, Some(20), None).await.unwrap(), []);
    while let PoolRequestOutcome::Granted(lease) =
        stores.pools().try_acquire(&request_by("b"), Duration::ZERO).await.unwrap()
    {
        assert!(!held.contains(&lease.id), "{} is held twice", lease.id);
        held.push(lease.id);
    }
    assert_eq!((held.len(), counts(&stores).await), (20, (20, 0, 20, 0)));
}

async fn ensure_pool_size_adds_only_missing_items(stores: impl TestStores) {
    let (pools, pool) = (stores.pools(), accounts());
    let make_payload = |id: ItemId| async move { Ok::<_, StoreError>(format!("made {id}")) };
    let named = PoolItem { id: ItemId::new("3").unwrap(), payload: "named".into() };
    pools.put(&pool, &[named], None, None).await.unwrap();
    let ids = |numbers: &[u64]| numbers.iter().copied().map(ItemId::from).collect::<Vec<_>>();
    // Number 3 exists, so the numbering skips it.
    let filled = ensure_pool_size(pools, &pool, 4, make_payload).await.unwrap();
    assert_eq!((filled.existing, filled.created, filled.current), (1, ids(&[2, 4, 5]), 4));
    let second = ensure_pool_size(pools, &pool, 4, make_payload).await.unwrap();
    assert_eq!((second.existing, second.created, second.current), (4, vec![], 4));
    let more = add_pool_items(pools, &pool, 1200, make_payload).await.unwrap();
    assert_eq!((more.existing, more.created.len(), more.current), (4, 1200, 1204));
    // A failing factory adds nothing.
    let fail = |_: ItemId| async { Err::<String, _>(StoreError::Rejected("factory".into())) };
    assert!(ensure_pool_size(pools, &pool, 1300, fail).await.is_err());
    assert_eq!(counts(&stores).await, (1204, 1204, 0, 0));
}

async fn release_needs_the_holder_and_its_current_grant(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a", "b"]).await;
    let first = acquire_now(&stores, "a").await;
    let forged = PoolLease { holder: member("b"), ..first.clone() };
    assert_eq!(stores.pools().release(&forged).await.unwrap(), PoolReleaseOutcome::NotHeld);
    assert_eq!(stores.pools().release(&first).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(stores.pools().release(&first).await.unwrap(), PoolReleaseOutcome::NotHeld);
    let second = acquire_now(&stores, "a").await;
    assert!(second.grant > first.grant);
    assert_eq!(stores.pools().release(&first).await.unwrap(), PoolReleaseOutcome::NotHeld);
    assert_eq!(counts(&stores).await, (1, 0, 1, 0));
}

async fn ended_run_cannot_release_and_sweep_frees_its_items(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a"]).await;
    let old_lease = acquire_now(&stores, "a").await;
    stores.begin_run(RunEpoch(2)).await;
    assert_eq!(stores.pools().release(&old_lease).await.unwrap(), PoolReleaseOutcome::RunEnded(RunEpoch(2)));
    assert_eq!(
        stores.pools().try_acquire(&request_by("a"), LONG).await.unwrap(),
        PoolRequestOutcome::RunEnded(RunEpoch(2))
    );
    assert_eq!(counts(&stores).await, (1, 0, 1, 0));
    assert_eq!(stores.pools().sweep().await.unwrap(), 1);
    assert_eq!(stores.pools().sweep().await.unwrap(), 0);
    let new_request = PoolRequest { run: RunEpoch(2), ..request_by("a") };
    assert!(is_granted(&stores, &new_request).await);
}

async fn items_of_an_expired_holder_become_free(stores: impl TestStores) {
    fill_and_join(&stores, 2, &["a"]).await;
    stores.members().join(&member("b"), TTL * 3).await.unwrap();
    let lost = acquire_now(&stores, "a").await;
    acquire_now(&stores, "b").await;
    stores.members().advance(TTL);
    // A request that finds no free item sweeps first.
    let second = acquire_now(&stores, "b").await;
    assert_eq!(second.id, lost.id);
    assert_eq!(stores.pools().release(&lost).await.unwrap(), PoolReleaseOutcome::NotHeld);
    stores.members().leave(&member("b")).await.unwrap();
    assert_eq!(stores.pools().sweep().await.unwrap(), 2);
    assert_eq!(counts(&stores).await, (2, 2, 0, 0));
}

async fn non_member_and_missing_pool_have_different_outcomes(stores: impl TestStores) {
    stores.members().join(&member("a"), TTL).await.unwrap();
    assert_eq!(stores.pools().try_acquire(&request_by("a"), LONG).await.unwrap(), PoolRequestOutcome::NoPool);
    fill_and_join(&stores, 1, &[]).await;
    assert_eq!(stores.pools().try_acquire(&request_by("x"), LONG).await.unwrap(), PoolRequestOutcome::NotMember);
    assert_eq!(counts(&stores).await, (1, 1, 0, 0));
    let holder = ResourceHolder::new(stores.pools().clone(), member("a"), RUN);
    let error = holder.acquire(&PoolName::new("wallets").unwrap(), LONG).await.unwrap_err();
    assert!(error.to_string().contains("no resource pool `wallets`"), "{error}");
}

async fn repeated_request_returns_the_same_lease(stores: impl TestStores) {
    fill_and_join(&stores, 2, &["a"]).await;
    let request = request_by("a");
    let first = stores.pools().try_acquire(&request, Duration::ZERO).await.unwrap();
    assert_eq!(stores.pools().try_acquire(&request, Duration::ZERO).await.unwrap(), first);
    assert_eq!(counts(&stores).await, (2, 1, 1, 0));
    assert!(stores.pools().cancel_request(&accounts(), &request.request_id).await.unwrap());
    assert!(!stores.pools().cancel_request(&accounts(), &request.request_id).await.unwrap());
    assert_eq!(counts(&stores).await, (2, 2, 0, 0));
}

async fn waiters_are_served_in_order(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a", "b", "c"]).await;
    let lease = acquire_now(&stores, "a").await;
    let (b, c) = (queue(&stores, "b", 0).await, queue(&stores, "c", 1).await);
    stores.pools().release(&lease).await.unwrap();
    assert!(!is_granted(&stores, &c).await, "b came first");
    assert_eq!(
        stores.pools().try_acquire(&request_by("a"), Duration::ZERO).await.unwrap(),
        PoolRequestOutcome::NoneAvailable
    );
    assert!(is_granted(&stores, &b).await);
    assert_eq!(counts(&stores).await, (1, 0, 1, 1));
}

async fn expired_waiter_does_not_block_the_queue(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["b"]).await;
    for name in ["a", "c"] {
        stores.members().join(&member(name), TTL * 3).await.unwrap();
    }
    let lease = acquire_now(&stores, "a").await;
    queue(&stores, "b", 0).await;
    stores.members().advance(TTL);
    let c = request_by("c");
    stores.pools().try_acquire(&c, LONG).await.unwrap();
    stores.pools().release(&lease).await.unwrap();
    assert!(is_granted(&stores, &c).await);
    assert_eq!(counts(&stores).await, (1, 0, 1, 0));
}

async fn notified_waiter_loses_its_turn_after_the_timeout(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a", "b", "c"]).await;
    let lease = acquire_now(&stores, "a").await;
    let (b, c) = (queue(&stores, "b", 0).await, queue(&stores, "c", 1).await);
    stores.pools().release(&lease).await.unwrap();
    assert!(!is_granted(&stores, &c).await);
    // b is alive and was notified, but does not repeat its request.
    stores.members().advance(TURN_TIMEOUT);
    assert!(is_granted(&stores, &c).await);
    assert!(matches!(stores.pools().try_acquire(&b, LONG).await.unwrap(), PoolRequestOutcome::Queued { ahead: 0, .. }));
}

async fn released_item_goes_to_a_waiter(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a", "b"]).await;
    let mut lease = acquire_now(&stores, "a").await;
    let holders = ["a", "b"].map(|who| ResourceHolder::new(stores.pools().clone(), member(who), RUN));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..6 {
        let holder = holders[n % 2].clone();
        waiting.spawn(async move { holder.acquire(&accounts(), LONG).await.unwrap() });
        while counts(&stores).await.3 <= n as u64 {
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..6 {
        assert_eq!(stores.pools().release(&lease).await.unwrap(), PoolReleaseOutcome::Released);
        let next = tokio::time::timeout(Duration::from_secs(60), waiting.join_next()).await.expect("called");
        lease = next.expect("a request waits").unwrap();
    }
    assert_eq!(counts(&stores).await, (1, 0, 1, 0));
}

async fn acquire_fails_at_its_deadline(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a"]).await;
    acquire_now(&stores, "a").await;
    let holder = ResourceHolder::new(stores.pools().clone(), member("a"), RUN);
    let error = holder.acquire(&accounts(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Exhausted { .. }), "{error}");
    assert!(error.to_string().contains("became free within 50ms"), "{error}");
    // Without a wait, the message names no duration.
    let no_wait = holder.acquire(&accounts(), Duration::ZERO).await.unwrap_err().to_string();
    assert!(no_wait.contains("` was free: make the pool larger"), "{no_wait}");
    assert_eq!(counts(&stores).await, (1, 0, 1, 0));
}

async fn aborted_acquire_leaves_no_request_in_the_queue(stores: impl TestStores) {
    fill_and_join(&stores, 1, &["a"]).await;
    let lease = acquire_now(&stores, "a").await;
    let holder = ResourceHolder::new(stores.pools().clone(), member("a"), RUN);
    let waiting = holder.clone();
    let task = tokio::spawn(async move { waiting.acquire(&accounts(), LONG).await });
    while counts(&stores).await.3 == 0 {
        tokio::task::yield_now().await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // The holder's next call cancels the request, and the item is free for others.
    assert_eq!(holder.release(&lease).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(counts(&stores).await, (1, 1, 0, 0));
    holder.acquire(&accounts(), Duration::ZERO).await.unwrap();
}

async fn release_all_frees_items_and_queued_requests(stores: impl TestStores) {
    fill_and_join(&stores, 2, &["a", "b"]).await;
    let spare = PoolName::new("wallets").unwrap();
    stores.pools().put(&spare, &items(1), None, None).await.unwrap();
    acquire_now(&stores, "a").await;
    let other = acquire_now(&stores, "b").await;
    stores.pools().try_acquire(&PoolRequest { pool: spare, ..request_by("a") }, LONG).await.unwrap();
    queue(&stores, "a", 0).await;
    assert_eq!(stores.pools().release_all(&member("a")).await.unwrap(), 2);
    assert_eq!(stores.pools().release_all(&member("a")).await.unwrap(), 0);
    assert_eq!(counts(&stores).await, (2, 1, 1, 0));
    assert_eq!(stores.pools().release(&other).await.unwrap(), PoolReleaseOutcome::Released);
}

async fn list_shows_items_with_their_holders(stores: impl TestStores) {
    fill_and_join(&stores, 5, &["a b"]).await;
    let lease = acquire_now(&stores, "a b").await;
    let mut items_listed = stores.pools().list(&accounts(), 100).await.unwrap();
    items_listed.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(items_listed.len(), 5);
    for item in &items_listed {
        assert_eq!(item.payload, format!("{{\"n\":{}}}", item.id));
        let expected =
            (item.id == lease.id).then(|| PoolHolder { member: member("a b"), run: RUN, grant: lease.grant });
        assert_eq!(item.held, expected);
    }
    assert_eq!(stores.pools().list(&accounts(), 2).await.unwrap().len(), 2);
    assert_eq!(stores.pools().list(&PoolName::new("none").unwrap(), 2).await.unwrap(), []);
}

/// A run that is stopped while it prepares must not add items to the pool of the next run.
async fn put_for_an_ended_run_adds_nothing(stores: impl TestStores) {
    let (pools, pool) = (stores.pools(), accounts());
    let put = |ids: std::ops::Range<usize>, run: Option<u64>| async move {
        pools.put(&accounts(), &items(9)[ids], None, run.map(RunEpoch)).await.unwrap().len()
    };
    stores.begin_run(RunEpoch(7)).await;
    assert!(pools.reset_for_run(&pool, RunEpoch(7)).await.unwrap());
    assert_eq!(put(0..2, Some(7)).await, 2);
    stores.begin_run(RunEpoch(8)).await;
    assert!(pools.reset_for_run(&pool, RunEpoch(8)).await.unwrap());
    assert_eq!(put(2..4, Some(7)).await, 0);
    assert_eq!(counts(&stores).await, (0, 0, 0, 0));
    assert_eq!((put(0..1, Some(8)).await, put(1..3, None).await), (1, 2));
    assert_eq!(counts(&stores).await, (3, 3, 0, 0));
    // It does not create a pool either.
    pools.put(&PoolName::new("wallets").unwrap(), &[], None, Some(RunEpoch(7))).await.unwrap();
    assert_eq!(pools.names().await.unwrap(), [pool]);
}

/// Otherwise two failed sign-ups of two would leave the pool empty in every later run.
async fn number_of_an_item_never_created_is_reused_in_the_next_run(stores: impl TestStores) {
    let (pools, pool) = (stores.pools(), accounts());
    let number = |run| async move { pools.next_item_number(&accounts(), RunEpoch(run), Some(2)).await.unwrap() };
    assert_eq!([number(1).await, number(1).await, number(1).await], [Some(0), Some(1), None]);
    let made = PoolItem { id: ItemId::from(0), payload: "made".into() };
    pools.put(&pool, &[made], None, None).await.unwrap();
    stores.begin_run(RunEpoch(2)).await;
    assert_eq!(number(1).await, None, "its run is over");
    // Each number once per run, for all workers together.
    assert_eq!([number(2).await, number(2).await, number(2).await], [Some(1), None, None]);
}

#[tokio::test]
async fn empty_prefix_gives_the_key_names_of_vikhry() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let members = squall_coord::RedisLeaseStore::new(&client, crate::support::keys(""));
    let pools = squall_coord::RedisPoolStore::new(&client, &members, squall_coord::PoolKeys::new(""));
    pools.put(&accounts(), &items(2), None, None).await.unwrap();
    let read = |command: &str, key: &str| {
        let (mut command, mut commands) = (::redis::cmd(command), client.connection());
        command.arg(key);
        async move { command.query_async::<Vec<String>>(&mut commands).await.unwrap() }
    };
    assert_eq!(read("HGETALL", "resources").await, ["accounts", "2"]);
    let mut free = read("SMEMBERS", "resource:accounts:available").await;
    free.sort();
    assert_eq!(free, ["1", "2"]);
    assert_eq!(read("MGET", "resource:accounts:1").await, ["{\"n\":1}"]);
    assert_eq!(read("MGET", "resource:accounts:pool_loaded_count").await, ["2"]);
}

#[tokio::test]
async fn items_that_vikhrys_orchestrator_created_are_granted_once_each_and_numbers_continue_from_1() {
    let server = RedisServer::start();
    let client = RedisClient::open(&server.url()).await.unwrap();
    let members = squall_coord::RedisLeaseStore::new(&client, crate::support::keys(""));
    let pools = squall_coord::RedisPoolStore::new(&client, &members, squall_coord::PoolKeys::new(""));
    members.join(&member("a"), TTL).await.unwrap();
    let create = async |ids: std::ops::RangeInclusive<u64>, total: u64| {
        // Its orchestrator counts the items first, then writes their payloads; it knows no free set.
        let mut commands = ::redis::pipe();
        commands.cmd("HSET").arg("resources").arg("accounts").arg(total).ignore();
        for id in ids {
            commands.cmd("SET").arg(format!("resource:accounts:{id}")).arg(format!("{{\"n\":{id}}}")).ignore();
        }
        let _: () = commands.query_async(&mut client.connection()).await.unwrap();
    };
    let acquire_all = async || {
        let mut granted = Vec::new();
        while let PoolRequestOutcome::Granted(lease) =
            pools.try_acquire(&request_by("a"), Duration::ZERO).await.unwrap()
        {
            assert_eq!(lease.payload, format!("{{\"n\":{}}}", lease.id));
            granted.push(lease.id.to_string().parse::<u64>().unwrap());
        }
        granted.sort_unstable();
        granted
    };
    create(1..=10, 10).await;
    // What a worker does for a pool whose items are made on demand.
    pools.put(&accounts(), &[], None, Some(RUN)).await.unwrap();
    assert_eq!(acquire_all().await, (1..=10).collect::<Vec<_>>());
    // The payload of item 12 is not written yet.
    create(11..=11, 13).await;
    assert_eq!(acquire_all().await, [11]);
    create(12..=13, 13).await;
    let counted = pools.count(&accounts()).await.unwrap();
    assert_eq!((counted.total, counted.available, counted.held), (13, 2, 11));
    assert_eq!(acquire_all().await, [12, 13]);
    assert_eq!(pools.next_item_number(&accounts(), RUN, None).await.unwrap(), Some(14), "no item 0");
}

#[tokio::test]
async fn wrong_key_type_and_missing_payload_errors_name_the_key() {
    let server = RedisServer::start();
    let stores = RedisTestStores::new(&RedisClient::open(&server.url()).await.unwrap(), "wrong");
    fill_and_join(&stores, 1, &["a"]).await;
    let mut commands = stores.client.connection();
    let _: i64 =
        ::redis::cmd("DEL").arg("squall:{wrong}:resource:accounts:1").query_async(&mut commands).await.unwrap();
    let error = stores.pools().try_acquire(&request_by("a"), Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("resource:accounts:1` holds a nothing"), "{error}");
    let key = "squall:{wrong}:resource:accounts:waiting";
    let _: () = ::redis::cmd("SET").arg(key).arg("x").query_async(&mut commands).await.unwrap();
    let error = stores.pools().sweep().await.unwrap_err();
    assert!(matches!(&error, StoreError::WrongType { key: found, expected: "zset", .. } if found == key), "{error}");
}

/// A foreign value in the entry of one pool breaks that pool only; the error names the key and the
/// field.
#[tokio::test]
async fn foreign_value_in_one_pool_leaves_other_pools_usable() {
    let server = RedisServer::start();
    let stores = RedisTestStores::new(&RedisClient::open(&server.url()).await.unwrap(), "broken");
    fill_and_join(&stores, 1, &["a"]).await;
    let mut commands = stores.client.connection();
    let resources = "squall:{broken}:resources";
    for (pool, value) in [("odd", "x"), ("negative", "-1"), ("typed", "1")] {
        let _: i64 = ::redis::cmd("HSET").arg(resources).arg(pool).arg(value).query_async(&mut commands).await.unwrap();
    }
    let available = "squall:{broken}:resource:typed:available";
    let _: i64 = ::redis::cmd("LPUSH").arg(available).arg("z").query_async(&mut commands).await.unwrap();
    let counted = stores.pools().count_all().await.unwrap();
    assert_eq!(
        counted.pools.iter().map(|pool| (pool.pool.as_str(), pool.total)).collect::<Vec<_>>(),
        [("accounts", 1)]
    );
    let errors: Vec<String> = counted.failed.iter().map(|(pool, error)| format!("{pool}: {error}")).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors[0].contains("resources, field negative` holds a text that is none (`-1`)"), "{errors:?}");
    assert!(errors[1].contains("resources, field odd` holds a text that is none (`x`)"), "{errors:?}");
    assert!(errors[2].contains(available) && errors[2].contains("remove the key"), "{errors:?}");
    // Filling the broken pool fails with its name; the others can be filled, held and swept.
    let make_payload = |_| async { Ok::<_, StoreError>("{}".to_owned()) };
    let odd = PoolName::new("odd").unwrap();
    let error = squall_coord::add_pool_items(stores.pools(), &odd, 1, make_payload).await.unwrap_err();
    assert!(error.to_string().contains("field odd"), "{error}");
    assert_eq!(squall_coord::add_pool_items(stores.pools(), &accounts(), 1, make_payload).await.unwrap().current, 2);
    assert!(matches!(
        stores.pools().try_acquire(&request_by("a"), Duration::ZERO).await.unwrap(),
        PoolRequestOutcome::Granted(_)
    ));
    stores.members().leave(&member("a")).await.unwrap();
    let waiting = "squall:{broken}:resource:aaa:waiting";
    let _: i64 = ::redis::cmd("HSET").arg(resources).arg("aaa").arg(0).query_async(&mut commands).await.unwrap();
    let _: () = ::redis::cmd("SET").arg(waiting).arg("x").query_async(&mut commands).await.unwrap();
    let error = stores.pools().sweep().await.unwrap_err();
    assert!(error.to_string().contains(waiting), "{error}");
    assert_eq!(stores.pools().count(&accounts()).await.unwrap().held, 0, "the other pools are swept");
}

/// Waiters of four workers, each with its own connection, get the only item in the order of their
/// requests. A waiter that gives up does not block the others.
#[tokio::test]
async fn waiters_of_several_workers_are_served_in_order() {
    let server = RedisServer::start();
    let stores = RedisTestStores::new(&RedisClient::open(&server.url()).await.unwrap(), "queue");
    let names = ["a", "b", "c", "d"];
    fill_and_join(&stores, 1, &names).await;
    let mut workers = Vec::new();
    for name in names {
        let own = RedisTestStores::new(&RedisClient::open(&server.url()).await.unwrap(), "queue");
        workers.push(ResourceHolder::new(own.pools().clone(), member(name), RUN));
    }
    for _ in 0..20 {
        let (order, longest) = serve_twelve_waiters(&stores, &workers).await;
        let mut all_waiters = order.clone();
        all_waiters.sort_unstable();
        assert_eq!(all_waiters, (0..12).collect::<Vec<_>>(), "each waiter got the item once");
        // A waiter that stalls for this long loses its turn, which a slow machine can cause.
        if longest < TURN_TIMEOUT {
            assert_eq!(order, all_waiters);
            return;
        }
    }
    panic!("every attempt was slower than the turn timeout");
}

/// The order in which twelve waiters got the item, and the longest time that one took.
async fn serve_twelve_waiters(
    stores: &RedisTestStores,
    workers: &[ResourceHolder<RedisPoolStore>],
) -> (Vec<usize>, Duration) {
    let first = workers[0].acquire(&accounts(), Duration::ZERO).await.unwrap();
    let (granted_tx, mut granted_rx) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (worker, granted_tx) = (workers[n % workers.len()].clone(), granted_tx.clone());
        waiting.spawn(async move {
            let lease = worker.acquire(&accounts(), LONG).await.unwrap();
            granted_tx.send((n, Instant::now())).unwrap();
            assert_eq!(worker.release(&lease).await.unwrap(), PoolReleaseOutcome::Released);
        });
        while counts(stores).await.3 <= n as u64 {
            tokio::task::yield_now().await;
        }
        if n == 5 {
            let error = workers[1].acquire(&accounts(), Duration::from_millis(50)).await.unwrap_err();
            assert!(matches!(error, AcquireError::Exhausted { .. }), "{error}");
        }
    }
    let mut previous = Instant::now();
    workers[0].release(&first).await.unwrap();
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap();
    }
    drop(granted_tx);
    let (mut order, mut longest) = (Vec::new(), Duration::ZERO);
    while let Some((n, at)) = granted_rx.recv().await {
        longest = longest.max(at - previous);
        previous = at;
        order.push(n);
    }
    (order, longest)
}
