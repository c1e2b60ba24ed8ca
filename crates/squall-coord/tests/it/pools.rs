//! What pools must do, written once and run against memory and a real server.

use std::time::{Duration, Instant};

use squall_coord::{
    AcquireError, Epoch, ItemId, LeaseStore, MemberId, PoolCounts, PoolItem, PoolLease, PoolName, PoolReleaseOutcome,
    PoolRequest, PoolRequestId, PoolRequestOutcome, PoolStore, RedisClient, RedisPoolStore, ResourceHolder, StoreError,
    TURN_TIMEOUT, add_pool_items, ensure_pool_size,
};
use squall_testkit::redis::RedisServer;

use crate::support::{Advance, Cell, RedisCell, both, member};

const TTL: Duration = Duration::from_secs(600);
const LONG: Duration = Duration::from_secs(120);
const RUN: Epoch = Epoch(1);

both! {
    what_is_borrowed_is_nobody_elses
    the_seeds_pool_sync_race_hands_nothing_out_twice
    ensuring_counts_what_is_there_and_numbers_the_rest
    only_the_holders_current_grant_gives_back
    a_stale_run_changes_nothing_and_its_things_come_back
    a_dead_holders_things_come_back
    strangers_and_unknown_pools_are_told_apart
    asking_twice_with_one_ticket_is_asking_once
    nobody_overtakes
    a_dead_waiter_does_not_block_the_queue
    a_silent_waiter_does_not_block_the_queue
    a_waiter_gets_what_is_given_back
    waiting_ends_at_the_deadline
    an_abandoned_wait_leaves_nothing_behind
    releasing_everything_takes_back_things_and_places
    things_are_listed_with_their_holders
    what_is_put_in_for_a_run_that_is_over_stays_out
    numbers_of_things_that_were_not_made_are_given_out_again_in_the_next_run
}

fn accounts() -> PoolName {
    PoolName::new("accounts").unwrap()
}

fn items(count: u64) -> Vec<PoolItem> {
    (1..=count).map(|n| PoolItem { id: ItemId::from(n), payload: format!("{{\"n\":{n}}}") }).collect()
}

fn ask(who: &str) -> PoolRequest {
    PoolRequest { pool: accounts(), holder: member(who), run: RUN, request_id: PoolRequestId::unique() }
}

async fn cell_with(cell: &impl Cell, count: u64, members: &[&str]) {
    for name in members {
        cell.members().join(&member(name), TTL).await.unwrap();
    }
    cell.pools().put(&accounts(), &items(count), None, None).await.unwrap();
}

async fn take(cell: &impl Cell, who: &str) -> PoolLease {
    match cell.pools().try_acquire(&ask(who), Duration::ZERO).await.unwrap() {
        PoolRequestOutcome::Granted(hold) => hold,
        other => panic!("{other:?}"),
    }
}

async fn counts(cell: &impl Cell) -> (u64, u64, u64, u64) {
    let PoolCounts { total, available, held, waiting, .. } = cell.pools().count_all().await.unwrap().pools.remove(0);
    (total, available, held, waiting)
}

async fn queue(cell: &impl Cell, who: &str, ahead: u64) -> PoolRequest {
    let ask = ask(who);
    match cell.pools().try_acquire(&ask, LONG).await.unwrap() {
        PoolRequestOutcome::Queued { ahead: found, .. } => assert_eq!(found, ahead),
        other => panic!("{other:?}"),
    }
    ask
}

async fn is_granted(cell: &impl Cell, ask: &PoolRequest) -> bool {
    matches!(cell.pools().try_acquire(ask, LONG).await.unwrap(), PoolRequestOutcome::Granted(_))
}

async fn what_is_borrowed_is_nobody_elses(cell: impl Cell) {
    cell_with(&cell, 3, &["a", "b"]).await;
    let holds = [take(&cell, "a").await, take(&cell, "b").await, take(&cell, "a").await];
    let mut ids: Vec<String> = holds.iter().map(|hold| hold.id.to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["1", "2", "3"]);
    assert!(holds.iter().all(|hold| hold.payload == format!("{{\"n\":{}}}", hold.id)));
    assert_eq!(cell.pools().try_acquire(&ask("b"), Duration::ZERO).await.unwrap(), PoolRequestOutcome::NoneAvailable);
    assert_eq!(counts(&cell).await, (3, 0, 3, 0));
    assert_eq!(cell.pools().release(&holds[0]).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(take(&cell, "b").await.id, holds[0].id);
}

/// SEEDS.md §1.3, weakness 5: two workers that had both read the old watermark made an id free that was in use.
async fn the_seeds_pool_sync_race_hands_nothing_out_twice(cell: impl Cell) {
    cell_with(&cell, 10, &["a", "b"]).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(take(&cell, "a").await.id);
    }
    // Both know of 10 and are told that there should be 20; b does it all again after a has borrowed some of the new ones.
    let all = items(20);
    assert_eq!(cell.pools().put(&accounts(), &all, Some(20), None).await.unwrap().len(), 10);
    held.push(take(&cell, "a").await.id);
    assert_eq!(cell.pools().put(&accounts(), &all, Some(20), None).await.unwrap(), []);
    while let PoolRequestOutcome::Granted(hold) = cell.pools().try_acquire(&ask("b"), Duration::ZERO).await.unwrap() {
        assert!(!held.contains(&hold.id), "{} is held twice", hold.id);
        held.push(hold.id);
    }
    assert_eq!((held.len(), counts(&cell).await), (20, (20, 0, 20, 0)));
}

async fn ensuring_counts_what_is_there_and_numbers_the_rest(cell: impl Cell) {
    let (pools, pool) = (cell.pools(), accounts());
    let make = |id: ItemId| async move { Ok::<_, StoreError>(format!("made {id}")) };
    let named = PoolItem { id: ItemId::new("3").unwrap(), payload: "by hand".into() };
    pools.put(&pool, &[named], None, None).await.unwrap();
    let ids = |numbers: &[u64]| numbers.iter().copied().map(ItemId::from).collect::<Vec<_>>();
    // 3 is taken, so the numbering steps over it.
    let stocked = ensure_pool_size(pools, &pool, 4, make).await.unwrap();
    assert_eq!((stocked.existing, stocked.created, stocked.current), (1, ids(&[2, 4, 5]), 4));
    let again = ensure_pool_size(pools, &pool, 4, make).await.unwrap();
    assert_eq!((again.existing, again.created, again.current), (4, vec![], 4));
    let more = add_pool_items(pools, &pool, 1200, make).await.unwrap();
    assert_eq!((more.existing, more.created.len(), more.current), (4, 1200, 1204));
    // A failing factory leaves nothing behind.
    let fail = |_: ItemId| async { Err::<String, _>(StoreError::Rejected("factory".into())) };
    assert!(ensure_pool_size(pools, &pool, 1300, fail).await.is_err());
    assert_eq!(counts(&cell).await, (1204, 1204, 0, 0));
}

async fn only_the_holders_current_grant_gives_back(cell: impl Cell) {
    cell_with(&cell, 1, &["a", "b"]).await;
    let first = take(&cell, "a").await;
    let stolen = PoolLease { holder: member("b"), ..first.clone() };
    assert_eq!(cell.pools().release(&stolen).await.unwrap(), PoolReleaseOutcome::NotHeld);
    assert_eq!(cell.pools().release(&first).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(cell.pools().release(&first).await.unwrap(), PoolReleaseOutcome::NotHeld);
    let second = take(&cell, "a").await;
    assert!(second.grant > first.grant);
    assert_eq!(cell.pools().release(&first).await.unwrap(), PoolReleaseOutcome::NotHeld);
    assert_eq!(counts(&cell).await, (1, 0, 1, 0));
}

async fn a_stale_run_changes_nothing_and_its_things_come_back(cell: impl Cell) {
    cell_with(&cell, 1, &["a"]).await;
    let old = take(&cell, "a").await;
    cell.begin_run(Epoch(2)).await;
    assert_eq!(cell.pools().release(&old).await.unwrap(), PoolReleaseOutcome::RunEnded(Epoch(2)));
    assert_eq!(cell.pools().try_acquire(&ask("a"), LONG).await.unwrap(), PoolRequestOutcome::RunEnded(Epoch(2)));
    assert_eq!(counts(&cell).await, (1, 0, 1, 0));
    assert_eq!(cell.pools().sweep().await.unwrap(), 1);
    assert_eq!(cell.pools().sweep().await.unwrap(), 0);
    let new = PoolRequest { run: Epoch(2), ..ask("a") };
    assert!(is_granted(&cell, &new).await);
}

async fn a_dead_holders_things_come_back(cell: impl Cell) {
    cell_with(&cell, 2, &["a"]).await;
    cell.members().join(&member("b"), TTL * 3).await.unwrap();
    let lost = take(&cell, "a").await;
    take(&cell, "b").await;
    cell.members().advance(TTL);
    // Whoever finds nothing sweeps first.
    let again = take(&cell, "b").await;
    assert_eq!(again.id, lost.id);
    assert_eq!(cell.pools().release(&lost).await.unwrap(), PoolReleaseOutcome::NotHeld);
    cell.members().leave(&member("b")).await.unwrap();
    assert_eq!(cell.pools().sweep().await.unwrap(), 2);
    assert_eq!(counts(&cell).await, (2, 2, 0, 0));
}

async fn strangers_and_unknown_pools_are_told_apart(cell: impl Cell) {
    cell.members().join(&member("a"), TTL).await.unwrap();
    assert_eq!(cell.pools().try_acquire(&ask("a"), LONG).await.unwrap(), PoolRequestOutcome::NoPool);
    cell_with(&cell, 1, &[]).await;
    assert_eq!(cell.pools().try_acquire(&ask("x"), LONG).await.unwrap(), PoolRequestOutcome::NotMember);
    assert_eq!(counts(&cell).await, (1, 1, 0, 0));
    let borrower = ResourceHolder::new(cell.pools().clone(), member("a"), RUN);
    let error = borrower.acquire(&PoolName::new("wallets").unwrap(), LONG).await.unwrap_err();
    assert!(error.to_string().contains("no resource pool `wallets`"), "{error}");
}

async fn asking_twice_with_one_ticket_is_asking_once(cell: impl Cell) {
    cell_with(&cell, 2, &["a"]).await;
    let same = ask("a");
    let first = cell.pools().try_acquire(&same, Duration::ZERO).await.unwrap();
    assert_eq!(cell.pools().try_acquire(&same, Duration::ZERO).await.unwrap(), first);
    assert_eq!(counts(&cell).await, (2, 1, 1, 0));
    assert!(cell.pools().cancel_request(&accounts(), &same.request_id).await.unwrap());
    assert!(!cell.pools().cancel_request(&accounts(), &same.request_id).await.unwrap());
    assert_eq!(counts(&cell).await, (2, 2, 0, 0));
}

async fn nobody_overtakes(cell: impl Cell) {
    cell_with(&cell, 1, &["a", "b", "c"]).await;
    let hold = take(&cell, "a").await;
    let (b, c) = (queue(&cell, "b", 0).await, queue(&cell, "c", 1).await);
    cell.pools().release(&hold).await.unwrap();
    assert!(!is_granted(&cell, &c).await, "b came first");
    assert_eq!(cell.pools().try_acquire(&ask("a"), Duration::ZERO).await.unwrap(), PoolRequestOutcome::NoneAvailable);
    assert!(is_granted(&cell, &b).await);
    assert_eq!(counts(&cell).await, (1, 0, 1, 1));
}

async fn a_dead_waiter_does_not_block_the_queue(cell: impl Cell) {
    cell_with(&cell, 1, &["b"]).await;
    for name in ["a", "c"] {
        cell.members().join(&member(name), TTL * 3).await.unwrap();
    }
    let hold = take(&cell, "a").await;
    queue(&cell, "b", 0).await;
    cell.members().advance(TTL);
    let c = ask("c");
    cell.pools().try_acquire(&c, LONG).await.unwrap();
    cell.pools().release(&hold).await.unwrap();
    assert!(is_granted(&cell, &c).await);
    assert_eq!(counts(&cell).await, (1, 0, 1, 0));
}

async fn a_silent_waiter_does_not_block_the_queue(cell: impl Cell) {
    cell_with(&cell, 1, &["a", "b", "c"]).await;
    let hold = take(&cell, "a").await;
    let (b, c) = (queue(&cell, "b", 0).await, queue(&cell, "c", 1).await);
    cell.pools().release(&hold).await.unwrap();
    assert!(!is_granted(&cell, &c).await);
    // b was called and lives, but does not come.
    cell.members().advance(TURN_TIMEOUT);
    assert!(is_granted(&cell, &c).await);
    assert!(matches!(cell.pools().try_acquire(&b, LONG).await.unwrap(), PoolRequestOutcome::Queued { ahead: 0, .. }));
}

async fn a_waiter_gets_what_is_given_back(cell: impl Cell) {
    cell_with(&cell, 1, &["a", "b"]).await;
    let mut hold = take(&cell, "a").await;
    let borrowers = ["a", "b"].map(|who| ResourceHolder::new(cell.pools().clone(), member(who), RUN));
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..6 {
        let borrower = borrowers[n % 2].clone();
        waiting.spawn(async move { borrower.acquire(&accounts(), LONG).await.unwrap() });
        while counts(&cell).await.3 <= n as u64 {
            tokio::task::yield_now().await;
        }
    }
    for _ in 0..6 {
        assert_eq!(cell.pools().release(&hold).await.unwrap(), PoolReleaseOutcome::Released);
        let next = tokio::time::timeout(Duration::from_secs(60), waiting.join_next()).await.expect("called");
        hold = next.expect("somebody waits").unwrap();
    }
    assert_eq!(counts(&cell).await, (1, 0, 1, 0));
}

async fn waiting_ends_at_the_deadline(cell: impl Cell) {
    cell_with(&cell, 1, &["a"]).await;
    take(&cell, "a").await;
    let borrower = ResourceHolder::new(cell.pools().clone(), member("a"), RUN);
    let error = borrower.acquire(&accounts(), Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, AcquireError::Exhausted { .. }), "{error}");
    assert!(error.to_string().contains("became free within 50ms"), "{error}");
    // Found by a reader: nothing "became free within 0ns".
    let at_once = borrower.acquire(&accounts(), Duration::ZERO).await.unwrap_err().to_string();
    assert!(at_once.contains("` was free: make the pool larger"), "{at_once}");
    assert_eq!(counts(&cell).await, (1, 0, 1, 0));
}

async fn an_abandoned_wait_leaves_nothing_behind(cell: impl Cell) {
    cell_with(&cell, 1, &["a"]).await;
    let hold = take(&cell, "a").await;
    let borrower = ResourceHolder::new(cell.pools().clone(), member("a"), RUN);
    let waiting = borrower.clone();
    let task = tokio::spawn(async move { waiting.acquire(&accounts(), LONG).await });
    while counts(&cell).await.3 == 0 {
        tokio::task::yield_now().await;
    }
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    // Its next step tells the store, and the thing goes to whoever asks.
    assert_eq!(borrower.release(&hold).await.unwrap(), PoolReleaseOutcome::Released);
    assert_eq!(counts(&cell).await, (1, 1, 0, 0));
    borrower.acquire(&accounts(), Duration::ZERO).await.unwrap();
}

async fn releasing_everything_takes_back_things_and_places(cell: impl Cell) {
    cell_with(&cell, 2, &["a", "b"]).await;
    let spare = PoolName::new("wallets").unwrap();
    cell.pools().put(&spare, &items(1), None, None).await.unwrap();
    take(&cell, "a").await;
    let other = take(&cell, "b").await;
    cell.pools().try_acquire(&PoolRequest { pool: spare, ..ask("a") }, LONG).await.unwrap();
    queue(&cell, "a", 0).await;
    assert_eq!(cell.pools().release_all(&member("a")).await.unwrap(), 2);
    assert_eq!(cell.pools().release_all(&member("a")).await.unwrap(), 0);
    assert_eq!(counts(&cell).await, (2, 1, 1, 0));
    assert_eq!(cell.pools().release(&other).await.unwrap(), PoolReleaseOutcome::Released);
}

async fn things_are_listed_with_their_holders(cell: impl Cell) {
    cell_with(&cell, 5, &["a b"]).await;
    let hold = take(&cell, "a b").await;
    let mut listed = cell.pools().list(&accounts(), 100).await.unwrap();
    listed.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(listed.len(), 5);
    for one in &listed {
        assert_eq!(one.payload, format!("{{\"n\":{}}}", one.id));
        let expected = (one.id == hold.id).then(|| (MemberId::new("a b"), RUN, hold.grant));
        assert_eq!(one.held, expected);
    }
    assert_eq!(cell.pools().list(&accounts(), 2).await.unwrap().len(), 2);
    assert_eq!(cell.pools().list(&PoolName::new("none").unwrap(), 2).await.unwrap(), []);
}

/// A run that was stopped while it was prepared went on filling the pool that the next one had emptied.
async fn what_is_put_in_for_a_run_that_is_over_stays_out(cell: impl Cell) {
    let (pools, pool) = (cell.pools(), accounts());
    let put = |ids: std::ops::Range<usize>, run: Option<u64>| async move {
        pools.put(&accounts(), &items(9)[ids], None, run.map(Epoch)).await.unwrap().len()
    };
    cell.begin_run(Epoch(7)).await;
    assert!(pools.reset_for_run(&pool, Epoch(7)).await.unwrap());
    assert_eq!(put(0..2, Some(7)).await, 2);
    cell.begin_run(Epoch(8)).await;
    assert!(pools.reset_for_run(&pool, Epoch(8)).await.unwrap());
    assert_eq!(put(2..4, Some(7)).await, 0);
    assert_eq!(counts(&cell).await, (0, 0, 0, 0));
    assert_eq!((put(0..1, Some(8)).await, put(1..3, None).await), (1, 2));
    assert_eq!(counts(&cell).await, (3, 3, 0, 0));
    // Nor does it make a pool known.
    pools.put(&PoolName::new("wallets").unwrap(), &[], None, Some(Epoch(7))).await.unwrap();
    assert_eq!(pools.names().await.unwrap(), [pool]);
}

/// Two failed sign-ups of two left the pool empty in every later run.
async fn numbers_of_things_that_were_not_made_are_given_out_again_in_the_next_run(cell: impl Cell) {
    let (pools, pool) = (cell.pools(), accounts());
    let number = |run| async move { pools.next_item_number(&accounts(), Epoch(run), Some(2)).await.unwrap() };
    assert_eq!([number(1).await, number(1).await, number(1).await], [Some(0), Some(1), None]);
    let made = PoolItem { id: ItemId::from(0), payload: "made".into() };
    pools.put(&pool, &[made], None, None).await.unwrap();
    cell.begin_run(Epoch(2)).await;
    assert_eq!(number(1).await, None, "its run is over");
    // Whichever worker asks: once for a run.
    assert_eq!([number(2).await, number(2).await, number(2).await], [Some(1), None, None]);
}

#[tokio::test]
async fn the_empty_prefix_has_the_seeds_names() {
    let server = RedisServer::start();
    let link = RedisClient::open(&server.url()).await.unwrap();
    let members = squall_coord::RedisLeaseStore::new(&link, crate::support::keys(""));
    let pools = squall_coord::RedisPoolStore::new(&link, &members, squall_coord::PoolKeys::new(""));
    pools.put(&accounts(), &items(2), None, None).await.unwrap();
    let read = |command: &str, key: &str| {
        let (mut command, mut commands) = (::redis::cmd(command), link.connection());
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
async fn wrong_key_types_and_lost_payloads_are_reported_by_name() {
    let server = RedisServer::start();
    let cell = RedisCell::new(&RedisClient::open(&server.url()).await.unwrap(), "wrong");
    cell_with(&cell, 1, &["a"]).await;
    let mut commands = cell.link.connection();
    let _: i64 =
        ::redis::cmd("DEL").arg("squall:{wrong}:resource:accounts:1").query_async(&mut commands).await.unwrap();
    let error = cell.pools().try_acquire(&ask("a"), Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("resource:accounts:1` holds a nothing"), "{error}");
    let key = "squall:{wrong}:resource:accounts:waiting";
    let _: () = ::redis::cmd("SET").arg(key).arg("x").query_async(&mut commands).await.unwrap();
    let error = cell.pools().sweep().await.unwrap_err();
    assert!(matches!(&error, StoreError::WrongType { key: found, expected: "zset", .. } if found == key), "{error}");
}

/// Somebody else's value in the entry of one pool spoils that pool only; the error names the key, and the field.
#[tokio::test]
async fn a_foreign_value_in_one_pool_spoils_no_other() {
    let server = RedisServer::start();
    let cell = RedisCell::new(&RedisClient::open(&server.url()).await.unwrap(), "spoilt");
    cell_with(&cell, 1, &["a"]).await;
    let mut commands = cell.link.connection();
    let resources = "squall:{spoilt}:resources";
    for (pool, value) in [("odd", "x"), ("negative", "-1"), ("typed", "1")] {
        let _: i64 = ::redis::cmd("HSET").arg(resources).arg(pool).arg(value).query_async(&mut commands).await.unwrap();
    }
    let available = "squall:{spoilt}:resource:typed:available";
    let _: i64 = ::redis::cmd("LPUSH").arg(available).arg("z").query_async(&mut commands).await.unwrap();
    let counted = cell.pools().count_all().await.unwrap();
    assert_eq!(
        counted.pools.iter().map(|pool| (pool.pool.as_str(), pool.total)).collect::<Vec<_>>(),
        [("accounts", 1)]
    );
    let said: Vec<String> = counted.failed.iter().map(|(pool, error)| format!("{pool}: {error}")).collect();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("resources, field negative` holds a text that is none (`-1`)"), "{said:?}");
    assert!(said[1].contains("resources, field odd` holds a text that is none (`x`)"), "{said:?}");
    assert!(said[2].contains(available) && said[2].contains("remove the key"), "{said:?}");
    // Filling the spoilt one is refused by name; the others are filled, held and swept as ever.
    let make = |_| async { Ok::<_, StoreError>("{}".to_owned()) };
    let odd = PoolName::new("odd").unwrap();
    let error = squall_coord::add_pool_items(cell.pools(), &odd, 1, make).await.unwrap_err();
    assert!(error.to_string().contains("field odd"), "{error}");
    assert_eq!(squall_coord::add_pool_items(cell.pools(), &accounts(), 1, make).await.unwrap().current, 2);
    assert!(matches!(
        cell.pools().try_acquire(&ask("a"), Duration::ZERO).await.unwrap(),
        PoolRequestOutcome::Granted(_)
    ));
    cell.members().leave(&member("a")).await.unwrap();
    let waiting = "squall:{spoilt}:resource:aaa:waiting";
    let _: i64 = ::redis::cmd("HSET").arg(resources).arg("aaa").arg(0).query_async(&mut commands).await.unwrap();
    let _: () = ::redis::cmd("SET").arg(waiting).arg("x").query_async(&mut commands).await.unwrap();
    let error = cell.pools().sweep().await.unwrap_err();
    assert!(error.to_string().contains(waiting), "{error}");
    assert_eq!(cell.pools().count(&accounts()).await.unwrap().held, 0, "swept all the same");
}

/// Waiters of four workers, each with a connection of its own, get the one thing there is in the order in which they came. Somebody who gave
/// up meanwhile holds nobody up.
#[tokio::test]
async fn the_queue_is_one_over_all_workers() {
    let server = RedisServer::start();
    let cell = RedisCell::new(&RedisClient::open(&server.url()).await.unwrap(), "queue");
    let names = ["a", "b", "c", "d"];
    cell_with(&cell, 1, &names).await;
    let mut workers = Vec::new();
    for name in names {
        let own = RedisCell::new(&RedisClient::open(&server.url()).await.unwrap(), "queue");
        workers.push(ResourceHolder::new(own.pools().clone(), member(name), RUN));
    }
    for _ in 0..20 {
        let (order, longest) = one_after_the_other(&cell, &workers).await;
        let mut everybody = order.clone();
        everybody.sort_unstable();
        assert_eq!(everybody, (0..12).collect::<Vec<_>>(), "each of them had it once");
        // Who is called and says nothing for this long loses its turn; a machine that stalls may do that to anybody.
        if longest < TURN_TIMEOUT {
            assert_eq!(order, everybody);
            return;
        }
    }
    panic!("this machine stalls for seconds all the time");
}

/// In which order twelve waiters had it, and how long the longest of them took to come for it.
async fn one_after_the_other(cell: &RedisCell, workers: &[ResourceHolder<RedisPoolStore>]) -> (Vec<usize>, Duration) {
    let first = workers[0].acquire(&accounts(), Duration::ZERO).await.unwrap();
    let (told, mut came) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (worker, told) = (workers[n % workers.len()].clone(), told.clone());
        waiting.spawn(async move {
            let hold = worker.acquire(&accounts(), LONG).await.unwrap();
            told.send((n, Instant::now())).unwrap();
            assert_eq!(worker.release(&hold).await.unwrap(), PoolReleaseOutcome::Released);
        });
        while counts(cell).await.3 <= n as u64 {
            tokio::task::yield_now().await;
        }
        if n == 5 {
            let tired = workers[1].acquire(&accounts(), Duration::from_millis(50)).await.unwrap_err();
            assert!(matches!(tired, AcquireError::Exhausted { .. }), "{tired}");
        }
    }
    let mut before = Instant::now();
    workers[0].release(&first).await.unwrap();
    while let Some(ended) = waiting.join_next().await {
        ended.unwrap();
    }
    drop(told);
    let (mut order, mut longest) = (Vec::new(), Duration::ZERO);
    while let Some((n, at)) = came.recv().await {
        longest = longest.max(at - before);
        before = at;
        order.push(n);
    }
    (order, longest)
}
